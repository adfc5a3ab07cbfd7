package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// fakeServer is a [Sender] that keeps counters in a map. Its hook, if there is
// one, is told of each call before it is performed.
type fakeServer struct {
	mu       sync.Mutex
	counters map[string]int64
	sent     [][]string // what was performed, call by call
	hook     func(ctx context.Context, cmds []Command) (perform bool)
}

var opNames = map[Op]string{OpCreate: "SET", OpIncrBy: "INCRBY", OpPExpire: "PEXPIRE", OpGet: "GET"}

func (s *fakeServer) send(ctx context.Context, cmds []Command) {
	s.mu.Lock()
	hook := s.hook
	s.mu.Unlock()
	if hook != nil && !hook(ctx, cmds) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counters == nil {
		s.counters = make(map[string]int64)
	}
	var sent []string
	for i := range cmds {
		c := &cmds[i]
		sent = append(sent, fmt.Sprintf("%s %s %d", opNames[c.Op], c.Name, c.Arg))
		_, exists := s.counters[c.Name]
		switch c.Op {
		case OpCreate:
			if exists {
				c.ReplyNil()
			} else {
				s.counters[c.Name] = 0
				c.ReplyText("OK")
			}
		case OpIncrBy:
			s.counters[c.Name] += c.Arg
			c.ReplyInt(s.counters[c.Name])
		case OpPExpire:
			c.ReplyInt(1)
		case OpGet:
			if exists {
				c.ReplyText(fmt.Sprint(s.counters[c.Name]))
			} else {
				c.ReplyNil()
			}
		}
	}
	s.sent = append(s.sent, sent)
}

// setHook replaces the hook.
func (s *fakeServer) setHook(hook func(ctx context.Context, cmds []Command) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// calls returns how many calls were performed.
func (s *fakeServer) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent)
}

// deaf is a hook that waits until release is closed, whatever ctx says.
func deaf(release <-chan struct{}) func(context.Context, []Command) bool {
	return func(context.Context, []Command) bool { <-release; return true }
}

