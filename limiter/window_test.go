package limiter

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

func TestGridAt_NamesTheEpoch(t *testing.T) {
	t.Parallel()
	tests := []struct{ unix, window, epoch, left int64 }{
		{60, 60, 1, 60}, {90, 60, 1, 30}, {119, 60, 1, 1}, {120, 60, 2, 60}, {0, 60, 0, 60},
		{1735000080, 60, 28916668, 60}, {30, 30, 1, 30}, {-1, 60, -1, 1}, {-60, 60, -1, 60}, {-61, 60, -2, 1},
	}
	for _, tt := range tests {
		g := grid{length: tt.window * 1e9, epochs: 1}
		in := g.at(tt.unix * 1e9)
		if in.epoch != tt.epoch || in.left != tt.left*1e9 {
			t.Errorf("at(%d s) of %d s epochs: got epoch %d with %d ns left, want %d with %d s", tt.unix, tt.window, in.epoch, in.left, tt.epoch, tt.left)
		}
		if in.slot < 0 || in.slot >= g.slots() {
			t.Errorf("at(%d s): slot %d out of range", tt.unix, in.slot)
		}
	}
}

// The reference's own cases of its weighted count.
func TestGridLevel_MatchesTheReferenceCases(t *testing.T) {
	t.Parallel()
	g := grid{length: 60e9, epochs: 1}
	tests := []struct{ previous, current, unix, want int64 }{
		{100, 0, 60, 100}, {100, 0, 90, 50}, {100, 50, 90, 100}, {0, 100, 90, 100}, {0, 0, 90, 0}, {100, 100, 60, 200},
	}
	for _, tt := range tests {
		in := g.at(tt.unix * 1e9)
		if got := g.level(&in, []int64{tt.current, tt.previous}); got != tt.want {
			t.Errorf("level of (%d, %d) at %d s: got %d, want %d", tt.previous, tt.current, tt.unix, got, tt.want)
		}
	}
}

func TestGridLevel_CountsFullEpochsWhole(t *testing.T) {
	t.Parallel()
	g := grid{length: 15e9, epochs: 4}
	in := g.at(7*15e9 + 5e9) // a third into epoch 7
	if got, want := g.level(&in, []int64{1, 10, 100, 1000, 30}), int64(1+10+100+1000+20); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	if got := g.level(&in, []int64{math.MaxInt64, 1, 0, 0, math.MaxInt64}); got != math.MaxInt64 {
		t.Errorf("a sum over the top: got %d, want MaxInt64", got)
	}
}

// ceilRatio is ceil(count·left/length) in arbitrary precision.
func ceilRatio(count, left, length int64) *big.Int {
	x := new(big.Int).Mul(big.NewInt(count), big.NewInt(left))
	x.Add(x, big.NewInt(length-1))
	return x.Div(x, big.NewInt(length))
}

func checkLeaving(t *testing.T, length, now, count int64) {
	t.Helper()
	g := grid{length: length, epochs: 1}
	in := g.at(now)
	if got, want := g.leaving(&in, count), ceilRatio(count, in.left, length); want.Cmp(big.NewInt(got)) != 0 {
		t.Errorf("leaving %d with %d of %d ns left: got %d, want %v", count, in.left, length, got, want)
	}
}

func TestGridLeaving_IsExact(t *testing.T) {
	t.Parallel()
	lengths := []int64{1e6, 1e6 + 1, 999_999_937, 60e9, 3600e9, 30 * 86400e9, math.MaxInt64 / 128}
	counts := []int64{0, 1, 2, 9, 10, 1e6, 1 << 53, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64}
	r := rand.New(rand.NewPCG(1, 2))
	for _, length := range lengths {
		for _, count := range counts {
			for _, now := range []int64{0, 1, length / 2, length/2 + 1, length / 3, length - 1} {
				checkLeaving(t, length, now, count)
			}
			for range 200 {
				checkLeaving(t, length, r.Int64N(length), count>>r.IntN(62))
			}
		}
	}
}

// fits says by the definition whether n events pass at a later moment, if none
// came since counts were taken in from's epoch.
func (g grid) fits(from *instant, counts []int64, later, n, limit int64) bool {
	in := g.at(later)
	moved := make([]int64, g.slots())
	for k := range moved {
		if j := int64(k) - (in.epoch - from.epoch); j >= 0 {
			moved[k] = counts[j]
		}
	}
	used := g.level(&in, moved)
	return n <= limit && used <= limit-n
}

