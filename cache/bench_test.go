package cache_test

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/cache"
)

const benchEntries = 300_000

// BenchmarkGet compares a hit with a read of a plain map, which is the lower
// bound. Both read a field of the value, as every user of it would.
func BenchmarkGet(b *testing.B) {
	names := make([]string, benchEntries)
	for i := range names {
		names[i] = "tenant:" + strconv.Itoa(i)
	}
	c := newCache(b, cache.Config[item]{MaxEntries: benchEntries})
	m := make(map[string]*item, benchEntries)
	for i, name := range names {
		c.GetOrAdd(name, func() *item { return &item{id: i} })
		m[strings.Clone(name)] = &item{id: i}
	}

	sequences := []struct {
		name string
		keys []string
	}{
		{"hot", names[:1]},
		{"zipf", zipf(names)},
	}
	for _, s := range sequences {
		mask := len(s.keys) - 1
		b.Run("keys="+s.name+"/in=map", func(b *testing.B) {
			i, sum := 0, 0
			for b.Loop() {
				sum += m[s.keys[i&mask]].id
				i++
			}
			runtime.KeepAlive(sum)
		})
		b.Run("keys="+s.name+"/in=cache", func(b *testing.B) {
			b.ReportAllocs()
			i, sum := 0, 0
			for b.Loop() {
				v, _ := c.Get(s.keys[i&mask])
				sum += v.id
				i++
			}
			runtime.KeepAlive(sum)
		})
		b.Run("keys="+s.name+"/in=cache/parallel=true", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				i, sum := rand.IntN(len(s.keys)), 0
				for pb.Next() {
					v, _ := c.Get(s.keys[i&mask])
					sum += v.id
					i++
				}
				runtime.KeepAlive(sum)
			})
		})
	}
}

// zipf draws a sequence, as long as a power of two, with exponent 1.05.
func zipf(names []string) []string {
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.05, 1, uint64(len(names)-1))
	keys := make([]string, 1<<20)
	for i := range keys {
		keys[i] = names[z.Uint64()]
	}
	return keys
}

// BenchmarkMiss is what an unknown key costs in a full cache.
func BenchmarkMiss(b *testing.B) {
	c := newCache(b, cache.Config[item]{MaxEntries: benchEntries})
	key := make([]byte, 0, 32)
	n := 0
	next := func() string {
		key = strconv.AppendInt(append(key[:0], "tenant:"...), int64(n), 10)
		n++
		return string(key)
	}
	create := func() *item { return new(item) }
	for range benchEntries {
		c.GetOrAdd(next(), create)
	}
	b.Run("op=Get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Get("absent")
		}
	})
	b.Run("op=GetOrAdd", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.GetOrAdd(next(), create)
		}
	})
	b.Run("op=GetOrAdd/parallel=true", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			key := append(make([]byte, 0, 32), "tenant:"...)
			for pb.Next() {
				key = strconv.AppendUint(key[:7], rand.Uint64(), 16)
				c.GetOrAdd(string(key), create)
			}
		})
	})
}

// BenchmarkTouch is what the owner pays per key in use and round.
func BenchmarkTouch(b *testing.B) {
	c := newCache(b, cache.Config[item]{MaxEntries: benchEntries, TTL: 10 * time.Minute, IdleTimeout: 5 * time.Minute})
	names := make([]string, 1<<14)
	for i := range names {
		names[i] = "tenant:" + strconv.Itoa(i)
		c.GetOrAdd(names[i], func() *item { return new(item) })
	}
	ops := []struct {
		name string
		do   func(string)
	}{{"Touch", c.Touch}, {"Renew", c.Renew}}
	for _, op := range ops {
		b.Run("op="+op.name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				op.do(names[i&(len(names)-1)])
				i++
			}
		})
	}
}

// BenchmarkMemory reports the bytes per entry of a full cache that are not the
// caller's values. The keys are 16 bytes long and their copies count.
func BenchmarkMemory(b *testing.B) {
	b.Run("entries="+strconv.Itoa(benchEntries), func(b *testing.B) {
		items := make([]item, benchEntries)
		for b.Loop() {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			c := newCache(b, cache.Config[item]{MaxEntries: benchEntries})
			key := make([]byte, 16)
			for i := range items {
				items[i] = item{}
				copy(key, "0000000000000000")
				s := strconv.AppendInt(nil, int64(i), 10)
				copy(key[16-len(s):], s)
				c.GetOrAdd(string(key), func() *item { return &items[i] })
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/benchEntries, "B/entry")
			c.Close()
		}
	})
}
