package respproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeServer answers each command with how many it has performed on the
// connection, and sends performed their names. It ends with the test.
func fakeServer(t *testing.T) (addr string, performed <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	names := make(chan string, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for n := 1; ; n++ {
					args, _, err := readCommand(in)
					if err != nil {
						return
					}
					names <- args[0]
					fmt.Fprintf(conn, ":%d\r\n", n)
				}
			}()
		}
	}()
	return l.Addr().String(), names
}

func start(t *testing.T, upstream string) *Proxy {
	t.Helper()
	p, err := Start(upstream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// pipeline sends commands without arguments in one write.
func pipeline(t *testing.T, conn net.Conn, names ...string) {
	t.Helper()
	var out strings.Builder
	for _, name := range names {
		fmt.Fprintf(&out, "*1\r\n$%d\r\n%s\r\n", len(name), name)
	}
	if _, err := io.WriteString(conn, out.String()); err != nil {
		t.Fatal(err)
	}
}

func TestRulesDecideWhatBecomesOfACommand(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		action    Action
		replies   string   // to a, b, c, d and e, with the action at c
		open      bool     // whether the connection survives
		performed []string // by the server
	}{
		{name: "pass", action: Pass, replies: ":1\r\n:2\r\n:3\r\n:4\r\n:5\r\n", open: true, performed: []string{"a", "b", "c", "d", "e"}},
		{name: "cut before", action: CutBefore, replies: ":1\r\n:2\r\n", performed: []string{"a", "b"}},
		{name: "cut after", action: CutAfter, replies: ":1\r\n:2\r\n", performed: []string{"a", "b", "c"}},
		{name: "freeze", action: Freeze, replies: ":1\r\n:2\r\n", open: true, performed: []string{"a", "b"}},
		{name: "mute", action: Mute, replies: ":1\r\n:2\r\n", open: true, performed: []string{"a", "b", "c", "d", "e"}},
		{name: "answer", action: Answer("-NO\r\n"), replies: ":1\r\n:2\r\n-NO\r\n:3\r\n:4\r\n", open: true, performed: []string{"a", "b", "d", "e"}},
		{name: "replace", action: Replace("-NO\r\n"), replies: ":1\r\n:2\r\n-NO\r\n:4\r\n:5\r\n", open: true, performed: []string{"a", "b", "c", "d", "e"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			addr, performed := fakeServer(t)
			p := start(t, addr)
			p.SetRule(At("C", 1, tc.action))
			conn := dial(t, p)
			pipeline(t, conn, "a", "b", "c", "d", "e")

			got := make([]byte, len(tc.replies))
			if _, err := io.ReadFull(conn, got); err != nil {
				t.Fatalf("replies end after %q: %v", got, err)
			}
			if string(got) != tc.replies {
				t.Errorf("replies = %q, want %q", got, tc.replies)
			}
			var names []string
			for range tc.performed {
				names = append(names, <-performed)
			}
			if diff := cmp.Diff(tc.performed, names); diff != "" {
				t.Errorf("performed (-want +got):\n%s", diff)
			}
			if !tc.open {
				if n, err := conn.Read(got); n != 0 || !errors.Is(err, io.EOF) {
					t.Errorf("read after the last reply = %d bytes, %v, want EOF", n, err)
				}
			}

			// What was held back does not come later either.
			_ = conn.Close()
			p.Close()
			select {
			case name := <-performed:
				t.Errorf("the server also performed %q", name)
			default:
			}
			for _, name := range []string{"A", "B", "C", "D", "E"} {
				want := strings.Count(strings.ToUpper(strings.Join(tc.performed, "")), name)
				if got := p.Passed(name); got != want {
					t.Errorf("Passed(%q) = %d, want %d", name, got, want)
				}
			}
		})
	}
}

func TestRulesCountFromWhenTheyWereSet(t *testing.T) {
	t.Parallel()
	addr, _ := fakeServer(t)
	p := start(t, addr)
	conn := dial(t, p)
	in := bufio.NewReader(conn)
	ask := func() string {
		t.Helper()
		pipeline(t, conn, "x")
		reply, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(reply)
	}
	got := []string{ask()}
	p.SetRule(At("X", 2, Answer("+second\r\n")))
	got = append(got, ask(), ask(), ask())
	p.SetRule(Each("X", Answer("+each\r\n")))
	got = append(got, ask(), ask())
	p.SetRule(Always(Answer("+always\r\n")))
	got = append(got, ask())
	p.SetRule(nil)
	got = append(got, ask())
	want := []string{":1", ":2", "+second", ":3", "+each", "+each", "+always", ":4"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("replies (-want +got):\n%s", diff)
	}
}

func TestDownRefusesAndUpAcceptsOnTheSameAddress(t *testing.T) {
	t.Parallel()
	addr, _ := fakeServer(t)
	p := start(t, addr)
	before := dial(t, p)
	old := p.Addr()
	p.Down()
	if _, err := before.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives Down")
	}
	if conn, err := net.Dial("tcp", p.Addr()); err == nil {
		_ = conn.Close()
		t.Error("a connection was accepted while down")
	}
	if err := p.Up(); err != nil {
		t.Fatal(err)
	}
	if p.Addr() != old {
		t.Errorf("address = %s after Up, want %s", p.Addr(), old)
	}
	conn := dial(t, p)
	pipeline(t, conn, "x")
	if reply, err := bufio.NewReader(conn).ReadString('\n'); err != nil || reply != ":1\r\n" {
		t.Errorf("reply = %q, %v", reply, err)
	}
}

func TestRepliesOfAnyTypeAreReadWhole(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"+OK\r\n",
		"-ERR no\r\n",
		":-12\r\n",
		"$5\r\na\r\nb\x00\r\n",
		"$0\r\n\r\n",
		"$-1\r\n",
		"*-1\r\n",
		"_\r\n",
		"#t\r\n",
		",1.5\r\n",
		"(123456789012345678901234567890\r\n",
		"!9\r\nERR wrong\r\n",
		"=6\r\ntxt:ab\r\n",
		"*3\r\n:1\r\n*1\r\n+x\r\n$-1\r\n",
		"%1\r\n+k\r\n*2\r\n:1\r\n:2\r\n",
		"~1\r\n:1\r\n",
		"|1\r\n+ttl\r\n:3\r\n:7\r\n",
		">2\r\n+invalidate\r\n*1\r\n+k\r\n+OK\r\n",
	} {
		in := bufio.NewReader(strings.NewReader(reply + "+next\r\n"))
		got, err := readReply(in)
		if err != nil || string(got) != reply {
			t.Errorf("readReply(%q) = %q, %v", reply, got, err)
		}
	}
}

func TestWhatIsNotRESPIsAnError(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"HTTP/1.1 400\r\n", "\r\n", "+\n", "$x\r\n", "*x\r\n", ":1"} {
		if got, err := readReply(bufio.NewReader(strings.NewReader(reply))); err == nil {
			t.Errorf("readReply(%q) = %q, want an error", reply, got)
		}
	}
	for _, command := range []string{"PING\r\n", "*0\r\n", "*1\r\n+PING\r\n", "*1\r\n$-1\r\n", "*2\r\n$1\r\na\r\n"} {
		if args, _, err := readCommand(bufio.NewReader(strings.NewReader(command))); err == nil {
			t.Errorf("readCommand(%q) = %q, want an error", command, args)
		}
	}
}
