package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	golimiter "github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

const (
	plenty = 1 << 50 // a limit that is not reached
	seldom = 6 * time.Hour
)

// contender is a way to decide. The function that new returns decides on each of
// asks and returns how many passed. It is a loop, because a call for each ask would
// cost as much as a part of the decision.
type contender struct {
	name   string
	denies bool
	new    func(b *testing.B, w *workload) func(asks []string) (passed int)
}

var contenders = []contender{
	{name: "floor", new: func(_ *testing.B, w *workload) func([]string) int { return newFloor(w.keys) }},

	{name: "Allow", new: func(b *testing.B, w *workload) func([]string) int {
		l := w.admitting(b)
		return func(asks []string) (passed int) {
			for _, key := range asks {
				if l.Allow(key) {
					passed++
				}
			}
			return passed
		}
	}},
	{name: "AllowN", new: func(b *testing.B, w *workload) func([]string) int {
		l := w.admitting(b)
		return func(asks []string) (passed int) {
			for _, key := range asks {
				if l.AllowN(key, 3) {
					passed++
				}
			}
			return passed
		}
	}},
	{name: "Check", new: func(b *testing.B, w *workload) func([]string) int { return check(w.admitting(b)) }},
	{name: "Peek", new: func(b *testing.B, w *workload) func([]string) int {
		l := w.admitting(b)
		return func(asks []string) (passed int) {
			for _, key := range asks {
				if l.Peek(key).Allowed {
					passed++
				}
			}
			return passed
		}
	}},
	{name: "Allow/verdict=denied", denies: true, new: func(b *testing.B, w *workload) func([]string) int {
		l := w.denying(b)
		return func(asks []string) (passed int) {
			for _, key := range asks {
				if l.Allow(key) {
					passed++
				}
			}
			return passed
		}
	}},
	{name: "Check/verdict=denied", denies: true, new: func(b *testing.B, w *workload) func([]string) int { return check(w.denying(b)) }},

	{name: "x/time/rate", new: func(_ *testing.B, w *workload) func([]string) int {
		var limiters sync.Map
		for _, key := range w.keys {
			limiters.Store(key, rate.NewLimiter(plenty, plenty))
		}
		return func(asks []string) (passed int) {
			for _, key := range asks {
				if l, _ := limiters.Load(key); l.(*rate.Limiter).Allow() {
					passed++
				}
			}
			return passed
		}
	}},

	{name: "go-limiter", new: func(b *testing.B, w *workload) func([]string) int {
		ctx := context.Background()
		store, err := golimiter.New(&golimiter.Config{Tokens: plenty, Interval: 24 * time.Hour, InitialAlloc: len(w.keys)})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { store.Close(ctx) })
		for _, key := range w.keys {
			store.Take(ctx, key)
		}
		return func(asks []string) (passed int) {
			for _, key := range asks {
				if _, _, _, ok, _ := store.Take(ctx, key); ok {
					passed++
				}
			}
			return passed
		}
	}},
}

func check(l *limiter.Limiter) func(asks []string) int {
	return func(asks []string) (passed int) {
		for _, key := range asks {
			if l.Check(key, 1).Allowed {
				passed++
			}
		}
		return passed
	}
}

// BenchmarkDecision is one decision on a key that is known, while the loop is at
// rest.
func BenchmarkDecision(b *testing.B) {
	for _, load := range []string{"hot", "zipf", "uniform"} {
		w := newWorkload(load)
		b.Cleanup(w.close)
		if want := map[string]int{"hot": 1, "zipf": keyCount / 3, "uniform": keyCount / 10 * 9}[load]; w.distinct < want {
			b.Fatalf("%s: asks for %d distinct keys, want at least %d", load, w.distinct, want)
		}
		for _, c := range contenders {
			b.Run("keys="+load+"/by="+c.name, func(b *testing.B) {
				passed, asked := w.compare(b, c.new(b, &w))
				if want := map[bool]int{false: asked, true: 0}[c.denies]; passed != want {
					b.Errorf("%d of %d asks passed, want %d", passed, asked, want)
				}
			})
		}
	}
}

// BenchmarkNearLimit is one decision on a hot key that other nodes use as well, and
// of which more than half its limit is used up: it is judged by a prediction of
// what the others admit.
func BenchmarkNearLimit(b *testing.B) {
	const limit = 1 << 40
	ctx := context.Background()
	w := newWorkload("hot")
	key := w.asks[0]
	store := memorystore.New()
	l, err := limiter.New(store, limiter.Config{Name: "bench", Prefix: "bench", Limit: limit, Window: 24 * time.Hour, TickEvery: 100 * time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	defer stop(l)
	l.Allow(key)
	now := time.Now()
	others := limiter.Add{Counter: limiter.Counter{Key: key, Epoch: now.UnixNano() / int64(24*time.Hour)}, Delta: limit / 4 * 3}
	if err := store.Exchange(ctx, &limiter.Batch{
		Prefix: "bench", Epochs: 1, EpochLength: 24 * time.Hour, Now: now, ChunkTimeout: time.Minute,
		Adds: []limiter.Add{others},
	}); err != nil {
		b.Fatal(err)
	}
	if err := l.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	passed, asked := w.compare(b, func(asks []string) (passed int) {
		for _, key := range asks {
			if l.Allow(key) {
				passed++
			}
		}
		return passed
	})
	d := l.Check(key, 1)
	if passed != asked || d.Remaining > limit/4 {
		b.Errorf("%d of %d asks passed, %d remain of %d, want all to pass and a quarter to remain", passed, asked, d.Remaining, d.Limit)
	}
}
