package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valkey-io/valkey-go"

	"github.com/fleetlimit/fleetlimit/internal/respproxy"
	"github.com/fleetlimit/fleetlimit/limiter"
)

// variant is an adapter whose client has options that decide what it does about a
// failure.
type variant struct {
	adapter
	server server
	// tells says that the client tells which replies it got before a connection
	// failed.
	tells bool
	// panics says that the client reads replies on a goroutine of its own, where
	// some malformed ones make it panic.
	panics bool
}

var variants = []variant{
	redisVariant("default client", func(addr string) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: addr})
	}),
	redisVariant("ten retries", func(addr string) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 10, ContextTimeoutEnabled: true})
	}),
	redisVariant("short timeouts", func(addr string) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: 400 * time.Millisecond})
	}),
	redisVariant("ring", func(addr string) redis.UniversalClient {
		return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"shard": addr}})
	}),
	valkeyVariant("default client", valkey.ClientOption{}),
	valkeyVariant("always pipelining", valkey.ClientOption{AlwaysPipelining: true}),
	valkeyVariant("never pipelining", valkey.ClientOption{DisableAutoPipelining: true}),
	valkeyVariant("RESP2", valkey.ClientOption{AlwaysRESP2: true, DisableCache: true}),
}

func redisVariant(name string, connect func(addr string) redis.UniversalClient) variant {
	open := func(tb testing.TB, addr string) limiter.Store { return newRedisStore(tb, connect(addr)) }
	return variant{
		adapter: adapter{name: "redisstore, " + name, open: open},
		server:  servers[0],
		tells:   true,
		panics:  name == "ring",
	}
}

func valkeyVariant(name string, opt valkey.ClientOption) variant {
	// A ping in the wrong moment would have a connection read in the background.
	opt.Dialer.KeepAlive = time.Hour
	open := func(tb testing.TB, addr string) limiter.Store {
		opt := opt
		opt.InitAddress = []string{addr}
		return newValkeyStore(tb, opt)
	}
	return variant{
		adapter: adapter{name: "valkeystore, " + name, open: open},
		server:  servers[1],
		tells:   opt.AlwaysPipelining,
		panics:  opt.AlwaysPipelining,
	}
}

// numAdds is how many adds the batches of these tests have.
const numAdds = 100

// addBatch returns a batch that adds i+1 to counter i.
func addBatch(tb testing.TB) *limiter.Batch {
	b := newBatch(tb)
	for i := range numAdds {
		b.Adds = append(b.Adds, limiter.Add{Counter: limiter.Counter{Key: fmt.Sprint(i), Epoch: 7}, Delta: int64(i + 1)})
	}
	return b
}

// warm has an exchange succeed, so that there is a connection.
func warm(tb testing.TB, s limiter.Store) {
	tb.Helper()
	b := newBatch(tb)
	b.Gets = []limiter.Get{{Counter: limiter.Counter{Key: "warm"}}}
	exchange(tb, s, b)
}

// recovered waits until exchanges succeed again.
func recovered(tb testing.TB, s limiter.Store) {
	b := newBatch(tb)
	b.Gets = []limiter.Get{{Counter: limiter.Counter{Key: "recovered"}}}
	for s.Exchange(context.Background(), b) != nil {
	}
}

// read returns what the counters of a batch's adds hold.
func read(tb testing.TB, addr string, b *limiter.Batch) []int64 {
	tb.Helper()
	gets := *b
	gets.Adds, gets.Servers, gets.ChunkTimeout = nil, nil, 10*time.Second
	for i := range b.Adds {
		gets.Gets = append(gets.Gets, limiter.Get{Counter: b.Adds[i].Counter})
	}
	exchange(tb, newRedisStore(tb, redis.NewClient(&redis.Options{Addr: addr})), &gets)
	totals := make([]int64, len(gets.Gets))
	for i := range gets.Gets {
		totals[i] = gets.Gets[i].Total
	}
	return totals
}

// fault is what a rule does to one of the INCRBY commands of an exchange.
type fault struct {
	name   string
	action respproxy.Action
	at     []int // which of the commands, from 1
	// spares says that the other commands are performed and answered, and outcome
	// is that of the command itself.
	spares  bool
	outcome limiter.Outcome
	// performed is how many of the commands from this one on the server performs, or
	// how many at most if the client ends the connection.
	performed func(at int) int
	ends      bool
	// silent says that nothing but a deadline ends the exchange.
	silent bool
	// panics says that clients panic over it.
	panics bool
}

