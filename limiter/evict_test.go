package limiter_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/cache"
	"github.com/fleetlimit/fleetlimit/limiter"
)

func TestC1_AKeyThatReturnsAdoptsWhatWasNotSent(t *testing.T) {
	t.Parallel()
	for entries := 1; entries <= 8; entries++ {
		store := newStore()
		l := mustNew(t, store, limiter.Config{Limit: 10, Clock: newClock(), CacheEntries: entries})
		passed := make(map[string]int64)
		want := make(map[string]int64)
		for i := range 30 * 2 * entries { // cache and backlog together hold twice the entries
			key := strconv.Itoa(i % (2 * entries))
			if d := l.Peek(key); d.Remaining != 10-passed[key] {
				t.Fatalf("C1: Peek at %s: got %+v, want %d remaining", key, d, 10-passed[key])
			}
			passed[key] += admit(l, key, 1)
			want[key] = 10
		}
		if diff := cmp.Diff(want, passed); diff != "" {
			t.Errorf("C1: a cache of %d: admitted (-want +got):\n%s", entries, diff)
		}
		if s := l.Totals(); s.EvictedOverflow == 0 || s.Dropped != 0 {
			t.Errorf("a cache of %d: got %+v, want evictions and nothing dropped", entries, s)
		}
		flush(t, l)
		conserved(t, l, int64(20*entries))
	}
}

// refusing is a cache that keeps nothing.
type refusing struct {
	limiter.LocalCache
	onEvict func(*limiter.Entry, limiter.EvictionCause)
}

func (r *refusing) GetOrAdd(_ string, create func() *limiter.Entry) (*limiter.Entry, bool) {
	e := create()
	r.onEvict(e, cache.CauseOverflow)
	return e, true
}

// A full cache may turn a key away before its first event has been counted.
func TestC1_AKeyThatIsNeverCachedIsLimited(t *testing.T) {
	t.Parallel()
	store := newStore()
	l := mustNew(t, store, limiter.Config{
		Limit: 10, Clock: newClock(), CacheEntries: 5,
		NewCache: func(cfg limiter.CacheConfig) limiter.LocalCache {
			return &refusing{limiter.NewDefaultCache(cfg), cfg.OnEvict}
		},
	})
	for i := range 5 {
		if got := admit(l, strconv.Itoa(i), 30); got != 10 {
			t.Errorf("C1: admitted %d of limit 10", got)
		}
	}
	for i := range 1000 {
		l.Allow("flood" + strconv.Itoa(i))
	}
	if got := l.Totals().Dropped; got != 1000 {
		t.Errorf("C2: %d dropped of 1000 that came when the backlog was full", got)
	}
	flush(t, l)
	flush(t, l)
	conserved(t, l, 1050)
	if got := limiter.Held(l); got != 0 {
		t.Errorf("C2: %d entries are held when all has been sent", got)
	}
}

func TestC2_TheBacklogIsBoundedWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	for _, policy := range []limiter.Outage{limiter.OutageLocal, limiter.OutageDeny} {
		c, store, w := newClock(), newStore(), new(watcher)
		store.SetRule(refused)
		l := mustNew(t, store, limiter.Config{Limit: 10, Clock: c, CacheEntries: 100, Outage: policy, OutageAfter: 2 * time.Second, Observer: w})
		var accepted int64
		for i := range 5_000 {
			if l.Allow(strconv.Itoa(i)) {
				accepted++
			}
			if i%500 == 499 {
				c.run(time.Second, l)
			}
		}
		c.run(2*time.Second, l)
		if got := limiter.Held(l); got > 220 {
			t.Errorf("C2: policy %d: %d entries are held, with a cache of 100", policy, got)
		}
		r := w.take()
		last := r[len(r)-1]
		if last.Backlog > 220 || last.CacheEntries > 100 || last.CacheCapacity != 100 {
			t.Errorf("C2: policy %d: %d in the backlog, %d of %d in the cache", policy, last.Backlog, last.CacheEntries, last.CacheCapacity)
		}
		if policy == limiter.OutageLocal && last.Totals.Dropped == 0 {
			t.Errorf("C2: nothing was dropped")
		}
		store.SetRule(nil)
		flush(t, l)
		conserved(t, l, accepted)
	}
}

// scan makes n decisions on keys that come once.
func scan(l *limiter.Limiter, next *int, n int) {
	for range n {
		*next++
		l.Allow("scan" + strconv.Itoa(*next))
	}
}

func TestC3_AHotKeyStaysLimitedDuringAScan(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := mustNew(t, newStore(), limiter.Config{Limit: 50, Clock: c, CacheEntries: 500})
	next, passed := 0, int64(0)
	for tick := range 55 {
		passed += admit(l, "hot", 20)
		if tick >= 10 {
			scan(l, &next, 1000)
		}
		c.run(time.Second, l)
	}
	if passed != 50 {
		t.Errorf("C3: admitted %d of limit 50 during a scan", passed)
	}
}

func TestC3_ANewKeyInAFullCacheIsLimited(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := mustNew(t, newStore(), limiter.Config{Limit: 50, Clock: c, CacheEntries: 100})
	use := func(keys int) {
		for i := range keys {
			admit(l, "hot"+strconv.Itoa(i), 3)
		}
	}
	for range 10 {
		use(100)
		c.run(time.Second, l)
	}
	var passed [20]int64
	for tick := range passed {
		for range 60 { // interleaved, so that every key has its chance to be evicted
			passed[tick] += admit(l, "new", 1)
			use(90)
		}
		c.run(time.Second, l)
	}
	if passed[0] != 50 {
		t.Errorf("C1: admitted %d of limit 50 in the first tick", passed[0])
	}
	for tick, n := range passed[3:] {
		if n > 0 {
			t.Errorf("C3: admitted %d of a limited key, %d ticks after it came", n, tick+3)
		}
	}
}

func TestEvictions_AreCountedByCause(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := mustNew(t, newStore(), limiter.Config{Limit: 10, Clock: c, CacheEntries: 10, CacheIdle: 3 * time.Minute, CacheTTL: 4 * time.Minute})
	for i := range 25 {
		l.Allow(strconv.Itoa(i))
	}
	c.run(time.Second, l)
	if s := l.Totals(); s.FirstSeen != 25 || s.EvictedOverflow != 15 || s.EvictedExpired != 0 {
		t.Errorf("after 25 keys in a cache of 10: got %+v", s)
	}
	c.run(5*time.Minute, l)
	if s := l.Totals(); s.EvictedOverflow != 15 || s.EvictedExpired != 10 {
		t.Errorf("after the idle timeout: got %+v", s)
	}
}

// A key in use is neither idle nor, past the TTL, forgotten.
func TestCache_KeepsAKeyInUse(t *testing.T) {
	t.Parallel()
	c, store := newClock(), &spy{Store: newStore()}
	l := mustNew(t, store, limiter.Config{Limit: 1_000_000, Clock: c, CacheIdle: 3 * time.Minute, CacheTTL: 4 * time.Minute})
	full := 0
	for range 30 * 60 {
		l.Allow("k")
		c.run(time.Second, l)
		for _, b := range store.take() {
			if len(b.Adds)+len(b.Gets) == 2 && len(b.Gets) > 0 {
				full++
			}
		}
	}
	if s := l.Totals(); s.EvictedExpired != 0 || s.FirstSeen != 1 {
		t.Errorf("a key in use left the cache: %+v", s)
	}
	// Each epoch is read in full once it is over, and all is at half the TTL.
	if full < 30 {
		t.Errorf("%d full reads in 30 minutes", full)
	}
}
