package bench

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

// BenchmarkUnknownKey is the first decision on a key, in a full cache, so that
// another key must give way, and the backlog of keys that have left it is full too.
func BenchmarkUnknownKey(b *testing.B) {
	w := newWorkload("hot")
	l := w.warm(b, memorystore.New(), limiter.Config{Limit: plenty, TickEvery: seldom})
	defer stop(l)
	key := []byte("unknown-")
	n := 0
	b.ReportAllocs()
	start := threadTime()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		key = strconv.AppendInt(key[:8], int64(n), 10)
		n++
		if !l.Allow(string(key)) {
			b.Fatal("denied")
		}
	}
	b.ReportMetric(float64((threadTime()-start).Nanoseconds())/float64(b.N), "ns/op")
	if t := l.Totals(); t.FirstSeen != int64(len(w.keys)+n) {
		b.Errorf("%d keys were unknown, want %d", t.FirstSeen-int64(len(w.keys)), n)
	}
}

// simulated is a time that stands still until it is set.
type simulated struct {
	mu  sync.Mutex
	now time.Time
}

func (c *simulated) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *simulated) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// BenchmarkTick is the CPU time of a tick with 100,000 keys that have new events.
// How long a key may wait is such that about 15 % of them are due.
func BenchmarkTick(b *testing.B) {
	const dirty = 100_000
	ctx := context.Background()
	clock := &simulated{now: time.Unix(1_800_000_000, 0)}
	var report limiter.Report
	l, err := limiter.New(memorystore.New(), limiter.Config{
		Name:      "bench",
		Limit:     plenty,
		Window:    24 * time.Hour,
		TickEvery: time.Second,
		SyncEvery: 2 * time.Second,
		Clock:     clock,
		Observer:  limiter.ObserverFunc(func(r *limiter.Report) { report = *r }),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer stop(l)
	keys := make([]string, dirty)
	for i := range keys {
		keys[i] = "tenant-" + strconv.Itoa(i)
	}
	tick := func() (took time.Duration, due int) {
		for _, key := range keys {
			l.Allow(key)
		}
		clock.set(l.NextTick())
		start := processTime()
		if err := l.Tick(ctx); err != nil {
			b.Fatal(err)
		}
		return processTime() - start, report.Exchange.Adds
	}
	for range 20 { // until they are spread over the ticks
		tick()
	}
	runtime.GC()
	var times, dues []float64
	for b.Loop() {
		took, due := tick()
		times = append(times, took.Seconds()*1e3)
		dues = append(dues, float64(due)/dirty*100)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(times), "cpu-ms/tick")
	b.ReportMetric(median(dues), "%due")
	if due := median(dues); due < 10 || due > 20 || report.Deferred > 0 {
		b.Errorf("%.0f %% of the keys were due and %d deferred, want 10 to 20 and none", due, report.Deferred)
	}
}

// BenchmarkMemory is the memory that a limiter takes for each key, in a cache that
// is full and has been exchanged with the store once. The store's own memory does
// not count.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(perKey(b), "B/key")
	}
	b.ReportMetric(0, "ns/op")
}

func perKey(b *testing.B) float64 {
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	key := []byte("tenant-")
	before := heap()
	l, err := limiter.New(acknowledging{}, limiter.Config{Name: "bench", Limit: plenty, Window: 24 * time.Hour, TickEvery: seldom})
	if err != nil {
		b.Fatal(err)
	}
	defer stop(l)
	for i := range keyCount {
		key = strconv.AppendInt(key[:7], int64(i), 10)
		l.Allow(string(key))
	}
	if err := l.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	after := heap()
	if t := l.Totals(); t.Acknowledged != keyCount || t.EvictedOverflow > 0 {
		b.Fatalf("%d events acknowledged and %d keys evicted, want %d and 0", t.Acknowledged, t.EvictedOverflow, keyCount)
	}
	return (after - before) / keyCount
}

// acknowledging is a store without memory.
type acknowledging struct{}

func (acknowledging) Exchange(_ context.Context, b *limiter.Batch) error {
	for i := range b.Adds {
		b.Adds[i].Outcome, b.Adds[i].Total = limiter.Applied, b.Adds[i].Delta
	}
	for i := range b.Expires {
		b.Expires[i].Outcome = limiter.Applied
	}
	for i := range b.Gets {
		b.Gets[i].OK = true
	}
	return nil
}
