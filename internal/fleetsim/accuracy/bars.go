package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/fleetlimit/fleetlimit/internal/fleetsim"
)

// figure is one thing that a bar is about.
type figure struct {
	name string
	unit string
	// least says that the bar is a lower bound.
	least bool
	of    func(results, subject) float64
}

var (
	over     = figure{"over-admission", "%", false, func(r results, s subject) float64 { return r[s].Mean.Over }}
	lost     = figure{"goodput lost", "%", false, func(r results, s subject) float64 { return r[s].Mean.Lost }}
	half     = figure{"denials under half the limit", "", false, func(r results, s subject) float64 { return float64(r[s].Mean.UnderHalf) }}
	lowest   = figure{"level of the lowest denial", "%", true, func(r results, s subject) float64 { return r[s].Mean.LowestDenial }}
	commands = figure{"commands per key, node and second", "", false, func(r results, s subject) float64 { return r[s].Mean.Commands }}
	fleet    = figure{"commands per key and second", "", false, results.mix}
)

// bar is what a figure, the mean over the phases, must reach.
type bar struct {
	id        string
	figure    figure
	workloads []string
	nodes     []int // nil is every size at hand
	epochs    int
	bound     float64
}

// mix stands for all workloads of the reference's mix of keys.
const mix = "the reference's mix of keys"

var bars = []bar{
	{"over-1.05x", over, []string{"const 1.05x"}, []int{16}, 1, 1},
	{"over-2x", over, []string{"const 2x"}, []int{16}, 1, 1.5},
	{"over-zipf", over, []string{"zipf 1.2 at 2x"}, []int{16}, 1, 1.5},
	{"over-cold-step", over, []string{"step cold to 10x"}, []int{16}, 1, 5},
	{"over-warm-step", over, []string{"step 0.5x to 10x warm"}, []int{16}, 1, 6},
	{"over-limit-step", over, []string{"step 0.95x to 10x at the limit"}, []int{16}, 1, 9},
	{"over-on-off", over, []string{"on-off 15 s at 6x in 60 s"}, []int{16}, 1, 5},
	{"over-weights", over, []string{"mixed weights at 2x"}, []int{16}, 1, 3},
	{"over-outage", over, []string{"outage 30 s at 2x"}, []int{16}, 1, 3},
	{"over-outage-jump", over, []string{"outage 30 s, 0.5x to 3x inside"}, []int{16}, 1, 15},
	{"over-restarts", over, []string{"rolling restarts at 2x"}, []int{16}, 1, 25},
	{"over-restarts-4", over, []string{"rolling restarts at 2x"}, []int{16}, 4, 10},
	{"over-moving-4", over, []string{"traffic moves every 10 s at 2x"}, []int{16, 64, 256}, 4, 10},
	{"over-2x-256", over, []string{"const 2x"}, []int{256}, 1, 6},
	{"over-10x-256", over, []string{"const 10x"}, []int{256}, 1, 7},

	{"lost-constant", lost, names(constant), nil, 1, 1},
	{"lost-changing", lost, names(not(constant)), nil, 1, 2},
	{"under-half", half, names(healthy), nil, 1, 0},
	{"under-half-4", half, []string{"rolling restarts at 2x", "traffic moves every 10 s at 2x"}, []int{16}, 4, 0},

	{"commands-0.5x", commands, []string{"const 0.5x"}, nil, 1, 0.3},
	{"commands-2x", commands, []string{"const 2x"}, nil, 1, 2.2},
	{"commands-mix", fleet, []string{mix}, []int{16}, 1, 2.5},

	{"lone-1.05x", over, []string{"const 1.05x"}, []int{1}, 1, resolution(1.05)},
	{"lone-2x", over, []string{"const 2x", "twenty minutes at 2x"}, []int{1}, 1, resolution(2)},
	{"lone-on-off", over, []string{"on-off 15 s at 6x in 60 s"}, []int{1}, 1, resolution(6)},
	{"lone-10x", over, upTo10x, []int{1}, 1, resolution(10)},
	{"lone-low-0.95x", lowest, []string{"const 0.5x", "const 0.95x"}, []int{1}, 1, 100 - resolution(0.95)},
	{"lone-low-1.05x", lowest, []string{"const 1.05x"}, []int{1}, 1, 100 - resolution(1.05)},
	{"lone-low-2x", lowest, []string{"const 2x", "twenty minutes at 2x"}, []int{1}, 1, 100 - resolution(2)},
	{"lone-low-on-off", lowest, []string{"on-off 15 s at 6x in 60 s"}, []int{1}, 1, 100 - resolution(6)},
	{"lone-low-10x", lowest, upTo10x, []int{1}, 1, 100 - resolution(10)},
}

