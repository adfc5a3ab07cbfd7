package cache

import (
	"math/bits"
	"sync/atomic"
)

const (
	// ways is the number of values in a set: what fits in a cache line beside
	// their tags.
	ways = 7

	// perSet is the number of entries per set of a full cache. About 2 % of the
	// entries then find their set taken by others. A set is 64 bytes long, so the
	// table costs 16 bytes per entry.
	perSet = 4

	// maxSets bounds the table: 32 MiB.
	maxSets = 1 << 19
)

// front is a table of values that were found lately. It is indexed by the hash
// of the key, and any of its values may be missing or stale.
type front[V any] struct {
	sets []set[V]
	hasher
}

// set holds the values of keys that share some bits of their hashes. It is a
// cache line, if the table is large enough for that to matter.
type set[V any] struct {
	// tags holds in byte i eight bits of the hash of the key of ways[i], which tell
	// nearly always whether it is worth looking at. The last byte is the way to
	// give up next when the set is full.
	tags atomic.Uint64
	ways [ways]atomic.Pointer[V]
}

// newFront returns a table for a cache of at most n entries.
func newFront[V any](n int) front[V] {
	return front[V]{
		sets:   make([]set[V], min(n/perSet+1, maxSets)),
		hasher: newHasher(),
	}
}

// set returns the set of a hash. It goes by the upper bits, tags by the lowest.
func (f *front[V]) set(hash uint64) *set[V] {
	i, _ := bits.Mul64(hash, uint64(len(f.sets)))
	return &f.sets[i]
}

// Bytes 0 to 6 of tags.
const (
	eachByte = 0x00_01_01_01_01_01_01_01
	highBits = eachByte << 7
)

// candidates returns the high bits of those bytes that belong to ways with the
// tag of hash, and rarely of one more.
func (s *set[V]) candidates(hash uint64) uint64 {
	x := s.tags.Load() ^ uint64(uint8(hash))*eachByte
	return (x - eachByte) &^ x & highBits // zero bytes of x
}

// way returns the value of a candidate, given as the lowest bit of a word, or nil.
func (s *set[V]) way(candidates uint64) *V {
	return s.ways[bits.TrailingZeros64(candidates)/8].Load()
}

// put stores v, in the place of another value if the set is full. If others do so
// at the same time, the set may end up with a value that its tag does not lead to.
// Then that value is looked for elsewhere, and put again.
func (s *set[V]) put(hash uint64, v *V) {
	free := s.place(v)
	for {
		tags := s.tags.Load()
		way, next := free, tags>>56
		if way < 0 {
			way = int(next)
			next = (next + 1) % ways
		}
		shift := 8 * way
		changed := tags&^(0xff<<shift)&^(0xff<<56) | uint64(uint8(hash))<<shift | next<<56
		if s.tags.CompareAndSwap(tags, changed) {
			s.ways[way].Store(v)
			return
		}
	}
}

// place returns the way that holds v or else one that is free, or -1.
func (s *set[V]) place(v *V) int {
	free := -1
	for i := range s.ways {
		switch s.ways[i].Load() {
		case v:
			return i
		case nil:
			free = i
		}
	}
	return free
}

// drop removes v.
func (s *set[V]) drop(v *V) {
	for i := range s.ways {
		if s.ways[i].Load() == v {
			s.ways[i].CompareAndSwap(v, nil)
		}
	}
}
