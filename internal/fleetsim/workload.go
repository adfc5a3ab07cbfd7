package fleetsim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// never is a moment after the end of every run.
const never time.Duration = math.MaxInt64

// Workload is traffic for one key, and what befalls the fleet meanwhile.
type Workload struct {
	Name string
	// Length is how long the run lasts.
	Length time.Duration
	// From is when the figures begin: what happened before prepares the case.
	From time.Duration
	// Step is when the load steps up, for the time to limit; 0 if it does not.
	Step time.Duration
	// Constant says that nothing changes throughout.
	Constant bool
	// Loads is the offered load over time, in order; the first begins at 0.
	Loads []Load
	// Weights is how many events a request has; nil is always one.
	Weights []Weight
	// Place says which nodes get the requests. nil is all alike.
	Place Placement
	// Outage is when the store fails.
	Outage Span
	// Restarts is when the nodes are restarted, one after the other.
	Restarts Span
	// Skew is how far some clocks are off: of every tenth node, ahead and behind
	// by turns.
	Skew time.Duration
}

// Load is an offered load from a moment on, as a multiple of the limit.
type Load struct {
	At     time.Duration
	Limits float64
}

// Peak returns the highest load.
func (w *Workload) Peak() float64 {
	peak := 0.0
	for _, l := range w.Loads {
		peak = max(peak, l.Limits)
	}
	return peak
}

// Weight is a number of events and the part of the requests that have it.
type Weight struct {
	N    int64
	Part float64
}

// Span is a stretch of time. The zero value is empty.
type Span struct{ From, To time.Duration }

func (s Span) holds(t time.Duration) bool { return t >= s.From && t < s.To }

// Placement returns a function that chooses a node for a request.
type Placement func(nodes int) func(at time.Duration, r *rand.Rand) int

func evenly(nodes int) func(time.Duration, *rand.Rand) int {
	return func(_ time.Duration, r *rand.Rand) int { return r.IntN(nodes) }
}

// zipf gives the i-th node a share in proportion to 1/i^exponent.
func zipf(exponent float64) Placement {
	return func(nodes int) func(time.Duration, *rand.Rand) int {
		sums := make([]float64, nodes)
		sum := 0.0
		for i := range sums {
			sum += math.Pow(float64(i+1), -exponent)
			sums[i] = sum
		}
		return func(_ time.Duration, r *rand.Rand) int {
			i, _ := slices.BinarySearch(sums, r.Float64()*sum)
			return min(i, nodes-1)
		}
	}
}

// moving gives all requests to one node at a time. A node has its next turn only
// when all others had theirs.
func moving(every time.Duration) Placement {
	const stride = 7 // shares no factor with the sizes of fleets that we run
	return func(nodes int) func(time.Duration, *rand.Rand) int {
		return func(at time.Duration, _ *rand.Rand) int { return int(at/every) * stride % nodes }
	}
}

func (w *Workload) skew(node int) time.Duration {
	switch node % 20 {
	case 0:
		return w.Skew
	case 10:
		return -w.Skew
	default:
		return 0
	}
}

// restart returns when a node is restarted.
func (w *Workload) restart(node, nodes int) time.Duration {
	if w.Restarts == (Span{}) {
		return never
	}
	length := w.Restarts.To - w.Restarts.From
	return w.Restarts.From + length*time.Duration(node)/time.Duration(nodes)
}

// requests makes the requests of a run, one by one.
func (w *Workload) requests(spec *Spec) *requests {
	q := &requests{w: w, random: spec.random("requests")}
	place := w.Place
	if place == nil {
		place = evenly
	}
	q.place = place(spec.Nodes)
	mean := 1.0
	if w.Weights != nil {
		mean = 0
		for _, weight := range w.Weights {
			mean += weight.Part * float64(weight.N)
		}
	}
	q.perLimit = float64(spec.Limit) / spec.Window.Seconds() / mean
	return q
}

// requests is a Poisson process whose rate follows the workload.
type requests struct {
	w        *Workload
	random   *rand.Rand
	place    func(time.Duration, *rand.Rand) int
	perLimit float64 // requests per second at a load of one limit
	at       time.Duration
	load     int // index of the load that holds at at
}

