package cache

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"
)

type value struct{ link Link }

func newFrontCache(t *testing.T, cfg Config[value]) *Cache[value] {
	cfg.Link = func(v *value) *Link { return &v.link }
	c := New(cfg)
	t.Cleanup(c.Close)
	return c
}

func newValue() *value { return new(value) }

// front returns how often v is in the front table, and how often as a candidate
// for its key.
func (c *Cache[V]) inFront(key string, v *V) (places, found int) {
	for i := range c.front.sets {
		for j := range c.front.sets[i].ways {
			if c.front.sets[i].ways[j].Load() == v {
				places++
			}
		}
	}
	hash := c.front.hash(key)
	s := c.front.set(hash)
	for m := s.candidates(hash); m != 0; m &= m - 1 {
		if s.way(m) == v {
			found++
		}
	}
	return places, found
}

func TestFrontTableTakes16BytesPerEntry(t *testing.T) {
	t.Parallel()
	if got := unsafe.Sizeof(set[value]{}); got != 64 {
		t.Fatalf("a set takes %d bytes, want a cache line", got)
	}
	for _, test := range []struct{ entries, sets int }{
		{1, 1},
		{3, 1},
		{4, 2},
		{10_000, 2_501},
		{300_000, 75_001},
		{perSet * maxSets, maxSets},
		{math.MaxInt, maxSets},
	} {
		f := newFront[value](test.entries)
		if got := len(f.sets); got != test.sets {
			t.Errorf("%d sets for %d entries, want %d", got, test.entries, test.sets)
		}
		if at := uintptr(unsafe.Pointer(&f.sets[0])); test.entries >= 10_000 && at%64 != 0 {
			t.Errorf("the sets of a table for %d entries begin at %#x, want them to be cache lines", test.entries, at)
		}
	}
}

func TestFrontTableFindsNearlyAllOfAFullCache(t *testing.T) {
	t.Parallel()
	const entries = 30_000
	c := newFrontCache(t, Config[value]{MaxEntries: entries})
	values := make([]*value, entries)
	for i := range values {
		values[i], _ = c.GetOrAdd(strconv.Itoa(i), newValue)
	}
	inFront := func(i int) bool {
		hash := c.front.hash(strconv.Itoa(i))
		s := c.front.set(hash)
		for m := s.candidates(hash); m != 0; m &= m - 1 {
			if s.way(m) == values[i] {
				return true
			}
		}
		return false
	}
	r := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(r, 1.05, 1, entries-1)
	loads := []struct {
		name string
		next func() int
		want float64
	}{
		{"uniform", func() int { return r.IntN(entries) }, 0.97},
		{"zipf 1.05", func() int { return int(zipf.Uint64()) }, 0.98},
	}
	for _, load := range loads {
		const gets = 200_000
		hits := 0
		for range gets {
			i := load.next()
			if inFront(i) {
				hits++
			}
			if v, ok := c.Get(strconv.Itoa(i)); !ok || v != values[i] {
				t.Fatalf("Get = %p, %v, want %p", v, ok, values[i])
			}
		}
		got := float64(hits) / gets
		t.Logf("%s: %.2f %% of the gets were answered by the front table", load.name, 100*got)
		if got < load.want {
			t.Errorf("%s: the front table answered %.4f of the gets, want %.2f", load.name, got, load.want)
		}
	}
}

func TestTagsLeadToTheirWays(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		var s set[value]
		var want [ways]*value
		var tags [ways]uint8
		for i := range ways {
			// Few different tags, and those for which subtractions borrow.
			tags[i] = []uint8{0, 1, 2, 0x7f, 0x80, 0x81, 0xff}[r.IntN(7)]
			want[i] = newValue()
			s.put(uint64(tags[i]), want[i])
		}
		for i, v := range want {
			n := 0
			for m := s.candidates(uint64(tags[i])); m != 0; m &= m - 1 {
				if s.way(m) == v {
					n++
				}
			}
			if n != 1 {
				t.Fatalf("tags %x: value %d is a candidate %d times, want once", s.tags.Load(), i, n)
			}
		}
	}
}

func TestFullSetGivesUpItsValuesInTurn(t *testing.T) {
	t.Parallel()
	var s set[value]
	const rounds = 5
	last := [ways]*value{}
	for i := range rounds * ways {
		v := newValue()
		s.put(uint64(i), v)
		s.put(uint64(i), v) // has its place already
		last[i%ways] = v
	}
	for i, v := range last {
		n := 0
		for j := range s.ways {
			if s.ways[j].Load() == v {
				n++
			}
		}
		if n != 1 {
			t.Errorf("the last but %d value is %d times in the set, want once", ways-1-i, n)
		}
	}
}

