package memorystore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
	"github.com/google/go-cmp/cmp"
)

const minute = time.Minute

// start is the time of most tests: the beginning of epoch 1000.
var start = time.Unix(60_000, 0)

// newBatch returns an empty batch of a window of one minute.
func newBatch(now time.Time) *limiter.Batch {
	return &limiter.Batch{Prefix: "p", Epochs: 1, EpochLength: minute, Now: now, ChunkTimeout: time.Second}
}

func counter(key string) limiter.Counter { return limiter.Counter{Key: key, Epoch: 1000} }

func exchange(t *testing.T, s *memorystore.Store, b *limiter.Batch) {
	t.Helper()
	if err := s.Exchange(t.Context(), b); err != nil {
		t.Fatalf("Exchange: %v", err)
	}
}

// add adds to a counter at now and returns the total.
func add(t *testing.T, s *memorystore.Store, now time.Time, c limiter.Counter, delta int64) int64 {
	t.Helper()
	b := newBatch(now)
	b.Adds = []limiter.Add{{Counter: c, Delta: delta}}
	exchange(t, s, b)
	return b.Adds[0].Total
}

func expire(t *testing.T, s *memorystore.Store, now time.Time, c limiter.Counter, lifetime time.Duration) {
	t.Helper()
	b := newBatch(now)
	b.Expires = []limiter.Expire{{Counter: c, Lifetime: lifetime}}
	exchange(t, s, b)
}

func get(t *testing.T, s *memorystore.Store, now time.Time, c limiter.Counter) int64 {
	t.Helper()
	b := newBatch(now)
	b.Gets = []limiter.Get{{Counter: c}}
	exchange(t, s, b)
	if !b.Gets[0].OK {
		t.Fatal("get is not ok")
	}
	return b.Gets[0].Total
}

