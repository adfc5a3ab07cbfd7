package cache

import (
	"math"
	"strconv"
	"sync"
	"testing"
	"time"
)

type value struct{ link Link }

func newFrontCache(t *testing.T, cfg Config[value]) *Cache[value] {
	cfg.Link = func(v *value) *Link { return &v.link }
	c := New(cfg)
	t.Cleanup(c.Close)
	return c
}

func TestFrontSize(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ entries, want int }{
		{1, 1},
		{2, 4},
		{3, 4},
		{5, 8},
		{6, 16},
		{10_000, 16_384},
		{300_000, 1 << 19},
		{maxFront, maxFront},
		{math.MaxInt, maxFront},
	} {
		if got := frontSize(test.entries); got != test.want {
			t.Errorf("frontSize(%d) = %d, want %d", test.entries, got, test.want)
		}
	}
}

// An evicted value in a slot would be memory that nobody counts.
func TestFrontTableHoldsNoEvictedValues(t *testing.T) {
	t.Parallel()
	c := newFrontCache(t, Config[value]{MaxEntries: 50, IdleTimeout: time.Millisecond})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 5_000 {
				key := strconv.Itoa((i*7 + g) % 100)
				switch i % 5 {
				case 0:
					c.GetOrAdd(key, func() *value { return new(value) })
				case 1:
					c.Delete(key)
				default:
					c.Get(key)
				}
			}
		})
	}
	wg.Wait()
	for i := range c.front {
		if v := c.front[i].Load(); v != nil && v.link.dead.Load() {
			t.Errorf("slot %d of %d holds an evicted value of key %s", i, len(c.front), v.link.key)
		}
	}
}

func TestStaleSlotDoesNotMatch(t *testing.T) {
	t.Parallel()
	c := newFrontCache(t, Config[value]{MaxEntries: 1}) // one slot for all keys
	former, _ := c.GetOrAdd("k", func() *value { return new(value) })
	c.Delete("k")

	c.front[0].Store(former)
	if v, ok := c.Get("k"); ok {
		t.Errorf("Get = %p, want none: the value was evicted", v)
	}

	current, _ := c.GetOrAdd("k", func() *value { return new(value) })
	c.front[0].Store(former)
	if v, ok := c.Get("k"); !ok || v != current {
		t.Errorf("Get = %p, %v, want %p", v, ok, current)
	}
	if v := c.front[0].Load(); v != current {
		t.Errorf("the slot holds %p after a Get, want %p", v, current)
	}

	if v, ok := c.Get("other"); ok {
		t.Errorf("Get of another key = %p, want none", v)
	}

	// A Get that found the former value before it was evicted comes to store it.
	c.remember(&c.front[0], former)
	if v := c.front[0].Load(); v != nil {
		t.Errorf("the slot holds %p, want nothing rather than an evicted value", v)
	}
}

func TestValueThatCameBackIsFoundInTheFrontTable(t *testing.T) {
	t.Parallel()
	c := newFrontCache(t, Config[value]{MaxEntries: 1})
	v, _ := c.GetOrAdd("k", func() *value { return new(value) })
	c.Delete("k")
	c.GetOrAdd("k", func() *value { return v })
	if got := c.front[0].Load(); got != v || v.link.dead.Load() {
		t.Errorf("the slot holds %p, dead = %v, want %p, false", got, v.link.dead.Load(), v)
	}
}

func TestGetDoesNoMaintenance(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	evicted := 0
	c := newFrontCache(t, Config[value]{
		MaxEntries:  1,
		IdleTimeout: time.Minute,
		Now:         func() time.Time { return now },
		OnEvict:     func(*value, Cause) { evicted++ },
	})
	c.GetOrAdd("k", func() *value { return new(value) })
	now = now.Add(time.Hour)
	c.front[0].Store(nil)
	if _, ok := c.Get("k"); ok {
		t.Error("Get found an expired entry that was not in the front table")
	}
	if evicted != 0 {
		t.Error("Get evicted: a decision would wait for it")
	}
}
