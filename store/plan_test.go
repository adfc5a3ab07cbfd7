package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// batchOf returns a batch of operations on keys, each of which is 'a', 'e' or 'g'
// for what to do with it.
func batchOf(ops map[byte][]string) *limiter.Batch {
	var b limiter.Batch
	for _, key := range ops['a'] {
		b.Adds = append(b.Adds, limiter.Add{Counter: limiter.Counter{Key: key}, Delta: 1})
	}
	for _, key := range ops['e'] {
		b.Expires = append(b.Expires, limiter.Expire{Counter: limiter.Counter{Key: key}, Lifetime: 1})
	}
	for _, key := range ops['g'] {
		b.Gets = append(b.Gets, limiter.Get{Counter: limiter.Counter{Key: key}})
	}
	return &b
}

// checkPlan checks that a plan keeps its promises for a batch.
func checkPlan(t *testing.T, p *plan, b *limiter.Batch) {
	t.Helper()
	seen := make([]bool, numOps(b))
	chunkOf := make(map[string]int)
	for i := range p.chunks() {
		ops := p.chunk(i)
		if len(ops) == 0 {
			t.Fatalf("chunk %d is empty", i)
		}
		if !slices.IsSorted(ops) {
			t.Fatalf("chunk %d performs operations out of order: %v", i, ops)
		}
		keys := make(map[string]bool)
		for _, op := range ops {
			if seen[op] {
				t.Fatalf("operation %d occurs twice", op)
			}
			seen[op] = true
			key := counterOf(b, op).Key
			keys[key] = true
			if c, ok := chunkOf[key]; ok && c != i {
				t.Fatalf("key %q is in chunks %d and %d", key, c, i)
			}
			chunkOf[key] = i
		}
		if len(ops) > maxChunk && len(keys) > 1 {
			t.Fatalf("chunk %d has %d operations on %d keys", i, len(ops), len(keys))
		}
	}
	if i := slices.Index(seen, false); i >= 0 {
		t.Fatalf("operation %d is in no chunk", i)
	}
}

func TestPlansKeepKeysTogetherAndChunksSmall(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	p := newPlan()
	for round := range 50 {
		ops := make(map[byte][]string)
		keys := 1 + rng.IntN(3000)
		for range rng.IntN(6000) {
			kind := "aeg"[rng.IntN(3)]
			ops[kind] = append(ops[kind], fmt.Sprint(rng.IntN(keys)))
		}
		b := batchOf(ops)
		if numOps(b) == 0 {
			continue
		}
		p.divide(b)
		checkPlan(t, p, b)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

func TestPlansFillChunks(t *testing.T) {
	t.Parallel()
	distinct := func(n int) []string {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprint(i)
		}
		return keys
	}
	for _, tc := range []struct {
		name string
		ops  map[byte][]string
		want []int // the sizes of the chunks
	}{
		{"one operation", map[byte][]string{'g': {"k"}}, []int{1}},
		{"a full chunk", map[byte][]string{'a': distinct(1000)}, []int{1000}},
		{"one operation more", map[byte][]string{'a': distinct(1001)}, []int{1000, 1}},
		{"three operations a key", map[byte][]string{'a': distinct(1000), 'e': distinct(1000), 'g': distinct(1000)}, []int{999, 999, 999, 3}},
		{"a key with more than a chunk", map[byte][]string{'a': slices.Concat([]string{"x"}, slices.Repeat([]string{"k"}, 1500), []string{"y"})}, []int{1, 1500, 1}},
		{"nothing but one key", map[byte][]string{'g': slices.Repeat([]string{"k"}, 1500)}, []int{1500}},
	} {
		p := newPlan()
		b := batchOf(tc.ops)
		p.divide(b)
		checkPlan(t, p, b)
		var got []int
		for i := range p.chunks() {
			got = append(got, len(p.chunk(i)))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: chunks of %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestAPlanUsedAgainDoesNotAllocate(t *testing.T) {
	keys := make([]string, 5000)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	b := batchOf(map[byte][]string{'a': keys, 'g': keys})
	p := newPlan()
	p.divide(b)
	if n := testing.AllocsPerRun(10, func() { p.divide(b) }); n != 0 {
		t.Errorf("dividing a batch again makes %v allocations, want 0", n)
	}
}