func TestS1_ManyLimitersAddUpExactly(t *testing.T) {
	t.Parallel()
	const nodes, rounds, keys = 16, 50, 40
	s := memorystore.New()
	var wg sync.WaitGroup
	for range nodes {
		wg.Go(func() {
			b := newBatch(start)
			for k := range keys {
				b.Adds = append(b.Adds, limiter.Add{Counter: counter(fmt.Sprint(k)), Delta: int64(k + 1)})
			}
			for range rounds {
				if err := s.Exchange(t.Context(), b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for k := range keys {
		want := int64(nodes * rounds * (k + 1))
		if got := get(t, s, start, counter(fmt.Sprint(k))); got != want {
			t.Errorf("key %d: got %d, want %d", k, got, want)
		}
	}
}

func TestS4_TheLatestDeadlineWins(t *testing.T) {
	t.Parallel()
	c := counter("k")
	for _, tc := range []struct {
		name      string
		lifetimes []time.Duration
		want      time.Duration
	}{
		{"none: longer than any node needs", nil, 4 * minute},
		{"shorter than without one", []time.Duration{minute}, minute},
		{"longer than without one", []time.Duration{time.Hour}, time.Hour},
		{"a later one", []time.Duration{minute, 2 * minute}, 2 * minute},
		{"an earlier one", []time.Duration{2 * minute, minute}, 2 * minute},
		{"the longest there is", []time.Duration{math.MaxInt64}, math.MaxInt64},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := memorystore.New()
			add(t, s, start, c, 7)
			for _, d := range tc.lifetimes {
				expire(t, s, start, c, d)
			}
			if got := get(t, s, start.Add(tc.want), c); got != 7 {
				t.Errorf("at the deadline: got %d, want 7", got)
			}
			if got := get(t, s, start.Add(tc.want).Add(10*time.Millisecond), c); got != 0 {
				t.Errorf("past the deadline: got %d, want 0", got)
			}
		})
	}
}

func TestS4_AnExpiredCounterIsBornAnew(t *testing.T) {
	t.Parallel()
	s, c := memorystore.New(), counter("k")
	add(t, s, start, c, 7)
	expire(t, s, start, c, minute)

	late := start.Add(2 * minute)
	expire(t, s, late, c, time.Hour) // comes too late: there is nothing to keep
	if got := get(t, s, late, c); got != 0 {
		t.Errorf("after its life: got %d, want 0", got)
	}
	if got := add(t, s, late, c, 3); got != 3 {
		t.Errorf("born anew: got total %d, want 3", got)
	}
	if got := get(t, s, late.Add(3*minute), c); got != 3 {
		t.Errorf("within its new life: got %d, want 3", got)
	}
}

func TestS4_AVeryLongWindowDoesNotOverflow(t *testing.T) {
	t.Parallel()
	s, c := memorystore.New(), counter("k")
	b := newBatch(start)
	b.Epochs, b.EpochLength = 60, math.MaxInt64
	b.Adds = []limiter.Add{{Counter: c, Delta: 1}}
	exchange(t, s, b)
	if got := get(t, s, start.Add(math.MaxInt64), c); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
}

func TestS4_LimitersOnDifferentPrefixesKeepTheirOwnTime(t *testing.T) {
	t.Parallel()
	s, c := memorystore.New(), counter("k")
	add(t, s, start, c, 7)

	future := newBatch(start.Add(1000 * time.Hour))
	future.Prefix = "future"
	for range 100 { // enough to sweep everything that may be swept
		exchange(t, s, future)
	}
	if got := get(t, s, start, c); got != 7 {
		t.Errorf("got %d, want 7", got)
	}
}

func TestS11_OverflowIsRefusedAndTheRestPerformed(t *testing.T) {
	t.Parallel()
	s := memorystore.New()
	b := newBatch(start)
	b.Adds = []limiter.Add{
		{Counter: counter("full"), Delta: math.MaxInt64},
		{Counter: counter("full"), Delta: 1},
		{Counter: counter("other"), Delta: 5},
	}
	b.Gets = []limiter.Get{{Counter: counter("full")}, {Counter: counter("other")}}

	if err := s.Exchange(t.Context(), b); !errors.Is(err, memorystore.ErrOverflow) {
		t.Errorf("got error %v, want %v", err, memorystore.ErrOverflow)
	}
	wantOutcomes := []limiter.Outcome{limiter.Applied, limiter.NotApplied, limiter.Applied}
	for i, want := range wantOutcomes {
		if got := b.Adds[i].Outcome; got != want {
			t.Errorf("add %d: got %v, want %v", i, got, want)
		}
	}
	for i, want := range []int64{math.MaxInt64, 5} {
		if got := b.Gets[i]; got.Total != want || !got.OK {
			t.Errorf("get %d: got %d, %t, want %d, true", i, got.Total, got.OK, want)
		}
	}
	if got, want := b.Servers[0].ErrorKind, "refused"; got != want {
		t.Errorf("got error kind %q, want %q", got, want)
	}
}

func TestExchange_RefusesWhatIsNotPositive(t *testing.T) {
	t.Parallel()
	s, c := memorystore.New(), counter("k")
	add(t, s, start, c, 7)
	b := newBatch(start)
	b.Adds = []limiter.Add{{Counter: c, Delta: 0}, {Counter: c, Delta: math.MinInt64}, {Counter: c, Delta: 1}}
	b.Expires = []limiter.Expire{{Counter: c, Lifetime: 0}, {Counter: c, Lifetime: -1}}

	if err := s.Exchange(t.Context(), b); err == nil {
		t.Error("got no error")
	}
	if got, want := b.Servers[0].ErrorKind, "invalid"; got != want {
		t.Errorf("got error kind %q, want %q", got, want)
	}
	var got []limiter.Outcome
	for _, op := range b.Adds {
		got = append(got, op.Outcome)
	}
	for _, op := range b.Expires {
		got = append(got, op.Outcome)
	}
	no := limiter.NotApplied
	if diff := cmp.Diff([]limiter.Outcome{no, no, limiter.Applied, no, no}, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if got := get(t, s, start, c); got != 8 {
		t.Errorf("got %d, want 8", got)
	}
}

func TestS9_ADoneContextAppliesNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		ctx  func() (context.Context, context.CancelFunc)
		want error
		kind string
	}{
		{"canceled", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		}, context.Canceled, "canceled"},
		{"past its deadline", func() (context.Context, context.CancelFunc) {
			return context.WithDeadline(context.Background(), time.Unix(0, 0))
		}, context.DeadlineExceeded, "timeout"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, c := memorystore.New(), counter("k")
			b := newBatch(start)
			b.Adds = []limiter.Add{{Counter: c, Delta: 1, Outcome: limiter.Applied}}
			b.Expires = []limiter.Expire{{Counter: c, Lifetime: minute, Outcome: limiter.Applied}}
			b.Gets = []limiter.Get{{Counter: c, OK: true}}
			ctx, cancel := tc.ctx()
			defer cancel()

			if err := s.Exchange(ctx, b); !errors.Is(err, tc.want) {
				t.Errorf("got error %v, want %v", err, tc.want)
			}
			if got := b.Adds[0].Outcome; got != limiter.NotApplied {
				t.Errorf("add: got %v, want %v", got, limiter.NotApplied)
			}
			if got := b.Expires[0].Outcome; got != limiter.NotApplied {
				t.Errorf("expire: got %v, want %v", got, limiter.NotApplied)
			}
			if b.Gets[0].OK {
				t.Error("get: got ok, want not ok")
			}
			if got := b.Servers[0]; got.ErrorKind != tc.kind || got.Commands != 0 {
				t.Errorf("got report %+v, want kind %q and no commands", got, tc.kind)
			}
			if got := s.Len(); got != 0 {
				t.Errorf("got %d counters, want none", got)
			}
		})
	}
}

