package fleetsim

import (
	"context"
	"errors"
	"math"
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
	if len(waits) != 2 {
		t.Errorf("%d messages travelled, want a request and a reply", len(waits))
	}
	if got := b.Gets[0].Total; got != 3 {
		t.Errorf("the reply says %d, want 3", got)
	}
	if !b.Now.Equal(time.Unix(5000, 0)) {
		t.Errorf("the batch comes back with the time changed to %v", b.Now)
	}
}

func TestLink_EndsWithTheRun(t *testing.T) {
	t.Parallel()
	l := newLink(Workload{}, func(*sim, time.Duration) bool { return false })
	b := testBatch()
	if err := l.Exchange(t.Context(), b); !errors.Is(err, errOver) {
		t.Errorf("Exchange returned %v, want errOver", err)
	}
	if n := l.sim.server.Len(); n != 0 {
		t.Errorf("the store holds %d counters of a request that was on its way", n)
	}
}

func TestLink_MessagesTakeHalfARoundTripGiveOrTake(t *testing.T) {
	t.Parallel()
	var waits []time.Duration
	l := newLink(Workload{}, func(_ *sim, d time.Duration) bool {
		waits = append(waits, d)
		return true
	})
	for range 10_000 {
		l.travel()
	}
	slices.Sort(waits)
	// Of a lognormal distribution, 16 % lie below the median times e^-0.3.
	for part, want := range map[int]time.Duration{1600: 3704 * time.Microsecond, 5000: 5 * ms, 8400: 6749 * time.Microsecond} {
		if got := waits[part]; math.Abs(got.Seconds()/want.Seconds()-1) > 0.03 {
			t.Errorf("%d of 10000 messages take less than %v, want %v", part, got, want)
		}
	}
	if longest := waits[len(waits)-1]; longest < 25*ms || longest > 70*ms {
		t.Errorf("the slowest message takes %v, want up to 40 ms more than usual", longest)
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
	ticks []time.Time // when they began
	ends  []time.Time
	shut  bool
}

// AllowN asks for an early tick.
func (n *noNode) AllowN(string, int64) bool {
	n.next = n.clock.Now().Add(10 * ms)
	return true
}

func (n *noNode) NextTick() time.Time { return n.next }

func (n *noNode) Tick(ctx context.Context) error {
	n.ticks = append(n.ticks, n.clock.Now())
	n.next = n.next.Add(time.Second)
	err := n.link.Exchange(ctx, testBatch())
	n.ends = append(n.ends, n.clock.Now())
	return err
}

func (n *noNode) Shutdown(context.Context) error {
	n.shut = true
	return nil
}

// newSim returns a run with one node, which ticks at every full second and whose
// clock is ahead.
func newSim(t *testing.T, skew, rtt time.Duration) (*sim, *noNode) {
	spec := Spec{Nodes: 1, Limit: 10, Window: time.Minute, Epochs: 1, RTT: rtt, Seed: 1}
	s := &sim{spec: spec, start: time.Unix(6000, 0), server: memorystore.New(), network: spec.random("network"), seeds: spec.random("nodes")}
	n := &noNode{clock: &clock{s, skew}, next: s.start.Add(skew + time.Second)}
	m := &member{node: n, link: &link{sim: s}, skew: skew, restart: never}
	n.link = m.link
	s.join(m)
	t.Cleanup(s.dismiss)
	return s, n
}

// advance has all happen up to a moment.
func advance(t *testing.T, s *sim, to time.Duration) {
	t.Helper()
	if err := s.advance(to); err != nil {
		t.Fatal(err)
	}
}

func TestAdvance_TicksAreSuspendedDuringTheirExchange(t *testing.T) {
	t.Parallel()
	const skew = 300 * ms
	s, n := newSim(t, skew, 10*ms)
	advance(t, s, time.Second-1)
	if len(n.ticks) != 0 {
		t.Fatalf("ticked at %v, want nothing within the first second", n.ticks)
	}
	advance(t, s, time.Second)
	if len(n.ticks) != 1 || len(n.ends) != 0 {
		t.Fatalf("after a second %d ticks have begun and %d ended, want 1 and 0", len(n.ticks), len(n.ends))
	}
	advance(t, s, time.Second+100*ms)
	if len(n.ends) != 1 {
		t.Error("the tick has not ended long after a round trip")
	}
	want := s.start.Add(skew + time.Second)
	if !n.ticks[0].Equal(want) {
		t.Errorf("the node's clock said %v at its tick, want %v", n.ticks[0], want)
	}

	advance(t, s, 2*time.Second) // the next tick is under way when the run ends
	s.dismiss()
	if len(n.ends) != 2 {
		t.Error("a tick that was under way at the end is still waiting")
	}
}

func TestAdvance_TicksThatBecomeDueDuringAnExchangeFollowIt(t *testing.T) {
	t.Parallel()
	s, n := newSim(t, 0, 3*time.Second)
	advance(t, s, time.Minute)
	if len(n.ticks) < 10 {
		t.Fatalf("%d ticks in a minute, want one about every three seconds", len(n.ticks))
	}
	for i := range len(n.ticks) - 1 {
		if !n.ticks[i+1].Equal(n.ends[i]) {
			t.Errorf("a tick ends at %v, and the overdue next one begins at %v", n.ends[i], n.ticks[i+1])
		}
	}
}

func TestArrive_TheNodeMayAskForAnEarlyTick(t *testing.T) {
	t.Parallel()
	s, n := newSim(t, 0, 10*ms)
	advance(t, s, 500*ms)
	s.arrive(0, 1)
	advance(t, s, 600*ms)
	want := []time.Time{s.start.Add(510 * ms)}
	if diff := cmp.Diff(want, n.ticks); diff != "" {
		t.Errorf("ticks, -want +got:\n%s", diff)
	}
}

func TestRestart_EveryOtherNodeCrashes(t *testing.T) {
	t.Parallel()
	for id, orderly := range []bool{true, false} {
		s, n := newSim(t, 0, 10*ms)
		m := s.members[0]
		m.id, m.restart = id, 500*ms
		s.reschedule(m)
		advance(t, s, 500*ms)
		if m.node == Node(n) {
			t.Errorf("node %d was not replaced", id)
		}
		if n.shut != orderly {
			t.Errorf("node %d: shut down = %v, want %v", id, n.shut, orderly)
		}
	}
}