// newHeard returns a pipeline on s that has heard from it.
func newHeard(t *testing.T, s *fakeServer) *Pipeline {
	t.Helper()
	p := NewPipeline("teststore", "server", s.send)
	b := adds(1)
	b.Prefix = "warm"
	if err := p.Exchange(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = nil
	return p
}

// adds returns a batch that adds 1 to each of n counters.
func adds(n int) *limiter.Batch {
	b := &limiter.Batch{Prefix: "p", Epochs: 1, EpochLength: time.Minute, ChunkTimeout: time.Second}
	for i := range n {
		b.Adds = append(b.Adds, limiter.Add{Counter: limiter.Counter{Key: fmt.Sprint(i), Epoch: 7}, Delta: 1})
	}
	return b
}

func countOutcomes(b *limiter.Batch) map[limiter.Outcome]int {
	counts := make(map[limiter.Outcome]int)
	for i := range b.Adds {
		counts[b.Adds[i].Outcome]++
	}
	return counts
}

func wantOutcomes(t *testing.T, b *limiter.Batch, want map[limiter.Outcome]int) {
	t.Helper()
	if diff := cmp.Diff(want, countOutcomes(b)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

func TestS2_CommandsAreInOrder(t *testing.T) {
	t.Parallel()
	s := new(fakeServer)
	p := newHeard(t, s)
	c := func(key string) limiter.Counter { return limiter.Counter{Key: key, Epoch: 7} }
	b := &limiter.Batch{
		Prefix:       "p",
		ChunkTimeout: time.Second,
		Adds:         []limiter.Add{{Counter: c("new"), Delta: 2}, {Counter: c("old"), Delta: 3}, {Counter: c("new"), Delta: 4}},
		Expires:      []limiter.Expire{{Counter: c("new"), Lifetime: time.Minute}, {Counter: c("alone"), Lifetime: time.Nanosecond}},
		Gets:         []limiter.Get{{Counter: c("new")}, {Counter: c("absent")}},
	}
	if err := p.Exchange(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	want := [][]string{{
		"SET p:new:7 60000",
		"INCRBY p:new:7 2",
		"INCRBY p:old:7 3",
		"INCRBY p:new:7 4",
		"PEXPIRE p:new:7 60000",
		"PEXPIRE p:alone:7 1",
		"GET p:new:7 0",
		"GET p:absent:7 0",
	}}
	if diff := cmp.Diff(want, s.sent); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if b.Adds[0].Total != 2 || b.Adds[1].Total != 3 || b.Adds[2].Total != 6 || b.Gets[0].Total != 6 || b.Gets[1].Total != 0 {
		t.Errorf("totals: adds %+v, gets %+v", b.Adds, b.Gets)
	}
	wantOutcomes(t, b, map[limiter.Outcome]int{limiter.Applied: 3})
}

func TestA5_LifetimesAreRoundedUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		1:                                       1,
		time.Millisecond:                        1,
		time.Millisecond + 1:                    2,
		1500 * time.Microsecond:                 2,
		999 * time.Millisecond:                  999,
		1500 * time.Millisecond:                 1500,
		24 * time.Hour:                          86_400_000,
		math.MaxInt64:                           9_223_372_036_855,
		math.MaxInt64 - 775_807*time.Nanosecond: 9_223_372_036_854,
	} {
		if got := millis(d); got != want {
			t.Errorf("millis(%d) = %d, want %d", d, got, want)
		}
	}
}

func TestAnEmptyBatchSendsNothing(t *testing.T) {
	t.Parallel()
	s := new(fakeServer)
	p := NewPipeline("teststore", "server", s.send)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Exchange(ctx, &limiter.Batch{}); err != nil || s.calls() != 0 {
		t.Errorf("error %v and %d calls, want none", err, s.calls())
	}
}

func TestInvalidOperationsAreRefusedAndTheOthersPerformed(t *testing.T) {
	t.Parallel()
	s := new(fakeServer)
	p := newHeard(t, s)
	b := adds(4)
	b.Adds[1].Delta, b.Adds[2].Delta = 0, -5
	for i, lifetime := range []time.Duration{time.Second, 0, -time.Second} {
		b.Expires = append(b.Expires, limiter.Expire{Counter: b.Adds[i].Counter, Lifetime: lifetime})
	}
	err := p.Exchange(context.Background(), b)
	if want := "teststore: 4 of 7 operations: invalid: delta or lifetime is not positive"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	var got []limiter.Outcome
	for i := range b.Adds {
		got = append(got, b.Adds[i].Outcome)
	}
	for i := range b.Expires {
		got = append(got, b.Expires[i].Outcome)
	}
	const yes, no = limiter.Applied, limiter.NotApplied
	if want := []limiter.Outcome{yes, no, no, yes, yes, no, no}; !slices.Equal(got, want) {
		t.Errorf("outcomes = %v, want %v", got, want)
	}
	want := [][]string{{"SET p:0:7 1000", "INCRBY p:0:7 1", "INCRBY p:3:7 1", "PEXPIRE p:0:7 1000"}}
	if diff := cmp.Diff(want, s.sent); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

func TestABatchOfOnlyInvalidOperationsSendsNoneOfThem(t *testing.T) {
	t.Parallel()
	s := new(fakeServer)
	p := newHeard(t, s)
	b := adds(2)
	b.Adds[0].Delta, b.Adds[1].Delta = 0, 0
	for range 2 * maxInFlight { // places for calls are given back
		if err := p.Exchange(context.Background(), b); err == nil {
			t.Fatal("no error")
		}
	}
	if s.calls() != 0 {
		t.Errorf("%d calls, want none", s.calls())
	}
}

func TestChunksRunFourAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(fakeServer)
		p := newHeard(t, s)
		var running, most atomic.Int32
		s.setHook(func(context.Context, []Command) bool {
			n := running.Add(1)
			defer running.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			time.Sleep(900 * time.Millisecond) // of the second that each chunk has
			return true
		})
		b := adds(10 * maxChunk)
		start := time.Now()
		if err := p.Exchange(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		if got, want := time.Since(start), 3*900*time.Millisecond; got != want {
			t.Errorf("ten chunks took %v, want %v", got, want)
		}
		if most.Load() != maxInFlight {
			t.Errorf("up to %d calls at once, want %d", most.Load(), maxInFlight)
		}
		for i, call := range s.sent {
			if len(call) > maxChunk {
				t.Errorf("call %d has %d commands", i, len(call))
			}
		}
		wantOutcomes(t, b, map[limiter.Outcome]int{limiter.Applied: 10 * maxChunk})
	})
}

func TestFourAtATimeHoldsForAllExchangesTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(fakeServer)
		p := newHeard(t, s)
		var running, most atomic.Int32
		s.setHook(func(context.Context, []Command) bool {
			n := running.Add(1)
			defer running.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			time.Sleep(100 * time.Millisecond)
			return true
		})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := p.Exchange(context.Background(), adds(1)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most.Load() != maxInFlight {
			t.Errorf("up to %d calls at once, want %d", most.Load(), maxInFlight)
		}
		if got := s.counters["p:0:7"]; got != 20 {
			t.Errorf("total = %d, want 20", got)
		}
	})
}

