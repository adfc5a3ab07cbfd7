package fleetsim

import "time"

// Summary holds the figures of runs that differ only in the phase of the epoch
// in which they begin: their mean, and the worst of each figure by itself.
// UnderHalf is added up, so that a single denial shows.
type Summary struct {
	Mean, Worst Figures
}

// Phases returns n phases spread over a window.
func Phases(n int, window time.Duration) []time.Duration {
	phases := make([]time.Duration, n)
	for i := range phases {
		phases[i] = window * time.Duration(2*i+1) / time.Duration(2*n)
	}
	return phases
}

// Summarize sums up at least one run.
func Summarize(runs []Figures) Summary {
	s := Summary{Worst: runs[0]}
	worst, mean := &s.Worst, &s.Mean
	for _, f := range runs {
		worst.Over = max(worst.Over, f.Over)
		worst.OverP99 = max(worst.OverP99, f.OverP99)
		worst.Lost = max(worst.Lost, f.Lost)
		worst.LowestDenial = min(worst.LowestDenial, f.LowestDenial)
		worst.Fairness = min(worst.Fairness, f.Fairness)
		worst.Settle = max(worst.Settle, f.Settle)
		worst.ExactSettle = max(worst.ExactSettle, f.ExactSettle)
		worst.Commands = max(worst.Commands, f.Commands)

		part := 1 / float64(len(runs))
		mean.Over += f.Over * part
		mean.OverP99 += f.OverP99 * part
		mean.Lost += f.Lost * part
		mean.UnderHalf += f.UnderHalf
		mean.LowestDenial += f.LowestDenial * part
		mean.Fairness += f.Fairness * part
		mean.Settle += f.Settle / time.Duration(len(runs))
		mean.ExactSettle += f.ExactSettle / time.Duration(len(runs))
		mean.Commands += f.Commands * part
	}
	worst.UnderHalf = mean.UnderHalf
	return s
}
