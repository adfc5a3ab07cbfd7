package fleetsim

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

func mustRun(t *testing.T, spec Spec) *Trace {
	t.Helper()
	trace, err := Run(spec)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func TestRun_SameSeedSameTrace(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Limiter, Reference} {
		for _, workload := range []string{"rolling restarts at 2x", "outage 30 s, 0.5x to 3x inside"} {
			spec := specFor(t, workload, 8)
			spec.Kind = kind
			// At the same time, so that whatever runs share would show.
			var traces [2]*Trace
			var errs [2]error
			var wg sync.WaitGroup
			for i := range traces {
				wg.Go(func() { traces[i], errs[i] = Run(spec) })
			}
			wg.Wait()
			if err := errors.Join(errs[:]...); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(traces[0].Arrivals, traces[1].Arrivals) || traces[0].Commands != traces[1].Commands {
				t.Errorf("%v, %s: two runs differ", kind, workload)
			}
			spec.Seed++
			if other := mustRun(t, spec); slices.Equal(traces[0].Arrivals, other.Arrivals) {
				t.Errorf("%v, %s: another seed changes nothing", kind, workload)
			}
		}
	}
}

func TestRun_AllKindsSeeTheSameRequests(t *testing.T) {
	t.Parallel()
	spec := specFor(t, "mixed weights at 2x", 4)
	want := drawn(spec)
	for _, variant := range []struct {
		kind   Kind
		epochs int
	}{{Limiter, 1}, {Limiter, 4}, {Reference, 1}} {
		spec.Kind, spec.Epochs = variant.kind, variant.epochs
		got := mustRun(t, spec).Arrivals
		for i := range got {
			got[i].Admitted = false
		}
		if !slices.Equal(want, got) {
			t.Errorf("%v with %d epochs saw other requests", variant.kind, variant.epochs)
		}
	}
}

func TestRun_ReportsABadConfig(t *testing.T) {
	t.Parallel()
	spec := specFor(t, "const 2x", 1)
	spec.Limit = 0
	if _, err := Run(spec); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Errorf("Run returned %v, want ErrInvalidConfig", err)
	}
}

func TestRun_WithoutARoundTripALoneNodeRefusesNothingUnderItsLimit(t *testing.T) {
	t.Parallel()
	spec := specFor(t, "const 0.5x", 1)
	spec.RTT = 0
	for _, a := range mustRun(t, spec).Arrivals {
		if !a.Admitted {
			t.Fatalf("the request at %v was refused", a.At)
		}
	}
}

func TestRun_RestartedNodesForget(t *testing.T) {
	t.Parallel()
	// The store is down throughout, so all that a node knows is its own.
	w := Workload{
		Name: "forget", Length: 30 * time.Second,
		Loads:    []Load{{0, 100}},
		Outage:   Span{0, never},
		Restarts: Span{20 * time.Second, 21 * time.Second},
	}
	spec := Spec{Workload: w, Nodes: 2, Limit: 600, Window: time.Minute, Epochs: 1, RTT: 2 * ms, Seed: 1}
	admitted := func(span Span) (n int) {
		for _, a := range mustRun(t, spec).Arrivals {
			if a.Node == 1 && a.Admitted && span.holds(a.At) {
				n++
			}
		}
		return n
	}
	if n := admitted(Span{19 * time.Second, 20 * time.Second}); n != 0 {
		t.Errorf("a node that has used up the limit admitted %d requests", n)
	}
	if n := admitted(Span{20 * time.Second, never}); n == 0 {
		t.Error("a node that was restarted remembers")
	}
}

// newLink returns the link of a run that consists of it alone. wait is what
// happens while a message is on its way.
func newLink(w Workload, wait func(*sim, time.Duration) bool) *link {
	spec := Spec{Workload: w, Nodes: 1, RTT: 10 * ms, Seed: 1}
	s := &sim{spec: spec, start: time.Unix(6000, 0), server: memorystore.New(), network: spec.random("network")}
	return &link{sim: s, wait: func(d time.Duration) bool { return wait(s, d) }}
}

func testBatch() *limiter.Batch {
	counter := limiter.Counter{Key: key, Epoch: 100}
	return &limiter.Batch{
		Prefix: "p", Epochs: 1, EpochLength: time.Minute, Now: time.Unix(5000, 0), ChunkTimeout: time.Second,
		Adds: []limiter.Add{
			{Counter: counter, Delta: 3},
			{Counter: limiter.Counter{Epoch: 100, Series: limiter.SeriesNodes}, Delta: 1},
		},
		Expires: []limiter.Expire{{Counter: counter, Lifetime: time.Minute}},
		Gets:    []limiter.Get{{Counter: counter}, {Counter: limiter.Counter{Key: key, Epoch: 99}}},
	}
}

func TestLink_StoreSeesTheBatchHalfARoundTripAfterItWasSent(t *testing.T) {
	t.Parallel()
	var waits []time.Duration
	var stored []int
	l := newLink(Workload{}, func(s *sim, d time.Duration) bool {
		waits = append(waits, d)
		stored = append(stored, s.server.Len())
		s.now += d
		return true
	})
	b := testBatch()
	if err := l.Exchange(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{0, 2}, stored); diff != "" {
		t.Errorf("counters in the store while the request and the reply travel, -want +got:\n%s", diff)
	}
	for _, d := range waits {
		if d < 1*ms || d > 50*ms {
			t.Errorf("half of a round trip of 10 ms takes %v", d)
		}
	}
	if got := b.Gets[0].Total; got != 3 {
		t.Errorf("the reply says %d, want 3", got)
	}
	if !b.Now.Equal(time.Unix(5000, 0)) {
		t.Errorf("the batch comes back with the time changed to %v", b.Now)
	}
}

