// Package bench compares decisions with the least that any limiter must do, and
// with other limiters.
package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

const (
	// keyCount is also the default bound of the limiter's cache.
	keyCount = 300_000
	askCount = 1 << 20
	// chunk is how many decisions are timed in one go: few enough to take turns
	// often, and enough to have the processor's caches to oneself for most of it.
	chunk = 1 << 15
)

// workload is a set of keys and the order in which they are asked for.
type workload struct {
	keys []string
	// asks are strings of their own, one after the other in memory: in a server, a
	// key has just been read from a request.
	asks     []string
	distinct int // keys among asks
	floor    func(asks []string) (passed int)

	// Limiters whose loop is at rest, made when they are first needed.
	admits, denies *limiter.Limiter
}

// newWorkload has all of keyCount keys, and asks for one of them ("hot"), for all
// in a Zipf distribution with exponent 1.05 ("zipf"), or for all alike
// ("uniform").
func newWorkload(load string) workload {
	w := workload{keys: make([]string, keyCount), asks: make([]string, askCount)}
	for i := range w.keys {
		w.keys[i] = fmt.Sprintf("tenant-%06d", i)
	}
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.05, 1, keyCount-1)
	ranked := r.Perm(keyCount) // keys that are hot were not added one after the other
	seen := make(map[int]bool)
	var text strings.Builder
	for range w.asks {
		i := 0
		switch load {
		case "zipf":
			i = ranked[zipf.Uint64()]
		case "uniform":
			i = r.IntN(keyCount)
		}
		seen[i] = true
		text.WriteString(w.keys[i])
	}
	length := len(w.keys[0])
	for i := range w.asks {
		w.asks[i] = text.String()[i*length:][:length]
	}
	w.distinct = len(seen)
	w.floor = newFloor(w.keys)
	return w
}

// newFloor returns the least that any limiter must do for each ask: one load from
// a concurrent map, one atomic add.
func newFloor(keys []string) func(asks []string) int {
	m := xsync.NewMap[string, *atomic.Int64](xsync.WithPresize(len(keys)))
	for _, key := range keys {
		m.Store(key, new(atomic.Int64))
	}
	return func(asks []string) int {
		for _, key := range asks {
			v, _ := m.Load(key)
			v.Add(1)
		}
		return len(asks)
	}
}

// compare measures run, which returns how many of its asks passed, in turns with
// the floor, so that what else the machine does disturbs both. It reports medians:
// the time per ask, and how many times the floor's that is.
func (w *workload) compare(b *testing.B, run func(asks []string) (passed int)) (passed, asked int) {
	w.floor(w.asks)
	run(w.asks)
	runtime.GC()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	var times, ratios []float64
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		asks := w.asks[asked%len(w.asks):][:chunk]
		start := threadTime()
		w.floor(asks)
		middle := threadTime()
		passed += run(asks)
		end := threadTime()
		asked += len(asks)
		times = append(times, float64((end-middle).Nanoseconds())/chunk)
		ratios = append(ratios, float64(end-middle)/float64(middle-start))
	}
	runtime.ReadMemStats(&after)
	b.ReportAllocs()
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(asked), "B/op")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(asked), "allocs/op")
	b.ReportMetric(median(times), "ns/op")
	b.ReportMetric(median(ratios), "xfloor")
	return passed, asked
}

func median(xs []float64) float64 { return quantile(xs, 0.5) }

func quantile(xs []float64, q float64) float64 {
	slices.Sort(xs)
	return xs[int(q*float64(len(xs)-1))]
}

// admitting returns a limiter that admits everything.
func (w *workload) admitting(b *testing.B) *limiter.Limiter {
	if w.admits == nil {
		w.admits = w.warm(b, memorystore.New(), limiter.Config{Limit: plenty, TickEvery: seldom})
	}
	return w.admits
}

// denying returns a limiter that denies everything.
func (w *workload) denying(b *testing.B) *limiter.Limiter {
	if w.denies == nil {
		w.denies = w.warm(b, memorystore.New(), limiter.Config{Limit: 1, TickEvery: seldom})
	}
	return w.denies
}

// close ends the limiters. Nothing of what they have to send is needed.
func (w *workload) close() {
	for _, l := range []*limiter.Limiter{w.admits, w.denies} {
		if l != nil {
			stop(l)
		}
	}
}

func stop(l *limiter.Limiter) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l.Shutdown(ctx)
}

// warm returns a limiter in the middle of its work: it has all keys of w in its
// cache, has heard of each from the store, with events in this epoch and, unless
// the limit is 1, the one before, and has new events of each.
func (w *workload) warm(b *testing.B, store limiter.Store, cfg limiter.Config) *limiter.Limiter {
	b.Helper()
	ctx := context.Background()
	cfg.Name, cfg.Prefix = "bench", "bench"
	cfg.Window = 24 * time.Hour
	if cfg.Limit > 1 {
		now := time.Now()
		batch := &limiter.Batch{Prefix: cfg.Prefix, Epochs: 1, EpochLength: cfg.Window, Now: now, ChunkTimeout: time.Minute}
		for _, key := range w.keys {
			counter := limiter.Counter{Key: key, Epoch: now.UnixNano()/int64(cfg.Window) - 1}
			batch.Adds = append(batch.Adds, limiter.Add{Counter: counter, Delta: 100})
		}
		if err := store.Exchange(ctx, batch); err != nil {
			b.Fatal(err)
		}
	}
	l, err := limiter.New(store, cfg)
	if err != nil {
		b.Fatal(err)
	}
	for _, key := range w.keys {
		l.Allow(key)
	}
	if err := l.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	for _, key := range w.keys {
		l.Allow(key)
	}
	return l
}
