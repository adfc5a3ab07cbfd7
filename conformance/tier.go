package conformance

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// TestTierPolicy runs one subtest for each case of the rules for a
// [limiter.TierPolicy].
func TestTierPolicy(t *testing.T, policy limiter.TierPolicy) {
	t.Helper()
	for _, c := range tierCases {
		t.Run(c.id+"_"+c.name, func(t *testing.T) {
			t.Parallel()
			conclude(t, c.id, guard(watchdog, func() error { return c.run(policy) }), false)
		})
	}
}

var tierCases = []ruleCase[limiter.TierPolicy]{
	{id: "T1", name: "TiersAreUsable", run: tiersAreUsable},
	{id: "T1", name: "AnySignalHasATier", run: anySignal},
	{id: "T1", name: "ConcurrentCallersGetATier", run: concurrentSignals},
	{id: "T2", name: "ClassifyDoesNotAllocate", run: classifyAllocates},
}

const maxTiers = 64

func tiersAreUsable(p limiter.TierPolicy) error {
	tiers := p.Tiers()
	if n := len(tiers); n < 1 || n > maxTiers {
		return differ("number of tiers", n, fmt.Sprintf("1 to %d", maxTiers))
	}
	names := make(map[string]bool)
	for i, tier := range tiers {
		if tier.Name == "" || names[tier.Name] {
			return differ(fmt.Sprintf("name of tier %d", i), fmt.Sprintf("%q", tier.Name), "unique and not empty")
		}
		names[tier.Name] = true
		if tier.MaxStale <= 0 {
			return differ(fmt.Sprintf("MaxStale of tier %q", tier.Name), tier.MaxStale, "more than 0")
		}
	}
	return nil
}

// signals returns ordinary and extreme signals, which need not make sense.
func signals() []limiter.Signal {
	extremes := []float64{
		0, math.Copysign(0, -1), math.SmallestNonzeroFloat64, 1, 1e9, math.MaxFloat64,
		-math.SmallestNonzeroFloat64, -1, -math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN(),
	}
	pressures := slices.Clone(extremes)
	for percent := 5.0; percent < 200; percent += 5 {
		at := percent / 100
		pressures = append(pressures, math.Nextafter(at, 0), at, math.Nextafter(at, 1000))
	}
	var out []limiter.Signal
	for _, pressure := range pressures {
		for _, level := range extremes {
			for _, limit := range []int64{0, 1, 1000, limiter.Unlimited} {
				out = append(out, limiter.Signal{Pressure: pressure, Level: level, Limit: limit})
			}
		}
	}
	return out
}

func anySignal(p limiter.TierPolicy) error {
	n := len(p.Tiers())
	for _, s := range signals() {
		if tier := p.Classify(s); tier < 0 || tier >= n {
			return differ(fmt.Sprintf("tier of %+v", s), tier, fmt.Sprintf("0 to %d", n-1))
		}
	}
	return nil
}

func concurrentSignals(p limiter.TierPolicy) error {
	return together(4, func(int) error { return anySignal(p) })
}

func classifyAllocates(p limiter.TierPolicy) error {
	for _, s := range []limiter.Signal{
		{Pressure: 0.3, Level: 30, Limit: 100},
		{Pressure: 0.95, Level: 95, Limit: 100},
		{Pressure: math.NaN(), Level: math.NaN()},
		{Pressure: math.Inf(1), Level: 5},
	} {
		if n := allocations(func() { p.Classify(s) }); n != 0 {
			return differ(fmt.Sprintf("allocations by classifying %+v", s), n, 0)
		}
	}
	return nil
}
