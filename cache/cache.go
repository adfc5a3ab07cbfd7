package cache

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
)

const (
	// addersBits is the number of hash bits that choose one of the locks for
	// adding. Each lock lets one entry be added at a time, so that the number of
	// locks is what a cache can exceed its bound by.
	addersBits = 4

	// maxPrealloc bounds the memory that is set aside in advance, which saves
	// otter's table from growing, to that for a million entries.
	maxPrealloc = 1 << 20

	// forever stands for no timeout. It is less than the longest Duration so that
	// sums with it do not overflow.
	forever time.Duration = 1 << 62
)

// Cause says why an entry left the cache.
type Cause uint8

const (
	// CauseOverflow means that the cache was full.
	CauseOverflow Cause = iota
	// CauseExpired means that the idle timeout or the time to live had passed.
	CauseExpired
	// CauseDeleted means that Delete was called.
	CauseDeleted
)

// String returns the cause in one word, fit for a log or a metric.
func (c Cause) String() string {
	switch c {
	case CauseOverflow:
		return "overflow"
	case CauseExpired:
		return "expired"
	case CauseDeleted:
		return "deleted"
	default:
		return "unknown"
	}
}

// Link is what the cache keeps in a value. Every cached type embeds one by
// value; its zero value is ready for use. A value must not be copied once it
// was added.
type Link struct {
	// key is written before the value is first published and never again.
	key string
	// added is when the value was added or last renewed, by otter's clock.
	// Like renewed, it is used under otter's lock for the key only.
	added   int64
	renewed bool
	dead    atomic.Bool
}

// NewLink returns the Link of a value that is to be added under key. The cache
// then shares key with the caller, where it would otherwise make a copy, so the
// memory behind key must not change.
func NewLink(key string) Link { return Link{key: key} }

// Key returns the key that the value was added under, or made for.
func (l *Link) Key() string { return l.key }

// Config configures a [Cache]. Link is required.
type Config[V any] struct {
	// MaxEntries bounds the number of entries. While entries are being added there
	// may be up to 16 more. Less than 1 counts as 1.
	MaxEntries int
	// TTL is how long an entry stays since it was added or last renewed.
	// Zero or less means for ever.
	TTL time.Duration
	// IdleTimeout is how long an entry stays since it was added, or last touched
	// or renewed. Zero or less means for ever.
	IdleTimeout time.Duration
	// Now, if not nil, is the time by which entries expire. The cache then starts
	// no goroutine, and [Cache.Maintain] must be called for entries to expire. Now
	// must be safe for concurrent use and must not call the cache. If nil, the
	// cache keeps time itself.
	Now func() time.Time
	// Link returns a pointer to the Link in v. It must be safe for concurrent use.
	Link func(v *V) *Link
	// OnEvict, if not nil, is called once for each entry that leaves the cache,
	// with the cause, before its key can be added anew. It runs under the cache's
	// locks, on whichever goroutine does maintenance: it must be quick, must not
	// call the cache, and must not wait for a lock that is held around a call to
	// the cache.
	OnEvict func(v *V, cause Cause)
}

// Cache is a bounded map from strings to pointers. Make one with [New]. All
// methods are safe for concurrent use.
type Cache[V any] struct {
	max     int
	link    func(*V) *Link
	onEvict func(*V, Cause)

	front   front[V]
	entries *otter.Cache[string, *V]

	_ [64]byte // keeps writes to the locks off the cache line that Get reads

	// adding holds the locks for adding an entry; the key's hash says which.
	adding [1 << addersBits]sync.Mutex
}

// New returns an empty cache. Close it to stop its goroutine.
func New[V any](cfg Config[V]) *Cache[V] {
	c := &Cache[V]{
		max:     max(cfg.MaxEntries, 1),
		link:    cfg.Link,
		onEvict: cfg.OnEvict,
	}
	c.front = newFront[V](c.max)

	opts := &otter.Options[string, *V]{
		MaximumSize:     c.max,
		InitialCapacity: min(c.max, maxPrealloc),
		ExpiryCalculator: expiry[V]{
			ttl:  timeout(cfg.TTL),
			idle: timeout(cfg.IdleTimeout),
			link: cfg.Link,
		},
		OnAtomicDeletion: c.removed,
		// Otter keeps the latest uses in a small buffer and drops what does not
		// fit. Draining it on the caller's goroutine loses none.
		Executor: func(f func()) { f() },
	}
	if cfg.Now != nil {
		opts.Clock = clock{now: cfg.Now, start: cfg.Now()}
	}
	c.entries = otter.Must(opts)
	if cfg.Now != nil {
		// Without ticks the goroutine ends by itself; this waits for it.
		c.entries.StopAllGoroutines()
	}
	return c
}

func timeout(d time.Duration) time.Duration {
	if d <= 0 {
		return forever
	}
	return min(d, forever)
}

// Get returns the value of key. It does not block and does not allocate. It does
// not count as a use of the key (see [Cache.Touch]), and it may find an entry
// that has expired until maintenance has removed it.
func (c *Cache[V]) Get(key string) (v *V, ok bool) {
	hash := c.front.hash(key)
	s := c.front.set(hash)
	for m := s.candidates(hash); m != 0; m &= m - 1 {
		if v := s.way(m); v != nil {
			if l := c.link(v); l.key == key && !l.dead.Load() {
				return v, true
			}
		}
	}
	// Quietly, because recording the use could start maintenance here.
	e, ok := c.entries.GetEntryQuietly(key)
	if !ok {
		return nil, false
	}
	c.remember(hash, e.Value)
	return e.Value, true
}

