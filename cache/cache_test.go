package cache_test

import (
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/cache"
)

// item is a cached value.
type item struct {
	key  string
	id   int
	link cache.Link
}

func newCache(t testing.TB, cfg cache.Config[item]) *cache.Cache[item] {
	t.Helper()
	cfg.Link = func(v *item) *cache.Link { return &v.link }
	c := cache.New(cfg)
	t.Cleanup(c.Close)
	return c
}

// add returns whether key was absent.
func add(c *cache.Cache[item], key string) bool {
	_, added := c.GetOrAdd(key, func() *item { return &item{key: key} })
	return added
}

// has leaves the front table out of it: an entry that has expired is absent for
// GetOrAdd at once. It adds the key.
func has(c *cache.Cache[item], key string) bool { return !add(c, key) }

// evictions records what OnEvict is told.
type evictions struct {
	mu   sync.Mutex
	seen []string
}

func (e *evictions) record(v *item, cause cache.Cause) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, v.key+" "+cause.String())
}

func (e *evictions) want(t *testing.T, want ...string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if diff := cmp.Diff(want, e.seen); diff != "" {
		t.Errorf("evictions (-want +got):\n%s", diff)
	}
}

// inBothModes runs f with a cache that keeps time itself, in a bubble of virtual
// time, and with one that is told the time.
func inBothModes(t *testing.T, f func(t *testing.T, base cache.Config[item], advance func(time.Duration))) {
	t.Run("now=nil", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f(t, cache.Config[item]{MaxEntries: 100}, time.Sleep)
		})
	})
	t.Run("now=set", func(t *testing.T) {
		t.Parallel()
		now := time.Unix(0, math.MaxInt64) // from here on, no Unix time fits in nanoseconds
		base := cache.Config[item]{MaxEntries: 100, Now: func() time.Time { return now }}
		f(t, base, func(d time.Duration) { now = now.Add(d) })
	})
}

func TestC1_RacingCallersGetOneValue(t *testing.T) {
	t.Parallel()
	const keys, callers = 500, 8
	c := newCache(t, cache.Config[item]{MaxEntries: keys})
	for k := range keys {
		key := strconv.Itoa(k)
		var created, added atomic.Int32
		var got [callers]*item
		var wg sync.WaitGroup
		start := make(chan struct{})
		for g := range callers {
			wg.Go(func() {
				<-start
				v, ok := c.GetOrAdd(key, func() *item {
					created.Add(1)
					runtime.Gosched() // let the others in, if they can get in
					return new(item)
				})
				if ok {
					added.Add(1)
				}
				got[g] = v
			})
		}
		close(start)
		wg.Wait()
		if created.Load() != 1 || added.Load() != 1 {
			t.Errorf("rule C1: create ran %d times, %d callers added, want 1 and 1", created.Load(), added.Load())
		}
		want, _ := c.Get(key)
		for g, v := range got {
			if v != want || v == nil {
				t.Errorf("rule C1: caller %d got %p, want %p", g, v, want)
			}
		}
	}
}