func (q *requests) next() (at time.Duration, node int, n int64, ok bool) {
	loads := q.w.Loads
	for q.at < q.w.Length {
		end := q.w.Length
		if q.load+1 < len(loads) {
			end = min(end, loads[q.load+1].At)
		}
		if rate := loads[q.load].Limits * q.perLimit; rate > 0 {
			q.at += time.Duration(q.random.ExpFloat64() / rate * float64(time.Second))
		} else {
			q.at = end
		}
		if q.at < end {
			return q.at, q.place(q.at, q.random), q.weight(), true
		}
		// The process has no memory: what comes after the change is drawn anew.
		q.at = end
		q.load++
	}
	return 0, 0, 0, false
}

func (q *requests) weight() int64 {
	weights := q.w.Weights
	if weights == nil {
		return 1
	}
	x := q.random.Float64()
	for _, weight := range weights {
		if x < weight.Part {
			return weight.N
		}
		x -= weight.Part
	}
	return weights[len(weights)-1].N
}

const second = time.Second

// Constant returns the workload that offers a multiple of the limit throughout.
func Constant(name string, limits float64) Workload {
	return Workload{Name: name, Length: 420 * second, Constant: true, Loads: []Load{{0, limits}}}
}

// Workloads are the cases that a fleet is measured by.
var Workloads = []Workload{
	Constant("const 0.5x", 0.5),
	Constant("const 0.95x", 0.95),
	Constant("const 1.05x", 1.05),
	Constant("const 2x", 2),
	Constant("const 10x", 10),
	{
		Name: "zipf 1.2 at 2x", Length: 420 * second,
		Loads: []Load{{0, 2}},
		Place: zipf(1.2),
	},
	{
		Name: "step cold to 10x", Length: 240 * second, Step: 60 * second,
		Loads: []Load{{0, 0}, {60 * second, 10}},
	},
	{
		Name: "burst of 20 limits cold", Length: 180 * second, Step: 60 * second,
		Loads: []Load{{0, 0}, {60 * second, 20 * 600}, {60*second + 100*time.Millisecond, 0}},
	},
	{
		Name: "step 0.5x to 10x warm", Length: 420 * second, From: 60 * second, Step: 180 * second,
		Loads: []Load{{0, 0.5}, {180 * second, 10}},
	},
	{
		Name: "step 0.95x to 10x at the limit", Length: 420 * second, From: 180 * second, Step: 240 * second,
		Loads: []Load{{0, 0.95}, {240 * second, 10}},
	},
	{
		Name: "on-off 15 s at 6x in 60 s", Length: 420 * second,
		Loads: onOff(420*second, 15*second, 60*second, 6),
	},
	{
		Name: "traffic moves every 10 s at 2x", Length: 420 * second,
		Loads: []Load{{0, 2}},
		Place: moving(10 * second),
	},
	{
		Name: "rolling restarts at 2x", Length: 420 * second,
		Loads:    []Load{{0, 2}},
		Restarts: Span{120 * second, 180 * second},
	},
	{
		Name: "outage 30 s at 2x", Length: 420 * second,
		Loads:  []Load{{0, 2}},
		Outage: Span{200 * second, 230 * second},
	},
	{
		Name: "outage 30 s, 0.5x to 3x inside", Length: 420 * second, From: 60 * second, Step: 205 * second,
		Loads:  []Load{{0, 0.5}, {205 * second, 3}},
		Outage: Span{200 * second, 230 * second},
	},
	{
		Name: "clocks 2 s off at 2x", Length: 420 * second,
		Loads: []Load{{0, 2}},
		Skew:  2 * second,
	},
	{
		Name: "mixed weights at 2x", Length: 420 * second,
		Loads:   []Load{{0, 2}},
		Weights: []Weight{{1, 0.8}, {10, 0.15}, {100, 0.045}, {500, 0.005}},
	},
	{
		Name: "twenty minutes at 2x", Length: 1200 * second,
		Loads: []Load{{0, 2}},
	},
}

func onOff(length, on, period time.Duration, limits float64) []Load {
	var loads []Load
	for at := time.Duration(0); at < length; at += period {
		loads = append(loads, Load{at, limits}, Load{at + on, 0})
	}
	return loads
}