func TestExchange_ReportsWhatItDid(t *testing.T) {
	t.Parallel()
	s, c := memorystore.New(), counter("k")
	b := newBatch(start)
	b.Adds = []limiter.Add{{Counter: c, Delta: 1}, {Counter: c, Delta: 1}}
	b.Expires = []limiter.Expire{{Counter: c, Lifetime: minute}}
	b.Gets = []limiter.Get{{Counter: c}}
	exchange(t, s, b)
	if len(b.Servers) != 1 {
		t.Fatalf("got %d reports, want 1", len(b.Servers))
	}
	got := b.Servers[0]
	got.Duration = 0
	if diff := cmp.Diff(limiter.ServerReport{Server: "memory", Commands: 4}, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestExpiredCountersAreFreed(t *testing.T) {
	t.Parallel()
	const keys = 10_000
	s := memorystore.New()
	b := newBatch(start)
	for k := range keys {
		b.Adds = append(b.Adds, limiter.Add{Counter: counter(fmt.Sprint(k)), Delta: 1})
	}
	exchange(t, s, b)
	if got := s.Len(); got != keys {
		t.Fatalf("got %d counters, want %d", got, keys)
	}

	late := newBatch(start.Add(time.Hour))
	for range 32 { // one shard each
		exchange(t, s, late)
	}
	if got := s.Len(); got != 0 {
		t.Errorf("got %d counters after their life, want none", got)
	}
}

func TestExpiredCountersAreFreed_OfVeryManyEpochs(t *testing.T) {
	t.Parallel()
	const epochs = 10_000
	s := memorystore.New()
	b := newBatch(start)
	for n := range epochs {
		b.Adds = append(b.Adds, limiter.Add{Counter: limiter.Counter{Epoch: int64(n)}, Delta: 1})
	}
	exchange(t, s, b)

	late := newBatch(start.Add(time.Hour))
	for range 32 { // each shard once, of which all counters are in one
		exchange(t, s, late)
	}
	if got := s.Len(); got == 0 || got == epochs {
		t.Errorf("got %d of %d counters after one sweep, want some to be left to the next one", got, epochs)
	}
	for range 100 * 32 {
		exchange(t, s, late)
	}
	if got := s.Len(); got != 0 {
		t.Errorf("got %d counters after their life, want none", got)
	}
}

func TestAnAbandonedPrefixIsFreedWhenANewOneAppears(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := memorystore.New(), counter("k")
		use := func(prefix string) {
			b := newBatch(start)
			b.Prefix = prefix
			b.Adds = []limiter.Add{{Counter: c, Delta: 1}}
			b.Expires = []limiter.Expire{{Counter: c, Lifetime: time.Hour}}
			exchange(t, s, b)
		}
		use("abandoned")
		use("in use")
		time.Sleep(59 * minute)
		use("in use")
		use("new")
		if got := s.Len(); got != 3 {
			t.Errorf("while all counters may be needed: got %d, want 3", got)
		}
		time.Sleep(2 * minute)
		use("newer")
		if got := s.Len(); got != 3 {
			t.Errorf("after the abandoned prefix's last hour: got %d, want 3", got)
		}
	})
}

// Not parallel: it counts allocations.
func TestExchange_DoesNotAllocateInSteadyState(t *testing.T) {
	s := memorystore.New()
	b := newBatch(start)
	for k := range 100 {
		c := counter(fmt.Sprint(k))
		b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: 1})
		b.Expires = append(b.Expires, limiter.Expire{Counter: c, Lifetime: minute})
		b.Gets = append(b.Gets, limiter.Get{Counter: c})
	}
	ctx := t.Context()
	got := testing.AllocsPerRun(100, func() {
		b.Servers = b.Servers[:0]
		if err := s.Exchange(ctx, b); err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 {
		t.Errorf("got %v allocations per exchange of 300 operations, want 0", got)
	}
}
