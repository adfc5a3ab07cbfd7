package conformance

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// Benchmark measures exchanges as a limiter makes them in its steady state: one
// add for each of 10, 300 or 7000 keys, and one expiry and one get for every
// twentieth. It reports nanoseconds per key besides those per exchange. With
// parallel=true, GOMAXPROCS callers exchange at once, on the same keys.
func (s StoreSuite) Benchmark(b *testing.B) {
	for _, keys := range []int{10, 300, 7000} {
		b.Run(fmt.Sprintf("keys=%d/parallel=false", keys), func(b *testing.B) {
			subject := s.subject(b)
			defer subject.cleanUp()
			batch := subject.steadyBatch(b, keys)
			b.ReportAllocs()
			for b.Loop() {
				if err := subject.repeat(batch); err != nil {
					b.Fatal(err)
				}
			}
			reportPerKey(b, keys)
		})
		b.Run(fmt.Sprintf("keys=%d/parallel=true", keys), func(b *testing.B) {
			subject := s.subject(b)
			defer subject.cleanUp()
			batches := make(chan *limiter.Batch, runtime.GOMAXPROCS(0))
			for range cap(batches) {
				batches <- subject.steadyBatch(b, keys)
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				batch := <-batches
				for pb.Next() {
					if err := subject.repeat(batch); err != nil {
						b.Error(err)
						return
					}
				}
			})
			reportPerKey(b, keys)
		})
	}
}

func reportPerKey(b *testing.B, keys int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*keys), "ns/key")
}

// steadyBatch returns a batch that has been exchanged once.
func (s *storeSubject) steadyBatch(tb testing.TB, keys int) *limiter.Batch {
	tb.Helper()
	b := s.batch()
	for i, c := range s.counters(keys) {
		b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: 1})
		if i%20 == 0 {
			b.Expires = append(b.Expires, limiter.Expire{Counter: c, Lifetime: time.Hour})
			previous := c
			previous.Epoch--
			b.Gets = append(b.Gets, limiter.Get{Counter: previous})
		}
	}
	if err := s.exchange(b); err != nil {
		tb.Fatal(err)
	}
	return b
}

// repeat performs b once more, past the suite's own bookkeeping.
func (s *storeSubject) repeat(b *limiter.Batch) error {
	b.Servers = b.Servers[:0]
	return s.store.Exchange(context.Background(), b)
}
