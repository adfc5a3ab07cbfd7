// Package bench compares decisions with the least that any in-process limiter
// must do, and with other limiters.
package bench

import (
	"context"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

func BenchmarkFloor(b *testing.B) {
	forEachLoad(b, func(b *testing.B, w workload) { w.compare(b, newFloor(w.keys)) })
}

// BenchmarkAllow is a warm decision.
func BenchmarkAllow(b *testing.B) {
	forEachLoad(b, func(b *testing.B, w workload) {
		l, err := limiter.New(memorystore.New(), limiter.Config{Name: "bench", Limit: 1 << 50, TickEvery: 10 * time.Minute, Window: time.Hour, CacheTTL: 24 * time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		for _, k := range w.keys {
			l.Allow(k)
		}
		if err := l.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}
		w.compare(b, func(asks []string) (n int) {
			for _, key := range asks {
				if l.Allow(key) {
					n++
				}
			}
			return n
		})
	})
}
