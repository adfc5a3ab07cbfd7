package fleetsim

import "fmt"

// MixLimit is the limit of the keys in [Mix].
const MixLimit = 60_000

// Share is a part of the keys, and the load that each of them has.
type Share struct {
	Part   float64
	Limits float64
}

// Mix is the power law by which the reference design judges the cost of its
// reads: nearly all keys are far from their limit.
var Mix = []Share{
	{0.60, 0.002},
	{0.20, 0.02},
	{0.10, 0.08},
	{0.08, 0.3},
	{0.015, 0.65},
	{0.003, 0.9},
	{0.001, 1.2},
	{0.001, 3},
}

// Workload returns the workload of one of the share's keys.
func (s Share) Workload() Workload {
	return Constant(fmt.Sprintf("key at %gx", s.Limits), s.Limits)
}
