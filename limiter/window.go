package limiter

import (
	"math"
	"math/bits"
	"time"
)

// The window counter. Time is cut into epochs of equal length, `epochs` of them
// to a window. With counts c[k] of the k-th epoch before the current one and
// progress the part of the current epoch that has passed, the level is
//
//	c[epochs]·(1−progress) + c[epochs−1] + … + c[1] + c[0]
//
// For one epoch per window this is the two-epoch counter of the reference
// design: previous·(1−progress) + current. Levels are rounded up, so that a
// request is admitted exactly if the level with it does not exceed the limit.

// maxEpochs bounds Config.Epochs: the accuracy study finds nothing to gain from
// more than a few, and a decision walks over all of them.
const maxEpochs = 60

// grid is the fixed division of time into epochs.
type grid struct {
	length int64 // of an epoch, in nanoseconds, at least 1 ms
	epochs int   // per window
}

// slots is how many epochs matter at a time: those of the window, and the one
// that is leaving it.
func (g grid) slots() int { return g.epochs + 1 }

// silence is how long a key must be left alone until nothing of it counts.
func (g grid) silence() int64 { return g.length * int64(g.slots()) }

// instant is one moment on the grid, with what every decision at that moment
// needs worked out.
type instant struct {
	now    int64  // unix time in nanoseconds
	epoch  int64  // floor(now / length)
	left   int64  // nanoseconds until the epoch ends: 1 to length
	weight uint64 // left/length as a fraction of 2^64; unused if left == length
	slot   int    // index of the epoch's slot: epoch modulo slots
}

// at places a moment on the grid. Times before 1970 are fine.
func (g grid) at(now int64) instant {
	epoch := g.epochOf(now)
	left := (epoch+1)*g.length - now
	in := instant{now: now, epoch: epoch, left: left, slot: g.slotOf(epoch)}
	if left < g.length {
		in.weight, _ = bits.Div64(uint64(left), 0, uint64(g.length))
	}
	return in
}

// epochOf returns floor(now / length).
func (g grid) epochOf(now int64) int64 {
	epoch := now / g.length
	if now < epoch*g.length {
		epoch--
	}
	return epoch
}

// end returns the moment at which epoch is over.
func (g grid) end(epoch int64) int64 { return (epoch + 1) * g.length }

// slotOf returns the index of the slot that epoch uses.
func (g grid) slotOf(epoch int64) int {
	i := int(epoch % int64(g.slots()))
	if i < 0 {
		i += g.slots()
	}
	return i
}

// before returns the slot of the epoch k before in's, for 0 ≤ k < slots.
func (g grid) before(in *instant, k int) int {
	i := in.slot - k
	if i < 0 {
		i += g.slots()
	}
	return i
}

// leaving returns count·left/length rounded up: what still counts of the epoch
// that is leaving the window. It is exact for every count from 0 up, and MaxInt64
// for one that went over the top (see whole). The
// product with the precomputed weight is the quotient or one less, which spares
// a division; the remainder tells which, and whether to round up.
func (g grid) leaving(in *instant, count int64) int64 {
	if count <= 0 || in.left == g.length {
		return whole(count)
	}
	quotient, _ := bits.Mul64(uint64(count), in.weight)
	// The true remainder is below 2·length, so it survives the wrap of both
	// products.
	rest := uint64(count)*uint64(in.left) - quotient*uint64(g.length)
	if rest > uint64(g.length) {
		quotient += 2
	} else if rest > 0 {
		quotient++
	}
	return int64(quotient)
}

// level adds up counts, where counts[k] is the k-th epoch before in's.
func (g grid) level(in *instant, counts []int64) int64 {
	sum := g.leaving(in, counts[g.epochs])
	for k := range g.epochs {
		sum = addSaturating(sum, counts[k])
	}
	return sum
}

// retryAfter returns the least wait after which n more events fit under limit
// if no others come, given counts as in level. It solves the window formula for
// the time: while the epoch e is the one that leaves, the level falls linearly,
// so in each of the following epochs either its end does not suffice, or the
// moment is one division away.
func (g grid) retryAfter(in *instant, counts []int64, n, limit int64) time.Duration {
	if n > limit {
		return Never
	}
	room := limit - n
	// full is what counts in whole while counts[k] is leaving.
	var full int64
	for k := range g.epochs {
		full = addSaturating(full, counts[k])
	}
	for k := g.epochs; ; k-- {
		// The epoch during which counts[k] leaves begins this long from now
		// (in the past, for the first).
		begin := in.left - g.length + int64(g.epochs-k)*g.length
		if full <= room {
			// Within this epoch: counts[k]·left/length ≤ room − full.
			wait := begin
			if c := counts[k]; c > room-full {
				wait += g.length - scaleDown(room-full, g.length, c)
			}
			return time.Duration(max(wait, 0))
		}
		// full > room ≥ 0 means that k > 0: counts[k−1] is part of full.
		full = 0
		for j := range k - 1 {
			full = addSaturating(full, counts[j])
		}
	}
}

// resetAfter returns how long until nothing of counts is left.
func (g grid) resetAfter(in *instant, counts []int64) time.Duration {
	for k := range g.slots() {
		if counts[k] > 0 {
			return time.Duration(in.left + int64(g.epochs-k)*g.length)
		}
	}
	return 0
}

// scaleDown returns floor(a·b/c) for 0 ≤ a < c and b ≥ 0.
func scaleDown(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

// whole returns the sum of two counts, or MaxInt64 if it went over the top, which
// made it negative.
func whole(sum int64) int64 {
	if sum < 0 {
		return math.MaxInt64
	}
	return sum
}

// addSaturating returns a + b for a, b ≥ 0, or MaxInt64 if that is less.
func addSaturating(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
