package cache

import (
	"math/bits"
	"math/rand/v2"
)

// hasher computes hashes for the front table: multiplications of 64-bit words, in
// the manner of wyhash. Package maphash would take an eighth of all the time that
// a decision of package limiter takes. What it offers in return is not needed:
// keys whose hashes collide are found all the same, only not as fast.
type hasher struct{ seed, secret uint64 }

func newHasher() hasher { return hasher{seed: rand.Uint64(), secret: rand.Uint64()} }

func (h hasher) hash(s string) uint64 {
	length := uint64(len(s))
	sum := h.seed
	for len(s) > 16 {
		sum = mix(sum^word(s), h.secret^word(s[8:]))
		s = s[16:]
	}
	var a, b uint64
	switch n := len(s); {
	case n >= 8:
		a, b = word(s), word(s[n-8:])
	case n >= 4:
		a, b = half(s), half(s[n-4:])
	case n > 0:
		a = uint64(s[0])<<16 | uint64(s[n/2])<<8 | uint64(s[n-1])
	}
	return mix(mix(sum^a, h.secret^b), h.secret^length)
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// word returns the first 8 bytes of s as a number, half the first 4. The compiler
// makes one load of each.
func word(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func half(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}