func TestS9_ADeadlineHoldsWhateverTheClientDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(fakeServer)
		p := newHeard(t, s)
		release := make(chan struct{})
		s.setHook(deaf(release))
		b := adds(3)
		start := time.Now()
		err := p.Exchange(context.Background(), b)
		if got, want := time.Since(start), b.ChunkTimeout+patience; got != want {
			t.Errorf("returned after %v, want %v", got, want)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v, want one that wraps DeadlineExceeded", err)
		}
		wantOutcomes(t, b, map[limiter.Outcome]int{limiter.Unknown: 3})
		if kind := b.Servers[0].ErrorKind; kind != "timeout" {
			t.Errorf("error kind = %q, want timeout", kind)
		}
		close(release)
	})
}

func TestS9_ACancelEndsAnExchangeWhateverTheClientDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(fakeServer)
		p := newHeard(t, s)
		release := make(chan struct{})
		s.setHook(deaf(release))
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(300*time.Millisecond, cancel)
		b := adds(5 * maxChunk)
		start := time.Now()
		err := p.Exchange(ctx, b)
		if got, want := time.Since(start), 300*time.Millisecond+patience; got != want {
			t.Errorf("returned after %v, want %v", got, want)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v, want one that wraps Canceled", err)
		}
		// Four chunks were under way, and the fifth was not sent.
		wantOutcomes(t, b, map[limiter.Outcome]int{limiter.Unknown: 4 * maxChunk, limiter.NotApplied: maxChunk})
		close(release)
	})
}

func TestS9_ADoneContextSendsNothing(t *testing.T) {
	t.Parallel()
	s := new(fakeServer)
	p := newHeard(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := adds(3)
	b.Adds[0].Outcome = limiter.Applied // left over from the last exchange
	if err := p.Exchange(ctx, b); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want one that wraps Canceled", err)
	}
	wantOutcomes(t, b, map[limiter.Outcome]int{limiter.NotApplied: 3})
	if s.calls() != 0 || len(b.Servers) != 0 {
		t.Errorf("%d calls and reports %+v, want none", s.calls(), b.Servers)
	}
}

// TestS8_AnAbandonedCallLeavesTheBatchAlone is most telling under the race
// detector.
func TestS8_AnAbandonedCallLeavesTheBatchAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(fakeServer)
		p := newHeard(t, s)
		release := make(chan struct{})
		s.setHook(deaf(release))
		b := adds(3)
		_ = p.Exchange(context.Background(), b)
		for i := range b.Adds {
			b.Adds[i] = limiter.Add{Counter: limiter.Counter{Key: "poison"}, Delta: 1, Total: -1}
		}
		want := slices.Clone(b.Adds)
		close(release)
		synctest.Wait()
		if !slices.Equal(b.Adds, want) {
			t.Errorf("the batch became %+v", b.Adds)
		}
		if diff := cmp.Diff([][]string{{"INCRBY p:0:7 1", "INCRBY p:1:7 1", "INCRBY p:2:7 1"}}, s.sent); diff != "" {
			t.Errorf("late commands (-want +got):\n%s", diff)
		}
	})
}

func TestAbandonedCallsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(fakeServer)
		p := newHeard(t, s)
		release := make(chan struct{})
		var started atomic.Int32
		s.setHook(func(context.Context, []Command) bool {
			started.Add(1)
			<-release
			return true
		})
		for range 2 * maxInFlight {
			b := adds(1)
			start := time.Now()
			if err := p.Exchange(context.Background(), b); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error = %v, want one that wraps DeadlineExceeded", err)
			}
			if got, most := time.Since(start), b.ChunkTimeout+patience; got > most {
				t.Errorf("returned after %v, want at most %v", got, most)
			}
		}
		if started.Load() != maxInFlight {
			t.Errorf("%d calls were made, want %d", started.Load(), maxInFlight)
		}
		s.setHook(nil)
		close(release)
		synctest.Wait()
		b := adds(1)
		if err := p.Exchange(context.Background(), b); err != nil {
			t.Errorf("once the calls have returned: %v", err)
		}
	})
}

func TestNothingIsAddedToAServerThatWasNotHeardFrom(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	s := new(fakeServer)
	p := NewPipeline("teststore", "server", s.send)
	s.setHook(func(_ context.Context, cmds []Command) bool {
		for i := range cmds {
			if cmds[i].Op != OpGet {
				t.Errorf("sent %s", opNames[cmds[i].Op])
			}
			cmds[i].Lose(refused)
		}
		return false
	})
	for range 2 {
		b := adds(1)
		b.Expires = []limiter.Expire{{Counter: b.Adds[0].Counter, Lifetime: time.Minute}}
		if err := p.Exchange(context.Background(), b); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("error = %v, want one that wraps ECONNRESET", err)
		}
		wantOutcomes(t, b, map[limiter.Outcome]int{limiter.NotApplied: 1})
	}

	s.setHook(nil)
	if err := p.Exchange(context.Background(), adds(1)); err != nil {
		t.Fatal(err)
	}
	if err := p.Exchange(context.Background(), adds(1)); err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"GET p:0:7 0"}, {"INCRBY p:0:7 1"}, {"INCRBY p:0:7 1"}}
	if diff := cmp.Diff(want, s.sent); diff != "" {
		t.Errorf("commands once the server replies (-want +got):\n%s", diff)
	}
}

func TestAProbeReadsAllOverTheBatch(t *testing.T) {
	t.Parallel()
	s := new(fakeServer)
	p := NewPipeline("teststore", "server", s.send)
	if err := p.Exchange(context.Background(), adds(1600)); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range maxProbe {
		want = append(want, fmt.Sprintf("GET p:%d:7 0", 100*i))
	}
	if diff := cmp.Diff(want, s.sent[0]); diff != "" {
		t.Errorf("probe (-want +got):\n%s", diff)
	}
}

func TestAChunkWithoutAnyReplyEndsTheExchange(t *testing.T) {
	t.Parallel()
	s := new(fakeServer)
	p := newHeard(t, s)
	var calls atomic.Int32
	s.setHook(func(_ context.Context, cmds []Command) bool {
		calls.Add(1)
		for i := range cmds {
			cmds[i].Lose(io.EOF)
		}
		return false
	})
	b := adds(20 * maxChunk)
	err := p.Exchange(context.Background(), b)
	if !errors.Is(err, io.EOF) {
		t.Errorf("error = %v, want one that wraps EOF", err)
	}
	sent := int(calls.Load())
	if sent > maxInFlight {
		t.Errorf("%d chunks were sent, want at most %d", sent, maxInFlight)
	}
	wantOutcomes(t, b, map[limiter.Outcome]int{limiter.Unknown: sent * maxChunk, limiter.NotApplied: (20 - sent) * maxChunk})
	if r := b.Servers[0]; r.Commands != sent*maxChunk || r.ErrorKind != "closed" {
		t.Errorf("report = %+v", r)
	}
}

