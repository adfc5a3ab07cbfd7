package conformance

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
	"github.com/google/go-cmp/cmp"
)

func TestTierPolicy_TheDefaultConforms(t *testing.T) {
	t.Parallel()
	TestTierPolicy(t, limiter.DefaultTiers(15*time.Second))
}

// policy is a TierPolicy made of its parts.
type policy struct {
	tiers    []limiter.Tier
	classify func(limiter.Signal) int
}

func (p policy) Tiers() []limiter.Tier         { return p.tiers }
func (p policy) Classify(s limiter.Signal) int { return p.classify(s) }

var (
	cold = limiter.Tier{Name: "cold", MaxStale: time.Minute}
	hot  = limiter.Tier{Name: "hot", MaxStale: time.Second}
)

func hotFromHalf(s limiter.Signal) int {
	if s.Pressure < 0.5 {
		return 0
	}
	return 1
}

// notConcurrent classifies wrongly when it is called while it is being called. At
// one signal it waits, in a bubble's time, until all other callers wait as well or
// have come in between.
func notConcurrent() func(limiter.Signal) int {
	var busy sync.Mutex
	return func(s limiter.Signal) int {
		if !busy.TryLock() {
			return -1
		}
		defer busy.Unlock()
		if s.Pressure == 1 {
			time.Sleep(time.Nanosecond)
		}
		return hotFromHalf(s)
	}
}

// Not parallel: it counts allocations, and goes faster undisturbed.
func TestTierPolicy_ABrokenPolicyFailsTheRulesThatItBreaks(t *testing.T) {
	var last atomic.Pointer[limiter.Signal]
	many := make([]limiter.Tier, 65)
	for i := range many {
		many[i] = limiter.Tier{Name: fmt.Sprint(i), MaxStale: time.Minute}
	}
	two := []limiter.Tier{cold, hot}
	var coverage caseCoverage
	subjects := []struct {
		name   string
		policy policy
		want   []string
	}{
		{"correct", policy{two, hotFromHalf}, nil},
		{"has no tiers", policy{nil, hotFromHalf}, []string{"T1"}},
		{"has too many tiers", policy{many, hotFromHalf}, []string{"T1"}},
		{"has a tier without a name", policy{[]limiter.Tier{cold, {MaxStale: 1}}, hotFromHalf}, []string{"T1"}},
		{"has tiers of one name", policy{[]limiter.Tier{cold, cold}, hotFromHalf}, []string{"T1"}},
		{"has a tier that is never stale", policy{[]limiter.Tier{cold, {Name: "hot"}}, hotFromHalf}, []string{"T1"}},
		{"counts tiers from 1", policy{two, func(s limiter.Signal) int { return 1 + hotFromHalf(s) }}, []string{"T1"}},
		{"is lost above the limit", policy{two, func(s limiter.Signal) int { return int(2 * s.Pressure / (1 + s.Pressure)) }}, []string{"T1"}},
		{"has no tier for NaN", policy{two, func(s limiter.Signal) int {
			if math.IsNaN(s.Pressure) {
				return -1
			}
			return hotFromHalf(s)
		}}, []string{"T1"}},
		{"divides by the limit", policy{two, func(s limiter.Signal) int { return int(1000/s.Limit) % 2 }}, []string{"T1", "T2"}},
		{"is not safe for concurrent use", policy{two, notConcurrent()}, []string{"T1"}},
		{"allocates", policy{two, func(s limiter.Signal) int { last.Store(&s); return 0 }}, []string{"T2"}},
	}
	for _, tc := range subjects {
		t.Run(tc.name, func(t *testing.T) {
			failed := make(map[int]error)
			synctest.Test(t, func(*testing.T) {
				for i, c := range tierCases {
					if err := guard(watchdog, func() error { return c.run(tc.policy) }); err != nil {
						failed[i] = err
					}
				}
			})
			if diff := cmp.Diff(tc.want, ruleIDs(tierCases, failed)); diff != "" {
				t.Errorf("failed rules (-want +got):\n%s\n%v", diff, failed)
			}
			coverage.note(failed)
		})
	}
	checkCoverage(t, &coverage, tierCases, len(subjects))
}
