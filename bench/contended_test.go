package bench

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/puzpuzpuz/xsync/v4"
)

// BenchmarkContended is the number of decisions per second that one core, and two
// cores together, make on one key. A round counts only if both had their core to
// themselves for all of it.
func BenchmarkContended(b *testing.B) {
	if runtime.GOMAXPROCS(0) < 2 {
		b.Skip("needs two cores")
	}
	w := newWorkload("hot")
	b.Cleanup(w.close)
	l := w.admitting(b)
	key := w.asks[0]
	var shared atomic.Int64
	m := xsync.NewMap[string, *atomic.Int64]()
	m.Store(w.keys[0], new(atomic.Int64))

	for _, c := range []struct {
		name string
		run  func(n int)
	}{
		{"atomic add", func(n int) {
			for range n {
				shared.Add(1)
			}
		}},
		{"floor", func(n int) {
			for range n {
				v, _ := m.Load(key)
				v.Add(1)
			}
		}},
		{"Allow", func(n int) {
			for range n {
				if !l.Allow(key) {
					panic("denied")
				}
			}
		}},
	} {
		b.Run("by="+c.name, func(b *testing.B) {
			const n = 20_000
			var one, two, ratios []float64
			for b.Loop() {
				alone, ok := together(1, func() { c.run(n) })
				if !ok {
					continue
				}
				both, ok := together(2, func() { c.run(n) })
				if !ok {
					continue
				}
				one = append(one, n/alone.Seconds()/1e6)
				two = append(two, 2*n/both.Seconds()/1e6)
				ratios = append(ratios, 2*alone.Seconds()/both.Seconds())
			}
			b.ReportMetric(0, "ns/op")
			if len(ratios) < 20 {
				b.Skipf("only %d rounds in which both cores were free", len(ratios))
			}
			b.ReportMetric(median(one), "M/s,cores=1")
			b.ReportMetric(median(two), "M/s,cores=2")
			b.ReportMetric(median(ratios), "xcores=1")
		})
	}
}

// together runs f in n threads at the same time and returns how long that took,
// and whether nothing else ran in their place.
func together(n int, f func()) (took time.Duration, undisturbed bool) {
	var ready, disturbed atomic.Int32
	var wg sync.WaitGroup
	var first, last atomic.Int64
	first.Store(1 << 62)
	begin := time.Now()
	for range n {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Add(1)
			for ready.Load() < int32(n) { // spin, so that both begin at once
			}
			start, used := time.Since(begin), threadTime()
			f()
			end, used := time.Since(begin), threadTime()-used
			if end-start > used+used/50 {
				disturbed.Add(1)
			}
			for at := first.Load(); int64(start) < at && !first.CompareAndSwap(at, int64(start)); at = first.Load() {
			}
			for at := last.Load(); int64(end) > at && !last.CompareAndSwap(at, int64(end)); at = last.Load() {
			}
		})
	}
	wg.Wait()
	return time.Duration(last.Load() - first.Load()), disturbed.Load() == 0
}