// An evicted value in the front table would be memory that nobody counts.
func TestFrontTableHoldsNoEvictedValues(t *testing.T) {
	t.Parallel()
	for _, entries := range []int{2, 50} {
		t.Run(fmt.Sprint("max=", entries), func(t *testing.T) {
			t.Parallel()
			c := newFrontCache(t, Config[value]{MaxEntries: entries, IdleTimeout: time.Millisecond})
			var wg sync.WaitGroup
			for g := range 8 {
				wg.Go(func() {
					for i := range 5_000 {
						key := strconv.Itoa((i*7 + g) % (2 * entries))
						switch i % 5 {
						case 0:
							c.GetOrAdd(key, newValue)
						case 1:
							c.Delete(key)
						default:
							c.Get(key)
						}
					}
				})
			}
			wg.Wait()
			for i := range c.front.sets {
				for j := range c.front.sets[i].ways {
					if v := c.front.sets[i].ways[j].Load(); v != nil && v.link.dead.Load() {
						t.Errorf("way %d of set %d holds an evicted value of key %s", j, i, v.link.key)
					}
				}
			}
		})
	}
}

func TestStaleValueInFrontDoesNotMatch(t *testing.T) {
	t.Parallel()
	c := newFrontCache(t, Config[value]{MaxEntries: 3}) // one set for all keys
	former, _ := c.GetOrAdd("k", newValue)
	c.Delete("k")

	hash := c.front.hash("k")
	s := c.front.set(hash)
	s.put(hash, former)
	if v, ok := c.Get("k"); ok {
		t.Errorf("Get = %p, want none: the value was evicted", v)
	}

	current, _ := c.GetOrAdd("k", newValue)
	s.drop(current)
	if v, ok := c.Get("k"); !ok || v != current {
		t.Errorf("Get = %p, %v, want %p", v, ok, current)
	}
	if places, found := c.inFront("k", current); places != 1 || found != 1 {
		t.Errorf("after a Get, the value is in %d places and found in %d, want 1 and 1", places, found)
	}

	// The way of another key, with the tag of this one: two puts at a time.
	s.put(hash, former)
	other, _ := c.GetOrAdd("other", newValue)
	s.put(hash, other)
	if v, ok := c.Get("k"); !ok || v != current {
		t.Errorf("Get beside a value of another key = %p, %v, want %p", v, ok, current)
	}
	if v, ok := c.Get("absent"); ok {
		t.Errorf("Get of another key = %p, want none", v)
	}

	// A Get that found the former value before it was evicted comes to store it.
	c.remember(hash, former)
	if places, _ := c.inFront("k", former); places != 0 {
		t.Errorf("the evicted value is in %d places, want none", places)
	}
}

// A racing put may leave a value under the tag of another.
func TestValueWithAWrongTagIsPutAgain(t *testing.T) {
	t.Parallel()
	c := newFrontCache(t, Config[value]{MaxEntries: 1})
	v, _ := c.GetOrAdd("k", newValue)
	hash := c.front.hash("k")
	c.front.set(hash).put(hash+1, v)
	if places, found := c.inFront("k", v); places != 1 || found != 0 {
		t.Fatalf("the value is in %d places and found in %d, want 1 and 0", places, found)
	}
	if got, ok := c.Get("k"); !ok || got != v {
		t.Errorf("Get = %p, %v, want %p", got, ok, v)
	}
	if places, found := c.inFront("k", v); places != 1 || found != 1 {
		t.Errorf("after a Get, the value is in %d places and found in %d, want 1 and 1", places, found)
	}
}

func TestValueThatCameBackIsFoundInTheFrontTable(t *testing.T) {
	t.Parallel()
	c := newFrontCache(t, Config[value]{MaxEntries: 1})
	v, _ := c.GetOrAdd("k", newValue)
	c.Delete("k")
	if places, _ := c.inFront("k", v); places != 0 {
		t.Errorf("the evicted value is in %d places, want none", places)
	}
	c.GetOrAdd("k", func() *value { return v })
	if _, found := c.inFront("k", v); found != 1 || v.link.dead.Load() {
		t.Errorf("found in %d places, dead = %v, want 1, false", found, v.link.dead.Load())
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
	v, _ := c.GetOrAdd("k", newValue)
	now = now.Add(time.Hour)
	c.front.set(c.front.hash("k")).drop(v)
	if _, ok := c.Get("k"); ok {
		t.Error("Get found an expired entry that was not in the front table")
	}
	if evicted != 0 {
		t.Error("Get evicted: a decision would wait for it")
	}
}
