package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/fleetlimit/fleetlimit/internal/exactlog"
)

// arrivals is how often requests arrive: as many at once as are due.
const arrivals = 5 * time.Millisecond

// counts is what became of requests.
type counts struct{ offered, admitted int64 }

// show runs a fleet and writes what becomes of the requests to w.
func show(w io.Writer, o options) error {
	f, err := newFleet(o)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d nodes share a limit of %d requests per key in any %v.\n", o.nodes, o.limit, o.window)
	fmt.Fprintf(w, "If they did not share it, each would admit as many.\n")
	fmt.Fprintf(w, "For %d s, %d requests arrive per second, each at a random node", o.seconds, o.rate)
	if n := len(f.keys); n > 1 {
		fmt.Fprintf(w, ", for each of %d keys on different stores", n)
	}
	fmt.Fprintf(w, ".\nThe level is what the nodes know to be admitted in the %v before.\n\n", o.window)

	logs, total := f.offer(w, o)
	err = f.close()
	f.summarize(w, o, logs, total)
	return err
}

// offer offers requests to the nodes and writes a line per second. It returns an
// exact log of what was admitted for each key.
func (f *fleet) offer(w io.Writer, o options) (logs []*exactlog.Log, total counts) {
	for range f.keys {
		logs = append(logs, exactlog.New(o.window))
	}
	fmt.Fprintln(w, "second  offered  admitted  refused   level, of the limit   store commands")
	var last counts
	var lastCommands, lastFailed int64

	start := time.Now()
	ticker := time.NewTicker(arrivals)
	defer ticker.Stop()
	rounds := int64(0)
	for second := int64(1); second <= o.seconds; second++ {
		for end := time.Duration(second) * time.Second; ; {
			now := <-ticker.C
			elapsed := min(now.Sub(start), end)
			for due := int64(elapsed) * o.rate / int64(time.Second); rounds < due; rounds++ {
				f.round(logs, &total)
			}
			if elapsed == end {
				break
			}
		}
		commands, failed, level := f.commands.Load(), f.failed.Load(), f.level()
		offered, admitted := total.offered-last.offered, total.admitted-last.admitted
		fmt.Fprintf(w, "%6d %8d %9d %8d %8d %10d %% %16d", second, offered, admitted, offered-admitted,
			level, 100*level/o.limit, commands-lastCommands)
		if n := failed - lastFailed; n > 0 {
			fmt.Fprintf(w, "   %d exchanges failed", n)
		}
		fmt.Fprintln(w)
		last, lastCommands, lastFailed = total, commands, failed
	}
	return logs, total
}

// round offers one request of each key to a random node.
func (f *fleet) round(logs []*exactlog.Log, total *counts) {
	for i, key := range f.keys {
		total.offered++
		if f.nodes[rand.IntN(len(f.nodes))].Allow(key) {
			total.admitted++
			logs[i].Add(time.Now(), 1)
		}
	}
}

// summarize writes how well the limit held.
func (f *fleet) summarize(w io.Writer, o options, logs []*exactlog.Log, total counts) {
	fmt.Fprintf(w, "\nOf %d requests, %d were admitted and %d refused.\n", total.offered, total.admitted, total.offered-total.admitted)
	over := false
	for i, key := range f.keys {
		peak, _ := logs[i].Peak()
		over = over || peak > o.limit
		fmt.Fprintf(w, "Fullest %v of %s, counted exactly: %d admitted, %s of %d.\n", o.window, key, peak, comparison(peak, o.limit), o.limit)
	}
	if over {
		fmt.Fprintln(w, "A fleet can go over for a moment: no node knows what the others have admitted since it last heard from the store.")
	}
	trips, commands := f.trips.Load(), f.commands.Load()
	fmt.Fprintf(w, "The nodes sent the store %d commands in %d round trips: %.2f commands per request.\n",
		commands, trips, float64(commands)/float64(max(1, total.offered)))
	if failed := f.failed.Load(); failed > 0 {
		fmt.Fprintf(w, "%d of the round trips failed, the last one with: %v\n", failed, *f.lastErr.Load())
	}
}

// comparison says how far n is from limit.
func comparison(n, limit int64) string {
	percent := 100 * float64(n-limit) / float64(limit)
	switch {
	case n > limit:
		return fmt.Sprintf("%.1f %% over the limit", percent)
	case n < limit:
		return fmt.Sprintf("%.1f %% under the limit", -percent)
	default:
		return "exactly the limit"
	}
}
