package conformance

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/cache"
	"github.com/fleetlimit/fleetlimit/limiter"
)

// TestLocalCache runs one subtest for each case of the rules for a
// [limiter.LocalCache]. newCache is what one sets as [limiter.Config.NewCache]; it
// is called once or more for each case, always with a clock of the suite's.
func TestLocalCache(t *testing.T, newCache func(limiter.CacheConfig) limiter.LocalCache) {
	t.Helper()
	for _, c := range cacheCases {
		t.Run(c.id+"_"+c.name, func(t *testing.T) {
			t.Parallel()
			conclude(t, c.id, runCache(watchdog, newCache, c), false)
		})
	}
}

func runCache(limit time.Duration, newCache func(limiter.CacheConfig) limiter.LocalCache, c ruleCase[*cacheSubject]) error {
	return guard(limit, func() error {
		s := &cacheSubject{newCache: newCache}
		defer s.close()
		return c.run(s)
	})
}

// cacheSubject makes the caches under test.
type cacheSubject struct {
	newCache func(limiter.CacheConfig) limiter.LocalCache
	opened   []limiter.LocalCache
}

func (s *cacheSubject) close() {
	for _, c := range s.opened {
		c.Close()
	}
}

const (
	cacheIdle = time.Minute
	cacheTTL  = 10 * time.Minute
)

// open returns a cache for maxEntries entries.
func (s *cacheSubject) open(maxEntries int) *watchedCache {
	w := &watchedCache{evictions: make(map[*limiter.Entry][]limiter.EvictionCause)}
	w.LocalCache = s.newCache(limiter.CacheConfig{
		MaxEntries:  maxEntries,
		TTL:         cacheTTL,
		IdleTimeout: cacheIdle,
		Now:         w.now,
		OnEvict:     w.onEvict,
	})
	s.opened = append(s.opened, w.LocalCache)
	return w
}

// watchedCache is a cache under test with its clock and what it has evicted.
type watchedCache struct {
	limiter.LocalCache
	passed atomic.Int64 // time since the start, in nanoseconds

	mu        sync.Mutex
	evictions map[*limiter.Entry][]limiter.EvictionCause
	onEvicted func(*limiter.Entry) // set before use, or nil
}

func (w *watchedCache) now() time.Time {
	return time.Unix(1_000_000, w.passed.Load())
}

// pass lets time pass and the cache work off what that brings.
func (w *watchedCache) pass(d time.Duration) {
	w.passed.Add(int64(d))
	w.Maintain()
}

func (w *watchedCache) onEvict(e *limiter.Entry, cause limiter.EvictionCause) {
	w.mu.Lock()
	w.evictions[e] = append(w.evictions[e], cause)
	w.mu.Unlock()
	if w.onEvicted != nil {
		w.onEvicted(e)
	}
}

// evicted returns how many entries have left, or an error if one has done so
// twice or for another cause than want.
func (w *watchedCache) evicted(want limiter.EvictionCause) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, causes := range w.evictions {
		if len(causes) != 1 || causes[0] != want {
			return 0, differ("causes told to OnEvict for one entry", causes, []limiter.EvictionCause{want})
		}
	}
	return len(w.evictions), nil
}

// add returns the entry of key and whether it was added.
func (w *watchedCache) add(key string) (*limiter.Entry, bool) {
	return w.GetOrAdd(key, func() *limiter.Entry { return new(limiter.Entry) })
}

// has checks whether key is cached.
func (w *watchedCache) has(what, key string, want bool) error {
	if _, ok := w.Get(key); ok != want {
		return differ(fmt.Sprintf("whether %q is cached, %s", key, what), ok, want)
	}
	return nil
}

var cacheCases = []ruleCase[*cacheSubject]{
	{id: "C1", name: "AKeyHasOneEntry", run: oneEntry},
	{id: "C1", name: "AnyKeyIsItsOwn", run: anyCacheKey},
	{id: "C1", name: "RacingCallersShareOneEntry", run: racingCallers},
	{id: "C1", name: "ADeletedKeyReturnsAnew", run: deletedKey},
	{id: "C1", name: "AnEvictionIsToldBeforeItsKeyReturns", run: toldBeforeReturn},
	{id: "C2", name: "TheBoundHolds", run: boundHolds},
	{id: "C2", name: "TheBoundHoldsForConcurrentCallers", run: boundHoldsConcurrently},
	{id: "C2", name: "BelowTheBoundNothingIsEvicted", run: nothingEvictedBelowBound},
	{id: "C2", name: "AnUnusedEntryExpires", run: unusedExpires},
	{id: "C2", name: "AnEntryThatIsNotRenewedExpires", run: notRenewedExpires},
	{id: "C3", name: "HotKeysSurviveAScan", run: hotKeysSurvive},
	{id: "C3", name: "ANewHotKeyFindsItsPlace", run: newHotKey},
	{id: "C4", name: "RangeSeesWhatStaysAndEnds", run: rangeEnds},
	{id: "C4", name: "RangeStopsWhenTold", run: rangeStops},
	{id: "L1", name: "GetDoesNotAllocate", run: getAllocates},
	{id: "L1", name: "GetAnswersAfterClose", run: getAfterClose},
}

