package store

import (
	"slices"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// maxChunk is how many operations a chunk holds at most, unless a single key has
// more of them: all operations of a key share a chunk.
const maxChunk = 1000

// plan divides the operations of a batch among chunks. Operations are numbered
// through, adds first, then expiries, then gets. A plan can be used again.
type plan struct {
	order []int // the numbers of all operations, chunk by chunk, ascending in each
	ends  []int // where in order each chunk ends

	// What dividing takes.
	ids   map[string]int // a number for each key
	keyOf []int          // by operation: the number of its key
	sizes []int          // by key: how many operations it has, then the chunk it is in
}

func newPlan() *plan { return &plan{ids: make(map[string]int)} }

// chunks returns the number of chunks.
func (p *plan) chunks() int { return len(p.ends) }

// chunk returns the operations of chunk i.
func (p *plan) chunk(i int) []int {
	start := 0
	if i > 0 {
		start = p.ends[i-1]
	}
	return p.order[start:p.ends[i]]
}

// divide plans b. Keys keep the order of their first operation, so that what the
// limiter put first is sent first.
func (p *plan) divide(b *limiter.Batch) {
	n := numOps(b)
	p.order = slices.Grow(p.order[:0], n)[:n]
	p.ends = p.ends[:0]
	if n <= maxChunk {
		for i := range p.order {
			p.order[i] = i
		}
		p.ends = append(p.ends, n)
		return
	}

	clear(p.ids)
	p.keyOf = slices.Grow(p.keyOf[:0], n)[:n]
	p.sizes = p.sizes[:0]
	for i := range n {
		key := counterOf(b, i).Key
		id, ok := p.ids[key]
		if !ok {
			id = len(p.sizes)
			p.ids[key] = id
			p.sizes = append(p.sizes, 0)
		}
		p.keyOf[i] = id
		p.sizes[id]++
	}

	// While chunks fill up, ends holds where they begin: placing the operations
	// moves each of these to the chunk's end.
	start, fill := 0, 0
	p.ends = append(p.ends, 0)
	for id, size := range p.sizes {
		if fill > 0 && fill+size > maxChunk {
			start += fill
			fill = 0
			p.ends = append(p.ends, start)
		}
		fill += size
		p.sizes[id] = len(p.ends) - 1
	}
	for i, id := range p.keyOf {
		chunk := p.sizes[id]
		p.order[p.ends[chunk]] = i
		p.ends[chunk]++
	}
}

// numOps returns the number of operations of b.
func numOps(b *limiter.Batch) int { return len(b.Adds) + len(b.Expires) + len(b.Gets) }

// counterOf returns the counter of operation i of b.
func counterOf(b *limiter.Batch, i int) *limiter.Counter {
	if i < len(b.Adds) {
		return &b.Adds[i].Counter
	}
	i -= len(b.Adds)
	if i < len(b.Expires) {
		return &b.Expires[i].Counter
	}
	return &b.Gets[i-len(b.Expires)].Counter
}