func faults() []fault {
	all := func(at int) int { return numAdds - at + 1 }
	allButOne := func(at int) int { return numAdds - at }
	ends := []int{1, 41, numAdds}
	fs := []fault{
		{name: "cut before", action: respproxy.CutBefore, at: ends, performed: func(int) int { return 0 }},
		{name: "cut after", action: respproxy.CutAfter, at: ends, performed: func(int) int { return 1 }},
		{name: "freeze", action: respproxy.Freeze, at: ends, performed: func(int) int { return 0 }, silent: true},
		{name: "mute", action: respproxy.Mute, at: ends, performed: all, silent: true},
	}
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory",
		"READONLY You can't write against a read only replica.",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"MASTERDOWN Link with MASTER is down",
		"CLUSTERDOWN The cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"MOVED 1 127.0.0.1:1",
		"NOAUTH Authentication required.",
		"ERR max number of clients reached",
	} {
		fs = append(fs, fault{
			name:      text,
			action:    respproxy.Answer("-" + text + "\r\n"),
			at:        []int{1, 41}, // a client may look at the first reply only
			spares:    true,
			outcome:   limiter.NotApplied,
			performed: allButOne,
		})
	}
	for _, reply := range []string{
		"+OK", "$1\r\n0", "_", "$-1", "*1\r\n:5", "*1\r\n-ERR no", "%1\r\n+a\r\n:5", "#f", ":-7", ":0", ",1.5",
		"(123456789012345678901234567890", "=5\r\ntxt:5",
	} {
		fs = append(fs, fault{name: reply, action: respproxy.Replace(reply + "\r\n"), at: []int{41}, spares: true, performed: all})
	}
	for _, garbage := range []string{"HTTP/1.1 400 Bad Request", "", ":five"} {
		fs = append(fs, fault{name: garbage, action: respproxy.Replace(garbage + "\r\n"), at: []int{41}, performed: all, ends: true})
	}
	for _, length := range []string{"$-5", "*-5", "$9223372036854775807"} {
		fs = append(fs, fault{name: length, action: respproxy.Replace(length + "\r\n"), at: []int{41}, performed: all, ends: true, panics: true})
	}
	return fs
}

// TestS7_AFaultNeverCountsTwice makes each fault at several places of a pipeline.
// Each add must have been delivered at most once (rule S7), and what is said of
// it must be true (rule S6).
func TestS7_AFaultNeverCountsTwice(t *testing.T) {
	t.Parallel()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			addr := v.server.addr(t)
			for _, f := range faults() {
				if f.panics && v.panics {
					continue
				}
				for _, at := range f.at {
					t.Run(fmt.Sprintf("%q at %d", f.name, at), func(t *testing.T) {
						t.Parallel()
						testFault(t, addr, v, f, at)
					})
				}
			}
		})
	}
}

func testFault(t *testing.T, addr string, v variant, f fault, at int) {
	proxy := startProxy(t, addr)
	s := v.open(t, proxy.Addr())
	warm(t, s)
	proxy.SetRule(respproxy.At("INCRBY", at, f.action))
	b := addBatch(t)
	if f.silent {
		b.ChunkTimeout = 100 * time.Millisecond
	}

	err := s.Exchange(context.Background(), b)
	if err == nil {
		t.Error("no error")
	} else if strings.Contains(err.Error(), b.Prefix) {
		t.Errorf("error shows a name: %v", err)
	}
	if len(b.Servers) != 1 || b.Servers[0].ErrorKind == "" {
		t.Errorf("reports = %+v, want one with an error", b.Servers)
	}

	// What is still under way must end before anybody looks.
	proxy.SetRule(nil)
	proxy.CutAll()
	recovered(t, s)

	if got, want := proxy.Passed("INCRBY"), at-1+f.performed(at); got > want || got < want && !f.ends {
		t.Errorf("the server got %d adds, want %d", got, want)
	}
	applied := 0
	for i, total := range read(t, addr, b) {
		op := b.Adds[i]
		if total != 0 && total != op.Delta {
			t.Errorf("add %d of %d made %d", i+1, op.Delta, total)
		}
		if op.Outcome == limiter.Applied {
			applied++
		}
		if op.Outcome == limiter.Applied && (total != op.Delta || op.Total != total) || op.Outcome == limiter.NotApplied && total != 0 {
			t.Errorf("add %d is %v with total %d, but the counter is %d", i+1, op.Outcome, op.Total, total)
		}
	}
	switch {
	case f.spares:
		if got := b.Adds[at-1].Outcome; got != f.outcome || applied != numAdds-1 {
			t.Errorf("add %d is %v and %d others are applied, want %v and %d", at, got, applied, f.outcome, numAdds-1)
		}
	case v.tells && !f.silent && !f.panics:
		if applied != at-1 {
			t.Errorf("%d adds are applied, want the %d that were answered", applied, at-1)
		}
	case applied > at-1:
		t.Errorf("%d adds are applied, although %d were answered", applied, at-1)
	}
}