func TestC1_EvictedValueCanComeBack(t *testing.T) {
	t.Parallel()
	const idle = time.Minute
	leave := map[string]func(c *cache.Cache[item], advance func(time.Duration)){
		"deleted": func(c *cache.Cache[item], _ func(time.Duration)) { c.Delete("k") },
		"overflow": func(c *cache.Cache[item], _ func(time.Duration)) {
			for i := 0; c.Len() == 0 || i < 100; i++ {
				add(c, "other"+strconv.Itoa(i))
			}
		},
		"expired": func(c *cache.Cache[item], advance func(time.Duration)) {
			advance(idle + 3*time.Second)
			c.Maintain()
		},
		// Nobody has noticed yet: GetOrAdd itself must remove it first.
		"expired, not yet removed": func(_ *cache.Cache[item], advance func(time.Duration)) { advance(idle) },
	}
	for name, leave := range leave {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(0, 0)
			evicted := 0
			c := newCache(t, cache.Config[item]{
				MaxEntries:  3,
				IdleTimeout: idle,
				Now:         func() time.Time { return now },
				OnEvict: func(v *item, _ cache.Cause) {
					if v.key == "k" {
						evicted++
					}
				},
			})
			first, _ := c.GetOrAdd("k", func() *item { return &item{key: "k"} })
			for round := 1; round <= 3; round++ {
				leave(c, func(d time.Duration) { now = now.Add(d) })
				v, added := c.GetOrAdd("k", func() *item {
					if evicted != round {
						t.Errorf("round %d: %d evictions before create, want %d", round, evicted, round)
					}
					return first
				})
				if v != first || !added {
					t.Fatalf("round %d: GetOrAdd = %p, %v, want %p, true", round, v, added, first)
				}
				if v, ok := c.Get("k"); v != first || !ok {
					t.Fatalf("rule C1: round %d: Get = %p, %v after re-adding, want %p", round, v, ok, first)
				}
				if evicted != round {
					t.Errorf("round %d: %d evictions, want %d", round, evicted, round)
				}
			}
		})
	}
}

// The front table may be written late, with what is no longer there.
func TestC1_GetNeverReturnsAFormerValue(t *testing.T) {
	t.Parallel()
	const rounds = 20_000
	c := newCache(t, cache.Config[item]{MaxEntries: 4})
	var current atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				before := current.Load()
				if v, ok := c.Get("k"); ok && int64(v.id) < before {
					t.Errorf("rule C1: Get returned generation %d after %d was added", v.id, before)
					return
				}
			}
		})
	}
	for i := 1; i <= rounds; i++ {
		c.Delete("k")
		c.GetOrAdd("k", func() *item { return &item{id: i} })
		current.Store(int64(i))
	}
	close(stop)
	wg.Wait()
	if v, ok := c.Get("k"); !ok || v.id != rounds {
		t.Errorf("Get after all rounds = %v, want generation %d", v, rounds)
	}
}

func TestC2_NumberOfEntriesIsBounded(t *testing.T) {
	t.Parallel()
	const slack = 16 // as Config.MaxEntries says
	for _, bound := range []int{1, 2, 3, 10, 1000} {
		t.Run(fmt.Sprint("max=", bound), func(t *testing.T) {
			t.Parallel()
			var entries, peak, added, evicted atomic.Int64
			c := newCache(t, cache.Config[item]{
				MaxEntries: bound,
				OnEvict: func(_ *item, cause cache.Cause) {
					if cause != cache.CauseOverflow {
						t.Errorf("cause = %v, want overflow", cause)
					}
					entries.Add(-1)
					evicted.Add(1)
				},
			})
			var wg sync.WaitGroup
			for g := range 32 {
				wg.Go(func() {
					for i := range 500 {
						c.GetOrAdd(fmt.Sprint(g, "/", i), func() *item {
							n := entries.Add(1)
							for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
							}
							added.Add(1)
							return new(item)
						})
						c.Touch(fmt.Sprint(g, "/", i/2))
					}
				})
			}
			wg.Wait()
			if got := peak.Load(); got > int64(bound)+slack {
				t.Errorf("rule C2: %d entries, want at most %d+%d", got, bound, slack)
			}
			c.Maintain()
			if got := c.Len(); got != bound {
				t.Errorf("rule C2: Len = %d when full, want %d", got, bound)
			}
			if got := added.Load() - evicted.Load(); got != int64(bound) {
				t.Errorf("added − evicted = %d, want %d", got, bound)
			}
			if got := c.Cap(); got != bound {
				t.Errorf("Cap = %d, want %d", got, bound)
			}
		})
	}
}

func TestC2_BoundBelowOneCountsAsOne(t *testing.T) {
	t.Parallel()
	for _, bound := range []int{0, -1, math.MinInt} {
		c := newCache(t, cache.Config[item]{MaxEntries: bound})
		add(c, "a")
		add(c, "b")
		if c.Len() != 1 || c.Cap() != 1 {
			t.Errorf("MaxEntries %d: Len, Cap = %d, %d, want 1, 1", bound, c.Len(), c.Cap())
		}
	}
}

