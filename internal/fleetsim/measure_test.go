package fleetsim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/internal/exactlog"
)

const ms = time.Millisecond

// randomEvents returns events within a second, some at the same moment.
func randomEvents(rng *rand.Rand) []event {
	var events []event
	for at := time.Duration(0); at < time.Second; at += time.Duration(rng.IntN(20)) * ms {
		events = append(events, event{at, 1 + rng.Int64N(4)})
		if len(events) > 200 {
			break
		}
	}
	return events
}

// bruteLevel counts the events in the window that ends at a moment.
func bruteLevel(events []event, window, end time.Duration) (n int64) {
	for _, e := range events {
		if e.at > end-window && e.at <= end {
			n += e.n
		}
	}
	return n
}

func TestOccupancy_EqualsBruteForce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		events := randomEvents(rng)
		window := time.Duration(1+rng.IntN(300)) * ms
		span := Span{time.Duration(rng.IntN(500)) * ms, time.Duration(501+rng.IntN(800)) * ms}

		// All happens at whole milliseconds, so levels hold for whole ones.
		var wantPeak int64
		held := map[int64]int{}
		for at := span.From; at < span.To; at += ms {
			n := bruteLevel(events, window, at)
			wantPeak = max(wantPeak, n)
			held[n]++
		}
		wantP99, above := wantPeak, 0
		for ; wantP99 > 0; wantP99-- {
			if above += held[wantP99]; 100*above > int((span.To-span.From)/ms) {
				break
			}
		}
		peak, p99 := occupancy(events, window, span)
		if peak != wantPeak || p99 != wantP99 {
			t.Fatalf("seed %d: peak %d and p99 %d, want %d and %d", seed, peak, p99, wantPeak, wantP99)
		}
	}
}

func TestOccupancy_PeakEqualsTheExactLogs(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		events := randomEvents(rng)
		window := time.Duration(1+rng.IntN(300)) * ms
		log := exactlog.New(window)
		for _, e := range events {
			log.Add(time.Time{}.Add(e.at), e.n)
		}
		want, _ := log.Peak()
		if peak, _ := occupancy(events, window, Span{0, 2 * time.Second}); peak != want {
			t.Fatalf("seed %d: peak %d, want %d", seed, peak, want)
		}
	}
}

func TestOccupancy_IgnoresAHundredthOfTheTime(t *testing.T) {
	t.Parallel()
	// 5 events for 10 ms out of 1 s, 2 for the rest of a window.
	events := []event{{0, 2}, {500 * ms, 3}}
	if _, p99 := occupancy(events, 510*ms, Span{0, time.Second}); p99 != 3 {
		t.Errorf("p99 is %d, want 3: five events hold for exactly a hundredth of the time", p99)
	}
	if _, p99 := occupancy(events, 511*ms, Span{0, time.Second}); p99 != 5 {
		t.Errorf("p99 is %d, want 5: five events hold for more than a hundredth of the time", p99)
	}
}

func TestOccupancy_Empty(t *testing.T) {
	t.Parallel()
	if peak, p99 := occupancy(nil, time.Second, Span{0, time.Minute}); peak != 0 || p99 != 0 {
		t.Errorf("peak %d and p99 %d, want 0 and 0", peak, p99)
	}
}

func TestExactLog_EqualsBruteForce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		window := time.Duration(1+rng.IntN(300)) * ms
		limit := 1 + rng.Int64N(20)
		var arrivals []Arrival
		var want []event
		for _, e := range randomEvents(rng) {
			arrivals = append(arrivals, Arrival{At: e.at, N: e.n})
			if bruteLevel(want, window, e.at)+e.n <= limit {
				want = append(want, e)
			}
		}
		got := exactLog(arrivals, limit, window)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(event{})); diff != "" {
			t.Fatalf("seed %d, -want +got:\n%s", seed, diff)
		}
	}
}