// TestS7_AConnectionThatExpiresIsNotReplaced is about valkey-go's ConnLifetime: on
// a connection that it multiplexes on, it sends what was not answered when the
// time was up again.
func TestS7_AConnectionThatExpiresIsNotReplaced(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, servers[1].addr(t))
	s := newValkeyStore(t, valkey.ClientOption{
		InitAddress:      []string{proxy.Addr()},
		AlwaysPipelining: true,
		ConnLifetime:     300 * time.Millisecond,
	})
	warm(t, s)
	proxy.SetRule(respproxy.Each("INCRBY", respproxy.Mute))
	b := addBatch(t)
	b.ChunkTimeout = 2 * time.Second // the client closes an expired connection after one
	if err := s.Exchange(context.Background(), b); err == nil {
		t.Error("no error")
	}
	if got := proxy.Passed("INCRBY"); got != numAdds {
		t.Errorf("the server got %d adds, want %d", got, numAdds)
	}
}

// TestS7_ARedirectIsFollowedWithoutSendingAgain is about valkey-go's
// EnableRedirect: its client follows the redirect of one command by sending the
// whole pipeline to the other server.
func TestS7_ARedirectIsFollowedWithoutSendingAgain(t *testing.T) {
	t.Parallel()
	addr := servers[1].addr(t)
	from, to := startProxy(t, addr), startProxy(t, addr)
	s := newValkeyStore(t, valkey.ClientOption{
		InitAddress: []string{from.Addr()},
		Standalone:  valkey.StandaloneOption{EnableRedirect: true},
	})
	warm(t, s)
	redirect := respproxy.Answer("-REDIRECT " + to.Addr() + "\r\n")

	from.SetRule(respproxy.At("INCRBY", 41, redirect))
	b := addBatch(t)
	if err := s.Exchange(context.Background(), b); err == nil {
		t.Error("no error")
	}
	if got := from.Passed("INCRBY") + to.Passed("INCRBY"); got != numAdds-1 {
		t.Errorf("the servers got %d adds, want %d", got, numAdds-1)
	}
	for i := range b.Adds {
		want := limiter.Applied
		if i == 40 {
			want = limiter.NotApplied
		}
		if got := b.Adds[i].Outcome; got != want {
			t.Errorf("add %d is %v, want %v", i+1, got, want)
		}
	}

	from.SetRule(func(r respproxy.Request) respproxy.Action {
		if r.Args[0] == "INCRBY" || r.Args[0] == "TIME" {
			return redirect
		}
		return respproxy.Pass
	})
	b = addBatch(t)
	if err := s.Exchange(context.Background(), b); err == nil {
		t.Error("no error")
	}
	for i := range b.Adds {
		if got := b.Adds[i].Outcome; got != limiter.NotApplied {
			t.Errorf("redirected add %d is %v, want not applied", i+1, got)
		}
	}
	exchange(t, s, b) // the client knows the other server by now
	if got := to.Passed("INCRBY"); got != numAdds {
		t.Errorf("the other server got %d adds, want %d", got, numAdds)
	}
}

// TestA7_NoCounterStaysBehindWithoutExpiry cuts the connection at each command of
// an add that brings its counter's expiry along.
func TestA7_NoCounterStaysBehindWithoutExpiry(t *testing.T) {
	t.Parallel()
	forEachPair(t, func(t *testing.T, a adapter, addr string) {
		for _, command := range []string{"SET", "INCRBY", "PEXPIRE"} {
			for _, action := range []respproxy.Action{respproxy.CutBefore, respproxy.CutAfter, respproxy.Answer("-ERR no\r\n")} {
				proxy := startProxy(t, addr)
				s := a.open(t, proxy.Addr())
				warm(t, s)
				b := newBatch(t)
				c := limiter.Counter{Key: "k", Epoch: 7}
				b.Adds = []limiter.Add{{Counter: c, Delta: 1}}
				b.Expires = []limiter.Expire{{Counter: c, Lifetime: time.Minute}}
				proxy.SetRule(respproxy.At(command, 1, action))
				_ = s.Exchange(context.Background(), b)
				proxy.Close()

				ttl := direct(t, addr).PTTL(context.Background(), b.Prefix+":k:7").Val()
				const absent, immortal = -2, -1
				if ttl == immortal {
					t.Errorf("%v at %s leaves a counter without expiry", action, command)
				}
				if ttl == absent && command != "SET" {
					t.Errorf("%v at %s leaves no counter", action, command)
				}
			}
		}
	})
}

func TestS6_DialErrorsAreNotApplied(t *testing.T) {
	t.Parallel()
	forEachPair(t, func(t *testing.T, a adapter, addr string) {
		proxy := startProxy(t, addr)
		s := a.open(t, proxy.Addr())
		warm(t, s)
		proxy.Down()
		for {
			b := addBatch(t)
			err := s.Exchange(context.Background(), b)
			if err == nil {
				t.Fatal("no error")
			}
			if b.Servers[0].ErrorKind == "closed" {
				continue // the client did not know yet that its connection is gone
			}
			wantDialError(t, b, err)
			break
		}
		if got := proxy.Passed("INCRBY"); got != 0 {
			t.Errorf("the server got %d adds, want none", got)
		}
	})
}