// GetOrAdd returns the value of key, or adds the one that create returns. It
// calls create at most once, and of racing callers for one key only one adds
// its value. The value that it adds may be evicted again before it returns.
//
// create must not return nil and must not call the cache. It may return a value
// that this cache has evicted, if it was that of the same key.
//
// The cache copies key, so the caller may reuse the memory behind it. It copies
// nothing if the value has its key already, by [NewLink] or from before.
func (c *Cache[V]) GetOrAdd(key string, create func() *V) (v *V, added bool) {
	hash := c.front.hash(key)
	mu := &c.adding[hash>>(64-addersBits)]
	mu.Lock()
	defer mu.Unlock()

	// This also removes the entry if it has expired. It must be gone before create
	// runs: OnEvict is to come first, and create may return the same value.
	v, ok := c.entries.ComputeIfPresent(key, keep)
	if !ok {
		v = create()
		l := c.link(v)
		if l.key != key {
			l.key = strings.Clone(key)
		}
		l.dead.Store(false)
		c.entries.Set(l.key, v)
		if c.entries.EstimatedSize() > c.max {
			// Another goroutine was at maintenance and did not see this entry.
			c.entries.CleanUp()
		}
	}
	c.remember(hash, v)
	return v, !ok
}

// Touch records that key was used: it restarts the idle timeout and counts for
// the choice of what to evict. It does nothing if key is not cached.
func (c *Cache[V]) Touch(key string) {
	c.entries.ComputeIfPresent(key, write)
}

// Renew does what [Cache.Touch] does and restarts the time to live as well.
func (c *Cache[V]) Renew(key string) {
	c.entries.ComputeIfPresent(key, func(v *V) (*V, otter.ComputeOp) {
		c.link(v).renewed = true
		return v, otter.WriteOp
	})
}

// Delete removes key, if it is cached.
func (c *Cache[V]) Delete(key string) {
	c.entries.Invalidate(key)
}

// Range calls f for each value until f returns false. It sees every entry that
// stays in the cache throughout, each once, and it ends even if others keep
// adding. f may call the cache.
func (c *Cache[V]) Range(f func(v *V) bool) {
	for _, v := range c.entries.All() {
		if !f(v) {
			return
		}
	}
}

// Len returns the number of entries, including those that have expired and were
// not yet removed. It is approximate while others change the cache.
func (c *Cache[V]) Len() int {
	return c.entries.EstimatedSize()
}

// Cap returns the bound on the number of entries.
func (c *Cache[V]) Cap() int {
	return c.max
}

// Maintain performs outstanding expiries and evictions. An entry may stay for up
// to 1.07 seconds after its deadline.
func (c *Cache[V]) Maintain() {
	c.entries.CleanUp()
}

// Close stops the cache's goroutine, if it has one, and returns when it has
// ended. The cache remains usable, but from then on entries expire only as they
// do with [Config.Now] set. Close may be called more than once.
func (c *Cache[V]) Close() {
	c.entries.StopAllGoroutines()
}

// remember puts v in the front table. If v has been evicted since it was found,
// that may have been too early to remove it there, so it is done here.
func (c *Cache[V]) remember(hash uint64, v *V) {
	s := c.front.set(hash)
	s.put(hash, v)
	if c.link(v).dead.Load() {
		s.drop(v)
	}
}

// removed is told by otter, under its lock for the key, that a value leaves.
func (c *Cache[V]) removed(e otter.DeletionEvent[string, *V]) {
	var cause Cause
	switch e.Cause {
	case otter.CauseOverflow:
		cause = CauseOverflow
	case otter.CauseExpiration:
		cause = CauseExpired
	case otter.CauseInvalidation:
		cause = CauseDeleted
	default:
		return // Touch and Renew replace a value by itself.
	}
	c.link(e.Value).dead.Store(true)
	c.front.set(c.front.hash(e.Key)).drop(e.Value)
	if c.onEvict != nil {
		c.onEvict(e.Value, cause)
	}
}

// keep and write are what to do with a value that is present.
func keep[V any](v *V) (*V, otter.ComputeOp)  { return v, otter.CancelOp }
func write[V any](v *V) (*V, otter.ComputeOp) { return v, otter.WriteOp }

// expiry tells otter the deadline of an entry. Otter calls it under its lock for
// the key.
type expiry[V any] struct {
	ttl, idle time.Duration
	link      func(*V) *Link
}

func (x expiry[V]) ExpireAfterCreate(e otter.Entry[string, *V]) time.Duration {
	x.link(e.Value).added = e.SnapshotAtNano
	return min(x.ttl, x.idle)
}

func (x expiry[V]) ExpireAfterUpdate(e otter.Entry[string, *V], _ *V) time.Duration {
	l := x.link(e.Value)
	if l.renewed {
		l.added, l.renewed = e.SnapshotAtNano, false
	}
	age := time.Duration(e.SnapshotAtNano - l.added)
	// No earlier than before, also if the clock went back: otter would make a new
	// entry, whose key is the string of the caller and not our copy.
	return max(min(x.ttl-age, x.idle), e.ExpiresAfter())
}

func (x expiry[V]) ExpireAfterRead(e otter.Entry[string, *V]) time.Duration {
	return e.ExpiresAfter()
}

// clock makes an otter clock of a function.
type clock struct {
	now   func() time.Time
	start time.Time
}

// NowNano counts from the start, because the Unix time of an arbitrary
// [time.Time], such as the zero one, need not fit in nanoseconds.
func (c clock) NowNano() int64 { return int64(c.now().Sub(c.start)) }

// Tick returns no channel: there is no periodic maintenance.
func (c clock) Tick(time.Duration) <-chan time.Time { return nil }
