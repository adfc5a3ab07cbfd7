package fleetsim

import (
	"slices"
	"time"
)

// Figures is what a run is judged by. Over-admission and losses are in percent of
// the limit and of the exact log's admissions.
type Figures struct {
	// Over is by how much the fullest sliding window exceeds the limit, and
	// OverP99 what 99 % of all window positions stay within. At least 0.
	Over, OverP99 float64
	// Lost is what the exact log admits and the fleet does not, added up over
	// windows that follow one another.
	Lost float64
	// UnderHalf is the number of refused requests that fitted while the fleet's
	// true level was under half the limit.
	UnderHalf int
	// LowestDenial is the lowest true level, in percent of the limit, at which a
	// request that fitted was refused; 100 if there was none.
	LowestDenial float64
	// Fairness is Jain's index over the parts of their requests that the nodes
	// admit: 1 if all are alike, 1/n if one takes everything.
	Fairness float64
	// Settle is how long after the step the rate of admission came down to 1.2
	// times the limit's rate, and ExactSettle the same for the exact log.
	Settle, ExactSettle time.Duration
	// Commands is the number of store commands per node and second.
	Commands float64
}

// fairFrom is how many requests a node must have had to count for fairness.
const fairFrom = 20

// Figures measures the run.
func (t *Trace) Figures() Figures {
	w := &t.Spec.Workload
	admitted := t.admitted()
	exact := exactLog(t.Arrivals, t.Spec.Limit, t.Spec.Window)
	limit := float64(t.Spec.Limit)
	peak, p99 := occupancy(admitted, t.Spec.Window, Span{w.From, w.Length})
	over := func(n int64) float64 { return max(0, float64(n)/limit-1) * 100 }

	f := Figures{
		Over:     over(peak),
		OverP99:  over(p99),
		Lost:     lost(admitted, exact, t.Spec.Window, Span{w.From, w.Length}),
		Fairness: fairness(t.Arrivals, t.Spec.Nodes),
		Commands: float64(t.Commands) / float64(t.Spec.Nodes) / w.Length.Seconds(),
	}
	f.UnderHalf, f.LowestDenial = denials(t.Arrivals, t.Spec.Limit, t.Spec.Window)
	if w.Step > 0 {
		most := 1.2 * limit / t.Spec.Window.Seconds()
		f.Settle = settle(admitted, Span{w.Step, w.Length}, most)
		f.ExactSettle = settle(exact, Span{w.Step, w.Length}, most)
	}
	return f
}

// Levels returns the number of events in the window that ends at each multiple of
// every, for the fleet and for the exact log.
func (t *Trace) Levels(every time.Duration) (fleet, exact []int64) {
	sample := func(events []event) []int64 {
		var levels []int64
		window := sliding{window: t.Spec.Window}
		for at := time.Duration(0); at <= t.Spec.Workload.Length; at += every {
			for len(events) > 0 && events[0].at <= at {
				window.add(events[0])
				events = events[1:]
			}
			levels = append(levels, window.level(at))
		}
		return levels
	}
	return sample(t.admitted()), sample(exactLog(t.Arrivals, t.Spec.Limit, t.Spec.Window))
}

// event is n events admitted at one moment.
type event struct {
	at time.Duration
	n  int64
}

func (t *Trace) admitted() []event {
	var events []event
	for _, a := range t.Arrivals {
		if a.Admitted {
			events = append(events, event{a.At, a.N})
		}
	}
	return events
}

// sliding counts the events of the window that ends now. Windows are half open:
// an event exactly one window ago has left.
type sliding struct {
	window time.Duration
	events []event // the first gone have left
	gone   int
	count  int64
}

func (s *sliding) add(e event) {
	s.events = append(s.events, e)
	s.count += e.n
}

// leaves returns when the oldest event leaves the window.
func (s *sliding) leaves() time.Duration {
	if s.gone == len(s.events) {
		return never
	}
	return s.events[s.gone].at + s.window
}

// level moves the end of the window to at, which must not go backwards.
func (s *sliding) level(at time.Duration) int64 {
	for s.leaves() <= at {
		s.count -= s.events[s.gone].n
		s.gone++
	}
	return s.count
}