func TestLink_ExpiresByTheStoresClock(t *testing.T) {
	t.Parallel()
	l := newLink(Workload{}, func(*sim, time.Duration) bool { return true })
	if err := l.Exchange(t.Context(), testBatch()); err != nil { // by a node 1000 s behind
		t.Fatal(err)
	}
	l.sim.now += 59 * time.Second
	b := &limiter.Batch{Prefix: "p", Epochs: 1, EpochLength: time.Minute, Now: time.Unix(9000, 0), ChunkTimeout: time.Second}
	b.Gets = []limiter.Get{{Counter: limiter.Counter{Key: key, Epoch: 100}}}
	if err := l.Exchange(t.Context(), b); err != nil { // by a node 2000 s ahead
		t.Fatal(err)
	}
	if got := b.Gets[0].Total; got != 3 {
		t.Errorf("a counter with a minute to live reads %d after 59 s, want 3", got)
	}
}

func TestLink_OutageAppliesNothingAndSaysSo(t *testing.T) {
	t.Parallel()
	l := newLink(Workload{Outage: Span{0, time.Second}}, func(*sim, time.Duration) bool { return true })
	b := testBatch()
	if err := l.Exchange(t.Context(), b); !errors.Is(err, errDown) {
		t.Errorf("Exchange returned %v, want errDown", err)
	}
	for _, x := range b.Adds {
		if x.Outcome != limiter.NotApplied {
			t.Errorf("an add is said to be %v", x.Outcome)
		}
	}
	for _, x := range b.Expires {
		if x.Outcome != limiter.NotApplied {
			t.Errorf("an expiry is said to be %v", x.Outcome)
		}
	}
	for _, x := range b.Gets {
		if x.OK {
			t.Error("a get is said to have been answered")
		}
	}
	if n := l.sim.server.Len(); n != 0 {
		t.Errorf("the store holds %d counters", n)
	}
	l.sim.now = time.Second
	if err := l.Exchange(t.Context(), b); err != nil {
		t.Errorf("after the outage: %v", err)
	}
}

func TestLink_CountsCommandsForTheKeyOnly(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		mget bool
		want int64
	}{
		{"gets one by one", false, 4}, // an add, an expiry, two gets
		{"gets together", true, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := newLink(Workload{}, func(*sim, time.Duration) bool { return true })
			l.mget = test.mget
			if err := l.Exchange(t.Context(), testBatch()); err != nil {
				t.Fatal(err)
			}
			if l.commands != test.want {
				t.Errorf("%d commands, want %d", l.commands, test.want)
			}
		})
	}
}

// noNode is a node that does nothing but tick, and takes note when.
type noNode struct {
	clock limiter.Clock
	link  limiter.Store
	next  time.Time
	ticks []time.Time
	ended int
}

func (n *noNode) AllowN(string, int64) bool      { return true }
func (n *noNode) NextTick() time.Time            { return n.next }
func (n *noNode) Shutdown(context.Context) error { return nil }
func (n *noNode) Tick(ctx context.Context) error {
	n.ticks = append(n.ticks, n.clock.Now())
	n.next = n.next.Add(time.Second)
	err := n.link.Exchange(ctx, testBatch())
	n.ended++
	return err
}

func TestAdvance_TicksAreSuspendedDuringTheirExchange(t *testing.T) {
	t.Parallel()
	spec := Spec{Workload: Workload{}, Nodes: 1, RTT: 10 * ms, Seed: 1}
	s := &sim{spec: spec, start: time.Unix(6000, 0), server: memorystore.New(), network: spec.random("network")}
	const skew = 300 * ms
	n := &noNode{clock: &clock{s, skew}, next: s.start.Add(skew + time.Second)}
	l := &link{sim: s}
	n.link = l
	m := &member{node: n, link: l, skew: skew, restart: never}
	m.resume, m.cancel = iter.Pull(m.loop)
	m.wake = s.due(m)
	s.members = []*member{m}
	s.agenda.Push(m)

	advance := func(to time.Duration) {
		t.Helper()
		if err := s.advance(to); err != nil {
			t.Fatal(err)
		}
	}
	advance(time.Second - 1)
	if len(n.ticks) != 0 {
		t.Fatalf("ticked at %v, want nothing within the first second", n.ticks)
	}
	advance(time.Second)
	if len(n.ticks) != 1 || n.ended != 0 {
		t.Fatalf("after a second %d ticks have begun and %d ended, want 1 and 0", len(n.ticks), n.ended)
	}
	advance(time.Second + 100*ms)
	if n.ended != 1 {
		t.Error("the tick has not ended long after a round trip")
	}
	want := s.start.Add(skew + time.Second)
	if !n.ticks[0].Equal(want) {
		t.Errorf("the node's clock said %v at its tick, want %v", n.ticks[0], want)
	}

	advance(2 * time.Second) // the next tick is under way when the run ends
	s.dismiss()
	if n.ended != 2 {
		t.Error("a tick that was under way at the end is still waiting")
	}
}
