package conformance

import (
	"container/list"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/cache"
	"github.com/fleetlimit/fleetlimit/limiter"
	"github.com/google/go-cmp/cmp"
)

// quirks are ways in which a testCache is broken. The zero value is none.
type quirks struct {
	fold          func(string) string // of keys
	max           func(int) int       // of entries, from the configured bound
	reportCap     func(int) int
	noTouch       bool // Touch does not postpone the idle timeout
	touchAdds     bool // Touch adds the key
	touchRenews   bool // Touch restarts the TTL
	noRenew       bool // Renew has no effect
	noIdle        bool // unused entries do not expire
	noTTL         bool // old entries do not expire
	noDelete      bool // Delete has no effect
	noUse         bool // Touch has no influence on what is evicted
	unprotected   bool // one-off keys push out those in use
	full          bool // nothing new comes into a full cache
	createsAlways bool // GetOrAdd calls create also for a cached key
	createsTwice  bool
	unlocked      bool // GetOrAdd is not atomic
	silent        map[cache.Cause]bool
	echo          bool // OnEvict is called twice
	late          bool // OnEvict is called when the key may be back
	cause         func(cache.Cause) cache.Cause
	rangeSkips    bool
	rangeGoesOn   bool         // when f returns false
	rangeCircles  *atomic.Bool // until it is false
	getAllocates  bool
	closeForgets  bool
}

// testCache is a segmented LRU: a key that is touched moves from probation into
// protection, which the scan of one-off keys does not reach.
type testCache struct {
	quirks
	cfg limiter.CacheConfig

	mu        sync.Mutex
	nodes     map[string]*list.Element // of *testNode
	probation list.List
	protected list.List
	sink      atomic.Pointer[string]
}

type testNode struct {
	key              string
	entry            *limiter.Entry
	touched, renewed time.Time
	in               *list.List
}

func newTestCache(q quirks, cfg limiter.CacheConfig) *testCache {
	if q.fold == nil {
		q.fold = same
	}
	if q.max == nil {
		q.max = func(n int) int { return n }
	}
	if q.reportCap == nil {
		q.reportCap = func(n int) int { return n }
	}
	if q.cause == nil {
		q.cause = func(c cache.Cause) cache.Cause { return c }
	}
	return &testCache{quirks: q, cfg: cfg, nodes: make(map[string]*list.Element)}
}