func TestC2_HugeBoundTakesLittleMemoryInAdvance(t *testing.T) {
	t.Parallel()
	c := newCache(t, cache.Config[item]{MaxEntries: math.MaxInt})
	add(c, "k")
	if _, ok := c.Get("k"); !ok || c.Cap() != math.MaxInt {
		t.Errorf("Get = %v, Cap = %d, want true, %d", ok, c.Cap(), math.MaxInt)
	}
}

func TestC3_HotKeysSurviveAScan(t *testing.T) {
	t.Parallel()
	const bound, hot, oneOffs, ticks = 10_000, 2_000, 5_000, 8
	scan := func(c *cache.Cache[item], tick int) {
		for i := range oneOffs {
			add(c, fmt.Sprint("scan/", tick, "/", i))
		}
	}
	touch := func(c *cache.Cache[item]) {
		for i := range hot {
			c.Touch(fmt.Sprint("hot/", i))
		}
	}
	tests := map[string]func(c *cache.Cache[item], tick int){
		"loop after the scan": func(c *cache.Cache[item], tick int) {
			scan(c, tick)
			touch(c)
			c.Maintain()
		},
		"loop during the scan": func(c *cache.Cache[item], tick int) {
			var wg sync.WaitGroup
			wg.Go(func() { scan(c, tick) })
			wg.Go(func() { touch(c); c.Maintain() })
			wg.Wait()
		},
	}
	for name, tick := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lost atomic.Int64
			c := newCache(t, cache.Config[item]{
				MaxEntries:  bound,
				IdleTimeout: time.Hour,
				OnEvict: func(v *item, _ cache.Cause) {
					if strings.HasPrefix(v.key, "hot/") {
						lost.Add(1)
					}
				},
			})
			for i := range hot {
				add(c, fmt.Sprint("hot/", i))
			}
			touch(c)
			for i := range ticks {
				tick(c, i)
			}
			if n := lost.Load(); n != 0 {
				t.Errorf("rule C3: lost %d of %d hot keys", n, hot)
			}
			if got := c.Len(); got != bound {
				t.Errorf("Len = %d, want a full cache of %d", got, bound)
			}
		})
	}
}

// Every key of the full cache is in use, and one-off keys pour in as well.
func TestC3_NewKeyThatIsUsedGetsIntoAFullCache(t *testing.T) {
	t.Parallel()
	const bound, oneOffs, usesPerTick, ticksToGetIn, ticks = 500, 1_000, 10, 5, 15
	tick, lastLoss := 0, -1
	c := newCache(t, cache.Config[item]{
		MaxEntries: bound,
		OnEvict: func(v *item, _ cache.Cause) {
			if v.key == "new" {
				lastLoss = tick
			}
		},
	})
	touchOld := func() {
		for i := range bound {
			c.Touch(fmt.Sprint("old/", i))
		}
	}
	for i := range bound {
		add(c, fmt.Sprint("old/", i))
	}
	for range ticks {
		touchOld()
	}
	for ; tick < ticks; tick++ {
		for i := range oneOffs {
			add(c, fmt.Sprint("scan/", tick, "/", i))
			if i%(oneOffs/usesPerTick) == 0 {
				add(c, "new")
			}
		}
		touchOld()
		c.Touch("new")
		c.Maintain()
	}
	if _, ok := c.Get("new"); !ok || lastLoss >= ticksToGetIn {
		t.Errorf("rule C3: cached = %v, last evicted in tick %d, want it to stay from tick %d on", ok, lastLoss, ticksToGetIn)
	}
}

