package fleetsim

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// handClock is a clock that is set by hand.
type handClock struct{ now time.Time }

func (c *handClock) Now() time.Time { return c.now }

// notingStore answers gets from totals and notes the batches.
type notingStore struct {
	totals  map[limiter.Counter]int64
	batches []limiter.Batch
	err     error
}

func (s *notingStore) Exchange(_ context.Context, b *limiter.Batch) error {
	s.batches = append(s.batches, *b)
	for i := range b.Gets {
		b.Gets[i].Total, b.Gets[i].OK = s.totals[b.Gets[i].Counter], true
	}
	return s.err
}

// newBench returns a reference node with limit 10 in 60 s, its store, and its
// clock, which begins at the start of epoch 100.
func newBench() (*reference, *notingStore, *handClock) {
	store := &notingStore{totals: map[limiter.Counter]int64{}}
	clock := &handClock{time.Unix(6000, 0)}
	return newReference(store, clock, 10, time.Minute, 1), store, clock
}

func TestReference_FirstContactIsAdmittedWhateverItsSize(t *testing.T) {
	t.Parallel()
	r, store, _ := newBench()
	if !r.AllowN("k", 1000) {
		t.Error("the first request for a key was refused")
	}
	if err := r.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []limiter.Get{
		{Counter: limiter.Counter{Key: "k", Epoch: 100}, OK: true},
		{Counter: limiter.Counter{Key: "k", Epoch: 99}, OK: true},
	}
	if diff := cmp.Diff(want, store.batches[0].Gets); diff != "" {
		t.Errorf("first contact does not queue a read, -want +got:\n%s", diff)
	}
}

func TestReference_RefusesWhenTheLevelReachesTheLimit(t *testing.T) {
	t.Parallel()
	r, _, _ := newBench()
	for i := range 9 {
		if !r.AllowN("k", 1) {
			t.Fatalf("request %d was refused", i+1)
		}
	}
	if r.AllowN("k", 1) {
		t.Error("request 10 was admitted, though the level with it is the limit")
	}
}

func TestReference_RefusedRequestsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	r, store, clock := newBench()
	r.AllowN("k", 9)
	if err := r.Tick(t.Context()); err != nil { // reads nothing: the store is empty
		t.Fatal(err)
	}
	r.AllowN("k", 9)
	clock.now = clock.now.Add(20 * time.Second) // a read of a hot key is overdue
	if r.AllowN("k", 1) {
		t.Fatal("admitted above the limit")
	}
	if err := r.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := store.batches[len(store.batches)-1]
	if len(last.Gets) != 0 || len(last.Adds) != 1 || last.Adds[0].Delta != 9 {
		t.Errorf("after a refusal the tick sent adds %v and gets %v, want the 9 admitted events only", last.Adds, last.Gets)
	}
}

func TestReference_LevelLeaksAtLimitPerWindow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		estimate float64
		elapsed  time.Duration
		pending  int64
		want     float64
	}{
		{100, 0, 0, 100},
		{100, 10 * time.Second, 0, 0},
		{100, 5 * time.Second, 0, 50},
		{100, 0, 50, 150},
		{100, 5 * time.Second, 30, 80},
		{10, 20 * time.Second, 0, 0},
		{10, 20 * time.Second, 5, 5},
		{0, 0, 0, 0},
	} {
		r := &reference{limit: 600, window: time.Minute} // leaks 10 a second
		e := &referenceEntry{estimate: test.estimate, synced: time.Unix(0, 0), pending: test.pending}
		if got := r.level(e, time.Unix(0, 0).Add(test.elapsed)); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("level of %v after %v with %d pending is %v, want %v", test.estimate, test.elapsed, test.pending, got, test.want)
		}
	}
}

func TestReference_TiersByPressure(t *testing.T) {
	t.Parallel()
	const none = -1
	for pressure, want := range map[float64]time.Duration{
		0: none, 0.05: none, 0.09: none,
		0.1: time.Minute, 0.25: time.Minute, 0.49: time.Minute,
		0.5: 15 * time.Second, 0.65: 15 * time.Second, 0.79: 15 * time.Second,
		0.8: 7500 * ms, 0.95: 7500 * ms, 1: 7500 * ms, 1.5: 7500 * ms,
	} {
		r := &reference{limit: 100}
		got, ok := r.maxStale(100 * pressure)
		if !ok {
			got = none
		}
		if got != want {
			t.Errorf("at pressure %v a read is due after %v, want %v", pressure, got, want)
		}
	}
}

