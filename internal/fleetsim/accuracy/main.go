// Command accuracy measures how well a fleet of limiters keeps a limit, in
// simulation: see package fleetsim.
//
// Without -check and -docs it prints a line per case, for work on the algorithm:
//
//	go run ./internal/fleetsim/accuracy -only 'const 2x' -n 16 -phases 6
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/fleetlimit/fleetlimit/internal/fleetsim"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("accuracy", flag.ExitOnError)
	only := flags.String("only", "", "run the workloads that match this `expression` only")
	fleets := flags.String("n", "16", "sizes of the fleet, `list` with commas")
	phases := flags.Int("phases", 6, "phases of the epoch to begin in")
	epochs := flags.Int("epochs", 1, "epochs per window")
	limit := flags.Int64("limit", 6000, "events per window of 60 s")
	rtt := flags.Duration("rtt", 2*time.Millisecond, "median round trip to the store")
	reference := flags.Bool("reference", false, "run the reference's rules beside the limiter")
	seed := flags.Uint64("seed", 1, "determines all that is random")
	flags.Parse(args)

	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	var sizes []int
	for field := range strings.SplitSeq(*fleets, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return fmt.Errorf("-n is %q, want sizes of at least 1", *fleets)
		}
		sizes = append(sizes, n)
	}
	kinds := []fleetsim.Kind{fleetsim.Limiter}
	if *reference {
		kinds = append(kinds, fleetsim.Reference)
	}

	var cases []fleetsim.Spec
	for _, w := range fleetsim.Workloads {
		if !pattern.MatchString(w.Name) {
			continue
		}
		for _, n := range sizes {
			for _, kind := range kinds {
				cases = append(cases, fleetsim.Spec{
					Workload: w, Kind: kind, Nodes: n, Limit: *limit, Window: window, Epochs: *epochs, RTT: *rtt, Seed: *seed,
				})
			}
		}
	}
	fmt.Fprintf(out, "seed %d, limit %d per %v, %d phases\n", *seed, *limit, window, *phases)
	fmt.Fprintf(out, "%-31s %-10s %4s  %7s %7s %7s  %6s %6s  %6s %7s  %6s  %13s  %6s\n",
		"workload", "nodes are", "n", "over%", "worst", "p99", "lost%", "worst", "<half", "lowest%", "jain", "settle(exact)", "cmd")
	return measure(cases, *phases, func(spec fleetsim.Spec, s fleetsim.Summary) {
		settle := "-"
		if spec.Workload.Step > 0 {
			settle = fmt.Sprintf("%.1f (%.1f)", s.Mean.Settle.Seconds(), s.Mean.ExactSettle.Seconds())
		}
		fmt.Fprintf(out, "%-31s %-10v %4d  %7.2f %7.2f %7.2f  %6.2f %6.2f  %6d %7.1f  %6.3f  %13s  %6.3f\n",
			spec.Workload.Name, spec.Kind, spec.Nodes,
			s.Mean.Over, s.Worst.Over, s.Mean.OverP99, s.Mean.Lost, s.Worst.Lost,
			s.Mean.UnderHalf, s.Worst.LowestDenial, s.Mean.Fairness, settle, s.Mean.Commands)
	})
}

// window is that of all runs.
const window = time.Minute

// measure runs each case in each phase, as many at once as there are processors,
// and reports the summaries in order as they become complete.
func measure(cases []fleetsim.Spec, phases int, report func(fleetsim.Spec, fleetsim.Summary)) error {
	type result struct {
		figures fleetsim.Figures
		err     error
	}
	results := make([][]chan result, len(cases))
	type job struct {
		spec fleetsim.Spec
		done chan result
	}
	jobs := make(chan job)
	for i := range cases {
		for range phases {
			results[i] = append(results[i], make(chan result, 1))
		}
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		defer close(jobs)
		for i, spec := range cases {
			for k, phase := range fleetsim.Phases(phases, spec.Window) {
				spec.Phase = phase
				select {
				case jobs <- job{spec, results[i][k]}:
				case <-stop:
					return
				}
			}
		}
	}()
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for j := range jobs {
				trace, err := fleetsim.Run(j.spec)
				if err != nil {
					j.done <- result{err: err}
					continue
				}
				j.done <- result{figures: trace.Figures()}
			}
		}()
	}
	for i, spec := range cases {
		var runs []fleetsim.Figures
		for _, done := range results[i] {
			r := <-done
			if r.err != nil {
				return r.err
			}
			runs = append(runs, r.figures)
		}
		report(spec, fleetsim.Summarize(runs))
	}
	return nil
}
