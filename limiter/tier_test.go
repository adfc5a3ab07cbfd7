package limiter_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// The reference's own cases, and the edges.
func TestT1_TiersByPressure(t *testing.T) {
	t.Parallel()
	policy := limiter.DefaultTiers(15 * time.Second)
	tiers := policy.Tiers()
	for name, pressures := range map[string][]float64{
		"idle":   {0, math.Copysign(0, -1), 0.05, 0.09, 0.0999, math.Nextafter(0.1, 0), -1, math.Inf(-1), math.SmallestNonzeroFloat64},
		"low":    {0.1, 0.25, 0.49, math.Nextafter(0.5, 0)},
		"normal": {0.5, 0.75, 0.79, math.Nextafter(0.8, 0)},
		"hot":    {0.8, 0.95, 1.0, 1.5, 1e300, math.MaxFloat64, math.Inf(1), math.NaN()},
	} {
		for _, p := range pressures {
			if got := tiers[policy.Classify(limiter.Signal{Pressure: p})].Name; got != name {
				t.Errorf("T1: pressure %v is %s, want %s", p, got, name)
			}
		}
	}
	want := []limiter.Tier{{"idle", time.Minute}, {"low", time.Minute}, {"normal", 15 * time.Second}, {"hot", 7500 * time.Millisecond}}
	if diff := cmp.Diff(want, tiers); diff != "" {
		t.Errorf("tiers (-want +got):\n%s", diff)
	}
}

func FuzzClassify(f *testing.F) {
	for _, p := range []float64{0, 0.1, 0.5, 0.8, 1, -1, math.Inf(1), math.NaN()} {
		f.Add(p, p*10, int64(10))
	}
	policy := limiter.DefaultTiers(time.Second)
	f.Fuzz(func(t *testing.T, pressure, level float64, limit int64) {
		i := policy.Classify(limiter.Signal{Pressure: pressure, Level: level, Limit: limit})
		switch {
		case i < 0 || i >= len(policy):
			t.Errorf("T1: pressure %v: tier %d of %d", pressure, i, len(policy))
		case pressure < policy[i].From && i > 0 || i+1 < len(policy) && pressure >= policy[i+1].From:
			t.Errorf("T1: pressure %v is in tier %s", pressure, policy[i].Name)
		}
	})
}

// It must run alone, so it is not parallel.
func TestT2_ClassifyDoesNotAllocate(t *testing.T) {
	var policy limiter.TierPolicy = limiter.DefaultTiers(time.Second)
	for _, p := range []float64{0, 0.7, math.NaN()} {
		if n := testing.AllocsPerRun(100, func() { policy.Classify(limiter.Signal{Pressure: p}) }); n != 0 {
			t.Errorf("T2: pressure %v: %v allocations, want 0", p, n)
		}
	}
}

// wild is a policy that answers anything.
type wild struct {
	answers []int
	next    int
	signals []limiter.Signal
}

func (w *wild) Tiers() []limiter.Tier {
	return []limiter.Tier{{Name: "a", MaxStale: time.Second}, {Name: "b", MaxStale: time.Hour}}
}

func (w *wild) Classify(s limiter.Signal) int {
	w.signals = append(w.signals, s)
	w.next++
	return w.answers[w.next%len(w.answers)]
}

// Whatever a policy answers, the limiter works, and what it asks makes sense.
func TestT1_AnyAnswerOfAPolicyWillDo(t *testing.T) {
	t.Parallel()
	for _, answers := range [][]int{{-1}, {2}, {math.MinInt}, {math.MaxInt}, {0, 1}, {-5, 7, 1, 0}} {
		c, w, policy := newClock(), new(watcher), &wild{answers: answers}
		l := mustNew(t, newStore(), limiter.Config{Limit: 20, Clock: c, Tiers: policy, Observer: w, Overrides: map[string]int64{"zero": 0, "top": math.MaxInt64 - 1}})
		for range 200 {
			admit(l, "k", 2)
			l.Allow("zero")
			l.AllowN("top", math.MaxInt64/100)
			c.run(700*time.Millisecond, l)
		}
		l.Allow("k")
		flush(t, l)
		r := w.take()
		last := r[len(r)-1]
		if keys := last.Tiers[0].Keys + last.Tiers[1].Keys; keys < 2 || keys > 3 || last.Tiers[0].Keys < 0 || last.Tiers[1].Keys < 0 {
			t.Errorf("T1: answers %d: %d and %d keys in the tiers", answers, last.Tiers[0].Keys, last.Tiers[1].Keys)
		}
		for _, s := range policy.signals {
			if !(s.Pressure >= 0 && s.Level >= 0 && s.Limit >= 0) {
				t.Errorf("asked about %+v", s)
			}
		}
	}
}
