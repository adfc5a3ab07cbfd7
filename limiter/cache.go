package limiter

import (
	"time"

	"github.com/fleetlimit/fleetlimit/cache"
)

// EvictionCause says why an entry left the cache.
type EvictionCause = cache.Cause

// CacheConfig is what the limiter tells a [LocalCache] at construction.
type CacheConfig struct {
	// MaxEntries bounds the number of entries, at least 1. A cache may exceed
	// it for a moment, by a small constant.
	MaxEntries int
	// TTL is how long an entry stays since it was added or last renewed.
	TTL time.Duration
	// IdleTimeout is how long an entry stays since it was added or last touched.
	IdleTimeout time.Duration
	// Now, if not nil, is the time by which entries expire. The cache then
	// starts no goroutine and expires entries in Maintain. If nil, the cache
	// keeps time itself.
	Now func() time.Time
	// OnEvict must be called once for each entry that leaves the cache, with the
	// cause, before the key can be added anew. It does not block and does not
	// call back into the cache.
	OnEvict func(e *Entry, cause EvictionCause)
}

// LocalCache finds the entry of a key in this node's memory. Evicting an entry
// forgives its key, so a good cache keeps hot keys through a scan of one-off
// keys. Rules C1 to C4 in docs/invariants.md apply. All methods are safe for
// concurrent use.
type LocalCache interface {
	// Get returns the entry of key. It is on the path of every decision: it must
	// not block and not allocate, and need not record the use.
	Get(key string) (e *Entry, ok bool)
	// GetOrAdd returns the entry of key, or adds the one that create returns.
	// create is called at most once, and of racing callers for one key only one
	// gets its entry added (rule C1). create must not call into the cache.
	GetOrAdd(key string, create func() *Entry) (e *Entry, added bool)
	// Touch records that key was used: it restarts the idle timeout and counts
	// for the choice of what to evict. The loop calls it from time to time for
	// keys in use. A key that is not cached is left alone.
	Touch(key string)
	// Renew restarts the TTL of key as well. The loop calls it when it has read
	// the key's counters afresh.
	Renew(key string)
	// Delete removes key.
	Delete(key string)
	// Range calls f for each entry until f returns false. It sees every entry
	// that stays in the cache throughout, and it ends (rule C4).
	Range(f func(e *Entry) bool)
	// Len returns the number of entries, possibly approximate.
	Len() int
	// Cap returns the bound on Len.
	Cap() int
	// Maintain performs outstanding expiries and evictions. The loop calls it
	// once per tick.
	Maintain()
	// Close releases what the cache holds and stops its goroutines. Get still
	// answers after it.
	Close()
}

// newDefaultCache adapts package cache, which knows nothing of limits.
func newDefaultCache(cfg CacheConfig) LocalCache {
	return cache.New(cache.Config[Entry]{
		MaxEntries:  cfg.MaxEntries,
		TTL:         cfg.TTL,
		IdleTimeout: cfg.IdleTimeout,
		Now:         cfg.Now,
		Link:        func(e *Entry) *cache.Link { return &e.link },
		OnEvict:     cfg.OnEvict,
	})
}
