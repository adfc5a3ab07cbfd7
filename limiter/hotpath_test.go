package limiter_test

import (
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

// With the limiter's own clock, which decisions read in another way than a caller's.
// It must run alone, so it is not parallel.
func TestL1_DecisionsByTheLimitersOwnClockDoNotAllocate(t *testing.T) {
	for _, window := range []time.Duration{time.Hour, 100 * time.Millisecond} { // coarse and exact
		for _, limit := range []int64{1, 1 << 50} {
			l := mustNew(t, memorystore.New(), limiter.Config{Limit: limit, Window: window, TickEvery: window / 4})
			l.Allow("key")
			flush(t, l)
			for name, decide := range map[string]func(){
				"Allow":  func() { l.Allow("key") },
				"AllowN": func() { l.AllowN("key", 2) },
				"Check":  func() { l.Check("key", 1) },
				"Peek":   func() { l.Peek("key") },
			} {
				// The loop and the clock allocate now and then; many runs make it
				// less than one for each.
				if n := testing.AllocsPerRun(10_000, decide); n != 0 {
					t.Errorf("L1: %s, limit %d, window %v: got %v allocations, want 0", name, limit, window, n)
				}
			}
		}
	}
}