func TestC4_RangeEndsWhileOthersAdd(t *testing.T) {
	t.Parallel()
	const bound, staying = 2_000, 500
	var left sync.Map
	c := newCache(t, cache.Config[item]{
		MaxEntries: bound,
		OnEvict:    func(v *item, _ cache.Cause) { left.Store(v.key, true) },
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range staying {
		key := fmt.Sprint("stays/", i)
		add(c, key)
		for range 5 {
			c.Touch(key)
		}
	}
	for g := range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					add(c, fmt.Sprint("new/", g, "/", i))
				}
			}
		})
	}
	for range 20 {
		seen := map[string]int{}
		c.Range(func(v *item) bool {
			seen[v.key]++
			c.Touch(v.key) // f may call the cache
			return true
		})
		stayed := 0
		for i := range staying {
			key := fmt.Sprint("stays/", i)
			if _, ok := left.Load(key); ok {
				continue
			}
			stayed++
			if n := seen[key]; n != 1 {
				t.Errorf("rule C4: Range saw an entry that stayed %d times, want once", n)
			}
		}
		if stayed < staying/2 {
			t.Fatalf("only %d of %d entries stayed", stayed, staying)
		}
	}
	close(stop)
	wg.Wait()

	calls := 0
	c.Range(func(*item) bool {
		calls++
		return calls < 3
	})
	if calls != 3 {
		t.Errorf("Range called f %d times, want it to stop when f returns false the third time", calls)
	}
}

func TestEntryExpiresAtItsDeadline(t *testing.T) {
	t.Parallel()
	const idle, ttl = 5 * time.Minute, 10 * time.Minute
	type step struct {
		at time.Duration
		do func(c *cache.Cache[item], key string)
	}
	touch, renew := (*cache.Cache[item]).Touch, (*cache.Cache[item]).Renew
	get := func(c *cache.Cache[item], key string) { c.Get(key) }
	getOrAdd := func(c *cache.Cache[item], key string) { add(c, key) }
	maintain := func(c *cache.Cache[item], _ string) { c.Maintain() }
	tests := []struct {
		name      string
		idle, ttl time.Duration
		steps     []step
		deadline  time.Duration
	}{
		{"idle timeout alone", idle, 0, nil, idle},
		{"ttl alone", 0, ttl, nil, ttl},
		{"both", idle, ttl, nil, idle},
		{"maintained until shortly before", idle, ttl, []step{{idle - 2, maintain}}, idle},
		{"shorter than otter's slices", 3 * time.Millisecond, ttl, nil, 3 * time.Millisecond},
		{"get does not count", idle, ttl, []step{{4 * time.Minute, get}}, idle},
		{"getoradd does not count", idle, ttl, []step{{4 * time.Minute, getOrAdd}}, idle},
		{"touch restarts the idle timeout", idle, ttl, []step{{4 * time.Minute, touch}}, 9 * time.Minute},
		{"touch is exact", idle, ttl, []step{{1, touch}}, idle + 1},
		{"touch in the last moment", idle, ttl, []step{{idle - 1, touch}}, 2*idle - 1},
		{"touch does not go past the ttl", idle, ttl, []step{{4 * time.Minute, touch}, {8 * time.Minute, touch}}, ttl},
		{"touch does not restart the ttl", 0, ttl, []step{{4 * time.Minute, touch}}, ttl},
		{"renew restarts the ttl", 0, ttl, []step{{4 * time.Minute, renew}}, 4*time.Minute + ttl},
		{"renew restarts the idle timeout", idle, ttl, []step{{4 * time.Minute, renew}}, 9 * time.Minute},
		{"touch after renew goes to the new ttl", idle, ttl, []step{
			{4 * time.Minute, renew}, {8 * time.Minute, touch}, {12 * time.Minute, touch},
		}, 14 * time.Minute},
		{"the longest durations", math.MaxInt64, math.MaxInt64, []step{
			{time.Minute, touch}, {2 * time.Minute, renew},
		}, 0},
		{"none", 0, 0, []step{{time.Minute, touch}, {2 * time.Minute, renew}}, 0},
		{"negative", -1, -1, nil, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBothModes(t, func(t *testing.T, base cache.Config[item], advance func(time.Duration)) {
				var evicted evictions
				base.IdleTimeout, base.TTL, base.OnEvict = test.idle, test.ttl, evicted.record
				c := newCache(t, base)
				add(c, "k")
				at := time.Duration(0)
				goTo := func(d time.Duration) { advance(d - at); at = d }
				for _, s := range test.steps {
					goTo(s.at)
					s.do(c, "k")
				}
				if test.deadline == 0 {
					goTo(2 * time.Hour)
					if !has(c, "k") {
						t.Error("expired, want it to stay for ever")
					}
					return
				}
				goTo(test.deadline - 1)
				if !has(c, "k") {
					t.Error("absent 1 ns before its deadline")
				}
				evicted.want(t)
				goTo(test.deadline)
				if has(c, "k") {
					t.Error("present at its deadline")
				}
				evicted.want(t, "k expired")
			})
		})
	}
}