func TestS6_EachCommandHasItsOwnOutcome(t *testing.T) {
	t.Parallel()
	s := new(fakeServer)
	p := newHeard(t, s)
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	become := []func(c *Command){
		func(c *Command) { c.ReplyInt(7) },
		func(c *Command) { c.Refuse(errors.New("WRONGTYPE Operation against a key")) },
		func(c *Command) { c.Reject(errors.New("WRONGPASS invalid")) },
		func(c *Command) { c.NotSent(errors.New("client is closed")) },
		func(c *Command) { c.Lose(io.EOF) },
		func(c *Command) { c.Lose(dial) },
		func(c *Command) { c.Lose(os.ErrDeadlineExceeded) },
		func(c *Command) { c.BadReply() },
		func(c *Command) { c.ReplyText("7") },
		func(c *Command) { c.ReplyNil() },
		func(c *Command) { c.ReplyInt(0) },  // less than was added
		func(c *Command) { c.ReplyInt(-3) }, // likewise
		func(c *Command) { c.ReplyInt(math.MaxInt64) },
		func(*Command) {},
	}
	s.setHook(func(_ context.Context, cmds []Command) bool {
		for i := range cmds {
			become[i](&cmds[i])
		}
		return false
	})
	b := adds(len(become))
	err := p.Exchange(context.Background(), b)
	var got []limiter.Outcome
	for i := range b.Adds {
		got = append(got, b.Adds[i].Outcome)
	}
	const yes, no, unknown = limiter.Applied, limiter.NotApplied, limiter.Unknown
	want := []limiter.Outcome{yes, no, no, no, unknown, no, unknown, unknown, unknown, unknown, unknown, unknown, yes, unknown}
	if !slices.Equal(got, want) {
		t.Errorf("outcomes = %v, want %v", got, want)
	}
	for _, wrapped := range []error{syscall.ECONNREFUSED, os.ErrDeadlineExceeded, context.DeadlineExceeded} {
		if !errors.Is(err, wrapped) {
			t.Errorf("error does not wrap %v", wrapped)
		}
	}
	wantText := "teststore: 12 of 14 operations: refused: WRONGTYPE Operation against a key; auth: WRONGPASS invalid; " +
		"closed: client is closed; dial: dial: connection refused; timeout: i/o timeout; protocol: the reply has an unexpected type"
	if err.Error() != wantText {
		t.Errorf("error = %s\nwant %s", err, wantText)
	}
}

func TestGetsOfWhatIsNoCountAreNotOK(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reply func(c *Command)
		total int64
		ok    bool
	}{
		{func(c *Command) { c.ReplyText("42") }, 42, true},
		{func(c *Command) { c.ReplyText("9223372036854775807") }, math.MaxInt64, true},
		{func(c *Command) { c.ReplyInt(42) }, 42, true},
		{func(c *Command) { c.ReplyNil() }, 0, true},
		{func(c *Command) { c.ReplyText("9223372036854775808") }, 0, false},
		{func(c *Command) { c.ReplyText("-1") }, 0, false},
		{func(c *Command) { c.ReplyText("") }, 0, false},
		{func(c *Command) { c.ReplyText("somebody's text") }, 0, false},
		{func(c *Command) { c.ReplyText("1.5") }, 0, false},
		{func(c *Command) { c.BadReply() }, 0, false},
		{func(c *Command) { c.Refuse(errors.New("LOADING")) }, 0, false},
	} {
		s := new(fakeServer)
		p := newHeard(t, s)
		s.setHook(func(_ context.Context, cmds []Command) bool { tc.reply(&cmds[0]); return false })
		b := &limiter.Batch{Prefix: "p", ChunkTimeout: time.Second, Gets: []limiter.Get{{Total: 99, OK: true}}}
		err := p.Exchange(context.Background(), b)
		if got := b.Gets[0]; got.OK != tc.ok || got.Total != tc.total || (err == nil) != tc.ok {
			t.Errorf("get = %+v with error %v, want total %d, ok %t", got, err, tc.total, tc.ok)
		}
	}
}

func TestAPanicOfTheClientIsAnError(t *testing.T) {
	t.Parallel()
	s := new(fakeServer)
	p := newHeard(t, s)
	s.setHook(func(_ context.Context, cmds []Command) bool {
		cmds[0].ReplyInt(1)
		panic("makeslice: len out of range")
	})
	b := adds(3)
	err := p.Exchange(context.Background(), b)
	if want := "teststore: 2 of 3 operations: protocol: panic: makeslice: len out of range"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	wantOutcomes(t, b, map[limiter.Outcome]int{limiter.Applied: 1, limiter.Unknown: 2})
}