func checkRetryAfter(t *testing.T, g grid, now int64, counts []int64, n, limit int64) {
	t.Helper()
	in := g.at(now)
	wait := g.retryAfter(&in, counts, n, limit)
	name := fmt.Sprintf("retryAfter of %d at %d ns, %d epochs of %d, counts %v, limit %d", n, now, g.epochs, g.length, counts, limit)
	switch {
	case n > limit:
		if wait != Never {
			t.Errorf("%s: got %v, want Never", name, wait)
		}
	case wait < 0 || int64(wait) > g.silence():
		t.Errorf("%s: got %v, want 0 to %d", name, wait, g.silence())
	case !g.fits(&in, counts, now+int64(wait), n, limit):
		t.Errorf("%s: got %v, but it does not pass then", name, wait)
	case wait > 0 && g.fits(&in, counts, now+int64(wait)-1, n, limit):
		t.Errorf("%s: got %v, but it passes sooner", name, wait)
	}
}

func TestGridRetryAfter_IsTheFirstMomentThatPasses(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		g := grid{length: 1e6 + r.Int64N(1e9), epochs: 1 + r.IntN(4)}
		limit := int64(1) << r.IntN(40)
		limit += r.Int64N(limit)
		counts := make([]int64, g.slots())
		for k := range counts {
			if r.IntN(3) > 0 {
				counts[k] = r.Int64N(2 * limit)
			}
		}
		checkRetryAfter(t, g, r.Int64N(1e15), counts, 1+r.Int64N(limit+limit/8+1), limit)
	}
	g := grid{length: 60e9, epochs: 1}
	for _, c := range [][]int64{{math.MaxInt64, math.MaxInt64}, {math.MaxInt64 - 1, 0}, {0, math.MaxInt64 - 1}, {0, 0}} {
		checkRetryAfter(t, g, 61e9, c, 1, math.MaxInt64-1)
		checkRetryAfter(t, g, 61e9, c, math.MaxInt64-1, math.MaxInt64-1)
		checkRetryAfter(t, g, 60e9, c, 5, 10)
	}
}

func TestGridResetAfter_EndsWhenTheLastCountHasLeft(t *testing.T) {
	t.Parallel()
	g := grid{length: 15e9, epochs: 4}
	in := g.at(5e9)
	tests := []struct {
		counts []int64
		want   time.Duration
	}{
		{[]int64{0, 0, 0, 0, 0}, 0},
		{[]int64{1, 0, 0, 0, 0}, 70 * time.Second},
		{[]int64{0, 0, 0, 1, 9}, 25 * time.Second},
		{[]int64{0, 0, 0, 0, 9}, 10 * time.Second},
	}
	for _, tt := range tests {
		if got := g.resetAfter(&in, tt.counts); got != tt.want {
			t.Errorf("resetAfter(%v): got %v, want %v", tt.counts, got, tt.want)
		}
	}
}

func FuzzWindow(f *testing.F) {
	f.Add(int64(60e9), int64(90e9), uint8(1), int64(10), int64(100), int64(50), int64(1))
	f.Add(int64(1e6), int64(0), uint8(4), int64(math.MaxInt64-1), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Add(int64(1e9+7), int64(-5), uint8(2), int64(1), int64(0), int64(1), int64(1))
	f.Fuzz(func(t *testing.T, length, now int64, epochs uint8, limit, older, newer, n int64) {
		// Lengths and times that Config and the clock allow: up to centuries.
		length = 1e6 + (length&math.MaxInt64)%int64(1e17)
		now %= int64(1e18)
		g := grid{length: length, epochs: 1 + int(epochs)%maxEpochs}
		limit, older, newer, n = limit&math.MaxInt64, older&math.MaxInt64, newer&math.MaxInt64, n&math.MaxInt64
		if int64(g.slots()) > math.MaxInt64/4/length {
			return
		}
		checkLeaving(t, length, now, older)
		counts := make([]int64, g.slots())
		counts[0], counts[g.epochs] = newer, older
		checkRetryAfter(t, g, now, counts, max(n, 1), limit)
	})
}