func TestExactLog_AdmitsExactlyTheLimit(t *testing.T) {
	t.Parallel()
	arrivals := []Arrival{{At: 0, N: 2}, {At: 1 * ms, N: 2}, {At: 2 * ms, N: 1}, {At: 10*ms - 1, N: 1}, {At: 10 * ms, N: 2}}
	got := exactLog(arrivals, 3, 10*ms)
	want := []event{{0, 2}, {2 * ms, 1}, {10 * ms, 2}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLost(t *testing.T) {
	t.Parallel()
	exact := []event{{5 * ms, 10}, {15 * ms, 10}, {25 * ms, 10}, {35 * ms, 10}}
	for _, test := range []struct {
		name     string
		admitted []event
		span     Span
		want     float64
	}{
		{"nothing if all is admitted", exact, Span{0, 40 * ms}, 0},
		{"everything if nothing is admitted", nil, Span{0, 40 * ms}, 100},
		{"more in one window does not make up for less in another", []event{{5 * ms, 20}, {25 * ms, 5}, {35 * ms, 10}}, Span{0, 40 * ms}, 37.5},
		{"what lies before the span does not count", []event{{5 * ms, 0}, {15 * ms, 10}, {25 * ms, 10}, {35 * ms, 10}}, Span{10 * ms, 40 * ms}, 0},
		{"what is left of a window at the end does not count", []event{{5 * ms, 10}, {15 * ms, 10}, {25 * ms, 10}}, Span{0, 39 * ms}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := lost(test.admitted, exact, 10*ms, test.span); got != test.want {
				t.Errorf("lost %v %%, want %v %%", got, test.want)
			}
		})
	}
	if got := lost(nil, nil, 10*ms, Span{0, 40 * ms}); got != 0 {
		t.Errorf("lost %v %% of nothing, want 0", got)
	}
}

func TestDenials(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		arrivals  []Arrival
		underHalf int
		lowest    float64
	}{
		{"none", []Arrival{{At: 0, N: 10, Admitted: true}}, 0, 100},
		{"when full", []Arrival{{At: 0, N: 10, Admitted: true}, {At: 1 * ms, N: 1}}, 0, 100},
		{"at exactly half", []Arrival{{At: 0, N: 5, Admitted: true}, {At: 1 * ms, N: 1}}, 0, 50},
		{"under half", []Arrival{{At: 0, N: 4, Admitted: true}, {At: 1 * ms, N: 1}, {At: 2 * ms, N: 6}}, 2, 40},
		{"under half, but too large to fit", []Arrival{{At: 0, N: 4, Admitted: true}, {At: 1 * ms, N: 7}}, 0, 100},
		{"what has left the window does not count", []Arrival{{At: 0, N: 10, Admitted: true}, {At: 10 * ms, N: 10}}, 1, 0},
		{"what was refused does not count", []Arrival{{At: 0, N: 8}, {At: 1 * ms, N: 2}}, 2, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			underHalf, lowest := denials(test.arrivals, 10, 10*ms)
			if underHalf != test.underHalf || lowest != test.lowest {
				t.Errorf("%d under half, lowest %v %%; want %d, %v %%", underHalf, lowest, test.underHalf, test.lowest)
			}
		})
	}
}