func TestTouchAndRenewDoNotReviveAnExpiredEntry(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, base cache.Config[item], advance func(time.Duration)) {
		var evicted evictions
		base.IdleTimeout, base.TTL, base.OnEvict = time.Minute, time.Minute, evicted.record
		c := newCache(t, base)
		add(c, "touched")
		add(c, "renewed")
		advance(time.Minute)
		c.Touch("touched")
		c.Renew("renewed")
		evicted.want(t, "touched expired", "renewed expired")
		for _, key := range []string{"touched", "renewed"} {
			if _, ok := c.Get(key); ok {
				t.Errorf("%s: found after it expired", key)
			}
		}
		c.Touch("absent")
		c.Renew("absent")
		if c.Len() != 0 {
			t.Errorf("Len = %d, want 0: Touch and Renew add nothing", c.Len())
		}
	})
}

// The documented lateness of Get: a slice of 2³⁰ ns and a second of the goroutine.
func TestExpiredEntriesLeaveWithoutBeingAskedFor(t *testing.T) {
	t.Parallel()
	const late = 1<<30*time.Nanosecond + time.Second
	for offset := time.Duration(0); offset < 3*time.Second; offset += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(offset)
			var evicted evictions
			c := newCache(t, cache.Config[item]{MaxEntries: 10, IdleTimeout: 5 * time.Minute, OnEvict: evicted.record})
			add(c, "k")
			time.Sleep(5*time.Minute - 1)
			synctest.Wait()
			if _, ok := c.Get("k"); !ok {
				t.Errorf("offset %v: absent before its deadline", offset)
			}
			evicted.want(t)
			time.Sleep(late + 1)
			synctest.Wait()
			if _, ok := c.Get("k"); ok {
				t.Errorf("offset %v: still present %v after its deadline", offset, late)
			}
			evicted.want(t, "k expired")
		})
	}
}

func TestMaintainExpiresWhenTheCallerKeepsTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	var evicted evictions
	c := newCache(t, cache.Config[item]{
		MaxEntries:  10,
		IdleTimeout: 5 * time.Minute,
		Now:         func() time.Time { return now },
		OnEvict:     evicted.record,
	})
	add(c, "k")
	now = now.Add(5*time.Minute - 1)
	c.Maintain()
	evicted.want(t)
	now = now.Add(1<<30*time.Nanosecond + 1)
	evicted.want(t)
	c.Maintain()
	evicted.want(t, "k expired")
	if _, ok := c.Get("k"); ok {
		t.Error("found after Maintain had expired it")
	}
}

func TestClockThatGoesBackShortensNoLife(t *testing.T) {
	t.Parallel()
	start := time.Now()
	now := start
	c := newCache(t, cache.Config[item]{MaxEntries: 10, IdleTimeout: time.Minute, TTL: time.Hour, Now: func() time.Time { return now }})
	add(c, "k")
	now = start.Add(-time.Hour)
	c.Touch("k")
	c.Renew("k")
	c.Maintain()
	now = start.Add(time.Minute - 1)
	c.Maintain()
	if !has(c, "k") {
		t.Error("absent before the deadline that it had")
	}
}

func TestOnEvictIsToldTheCauseOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	var evicted evictions
	c := newCache(t, cache.Config[item]{
		MaxEntries:  1,
		IdleTimeout: time.Minute,
		Now:         func() time.Time { return now },
		OnEvict:     evicted.record,
	})
	add(c, "a")
	c.Delete("a")
	c.Delete("a")
	evicted.want(t, "a deleted")

	add(c, "b")
	add(c, "c")
	c.Maintain()
	evicted.want(t, "a deleted", "b overflow")

	now = now.Add(time.Minute)
	c.Delete("c") // it had expired before
	c.Maintain()
	evicted.want(t, "a deleted", "b overflow", "c expired")

	add(c, "d")
	c.Touch("d")
	c.Renew("d")
	c.Maintain()
	evicted.want(t, "a deleted", "b overflow", "c expired")
	if got := c.Len(); got != 1 {
		t.Errorf("Len = %d, want 1", got)
	}
}

func TestGetDoesNotAllocate(t *testing.T) {
	// As many keys as fit, so that some find their set full and the front table misses.
	c := newCache(t, cache.Config[item]{MaxEntries: 1000, IdleTimeout: time.Hour})
	keys := make([]string, c.Cap())
	for i := range keys {
		keys[i] = "key/" + strconv.Itoa(i)
		add(c, keys[i])
	}
	tests := map[string]func(){
		"one key": func() {
			if _, ok := c.Get(keys[7]); !ok {
				t.Error("absent")
			}
		},
		"all keys": func() {
			for _, key := range keys {
				if _, ok := c.Get(key); !ok {
					t.Error("absent")
				}
			}
		},
		"absent key": func() {
			if _, ok := c.Get("absent"); ok {
				t.Error("present")
			}
		},
	}
	for name, f := range tests {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

func TestAnyStringIsAKey(t *testing.T) {
	t.Parallel()
	keys := []string{
		"", "\x00", "\x00\x00", "a", "a\x00", "a\x00b", "\xff", "\xff\xfe\xfd", "\u2028", ":", "{k}",
		strings.Repeat("x", 64<<10), strings.Repeat("x", 64<<10-1) + "y",
	}
	c := newCache(t, cache.Config[item]{MaxEntries: 100, IdleTimeout: time.Hour})
	values := map[string]*item{}
	for _, key := range keys {
		if _, ok := c.Get(key); ok {
			t.Errorf("%.10q: found before it was added", key)
		}
		values[key], _ = c.GetOrAdd(key, func() *item { return &item{key: key} })
	}
	for _, key := range keys {
		c.Touch(key)
		c.Renew(key)
		if v, ok := c.Get(key); !ok || v != values[key] {
			t.Errorf("%.10q: Get = %p, %v, want %p", key, v, ok, values[key])
		}
	}
	for _, key := range keys {
		c.Delete(key)
		if _, ok := c.Get(key); ok {
			t.Errorf("%.10q: found after Delete", key)
		}
	}
	if c.Len() != 0 {
		t.Errorf("Len = %d after all were deleted", c.Len())
	}
}

func TestCallerMayReuseTheMemoryOfAKey(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, time.Hour, math.MaxInt64} {
		t.Run(fmt.Sprint("timeout=", timeout), func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			now := start
			c := newCache(t, cache.Config[item]{
				MaxEntries:  10,
				IdleTimeout: timeout,
				TTL:         timeout,
				Now:         func() time.Time { return now },
			})
			buf := []byte("key")
			key := unsafe.String(&buf[0], len(buf))
			v, _ := c.GetOrAdd(key, func() *item { return new(item) })
			c.Delete(key)
			c.GetOrAdd(key, func() *item { return v }) // also when it is added again
			c.Get(key)
			for _, at := range []time.Duration{0, time.Second, -time.Second} {
				now = start.Add(at)
				c.Touch(key)
				c.Renew(key)
			}
			copy(buf, "bad")

			if got, ok := c.Get("key"); !ok || got != v {
				t.Errorf("Get = %p, %v, want %p", got, ok, v)
			}
			if _, ok := c.Get("bad"); ok {
				t.Error("the entry changed its key with the caller's memory")
			}
			c.Delete("key")
			if c.Len() != 0 {
				t.Error("the entry cannot be deleted by its key")
			}
		})
	}
}