func (c *testCache) Get(key string) (*limiter.Entry, bool) {
	key = c.fold(key)
	if c.getAllocates {
		k := strings.Clone(key)
		c.sink.Store(&k)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.nodes[key]; ok {
		return el.Value.(*testNode).entry, true
	}
	return nil, false
}

func (c *testCache) GetOrAdd(key string, create func() *limiter.Entry) (*limiter.Entry, bool) {
	key = c.fold(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.createsAlways {
		create()
	}
	if el, ok := c.nodes[key]; ok {
		return el.Value.(*testNode).entry, false
	}
	if c.unlocked {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	e := create()
	if c.createsTwice {
		e = create()
	}
	c.insert(key, e)
	return e, true
}

func (c *testCache) insert(key string, e *limiter.Entry) {
	now := c.cfg.Now()
	c.nodes[key] = c.probation.PushFront(&testNode{key: key, entry: e, touched: now, renewed: now, in: &c.probation})
	for len(c.nodes) > c.max(c.cfg.MaxEntries) {
		victim := c.probation.Back()
		if c.full {
			victim = c.probation.Front()
		}
		c.remove(victim, cache.CauseOverflow)
	}
}

// use moves a node into protection, and the least recently used one out of it.
func (c *testCache) use(el *list.Element) *list.Element {
	n := el.Value.(*testNode)
	n.in.Remove(el)
	if c.unprotected {
		return c.probation.PushFront(n)
	}
	n.in = &c.protected
	el = c.protected.PushFront(n)
	if c.protected.Len() > c.max(c.cfg.MaxEntries)*4/5 {
		old := c.protected.Remove(c.protected.Back()).(*testNode)
		old.in = &c.probation
		c.nodes[old.key] = c.probation.PushFront(old)
		if old == n {
			return c.nodes[old.key]
		}
	}
	return el
}

func (c *testCache) remove(el *list.Element, cause cache.Cause) {
	n := el.Value.(*testNode)
	n.in.Remove(el)
	delete(c.nodes, n.key)
	if c.late {
		c.mu.Unlock()
		runtime.Gosched()
		defer c.mu.Lock()
	}
	if !c.silent[cause] {
		c.cfg.OnEvict(n.entry, c.cause(cause))
	}
	if c.echo {
		c.cfg.OnEvict(n.entry, c.cause(cause))
	}
}

func (c *testCache) Touch(key string) {
	key = c.fold(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.nodes[key]
	if !ok {
		if c.touchAdds {
			c.insert(key, new(limiter.Entry))
		}
		return
	}
	n := el.Value.(*testNode)
	if !c.noTouch {
		n.touched = c.cfg.Now()
	}
	if c.touchRenews {
		n.renewed = c.cfg.Now()
	}
	if !c.noUse {
		c.nodes[key] = c.use(el)
	}
}

func (c *testCache) Renew(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.nodes[c.fold(key)]; ok && !c.noRenew {
		el.Value.(*testNode).renewed = c.cfg.Now()
	}
}

func (c *testCache) Delete(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.nodes[c.fold(key)]; ok && !c.noDelete {
		c.remove(el, cache.CauseDeleted)
	}
}

func (c *testCache) Range(f func(*limiter.Entry) bool) {
	for {
		c.mu.Lock()
		var entries []*limiter.Entry
		for _, el := range c.nodes {
			entries = append(entries, el.Value.(*testNode).entry)
		}
		c.mu.Unlock()
		if c.rangeSkips {
			entries = entries[1:]
		}
		for _, e := range entries {
			if !f(e) && !c.rangeGoesOn {
				return
			}
		}
		if c.rangeCircles == nil || !c.rangeCircles.Load() {
			return
		}
	}
}

func (c *testCache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.nodes)
}

func (c *testCache) Cap() int { return c.reportCap(c.cfg.MaxEntries) }

func (c *testCache) Maintain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Now()
	for _, el := range c.nodes {
		n := el.Value.(*testNode)
		idle := !c.noIdle && now.Sub(n.touched) >= c.cfg.IdleTimeout
		old := !c.noTTL && now.Sub(n.renewed) >= c.cfg.TTL
		if idle || old {
			c.remove(el, cache.CauseExpired)
		}
	}
}

func (c *testCache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closeForgets {
		clear(c.nodes)
	}
}

func TestLocalCache_ABrokenCacheFailsTheRulesThatItBreaks(t *testing.T) {
	silent := func(c cache.Cause) quirks { return quirks{silent: map[cache.Cause]bool{c: true}} }
	var circling atomic.Bool
	circling.Store(true)
	defer circling.Store(false)
	var coverage caseCoverage
	subjects := []struct {
		name   string
		quirks quirks
		want   []string
	}{
		{"correct", quirks{}, nil},
		{"ignores the case of keys", quirks{fold: strings.ToLower}, []string{"C1"}},
		{"deletes nothing", quirks{noDelete: true}, []string{"C1"}},
		{"creates in vain", quirks{createsAlways: true}, []string{"C1"}},
		{"creates twice", quirks{createsTwice: true}, []string{"C1"}},
		{"is not atomic", quirks{unlocked: true}, []string{"C1"}},
		{"adds what is touched", quirks{touchAdds: true}, []string{"C1", "C2"}},
		{"does not tell of deletions", silent(cache.CauseDeleted), []string{"C1"}},
		{"does not tell of overflow", silent(cache.CauseOverflow), []string{"C1", "C2"}},
		{"does not tell of expiry", silent(cache.CauseExpired), []string{"C2"}},
		{"tells twice", quirks{echo: true}, []string{"C1", "C2"}},
		{"tells late", quirks{late: true}, []string{"C1"}},
		{"tells the wrong cause", quirks{cause: func(c cache.Cause) cache.Cause { return (c + 1) % 3 }}, []string{"C1", "C2"}},
		{"has no bound", quirks{max: func(int) int { return 1 << 30 }}, []string{"C2"}},
		{"holds some more than it may", quirks{max: func(n int) int { return n + 5 }}, []string{"C2"}},
		{"holds less than half of what it may", quirks{max: func(n int) int { return max(1, n*2/5) }}, []string{"C2"}},
		{"has no capacity", quirks{reportCap: func(int) int { return 0 }}, []string{"C2"}},
		{"ignores the idle timeout", quirks{noIdle: true}, []string{"C2"}},
		{"ignores the TTL", quirks{noTTL: true}, []string{"C2"}},
		{"expires what is in use", quirks{noTouch: true}, []string{"C2"}},
		{"renews what is touched", quirks{touchRenews: true}, []string{"C2"}},
		{"never renews", quirks{noRenew: true}, []string{"C2"}},
		{"is first in, first out", quirks{noUse: true}, []string{"C3"}},
		{"is a plain LRU", quirks{unprotected: true}, []string{"C3"}},
		{"takes nothing new when full", quirks{full: true}, []string{"C3"}},
		{"skips one in Range", quirks{rangeSkips: true}, []string{"C1", "C2", "C4"}},
		{"goes on in Range", quirks{rangeGoesOn: true}, []string{"C4"}},
		{"goes in circles in Range", quirks{rangeCircles: &circling}, []string{"C4"}},
		{"forgets all when closed", quirks{closeForgets: true}, []string{"L1"}},
		{"allocates in Get", quirks{getAllocates: true}, []string{"L1"}},
	}
	for _, tc := range subjects {
		t.Run(tc.name, func(t *testing.T) {
			failed := make(map[int]error)
			for i, c := range cacheCases {
				limit := watchdog
				if tc.quirks.rangeCircles != nil {
					if c.id != "C4" {
						continue // some of them use Range too, and would hang as well
					}
					limit = time.Second
				}
				err := runCache(limit, func(cfg limiter.CacheConfig) limiter.LocalCache {
					return newTestCache(tc.quirks, cfg)
				}, c)
				if err != nil {
					failed[i] = err
				}
			}
			if diff := cmp.Diff(tc.want, ruleIDs(cacheCases, failed)); diff != "" {
				t.Errorf("failed rules (-want +got):\n%s\n%v", diff, failed)
			}
			coverage.note(failed)
		})
	}
	checkCoverage(t, &coverage, cacheCases, len(subjects))
}
