package cache_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/cache"
)

// modelEntry is what the model knows of an entry that was not evicted.
type modelEntry struct {
	v               *item
	added, deadline time.Duration
}

// world is a cache beside a plain map that does the same. The cache alone
// chooses what to evict and when to remove what has expired; the map checks that
// it was right to.
type world struct {
	*testing.T
	c         *cache.Cache[item]
	max       int
	idle, ttl time.Duration
	now       time.Duration
	entries   map[string]modelEntry
	gone      map[string]*item // evicted values
	deleting  string
	nextID    int
}

// until returns the deadline of an entry that is used now.
func (w *world) until(added time.Duration) time.Duration {
	deadline := time.Duration(1 << 62)
	if w.idle > 0 {
		deadline = min(deadline, w.now+w.idle)
	}
	if w.ttl > 0 {
		deadline = min(deadline, added+w.ttl)
	}
	return deadline
}

func (w *world) onEvict(v *item, cause cache.Cause) {
	e, ok := w.entries[v.key]
	if !ok || e.v != v {
		w.Fatalf("item %d of key %q evicted, but the entry is %+v", v.id, v.key, e)
	}
	switch expired := w.now >= e.deadline; {
	case expired != (cause == cache.CauseExpired):
		w.Errorf("key %q evicted as %v at %v with deadline %v", v.key, cause, w.now, e.deadline)
	case cause == cache.CauseDeleted && w.deleting != v.key:
		w.Errorf("key %q evicted as deleted while %q is being deleted", v.key, w.deleting)
	case cause == cache.CauseOverflow && len(w.entries) <= w.max:
		w.Errorf("key %q evicted as overflow with %d of %d entries", v.key, len(w.entries), w.max)
	}
	delete(w.entries, v.key)
	w.gone[v.key] = v
}

func (w *world) get(key string) {
	e, ok := w.entries[key]
	v, found := w.c.Get(key)
	switch {
	case found && v != e.v:
		w.Errorf("Get(%q) = %+v, want %+v", key, v, e.v)
	case !found && ok && w.now < e.deadline:
		w.Errorf("Get(%q) found nothing at %v, want item %d until %v", key, w.now, e.v.id, e.deadline)
	}
}

func (w *world) getOrAdd(key string, readopt bool) {
	before, ok := w.entries[key]
	present := ok && w.now < before.deadline
	var created *item
	v, added := w.c.GetOrAdd(key, func() *item {
		if e, ok := w.entries[key]; ok {
			w.Errorf("create for %q runs before the eviction of item %d", key, e.v.id)
		}
		if created = w.gone[key]; created == nil || !readopt {
			w.nextID++
			created = &item{key: key, id: w.nextID}
		}
		w.entries[key] = modelEntry{v: created, added: w.now, deadline: w.until(w.now)}
		return created
	})
	switch {
	case added == present:
		w.Errorf("GetOrAdd(%q) added = %v at %v, but the entry was %+v", key, added, w.now, before)
	case added && v != created:
		w.Errorf("GetOrAdd(%q) = %+v, want the value of create, %+v", key, v, created)
	case !added && v != before.v:
		w.Errorf("GetOrAdd(%q) = %+v, want %+v", key, v, before.v)
	}
}

func (w *world) use(key string, renew bool) {
	e, ok := w.entries[key]
	live := ok && w.now < e.deadline
	// The cache may expire the entry within the call, so the model goes first.
	if live {
		if renew {
			e.added = w.now
		}
		e.deadline = max(e.deadline, w.until(e.added))
		w.entries[key] = e
	}
	if renew {
		w.c.Renew(key)
	} else {
		w.c.Touch(key)
	}
}

func (w *world) delete(key string) {
	w.deleting = key
	w.c.Delete(key)
	w.deleting = ""
	if _, ok := w.entries[key]; ok {
		w.Errorf("Delete(%q) evicted nothing", key)
	}
}

func (w *world) rangeAll() {
	got, want := map[string]int{}, map[string]int{}
	for key, e := range w.entries {
		if w.now < e.deadline {
			want[key] = e.v.id
		}
	}
	w.c.Range(func(v *item) bool {
		got[v.key] = v.id
		return true
	})
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("Range at %v (-want +got):\n%s", w.now, diff)
	}
}

// TestCacheDoesAsAMap runs random operations.
func TestCacheDoesAsAMap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		t.Run("seed="+strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 0))
			pick := func(ds ...time.Duration) time.Duration { return ds[rng.IntN(len(ds))] }
			w := &world{
				T:       t,
				max:     []int{1, 2, 3, 8, 50}[rng.IntN(5)],
				idle:    pick(0, time.Millisecond, 5*time.Second, 90*time.Second),
				ttl:     pick(0, 10*time.Millisecond, 7*time.Second, 300*time.Second),
				entries: map[string]modelEntry{},
				gone:    map[string]*item{},
			}
			epoch := time.Unix(1<<30, 0)
			w.c = newCache(t, cache.Config[item]{
				MaxEntries:  w.max,
				IdleTimeout: w.idle,
				TTL:         w.ttl,
				Now:         func() time.Time { return epoch.Add(w.now) },
				OnEvict:     w.onEvict,
			})
			for range 3_000 {
				key := strconv.Itoa(rng.IntN(2*w.max + 1))
				switch rng.IntN(12) {
				case 0, 1:
					w.getOrAdd(key, true)
				case 2, 3:
					w.getOrAdd(key, false)
				case 4, 5, 6:
					w.get(key)
				case 7:
					w.use(key, false)
				case 8:
					w.use(key, true)
				case 9:
					w.delete(key)
				case 10:
					w.c.Maintain()
				case 11:
					switch e, ok := w.entries[key]; {
					case ok && rng.IntN(2) == 0 && e.deadline < 1<<62:
						w.now = max(w.now, e.deadline-time.Duration(rng.IntN(2)))
					case rng.IntN(10) == 0:
						w.now -= time.Duration(rng.IntN(1000)) * time.Millisecond
					default:
						w.now += time.Duration(rng.IntN(1000)) * time.Millisecond
					}
				}
				if got, want := w.c.Len(), len(w.entries); got != want || got > w.max {
					t.Fatalf("Len = %d, want %d, at most %d", got, want, w.max)
				}
				if rng.IntN(50) == 0 {
					w.rangeAll()
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}