// exactLog returns what a limiter admits that knows every event at once.
func exactLog(arrivals []Arrival, limit int64, window time.Duration) []event {
	log := sliding{window: window}
	for _, a := range arrivals {
		if log.level(a.At)+a.N <= limit {
			log.add(event{a.At, a.N})
		}
	}
	return log.events
}

// occupancy returns the largest number of events in a window that ends within
// span, and the number that windows ending there exceed for 1 % of the time.
func occupancy(events []event, window time.Duration, span Span) (peak, p99 int64) {
	var (
		log  = sliding{window: window}
		held []time.Duration // by count: for how long
		at   time.Duration
	)
	hold := func(until time.Duration) {
		if from := max(at, span.From); until > from {
			for int64(len(held)) <= log.count {
				held = append(held, 0)
			}
			held[log.count] += until - from
		}
		at = until
	}
	// A moment with several events counts once all of them have happened.
	for at < span.To {
		next := log.leaves()
		if len(events) > 0 {
			next = min(next, events[0].at)
		}
		hold(min(next, span.To))
		log.level(at)
		for len(events) > 0 && events[0].at <= at {
			log.add(events[0])
			events = events[1:]
		}
	}
	if len(held) == 0 {
		return 0, 0
	}
	var above time.Duration
	p99 = int64(len(held) - 1)
	for ; p99 > 0; p99-- {
		if above += held[p99]; above > (span.To-span.From)/100 {
			break
		}
	}
	return int64(len(held) - 1), p99
}

// lost compares what was admitted in windows that follow one another.
func lost(admitted, exact []event, window time.Duration, span Span) float64 {
	sums := func(events []event) []int64 {
		sums := make([]int64, (span.To-span.From)/window)
		for _, e := range events {
			if i := int((e.at - span.From) / window); e.at >= span.From && i < len(sums) {
				sums[i] += e.n
			}
		}
		return sums
	}
	got, want := sums(admitted), sums(exact)
	var missing, all int64
	for i := range want {
		missing += max(0, want[i]-got[i])
		all += want[i]
	}
	if all == 0 {
		return 0
	}
	return float64(missing) / float64(all) * 100
}

// denials looks for refused requests that fitted: how many of them the fleet met
// under half its limit, and at which level, in percent, the lowest.
func denials(arrivals []Arrival, limit int64, window time.Duration) (underHalf int, lowest float64) {
	log := sliding{window: window}
	least := limit
	for _, a := range arrivals {
		level := log.level(a.At)
		switch {
		case a.Admitted:
			log.add(event{a.At, a.N})
		case level+a.N <= limit:
			least = min(least, level)
			if 2*level < limit {
				underHalf++
			}
		}
	}
	return underHalf, float64(least) / float64(limit) * 100
}

// fairness is Jain's index of the nodes' parts admitted.
func fairness(arrivals []Arrival, nodes int) float64 {
	type tally struct{ requests, offered, admitted int64 }
	tallies := make([]tally, nodes)
	for _, a := range arrivals {
		t := &tallies[a.Node]
		t.requests++
		t.offered += a.N
		if a.Admitted {
			t.admitted += a.N
		}
	}
	tallies = slices.DeleteFunc(tallies, func(t tally) bool { return t.requests < fairFrom })
	var sum, squares float64
	for _, t := range tallies {
		part := float64(t.admitted) / float64(t.offered)
		sum += part
		squares += part * part
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(tallies)) * squares)
}

// settleGrain is the resolution of settle.
const settleGrain = 100 * time.Millisecond

// settle returns how long after the beginning of span the events of a second,
// having been more than most, come down to it: 0 if they never were more, all of
// span if they stay above.
func settle(events []event, span Span, most float64) time.Duration {
	const grains = int(time.Second / settleGrain)
	bins := make([]int64, (span.To-span.From)/settleGrain)
	for _, e := range events {
		if i := int((e.at - span.From) / settleGrain); e.at >= span.From && i < len(bins) {
			bins[i] += e.n
		}
	}
	var sum int64
	above := false
	for i, n := range bins {
		sum += n
		if i < grains-1 {
			continue
		}
		begin := i - grains + 1
		if float64(sum) > most {
			above = true
		} else if above {
			return time.Duration(begin) * settleGrain
		}
		sum -= bins[begin]
	}
	if !above {
		return 0
	}
	return span.To - span.From
}