func TestLinksOfUnaddedValuesDoNotMatch(t *testing.T) {
	t.Parallel()
	c := newCache(t, cache.Config[item]{MaxEntries: 1})
	if v, ok := c.Get(""); ok {
		t.Errorf("Get of the empty key = %p in an empty cache", v)
	}
	add(c, "a")
	if v, ok := c.Get(""); ok {
		t.Errorf("Get of the empty key = %p, want none", v)
	}
}

// A bubble ends only when all of its goroutines have ended.
func TestCloseEndsAllGoroutines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, cache.Config[item]{MaxEntries: 10, IdleTimeout: time.Minute})
		add(c, "k")
		time.Sleep(10 * time.Second)
		c.Close()
	})
}

func TestCacheThatIsToldTheTimeStartsNoGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) {
		c := cache.New(cache.Config[item]{
			MaxEntries:  10,
			IdleTimeout: time.Minute,
			Now:         time.Now,
			Link:        func(v *item) *cache.Link { return &v.link },
		})
		add(c, "k")
		c.Maintain()
	})
}

func TestCacheRemainsUsableAfterClose(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, base cache.Config[item], advance func(time.Duration)) {
		base.IdleTimeout = time.Minute
		c := newCache(t, base)
		add(c, "k")
		c.Close()
		c.Close()
		if _, ok := c.Get("k"); !ok {
			t.Error("Get does not answer after Close")
		}
		c.Touch("k")
		c.Renew("k")
		add(c, "l")
		c.Delete("l")
		n := 0
		c.Range(func(*item) bool { n++; return true })
		if n != 1 || c.Len() != 1 {
			t.Errorf("Range saw %d, Len = %d, want 1", n, c.Len())
		}
		advance(time.Hour)
		c.Maintain()
		if c.Len() != 0 {
			t.Errorf("Len = %d, want Maintain to expire the entry", c.Len())
		}
	})
}

func TestMethodsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	const keys = 200
	var mu sync.Mutex
	gone := map[string]*item{} // evicted values, which come back
	c := newCache(t, cache.Config[item]{
		MaxEntries:  keys / 2,
		IdleTimeout: time.Millisecond,
		OnEvict: func(v *item, _ cache.Cause) {
			mu.Lock()
			defer mu.Unlock()
			gone[v.key] = v
		},
	})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 4_000 {
				key := strconv.Itoa((i*7 + g*13) % keys)
				switch i % 11 {
				case 0:
					c.Delete(key)
				case 1:
					c.Renew(key)
				case 2, 3:
					c.Touch(key)
				case 4:
					if i%100 == 4 {
						c.Range(func(*item) bool { return true })
						c.Maintain()
					}
				case 5, 6, 7:
					if v, ok := c.Get(key); ok && v.key != key {
						t.Errorf("Get(%s) returned the value of %s", key, v.key)
					}
				default:
					v, _ := c.GetOrAdd(key, func() *item {
						mu.Lock()
						defer mu.Unlock()
						if v := gone[key]; v != nil {
							delete(gone, key)
							return v
						}
						return &item{key: key}
					})
					if v.key != key {
						t.Errorf("GetOrAdd(%s) returned the value of %s", key, v.key)
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestCause_String(t *testing.T) {
	t.Parallel()
	for cause, want := range map[cache.Cause]string{
		cache.CauseOverflow: "overflow",
		cache.CauseExpired:  "expired",
		cache.CauseDeleted:  "deleted",
		99:                  "unknown",
	} {
		if got := cause.String(); got != want {
			t.Errorf("Cause(%d) = %q, want %q", cause, got, want)
		}
	}
}