func oneEntry(s *cacheSubject) error {
	c := s.open(10)
	if e, ok := c.Get("k"); e != nil || ok {
		return differ("Get of a key that was never added", fmt.Sprint(e != nil, " ", ok), "false false")
	}
	mine := new(limiter.Entry)
	if e, added := c.GetOrAdd("k", func() *limiter.Entry { return mine }); e != mine || !added {
		return differ("first GetOrAdd: whether it returns the entry, and added", fmt.Sprint(e == mine, " ", added), "true true")
	}
	created := false
	e, added := c.GetOrAdd("k", func() *limiter.Entry { created = true; return new(limiter.Entry) })
	if e != mine || added || created {
		return differ("second GetOrAdd: whether it returns the first one's entry, added, and called create", fmt.Sprint(e == mine, " ", added, " ", created), "true false false")
	}
	for _, use := range []func(string){c.Touch, c.Renew} {
		use("k")
		use("another")
	}
	if e, ok := c.Get("k"); e != mine || !ok {
		return differ("Get: whether it returns the entry, and ok", fmt.Sprint(e == mine, " ", ok), "true true")
	}
	return c.has("having been touched and renewed but not added", "another", false)
}

func anyCacheKey(s *cacheSubject) error {
	c := s.open(10 * len(oddKeys))
	entries := make(map[*limiter.Entry]string)
	for _, key := range oddKeys {
		e, added := c.add(key)
		if other, ok := entries[e]; ok || !added {
			return differ(fmt.Sprintf("entry of key %q", key), fmt.Sprintf("that of key %q", other), "one of its own")
		}
		entries[e] = key
	}
	for _, key := range oddKeys {
		if e, ok := c.Get(key); !ok || entries[e] != key {
			return differ(fmt.Sprintf("key of the entry found by Get(%q)", key), fmt.Sprintf("%q", entries[e]), fmt.Sprintf("%q", key))
		}
	}
	return nil
}

