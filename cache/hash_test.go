package cache

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
)

// Keys of the kinds that are common must be spread as evenly as random ones, by
// the upper bits of their hashes, which choose the set, and by the lowest.
func TestHashSpreadsSimilarKeys(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	kinds := map[string]func(i int) string{
		"decimal":      func(i int) string { return fmt.Sprint(i) },
		"one letter":   func(i int) string { return fmt.Sprintf("%c", i) },
		"tenant":       func(i int) string { return fmt.Sprintf("tenant-%06d", i) },
		"long prefix":  func(i int) string { return strings.Repeat("x", 40) + fmt.Sprint(i) },
		"long suffix":  func(i int) string { return fmt.Sprint(i) + strings.Repeat("x", 40) },
		"in between":   func(i int) string { return fmt.Sprintf("region/%06d/requests", i) },
		"address":      func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) },
		"uuid":         func(int) string { return fmt.Sprintf("%016x-%016x", r.Uint64(), r.Uint64()) },
		"by length":    func(i int) string { return strings.Repeat("\x00", i) },
		"small number": func(i int) string { return string([]byte{byte(i), byte(i >> 8), byte(i >> 16), 0}) },
	}
	for name, key := range kinds {
		t.Run(name, func(t *testing.T) {
			const sets = 1 << 10
			n := 4 * sets
			h := newHasher()
			seen := map[uint64]string{}
			var upper [sets]int
			var lowest [256]int
			for i := range n {
				s := key(i)
				hash := h.hash(s)
				if before, ok := seen[hash]; ok {
					t.Fatalf("%q and %q have the same hash", before, s)
				}
				seen[hash] = s
				set, _ := bits.Mul64(hash, sets)
				upper[set]++
				lowest[byte(hash)]++
			}
			check := func(what string, counts []int) {
				// For random numbers, the sum of the squared deviations is the number
				// of keys on average, with a standard deviation of less than a tenth.
				mean := float64(n) / float64(len(counts))
				var sum float64
				for _, c := range counts {
					sum += (float64(c) - mean) * (float64(c) - mean)
				}
				if ratio := sum / float64(n); ratio > 1.6 {
					t.Errorf("%s: squared deviations are %.2f times those of random numbers", what, ratio)
				}
			}
			check("upper bits", upper[:])
			check("lowest bits", lowest[:])
		})
	}
}

func TestHashDependsOnAllOfTheKeyAndOnTheSeed(t *testing.T) {
	t.Parallel()
	h := hasher{seed: 1, secret: rand.New(rand.NewPCG(2, 3)).Uint64()}
	for n := range 100 {
		key := []byte(strings.Repeat("k", n))
		base := h.hash(string(key))
		if base != h.hash(strings.Clone(string(key))) {
			t.Fatalf("length %d: two hashes of one key", n)
		}
		if other := (hasher{seed: 2, secret: h.secret}).hash(string(key)); other == base {
			t.Errorf("length %d: the hash does not depend on the seed", n)
		}
		for i := range key {
			for bit := range 8 {
				key[i] ^= 1 << bit
				if h.hash(string(key)) == base {
					t.Errorf("length %d: the hash does not depend on bit %d of byte %d", n, bit, i)
				}
				key[i] ^= 1 << bit
			}
		}
	}
}