func TestReference_IdleKeysAreNeverRead(t *testing.T) {
	t.Parallel()
	clock := &handClock{time.Unix(6000, 0)}
	store := &notingStore{totals: map[limiter.Counter]int64{}}
	r := newReference(store, clock, 1000, time.Minute, 1)
	for range 90 { // to 9 % of the limit
		r.AllowN("k", 1)
		if err := r.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		clock.now = clock.now.Add(time.Second)
	}
	reads := 0
	for _, b := range store.batches {
		reads += len(b.Gets) / 2
	}
	if reads != 1 {
		t.Errorf("an idle key was read %d times, want once, at first contact", reads)
	}
}

func TestReference_ReadReplacesTheEstimateAndZeroesItsOwnCount(t *testing.T) {
	t.Parallel()
	r, store, clock := newBench()
	clock.now = clock.now.Add(30 * time.Second)
	store.totals[limiter.Counter{Key: "k", Epoch: 100}] = 7
	store.totals[limiter.Counter{Key: "k", Epoch: 99}] = 3
	r.AllowN("k", 3)
	if err := r.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := r.entries["k"]
	if e.estimate != 8.5 || e.pending != 0 || !e.synced.Equal(clock.now) {
		t.Errorf("estimate %v, pending %d, synced %v; want 8.5, 0, now", e.estimate, e.pending, e.synced)
	}
}

func TestReference_SendsAnExpiryWithEachIncrementAndIgnoresReplies(t *testing.T) {
	t.Parallel()
	r, store, _ := newBench()
	for range 2 {
		r.AllowN("k", 2)
		if err := r.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		// A fleet that is far over, as the next increment's reply would tell.
		store.totals[limiter.Counter{Key: "k", Epoch: 100}] = 500
	}
	counter := limiter.Counter{Key: "k", Epoch: 100}
	for i, b := range store.batches {
		if diff := cmp.Diff([]limiter.Add{{Counter: counter, Delta: 2}}, b.Adds); diff != "" {
			t.Errorf("tick %d, adds, -want +got:\n%s", i, diff)
		}
		if diff := cmp.Diff([]limiter.Expire{{Counter: counter, Lifetime: 2 * time.Minute}}, b.Expires); diff != "" {
			t.Errorf("tick %d, expiries, -want +got:\n%s", i, diff)
		}
	}
	if !r.AllowN("k", 2) {
		t.Error("refused, as if the reply to the increment had been heard")
	}
}

func TestReference_FailedExchangesLoseTheirCounts(t *testing.T) {
	t.Parallel()
	r, store, _ := newBench()
	r.AllowN("k", 4)
	store.err = errors.New("down")
	if err := r.Tick(t.Context()); !errors.Is(err, store.err) {
		t.Fatalf("Tick returned %v, want the store's error", err)
	}
	store.err = nil
	if err := r.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(store.batches) != 1 {
		t.Errorf("the next tick sent %v again", store.batches[1].Adds)
	}
}

func TestReference_EntriesEndWithTheirTTLOrWhenIdle(t *testing.T) {
	t.Parallel()
	// A request that an unknown key is granted and a known one is not.
	const large = 1000
	for _, test := range []struct {
		name string
		at   []time.Duration // of requests, in seconds
		want []bool
	}{
		{"in use, before the TTL", []time.Duration{0, 250, 500, 599}, []bool{true, false, false, false}},
		{"in use, at the TTL", []time.Duration{0, 250, 500, 600}, []bool{true, false, false, true}},
		{"not idle for long enough", []time.Duration{0, 299, 598}, []bool{true, false, false}},
		{"idle", []time.Duration{0, 300}, []bool{true, true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r, _, clock := newBench()
			start := clock.now
			var got []bool
			for _, at := range test.at {
				clock.now = start.Add(at * time.Second)
				got = append(got, r.AllowN("k", large))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestReference_TicksOnceASecondAtAPhaseOfItsOwn(t *testing.T) {
	t.Parallel()
	start := time.Unix(6000, 0)
	phases := map[time.Duration]bool{}
	for seed := range uint64(10) {
		clock := &handClock{start}
		r := newReference(&notingStore{}, clock, 10, time.Minute, seed)
		first := r.NextTick()
		phase := first.Sub(start)
		if phase <= 0 || phase > time.Second {
			t.Errorf("the first tick is due after %v, want within a second", phase)
		}
		phases[phase] = true
		clock.now = first.Add(2500 * ms)
		if err := r.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := r.NextTick().Sub(first); got != 3*time.Second {
			t.Errorf("after a tick 2.5 s late the next is due %v after the first, want 3s", got)
		}
	}
	if len(phases) != 10 {
		t.Errorf("10 nodes have %d phases", len(phases))
	}
}