func wantDialError(t *testing.T, b *limiter.Batch, err error) {
	t.Helper()
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error = %v, want one that wraps ECONNREFUSED", err)
	}
	if got := b.Servers[0].ErrorKind; got != "dial" {
		t.Errorf("error kind = %q, want dial", got)
	}
	for i := range b.Adds {
		if got := b.Adds[i].Outcome; got != limiter.NotApplied {
			t.Fatalf("add %d is %v, want not applied", i+1, got)
		}
	}
}

func TestS6_AWrongAddressIsADialError(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()

	t.Run("redisstore", func(t *testing.T) {
		t.Parallel()
		b := addBatch(t)
		err := newRedisStore(t, redis.NewClient(&redis.Options{Addr: nobody})).Exchange(context.Background(), b)
		wantDialError(t, b, err)
	})
	t.Run("redisstore, address with credentials", func(t *testing.T) {
		t.Parallel()
		b := addBatch(t)
		err := newRedisStore(t, redis.NewClient(&redis.Options{Addr: "redis://user:hunter2@localhost"})).Exchange(context.Background(), b)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error = %v, want one without the password", err)
		}
		if r := b.Servers[0]; r.ErrorKind != "dial" || strings.Contains(r.Server, "hunter2") {
			t.Errorf("report = %+v, want a dial error and no password", r)
		}
	})
}

func TestAnOutageLosesNoMoreThanWhatWasUnderWay(t *testing.T) {
	t.Parallel()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			addr := v.server.addr(t)
			proxy := startProxy(t, addr)
			s := v.open(t, proxy.Addr())
			warm(t, s)
			proxy.SetRule(respproxy.Always(respproxy.Freeze))

			b := addBatch(t)
			b.ChunkTimeout = 150 * time.Millisecond
			for round, want := range []limiter.Outcome{limiter.Unknown, limiter.NotApplied, limiter.NotApplied} {
				if err := s.Exchange(context.Background(), b); err == nil {
					t.Fatal("no error")
				}
				for i := range b.Adds {
					if got := b.Adds[i].Outcome; got != want {
						t.Fatalf("exchange %d: add %d is %v, want %v", round, i+1, got, want)
					}
				}
			}
			proxy.SetRule(nil)
			proxy.CutAll()
			b.ChunkTimeout = 10 * time.Second
			for s.Exchange(context.Background(), b) != nil {
				if i := slices.IndexFunc(b.Adds, func(op limiter.Add) bool { return op.Outcome != limiter.NotApplied }); i >= 0 {
					t.Fatalf("while it recovers, add %d is %v, want not applied", i+1, b.Adds[i].Outcome)
				}
			}
			for i, total := range read(t, addr, b) {
				if want := b.Adds[i].Delta; total != want {
					t.Errorf("counter %d = %d, want %d", i, total, want)
				}
			}
		})
	}
}

// TestS9_DeadlinesHoldWithAClientThatIgnoresThem would run into the time limit of
// the test if they did not.
func TestS9_DeadlinesHoldWithAClientThatIgnoresThem(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, servers[0].addr(t))
	s := newRedisStore(t, redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: time.Hour, MaxRetries: -1}))
	warm(t, s)
	proxy.SetRule(respproxy.Always(respproxy.Freeze))
	b := addBatch(t)
	b.ChunkTimeout = 50 * time.Millisecond
	if err := s.Exchange(context.Background(), b); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v, want one that wraps DeadlineExceeded", err)
	}
	b.ChunkTimeout = time.Hour
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Exchange(ctx, b); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v, want one that wraps DeadlineExceeded", err)
	}
	if _, err := s.(limiter.TimeTeller).Time(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error of Time = %v, want one that wraps DeadlineExceeded", err)
	}
	proxy.CutAll() // lets the calls return
}

// TestS9_AClientsOwnTimeoutsDoNotCutAChunkShort is about valkey-go, which limits
// what is not a blocking command to its ConnWriteTimeout.
func TestS9_AClientsOwnTimeoutsDoNotCutAChunkShort(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, servers[1].addr(t))
	s := newValkeyStore(t, valkey.ClientOption{InitAddress: []string{proxy.Addr()}, ConnWriteTimeout: time.Second})
	warm(t, s)
	proxy.SetRule(func(r respproxy.Request) respproxy.Action {
		if r.Args[0] == "INCRBY" {
			time.Sleep(12 * time.Millisecond) // times numAdds
		}
		return respproxy.Pass
	})
	exchange(t, s, addBatch(t))
}
