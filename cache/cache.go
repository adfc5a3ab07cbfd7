// Package cache is a bounded, scan-resistant map from string keys to pointers,
// with an idle timeout and a time to live, whose hit costs little more than
// that of a plain map.
package cache

import "time"

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

// Link is embedded by value in every cached value.
type Link struct{ key string }

// Config configures a Cache.
type Config[V any] struct {
	MaxEntries       int
	TTL, IdleTimeout time.Duration
	Now              func() time.Time
	Link             func(*V) *Link
	OnEvict          func(v *V, cause Cause)
}

// Cache is a placeholder.
type Cache[V any] struct{ m map[string]*V }

// New returns a cache.
func New[V any](cfg Config[V]) *Cache[V] { return &Cache[V]{m: map[string]*V{}} }
func (c *Cache[V]) Get(key string) (*V, bool) { v, ok := c.m[key]; return v, ok }
func (c *Cache[V]) GetOrAdd(key string, create func() *V) (*V, bool) {
	if v, ok := c.m[key]; ok {
		return v, false
	}
	v := create()
	c.m[key] = v
	return v, true
}
func (c *Cache[V]) Touch(key string)      {}
func (c *Cache[V]) Renew(key string)      {}
func (c *Cache[V]) Delete(key string)     { delete(c.m, key) }
func (c *Cache[V]) Range(f func(*V) bool) {}
func (c *Cache[V]) Len() int              { return len(c.m) }
func (c *Cache[V]) Cap() int              { return 0 }
func (c *Cache[V]) Maintain()             {}
func (c *Cache[V]) Close()                {}