func racingCallers(s *cacheSubject) error {
	const callers, keys = 8, 500
	c := s.open(4 * keys)
	var (
		got   [callers][keys]*limiter.Entry
		added [callers][keys]bool
	)
	err := together(callers, func(i int) error {
		for k := range keys {
			calls := 0
			got[i][k], added[i][k] = c.GetOrAdd(fmt.Sprint(k), func() *limiter.Entry {
				calls++
				return new(limiter.Entry)
			})
			if calls > 1 {
				return differ("calls of create by one GetOrAdd", calls, "at most 1")
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for k := range keys {
		adders := 0
		for i := range callers {
			if added[i][k] {
				adders++
			}
			if got[i][k] != got[0][k] {
				return differ(fmt.Sprintf("entry that caller %d of %d got for one key", i, callers), "another one than caller 0", "the same one")
			}
		}
		if adders != 1 {
			return differ(fmt.Sprintf("callers, of %d for one key, that added their entry", callers), adders, 1)
		}
	}
	return nil
}

func deletedKey(s *cacheSubject) error {
	c := s.open(10)
	first, _ := c.add("k")
	c.Delete("another")
	c.Delete("k")
	c.Delete("k")
	if err := c.has("having been deleted", "k", false); err != nil {
		return err
	}
	n, err := c.evicted(cache.CauseDeleted)
	if err != nil {
		return err
	}
	if n != 1 {
		return differ("entries told to OnEvict, after one was deleted", n, 1)
	}
	if second, added := c.add("k"); second == first || !added {
		return differ("GetOrAdd of a deleted key: whether it returns the old entry, and added", fmt.Sprint(second == first, " ", added), "false true")
	}
	return nil
}

// toldBeforeReturn has callers add and delete few keys in a cache that is too
// small even for those. The entries of a key that were added and not yet told to
// OnEvict can never be two.
func toldBeforeReturn(s *cacheSubject) error {
	const callers, keys, rounds = 8, 12, 1000
	c := s.open(keys / 3)
	var (
		keyOf sync.Map // *limiter.Entry to key
		live  [keys]atomic.Int64
		total atomic.Int64
	)
	c.onEvicted = func(e *limiter.Entry) {
		k, ok := keyOf.Load(e)
		if ok {
			live[k.(int)].Add(-1)
			total.Add(-1)
		}
	}
	err := together(callers, func(i int) error {
		for r := range rounds {
			k := (r*(i+1) + i) % keys
			_, added := c.GetOrAdd(fmt.Sprint(k), func() *limiter.Entry {
				e := new(limiter.Entry)
				keyOf.Store(e, k)
				return e
			})
			// Others may have deleted the entry again before it counts here, which
			// makes the number too small, but never too large.
			if added {
				total.Add(1)
				if n := live[k].Add(1); n > 1 {
					return differ("entries of one key that were added and not told to OnEvict", n, "at most 1")
				}
			}
			if r%3 == 0 {
				c.Delete(fmt.Sprint(k))
			}
			if r%10 == 0 {
				c.Maintain()
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.Maintain()
	if cached, left := c.count(), total.Load(); left != int64(cached) {
		return differ("entries that were added and not told to OnEvict, and entries in the cache", fmt.Sprint(left, " ", cached), "equal")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, causes := range c.evictions {
		if len(causes) != 1 {
			return differ("times that OnEvict was told of one entry", len(causes), 1)
		}
	}
	return nil
}

// count returns the number of entries that Range sees.
func (w *watchedCache) count() int {
	n := 0
	w.Range(func(*limiter.Entry) bool { n++; return true })
	return n
}

func boundHolds(s *cacheSubject) error {
	for _, maxEntries := range []int{1, 10, 300} {
		c := s.open(maxEntries)
		adds := 10 * maxEntries
		for k := range adds {
			if _, added := c.add(fmt.Sprint(k)); !added {
				return differ(fmt.Sprintf("whether key %d was added", k), false, true)
			}
			if k%100 == 0 {
				c.Maintain()
			}
		}
		if err := c.withinBound(maxEntries, adds); err != nil {
			return err
		}
	}
	return nil
}

// withinBound checks the size of a cache after a number of adds.
func (w *watchedCache) withinBound(maxEntries, adds int) error {
	w.Maintain()
	if n := w.Cap(); n < 1 || n > maxEntries {
		return differ("Cap", n, fmt.Sprintf("1 to %d", maxEntries))
	}
	if n := w.Len(); n > maxEntries {
		return differ("Len after Maintain", n, fmt.Sprintf("at most %d", maxEntries))
	}
	n := w.count()
	if n > maxEntries || n < 1 {
		return differ("entries that Range sees after Maintain", n, fmt.Sprintf("1 to %d", maxEntries))
	}
	evicted, err := w.evicted(cache.CauseOverflow)
	if err != nil {
		return err
	}
	if evicted != adds-n {
		return differ(fmt.Sprintf("entries told to OnEvict, after adding %d of which Range sees %d", adds, n), evicted, adds-n)
	}
	return nil
}

func boundHoldsConcurrently(s *cacheSubject) error {
	const callers, keys, maxEntries = 4, 1000, 200
	c := s.open(maxEntries)
	err := together(callers, func(i int) error {
		for k := range keys {
			c.add(fmt.Sprint(i, " ", k))
			if i == 0 && k%100 == 0 {
				c.Maintain()
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.withinBound(maxEntries, callers*keys)
}

func nothingEvictedBelowBound(s *cacheSubject) error {
	const maxEntries = 1000
	c := s.open(maxEntries)
	for k := range maxEntries / 2 {
		c.add(fmt.Sprint(k))
		if k%100 == 0 {
			c.Maintain()
		}
	}
	c.Maintain()
	for k := range maxEntries / 2 {
		if err := c.has("the cache being half full", fmt.Sprint(k), true); err != nil {
			return err
		}
	}
	return nil
}

func unusedExpires(s *cacheSubject) error {
	c := s.open(10)
	c.add("used")
	c.add("unused")
	for range 4 {
		c.pass(cacheIdle * 2 / 3)
		c.Touch("used")
	}
	if err := c.has("having been touched within each idle timeout", "used", true); err != nil {
		return err
	}
	if err := c.has("well past its idle timeout", "unused", false); err != nil {
		return err
	}
	c.pass(cacheIdle * 3 / 2)
	if err := c.has("well past its idle timeout", "used", false); err != nil {
		return err
	}
	n, err := c.evicted(cache.CauseExpired)
	if err == nil && n != 2 {
		err = differ("entries told to OnEvict, after two have expired", n, 2)
	}
	return err
}

func notRenewedExpires(s *cacheSubject) error {
	c := s.open(10)
	c.add("renewed")
	c.add("touched")
	const step = cacheIdle / 2
	for passed := time.Duration(0); passed < cacheTTL+2*cacheIdle; passed += step {
		c.pass(step)
		c.Touch("touched")
		c.Touch("renewed")
		if passed == cacheTTL/2 {
			if err := c.has("halfway to its TTL", "touched", true); err != nil {
				return err
			}
			c.Renew("renewed")
		}
	}
	if err := c.has("well past its TTL, though touched", "touched", false); err != nil {
		return err
	}
	if err := c.has("well past its first TTL, but renewed within it and touched", "renewed", true); err != nil {
		return err
	}
	n, err := c.evicted(cache.CauseExpired)
	if err == nil && n != 1 {
		err = differ("entries told to OnEvict, after one has expired", n, 1)
	}
	return err
}

// hotKeysSurvive uses keys for some ticks, and then lets twice as many one-off keys
// as fit come by in each tick.
func hotKeysSurvive(s *cacheSubject) error {
	const maxEntries, hot, ticks = 500, 50, 5
	c := s.open(maxEntries)
	use := func() {
		for k := range hot {
			c.Touch(fmt.Sprint("hot", k))
		}
		c.pass(time.Second)
	}
	for k := range hot {
		c.add(fmt.Sprint("hot", k))
	}
	for range 2 * ticks {
		use()
	}
	for tick := range ticks {
		for k := range 2 * maxEntries {
			c.add(fmt.Sprint("one-off", tick, " ", k))
		}
		use()
	}
	survived := 0
	for k := range hot {
		if _, ok := c.Get(fmt.Sprint("hot", k)); ok {
			survived++
		}
	}
	if survived < hot*9/10 {
		return differ(fmt.Sprintf("hot keys, of %d, that survived a scan", hot), survived, fmt.Sprintf("at least %d", hot*9/10))
	}
	return nil
}

// newHotKey lets keys come into a full cache, each once and never again but for
// one, which comes all the time.
func newHotKey(s *cacheSubject) error {
	const maxEntries, ticks = 1000, 20
	c := s.open(maxEntries)
	for k := range maxEntries {
		key := fmt.Sprint("resident", k)
		c.add(key)
		c.Touch(key)
	}
	c.pass(time.Second)
	present := 0
	for tick := range ticks {
		for k := range maxEntries / 10 {
			c.add(fmt.Sprint("one-off", tick, " ", k))
			if _, ok := c.Get("hot"); ok && k == 0 {
				present++
			}
			c.add("hot")
		}
		c.Touch("hot")
		c.pass(time.Second)
	}
	if present < ticks/2 {
		return differ(fmt.Sprintf("ticks, of %d, that a new key in constant use has survived in a full cache", ticks), present, fmt.Sprintf("at least %d", ticks/2))
	}
	return nil
}

// rangeEnds has one caller add and delete keys for as long as another one iterates.
func rangeEnds(s *cacheSubject) error {
	const residents = 200
	c := s.open(10 * residents)
	staying := make(map[*limiter.Entry]bool)
	for k := range residents {
		e, _ := c.add(fmt.Sprint("resident", k))
		staying[e] = true
	}
	var started, ended atomic.Bool
	return together(2, func(i int) error {
		if i == 1 {
			for k := 0; !ended.Load(); k++ {
				c.add(fmt.Sprint(k % residents))
				c.Delete(fmt.Sprint((k + residents/2) % residents))
				started.Store(true)
			}
			return nil
		}
		defer ended.Store(true)
		for !started.Load() {
			runtime.Gosched()
		}
		for range 20 {
			seen := make(map[*limiter.Entry]bool)
			c.Range(func(e *limiter.Entry) bool {
				if staying[e] {
					seen[e] = true
				}
				return true
			})
			if len(seen) != residents {
				return differ("entries that Range sees, of those that stay throughout", len(seen), residents)
			}
		}
		return nil
	})
}

func rangeStops(s *cacheSubject) error {
	c := s.open(10)
	for k := range 5 {
		c.add(fmt.Sprint(k))
	}
	calls := 0
	c.Range(func(*limiter.Entry) bool { calls++; return calls < 2 })
	if calls != 2 {
		return differ("calls by Range of a function that has returned false at its second call", calls, 2)
	}
	return nil
}

func getAllocates(s *cacheSubject) error {
	c := s.open(10)
	c.add("k")
	for _, key := range []string{"k", "absent"} {
		if n := allocations(func() { c.Get(key) }); n != 0 {
			return differ(fmt.Sprintf("allocations by Get(%q)", key), n, 0)
		}
	}
	return nil
}

func getAfterClose(s *cacheSubject) error {
	c := s.open(10)
	s.opened = nil // it is closed here
	e, _ := c.add("k")
	c.Close()
	if got, ok := c.Get("k"); got != e || !ok {
		return differ("Get after Close: whether it returns the entry, and ok", fmt.Sprint(got == e, " ", ok), "true true")
	}
	return nil
}
