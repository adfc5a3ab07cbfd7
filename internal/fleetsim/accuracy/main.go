// Command accuracy measures how well a fleet of limiters keeps a limit, in
// simulation: see package fleetsim. It has three ways to go about it:
//
//	accuracy -docs docs    # run everything, write docs/accuracy.md and its plots
//	accuracy -check        # run what has a bar, fail if a figure falls short
//	accuracy -only 'const 2x' -n 16 -phases 6    # print a line per case
//
// The last one is for work on the algorithm.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fleetlimit/fleetlimit/internal/fleetsim"
)

// What all published figures are for.
const (
	limit  = 6000
	window = time.Minute
)

// sizes are those of the fleets that figures are published for.
var sizes = []int{1, 4, 16, 64, 256}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("accuracy", flag.ContinueOnError)
	flags.SetOutput(out)
	var (
		r         runner
		docs      = flags.String("docs", "", "write the document and its plots to this `directory`")
		check     = flags.Bool("check", false, "hold the figures against their bars")
		only      = flags.String("only", "", "print a line for each workload that matches this `expression`")
		fleets    = flags.String("n", "16", "sizes of the fleet, with commas")
		epochs    = flags.Int("epochs", 1, "epochs per window")
		reference = flags.Bool("reference", false, "run the reference's rules as well")
	)
	flags.IntVar(&r.phases, "phases", 6, "phases of the epoch to begin in")
	flags.DurationVar(&r.rtt, "rtt", 2*time.Millisecond, "median round trip to the store")
	flags.Uint64Var(&r.seed, "seed", 1, "determines all that is random")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if r.phases < 1 {
		return fmt.Errorf("-phases is %d, want at least 1", r.phases)
	}
	fmt.Fprintf(out, "seed %d, %d phases, round trip %v, %d events per %v\n", r.seed, r.phases, r.rtt, limit, window)
	switch {
	case *docs != "":
		return publish(&r, *docs, out)
	case *check:
		return checkBars(&r, out)
	}

	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	kinds := []fleetsim.Kind{fleetsim.Limiter}
	if *reference {
		kinds = append(kinds, fleetsim.Reference)
	}
	var subjects []subject
	for _, w := range fleetsim.Workloads {
		if !pattern.MatchString(w.Name) {
			continue
		}
		for field := range strings.SplitSeq(*fleets, ",") {
			n, err := strconv.Atoi(field)
			if err != nil || n < 1 {
				return fmt.Errorf("-n is %q, want sizes of at least 1", *fleets)
			}
			for _, kind := range kinds {
				subjects = append(subjects, subject{w.Name, kind, n, *epochs})
			}
		}
	}
	return printLines(&r, subjects, out)
}

func printLines(r *runner, subjects []subject, out io.Writer) error {
	fmt.Fprintf(out, "%-31s %-10s %4s %3s  %7s %7s %7s  %6s %6s  %6s %7s  %6s  %13s  %6s\n",
		"workload", "nodes are", "n", "k", "over%", "worst", "p99", "lost%", "worst", "<half", "lowest%", "jain", "settle(exact)", "cmd")
	return r.run(subjects, func(s subject, f fleetsim.Summary) {
		settle := "-"
		if f.Mean.ExactSettle > 0 {
			settle = fmt.Sprintf("%.1f (%.1f)", f.Mean.Settle.Seconds(), f.Mean.ExactSettle.Seconds())
		}
		fmt.Fprintf(out, "%-31s %-10v %4d %3d  %7.2f %7.2f %7.2f  %6.2f %6.2f  %6d %7.1f  %6.3f  %13s  %6.3f\n",
			s.workload, s.kind, s.nodes, s.epochs,
			f.Mean.Over, f.Worst.Over, f.Mean.OverP99, f.Mean.Lost, f.Worst.Lost,
			f.Mean.UnderHalf, f.Worst.LowestDenial, f.Mean.Fairness, settle, f.Mean.Commands)
	})
}