var upTo10x = []string{"const 10x", "step cold to 10x", "step 0.5x to 10x warm", "step 0.95x to 10x at the limit"}

// resolution is how exactly a counter that is sampled once a second knows a
// window, in percent of the limit, when the load is a multiple of it: the sample
// that is leaving holds load/60 of a limit, of which interpolation misplaces up to
// a quarter. Poisson arrivals add noise.
func resolution(load float64) float64 {
	const noise = 0.25
	return 100*load/(4*window.Seconds()) + noise
}

func constant(w *fleetsim.Workload) bool { return w.Constant }
func healthy(w *fleetsim.Workload) bool  { return w.Outage == fleetsim.Span{} }

func not(f func(*fleetsim.Workload) bool) func(*fleetsim.Workload) bool {
	return func(w *fleetsim.Workload) bool { return !f(w) }
}

// names returns the workloads for which f holds.
func names(f func(*fleetsim.Workload) bool) []string {
	var names []string
	for i := range fleetsim.Workloads {
		if w := &fleetsim.Workloads[i]; f(w) {
			names = append(names, w.Name)
		}
	}
	return names
}

// mark is a bar for one subject.
type mark struct {
	bar *bar
	subject
}

// marks returns what the bars ask for, in their order, of fleets of the given
// sizes and those that bars name.
func marks(sizes []int) []mark {
	var marks []mark
	for i := range bars {
		b := &bars[i]
		nodes := b.nodes
		if nodes == nil {
			nodes = sizes
		}
		for _, w := range b.workloads {
			for _, n := range nodes {
				marks = append(marks, mark{b, subject{w, fleetsim.Limiter, n, b.epochs}})
			}
		}
	}
	return marks
}

// needed returns the subjects that the marks are about.
func needed(marks []mark) []subject {
	var subjects []subject
	seen := map[subject]bool{}
	add := func(s subject) {
		if !seen[s] {
			seen[s] = true
			subjects = append(subjects, s)
		}
	}
	for _, m := range marks {
		if m.workload != mix {
			add(m.subject)
			continue
		}
		for _, share := range fleetsim.Mix {
			s := m.subject
			s.workload = share.Workload().Name
			add(s)
		}
	}
	return subjects
}

// reached returns the figure and whether it reaches the bar.
func (m mark) reached(r results) (value float64, ok bool) {
	value = m.bar.figure.of(r, m.subject)
	// Compared as they are printed.
	printed, bound := math.Round(value*100), math.Round(m.bar.bound*100)
	if m.bar.figure.least {
		return value, printed >= bound
	}
	return value, printed <= bound
}

// checkSizes are the fleets that checkBars looks at where a bar names none.
var checkSizes = []int{1, 16}

// checkBars runs what the bars ask for, prints each figure beside its bar, and
// returns an error that names those that fall short.
func checkBars(r *runner, out io.Writer) error {
	marks := marks(checkSizes)
	measured, err := r.collect(needed(marks))
	if err != nil {
		return err
	}
	return verdict(marks, measured, out)
}

func verdict(marks []mark, measured results, out io.Writer) error {
	var short []string
	fmt.Fprintf(out, "%-17s %-31s %4s %2s  %-33s %8s     %7s\n", "bar", "workload", "n", "k", "figure", "measured", "bar")
	for _, m := range marks {
		value, ok := m.reached(measured)
		sign, note := "≤", ""
		if m.bar.figure.least {
			sign = "≥"
		}
		if !ok {
			note = "  falls short"
			short = append(short, m.bar.id)
		}
		fmt.Fprintf(out, "%-17s %-31s %4d %2d  %-33s %8.2f   %s %7.2f%s\n",
			m.bar.id, m.workload, m.nodes, m.epochs, m.bar.figure.name, value, sign, m.bar.bound, note)
	}
	if len(short) > 0 {
		return errors.New("short of the bar: " + strings.Join(slices.Compact(short), ", "))
	}
	fmt.Fprintln(out, "all figures reach their bars")
	return nil
}