func TestFairness(t *testing.T) {
	t.Parallel()
	// node returns the requests of one node, so many of which are admitted.
	node := func(id int32, requests, admitted int) []Arrival {
		var all []Arrival
		for i := range requests {
			all = append(all, Arrival{N: 1, Node: id, Admitted: i < admitted})
		}
		return all
	}
	join := func(nodes ...[]Arrival) (all []Arrival) {
		for _, n := range nodes {
			all = append(all, n...)
		}
		return all
	}
	for _, test := range []struct {
		name     string
		arrivals []Arrival
		want     float64
	}{
		{"equal parts of unequal traffic", join(node(0, 100, 50), node(1, 20, 10)), 1},
		{"one of two gets everything", join(node(0, 100, 100), node(1, 100, 0)), 0.5},
		{"all and half", join(node(0, 100, 100), node(1, 100, 50)), 0.9},
		{"too few requests to judge by", join(node(0, 100, 100), node(1, fairFrom-1, 0)), 1},
		{"nothing admitted", node(0, 100, 0), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := fairness(test.arrivals, 2); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("fairness %v, want %v", got, test.want)
			}
		})
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	// rate returns events every 10 ms from one moment to another.
	rate := func(from, to time.Duration) (events []event) {
		for at := from; at < to; at += 10 * ms {
			events = append(events, event{at, 1})
		}
		return events
	}
	span := Span{2 * time.Second, 12 * time.Second}
	for _, test := range []struct {
		name   string
		events []event
		want   time.Duration
	}{
		{"never above", nil, 0},
		{"what was before the step does not count", rate(0, 2*time.Second), 0},
		// From 4.8 s on at most 20 of the 100 events a second are left.
		{"above for three seconds", rate(2*time.Second, 5*time.Second), 2800 * ms},
		{"above later only", rate(4*time.Second, 5*time.Second), 2800 * ms},
		{"always above", rate(2*time.Second, 12*time.Second), 10 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := settle(test.events, span, 20); got != test.want {
				t.Errorf("settles after %v, want %v", got, test.want)
			}
		})
	}
}

func TestFigures_OfAHandMadeTrace(t *testing.T) {
	t.Parallel()
	w := Workload{Length: 30 * time.Second, Step: 10 * time.Second, Loads: []Load{{0, 0}}}
	trace := &Trace{Spec: Spec{Workload: w, Nodes: 2, Limit: 4, Window: 10 * time.Second}, Commands: 120}
	for at, admitted := range []bool{true, true, true, true, true, false, false} { // one a second
		trace.Arrivals = append(trace.Arrivals, Arrival{At: time.Duration(10+at) * time.Second, N: 1, Admitted: admitted})
	}
	want := Figures{
		Over:         25, // five in one window of four
		OverP99:      25,
		LowestDenial: 100,
		Fairness:     1,
		Settle:       4100 * ms, // one event is more than a second's 1.2·0.4
		ExactSettle:  3100 * ms,
		Commands:     2,
	}
	if diff := cmp.Diff(want, trace.Figures()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLevels_FollowTheWindow(t *testing.T) {
	t.Parallel()
	w := Workload{Length: 4 * time.Second}
	trace := &Trace{Spec: Spec{Workload: w, Limit: 2, Window: 2 * time.Second}, Arrivals: []Arrival{
		{At: 0, N: 1, Admitted: true},
		{At: 1 * time.Second, N: 2, Admitted: true},
		{At: 1500 * ms, N: 1},
	}}
	fleet, exact := trace.Levels(time.Second)
	if diff := cmp.Diff([]int64{1, 3, 2, 0, 0}, fleet); diff != "" {
		t.Errorf("fleet, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]int64{1, 1, 1, 1, 0}, exact); diff != "" {
		t.Errorf("exact log, -want +got:\n%s", diff)
	}
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	got := Summarize([]Figures{
		{Over: 1, OverP99: 1, Lost: 4, UnderHalf: 1, LowestDenial: 60, Fairness: 1, Settle: 2, ExactSettle: 2, Commands: 1},
		{Over: 3, OverP99: 2, Lost: 2, UnderHalf: 0, LowestDenial: 80, Fairness: 0.5, Settle: 4, ExactSettle: 2, Commands: 3},
	})
	want := Summary{
		Mean:  Figures{Over: 2, OverP99: 1.5, Lost: 3, UnderHalf: 1, LowestDenial: 70, Fairness: 0.75, Settle: 3, ExactSettle: 2, Commands: 2},
		Worst: Figures{Over: 3, OverP99: 2, Lost: 4, UnderHalf: 1, LowestDenial: 60, Fairness: 0.5, Settle: 4, ExactSettle: 2, Commands: 3},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestPhases_AreSpreadOverTheWindow(t *testing.T) {
	t.Parallel()
	want := []time.Duration{10 * time.Second, 30 * time.Second, 50 * time.Second}
	if diff := cmp.Diff(want, Phases(3, time.Minute)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
