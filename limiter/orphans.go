package limiter

import "sync"

// orphans keeps entries that the cache evicted before their counts had reached
// the store, so that a key that returns in the meantime goes on with them. Its
// size is bounded like the cache's. It is not on the path of cached keys.
type orphans struct {
	limit   int
	mu      sync.Mutex
	entries map[string]*Entry
}

// put keeps e and reports whether there was room.
func (o *orphans) put(e *Entry) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.entries) >= o.limit {
		return false
	}
	if o.entries == nil {
		o.entries = make(map[string]*Entry)
	}
	o.entries[e.key()] = e
	return true
}

// get returns the entry of key, or nil.
func (o *orphans) get(key string) *Entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.entries[key]
}

// take returns and forgets the entry of key, or nil.
func (o *orphans) take(key string) *Entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.entries[key]
	if e != nil {
		delete(o.entries, key)
	}
	return e
}

// remove forgets e.
func (o *orphans) remove(e *Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.entries[e.key()] == e {
		delete(o.entries, e.key())
	}
}
