package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// L2 near the limit, where the level comes from samples of one per tick. A lone
// node denies nothing that would fit even if events stayed in the window for two
// ticks more, and admits nothing that would not fit even if they left it two ticks
// sooner, except for the few decisions that rest on what was known before the key
// came near its limit: those are the window counter's, good to one epoch.
func TestL2_ALoneNodeNearItsLimitIsExactToTheTick(t *testing.T) {
	t.Parallel()
	const tick, window = time.Second, time.Minute
	for seed := range uint64(often(60)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 2))
			limit := []int64{1, 2, 10, 100, 1000}[seed%5]
			c := newClock()
			l := mustNew(t, newStore(), limiter.Config{Limit: limit, Clock: c, Window: window, TickEvery: tick, Epochs: 1 + int(seed/5)%3})
			start := c.Now()
			var admitted []time.Time // one entry per event, in order
			decisions, coarse := 0, 0
			epoch := window / time.Duration(1+int(seed/5)%3)
			within := func(back time.Duration) int64 {
				from := c.Now().Add(-back)
				left, _ := slices.BinarySearchFunc(admitted, from, func(at, from time.Time) int {
					if at.After(from) {
						return 1
					}
					return -1
				})
				return int64(len(admitted) - left)
			}
			for c.Now().Sub(start) < 8*window {
				// Bursts and pauses, at about three times the limit.
				c.run(time.Duration(r.ExpFloat64()*float64(window)/float64(min(limit, 30))/3), l)
				if r.IntN(40) == 0 {
					c.run(time.Duration(r.Int64N(int64(window))), l)
				}
				for range 1 + r.Int64N(max(1, limit/10)) {
					n := 1 + r.Int64N(max(1, limit/20))
					fine := [2]int64{within(window - 2*tick), within(window + 2*tick)}
					wide := [2]int64{within(window - 2*tick - epoch), within(window + 2*tick + epoch)}
					d := l.Check("k", n)
					off := func(counts [2]int64) bool {
						return d.Allowed && counts[0]+n > limit || !d.Allowed && counts[1]+n <= limit
					}
					if off(wide) {
						t.Fatalf("at %v: %d of %d: %+v, with %v in the window, give or take an epoch", c.Now().Sub(start), n, limit, d, wide)
					}
					decisions++
					if off(fine) {
						coarse++
					}
					if d.Allowed {
						for range n {
							admitted = append(admitted, c.Now())
						}
					}
				}
			}
			if decisions > 200 && coarse*20 > decisions {
				t.Errorf("%d of %d decisions were off by more than two ticks", coarse, decisions)
			}
		})
	}
}
