package bench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/puzpuzpuz/xsync/v4"
)

const (
	// keyCount is also the default bound of the limiter's cache.
	keyCount = 300_000
	askCount = 1 << 20
	// chunk is how many decisions are timed in one go: enough to make the caches of
	// the machine one's own, and less than the scheduler lets run without a break.
	chunk = 1 << 15
)

// workload is a set of keys and the order in which they are asked for.
type workload struct {
	keys []string
	// asks are strings of their own, one after the other in memory: in a server, a
	// key has just been read from a request.
	asks []string
	// distinct is how many keys are among asks.
	distinct int
}

func newWorkload(load string) workload {
	keys := make([]string, keyCount)
	for i := range keys {
		keys[i] = fmt.Sprintf("tenant-%06d", i)
	}
	r := rand.New(rand.NewPCG(1, 2))
	rank := r.Perm(keyCount) // keys that are hot were not all added one after the other
	zipf := rand.NewZipf(r, 1.05, 1, keyCount-1)
	var text strings.Builder
	seen := make(map[int]bool)
	for range askCount {
		i := 0
		switch load {
		case "zipf":
			i = rank[zipf.Uint64()]
		case "uniform":
			i = r.IntN(keyCount)
		}
		seen[i] = true
		text.WriteString(keys[i])
	}
	w := workload{keys: keys, asks: make([]string, askCount), distinct: len(seen)}
	length := len(keys[0])
	for i := range w.asks {
		w.asks[i] = text.String()[i*length:][:length]
	}
	return w
}

// forEachLoad runs f with one hot key, with all keys in a Zipf distribution with
// exponent 1.05, and with all of them alike.
func forEachLoad(b *testing.B, f func(b *testing.B, w workload)) {
	for _, load := range []string{"hot", "zipf", "uniform"} {
		b.Run("keys="+load, func(b *testing.B) { f(b, newWorkload(load)) })
	}
}

// newFloor returns the least that any limiter must do for a key: one load from a
// concurrent map, one atomic add.
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
func (w workload) compare(b *testing.B, run func(asks []string) (passed int)) (passed, asked int) {
	floor := newFloor(w.keys)
	floor(w.asks)
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
		floor(asks)
		middle := threadTime()
		passed += run(asks)
		end := threadTime()
		asked += len(asks)
		least, took := middle-start, end-middle
		times = append(times, float64(took.Nanoseconds())/chunk)
		ratios = append(ratios, float64(took)/float64(least))
	}
	runtime.ReadMemStats(&after)
	b.ReportMetric(median(times), "ns/op")
	b.ReportMetric(median(ratios), "xfloor")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(asked), "B/op")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(asked), "allocs/op")
	b.ReportAllocs()
	return passed, asked
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}
