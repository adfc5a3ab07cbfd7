// Package bench compares decisions with the least that any in-process limiter
// must do, and with other limiters.
package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
	"github.com/puzpuzpuz/xsync/v4"
)

const keyCount = 300_000

func keys() []string {
	ks := make([]string, keyCount)
	for i := range ks {
		ks[i] = fmt.Sprintf("tenant-%06d", i)
	}
	return ks
}

// picks are indices of keys to ask for, in an order fixed in advance.
func picks(load string) []uint32 {
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.05, 1, keyCount-1)
	out := make([]uint32, 1<<20)
	for i := range out {
		switch load {
		case "zipf":
			out[i] = uint32(zipf.Uint64())
		case "uniform":
			out[i] = uint32(r.IntN(keyCount))
		}
	}
	return out
}

func loads(b *testing.B, f func(b *testing.B, ks []string, order []uint32)) {
	ks := keys()
	for _, load := range []string{"hot", "zipf", "uniform"} {
		order := picks(load)
		b.Run("keys="+load, func(b *testing.B) { f(b, ks, order) })
	}
}

// BenchmarkFloor is one load from a concurrent map and one atomic add.
func BenchmarkFloor(b *testing.B) {
	loads(b, func(b *testing.B, ks []string, order []uint32) {
		m := xsync.NewMap[string, *atomic.Int64](xsync.WithPresize(keyCount))
		for _, k := range ks {
			m.Store(k, new(atomic.Int64))
		}
		each(b, order, func(i uint32) {
			v, _ := m.Load(ks[i])
			v.Add(1)
		})
	})
}

// BenchmarkAllow is a warm decision.
func BenchmarkAllow(b *testing.B) {
	loads(b, func(b *testing.B, ks []string, order []uint32) {
		l, err := limiter.New(memorystore.New(), limiter.Config{Name: "bench", Limit: 1 << 50, CacheEntries: keyCount * 2, TickEvery: 10 * time.Second, Window: time.Hour, CacheTTL: 24 * time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		for _, k := range ks {
			l.Allow(k)
		}
		if err := l.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}
		each(b, order, func(i uint32) { l.Allow(ks[i]) })
	})
}

func each(b *testing.B, order []uint32, f func(i uint32)) {
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		n := rand.IntN(len(order))
		for pb.Next() {
			f(order[n&(len(order)-1)])
			n++
		}
	})
	b.StopTimer() // what follows is not part of a decision
}