func TestErrorsShowNoKeyAndNoCredential(t *testing.T) {
	t.Parallel()
	const prefix = "fleetlimit/api/1m0s"
	for text, want := range map[string]string{
		"READONLY You can't write against a read only replica.":                                  "READONLY You can",
		"ERR unknown command 'INCRBY', with args beginning with: 'fleetlimit/api/1m0s:secret:1'": "",
		"ERR unknown command `AUTH`, with args beginning with: `default`, `hunter2`":             "ERR unknown command",
		"ERR no such counter fleetlimit/api/1m0s:secret:1":                                       "",
		"dial tcp: address redis://user:hunter2@db:6379: too many colons in address":             "",
		"dial tcp 10.0.0.1:6379: connect: connection refused":                                    "dial tcp 10.0.0.1:6379: connect: connection refused",
		"redis: can't parse \"secret\"":                                                          "redis: can",
		"ERR \x00\x01binary":                                                                     "ERR",
		"ERR é":                                                                                  "ERR",
		strings.Repeat("x", 500):                                                                 strings.Repeat("x", 120),
		"":                                                                                       "",
		"NOPERM User default has no permissions to run the 'incrby' command":                     "NOPERM User default has no permissions to run the",
		"WRONGTYPE Operation against a key holding the wrong kind of value":                      "WRONGTYPE Operation against a key holding the wrong kind of value",
	} {
		if got := publicText(text, prefix); got != want {
			t.Errorf("publicText(%q) = %q, want %q", text, got, want)
		}
	}
	if got := publicText("ERR no such counter :secret:1", ""); got != "" {
		t.Errorf("with an empty prefix, %q is shown", got)
	}
}

func TestServerNamesShowNoCredential(t *testing.T) {
	t.Parallel()
	s := new(fakeServer)
	p := NewPipeline("teststore", "redis://user:hunter2@db:6379", s.send)
	b := adds(1)
	if err := p.Exchange(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	if got := b.Servers[0].Server; got != "db:6379" {
		t.Errorf("server = %q, want db:6379", got)
	}
}

func TestReportsSayWhatAnExchangeCost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(fakeServer)
		p := newHeard(t, s)
		s.setHook(func(context.Context, []Command) bool { time.Sleep(30 * time.Millisecond); return true })
		b := adds(8 * maxChunk)
		b.Expires = []limiter.Expire{{Counter: b.Adds[0].Counter, Lifetime: time.Minute}}
		if err := p.Exchange(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		// An expiry takes two commands beside the add, and makes a ninth chunk.
		want := []limiter.ServerReport{{Server: "server", Duration: 90 * time.Millisecond, Commands: 8*maxChunk + 2}}
		if diff := cmp.Diff(want, b.Servers); diff != "" {
			t.Errorf("report (-want +got):\n%s", diff)
		}
	})
}

func TestTimeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPipeline("teststore", "server", new(fakeServer).send)
		release := make(chan struct{})
		for range 2 * maxInFlight { // also when all places are taken
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			start := time.Now()
			_, err := p.Time(ctx, func(context.Context) (time.Time, error) { <-release; return time.Now(), nil })
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second+patience {
				t.Errorf("error %v after %v", err, time.Since(start))
			}
			cancel()
		}
		close(release)
		synctest.Wait()
		want := time.Unix(1, 2000)
		got, err := p.Time(context.Background(), func(context.Context) (time.Time, error) { return want, nil })
		if err != nil || !got.Equal(want) {
			t.Errorf("time = %v, %v, want %v", got, err, want)
		}
		_, err = p.Time(context.Background(), func(context.Context) (time.Time, error) { return want, io.EOF })
		if want := "teststore: time: closed: EOF"; !errors.Is(err, io.EOF) || err.Error() != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	})
}

func TestAnExchangeAllocatesPerChunkNotPerOperation(t *testing.T) {
	reply := func(_ context.Context, cmds []Command) {
		for i := range cmds {
			cmds[i].ReplyInt(1)
		}
	}
	p := NewPipeline("teststore", "server", reply)
	b := adds(maxChunk)
	exchange := func() {
		b.Servers = b.Servers[:0]
		if err := p.Exchange(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
	exchange()
	if n := testing.AllocsPerRun(20, exchange); n > 50 {
		t.Errorf("a chunk of %d adds makes %v allocations, want at most 50", maxChunk, n)
	}
}
