// Package respproxy is a proxy in front of a Redis or Valkey server that makes
// connections fail at chosen commands, so that tests can see what a client makes
// of it:
//
//	p, err := respproxy.Start("127.0.0.1:6379")
//	...
//	p.SetRule(respproxy.At("INCRBY", 41, respproxy.CutAfter))
//
// Whatever a rule does to a command, the replies to the commands before it reach
// the client first.
package respproxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
)

// Action is what the proxy does with a command. The zero value is [Pass].
type Action struct {
	kind actionKind
	raw  string
}

type actionKind uint8

const (
	pass actionKind = iota
	cutBefore
	cutAfter
	freeze
	mute
	answer
	replace
)

var (
	// Pass lets the command and its reply through.
	Pass = Action{kind: pass}
	// CutBefore ends the connection. The server does not get the command.
	CutBefore = Action{kind: cutBefore}
	// CutAfter ends the connection once the server has performed the command. The
	// client does not get the reply, nor the server any later command.
	CutAfter = Action{kind: cutAfter}
	// Freeze leaves the connection open, but from this command on the server gets
	// no commands and the client gets no replies.
	Freeze = Action{kind: freeze}
	// Mute leaves the connection open and the server performs this command and the
	// later ones, but the client gets no replies.
	Mute = Action{kind: mute}
)

// Answer replies with raw, which is sent as it is. The server does not get the
// command.
func Answer(raw string) Action { return Action{kind: answer, raw: raw} }

// Replace has the server perform the command, and replies with raw all the same.
func Replace(raw string) Action { return Action{kind: replace, raw: raw} }

// Request is a command that a client has sent.
type Request struct {
	// Args are the words of the command, of which the first is in upper case.
	Args []string
	// N counts the commands of this name since the rule was set, from 1.
	N int
}

// Rule chooses what becomes of a command. It is called for one command at a time.
type Rule func(Request) Action

// At is the rule that does a with the n-th command of a name, in upper case, and
// lets all others pass.
func At(name string, n int, a Action) Rule {
	return func(r Request) Action {
		if r.Args[0] == name && r.N == n {
			return a
		}
		return Pass
	}
}

// Each is the rule that does a with each command of a name, in upper case.
func Each(name string, a Action) Rule {
	return func(r Request) Action {
		if r.Args[0] == name {
			return a
		}
		return Pass
	}
}

// Always is the rule that does a with every command, those with which a client
// opens a connection included.
func Always(a Action) Rule { return func(Request) Action { return a } }

// Proxy passes commands to one server. It is safe for concurrent use.
type Proxy struct {
	upstream string
	addr     string

	mu       sync.Mutex
	listener net.Listener // nil while down
	rule     Rule
	seen     map[string]int // commands by name, since the rule was set
	passed   map[string]int // commands by name that the server got
	conns    map[net.Conn]bool
	wg       sync.WaitGroup
}

// Start starts a proxy on a free port of the loopback interface.
func Start(upstream string) (*Proxy, error) {
	p := &Proxy{
		upstream: upstream,
		addr:     "127.0.0.1:0",
		seen:     make(map[string]int),
		passed:   make(map[string]int),
		conns:    make(map[net.Conn]bool),
	}
	if err := p.Up(); err != nil {
		return nil, err
	}
	return p, nil
}

// Addr returns the address of the proxy.
func (p *Proxy) Addr() string { return p.addr }

// SetRule replaces the rule for the commands that come in from now on. Nil lets
// all of them pass. A connection that was muted or frozen stays so.
func (p *Proxy) SetRule(rule Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
	clear(p.seen)
}

// Passed returns how many commands of a name, in upper case, the server has got.
func (p *Proxy) Passed(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed[name]
}

// CutAll ends all connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAll()
}

func (p *Proxy) cutAll() {
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// Down ends all connections and makes the proxy refuse new ones.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.cutAll()
}

// Up makes a proxy that is down accept connections again, on the same address.
func (p *Proxy) Up() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.listener = l
	p.addr = l.Addr().String()
	p.wg.Go(func() { p.accept(l) })
	return nil
}

// Close stops the proxy and waits until all its goroutines have ended.
func (p *Proxy) Close() {
	p.Down()
	p.wg.Wait()
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.add(l, client, server) {
			_, _ = client.Close(), server.Close()
			return
		}
		lk := &link{
			proxy:  p,
			client: client,
			server: server,
			queue:  make(chan Action, 1024),
		}
		p.wg.Go(lk.passCommands)
		p.wg.Go(lk.passReplies)
	}
}

// add registers a pair of connections, unless the listener that it came from is
// closed by now.
func (p *Proxy) add(l net.Listener, client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != l {
		return false
	}
	p.conns[client], p.conns[server] = true, true
	return true
}

func (p *Proxy) remove(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// decide applies the rule to a command.
func (p *Proxy) decide(args []string) Action {
	p.mu.Lock()
	defer p.mu.Unlock()
	args[0] = strings.ToUpper(args[0])
	name := args[0]
	p.seen[name]++
	var a Action
	if p.rule != nil {
		a = p.rule(Request{Args: args, N: p.seen[name]})
	}
	if a.reachesServer() {
		p.passed[name]++
	}
	return a
}

func (a Action) reachesServer() bool {
	return a.kind == pass || a.kind == cutAfter || a.kind == mute || a.kind == replace
}

// link is a client's connection and the server's that belongs to it.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	queue          chan Action // what was decided about each command, in order
}

// passCommands passes commands on until one ends the connection.
func (l *link) passCommands() {
	defer l.proxy.remove(l.client)
	defer close(l.queue)
	in, out := bufio.NewReader(l.client), bufio.NewWriter(l.server)
	for {
		args, raw, err := readCommand(in)
		if err != nil {
			return
		}
		a := l.proxy.decide(args)
		if a.reachesServer() {
			_, _ = out.Write(raw)
		}
		if in.Buffered() == 0 || a.kind != pass {
			if out.Flush() != nil {
				return
			}
		}
		l.queue <- a
		switch a.kind {
		case cutBefore, cutAfter, freeze:
			// What the client still sends must be read: a connection that is closed
			// over unread data takes the last replies with it.
			_, _ = io.Copy(io.Discard, in)
			return
		}
	}
}

// passReplies answers the commands in their order.
func (l *link) passReplies() {
	defer l.proxy.remove(l.server)
	// passCommands blocks on the queue if nobody reads it.
	defer func() {
		for range l.queue {
		}
	}()
	in, out := bufio.NewReader(l.server), bufio.NewWriter(l.client)
	muted := false
	for a := range l.queue {
		reply := []byte(a.raw)
		if a.reachesServer() {
			got, err := readReply(in)
			if err != nil {
				_ = l.client.Close()
				return
			}
			if a.kind == pass {
				reply = got
			}
		}
		switch a.kind {
		case cutBefore, cutAfter:
			_ = out.Flush()
			_ = l.client.(*net.TCPConn).CloseWrite()
			return
		case freeze, mute:
			_ = out.Flush()
			muted = true
		}
		if muted {
			continue
		}
		_, _ = out.Write(reply)
		if len(l.queue) == 0 && out.Flush() != nil {
			_ = l.client.Close()
			return
		}
	}
}
