package fleetsim

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// specFor returns the spec of a workload for n nodes.
func specFor(t *testing.T, workload string, n int) Spec {
	t.Helper()
	i := slices.IndexFunc(Workloads, func(w Workload) bool { return w.Name == workload })
	if i < 0 {
		t.Fatalf("no workload is named %q", workload)
	}
	return Spec{Workload: Workloads[i], Nodes: n, Limit: 6000, Window: time.Minute, Epochs: 1, RTT: 2 * ms, Seed: 1}
}

// drawn returns all requests of a run.
func drawn(spec Spec) (arrivals []Arrival) {
	for q := spec.Workload.requests(&spec); ; {
		at, node, n, ok := q.next()
		if !ok {
			return arrivals
		}
		arrivals = append(arrivals, Arrival{At: at, N: n, Node: int32(node)})
	}
}

func TestWorkloads_AreWellFormed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, w := range Workloads {
		if seen[w.Name] {
			t.Errorf("two workloads are named %q", w.Name)
		}
		seen[w.Name] = true
		if len(w.Loads) == 0 || w.Loads[0].At != 0 {
			t.Errorf("%s: the first load does not begin at 0", w.Name)
		}
		if !slices.IsSortedFunc(w.Loads, func(a, b Load) int { return int(a.At - b.At) }) {
			t.Errorf("%s: loads are not in order", w.Name)
		}
		parts := 0.0
		for _, weight := range w.Weights {
			parts += weight.Part
		}
		if w.Weights != nil && math.Abs(parts-1) > 1e-9 {
			t.Errorf("%s: the weights' parts add up to %v, want 1", w.Name, parts)
		}
		if w.Length-w.From < time.Minute {
			t.Errorf("%s: less than a window is measured", w.Name)
		}
	}
	parts := 0.0
	for _, share := range Mix {
		parts += share.Part
	}
	if math.Abs(parts-1) > 1e-9 {
		t.Errorf("the mix's parts add up to %v, want 1", parts)
	}
}

func TestRequests_FollowTheLoad(t *testing.T) {
	t.Parallel()
	for _, w := range Workloads {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			spec := specFor(t, w.Name, 16)
			arrivals := drawn(spec)
			for i, load := range w.Loads {
				span := Span{load.At, w.Length}
				if i+1 < len(w.Loads) {
					span.To = w.Loads[i+1].At
				}
				var got, squares float64
				for _, a := range arrivals {
					if span.holds(a.At) {
						got += float64(a.N)
						squares += float64(a.N) * float64(a.N)
					}
				}
				want := load.Limits * 6000 * (span.To - span.From).Minutes()
				if math.Abs(got-want) > 5*math.Sqrt(squares) {
					t.Errorf("from %v: %v events, want about %v", load.At, got, want)
				}
			}
			if !slices.IsSortedFunc(arrivals, func(a, b Arrival) int { return int(a.At - b.At) }) {
				t.Error("requests are out of order")
			}
		})
	}
}

// shares returns the part of the requests that each node gets.
func shares(arrivals []Arrival, nodes int) []float64 {
	shares := make([]float64, nodes)
	for _, a := range arrivals {
		shares[a.Node] += 1 / float64(len(arrivals))
	}
	return shares
}

func TestPlacement_EvenAndZipf(t *testing.T) {
	t.Parallel()
	for workload, weight := range map[string]func(i int) float64{
		"const 2x":       func(int) float64 { return 1 },
		"zipf 1.2 at 2x": func(i int) float64 { return 1 / math.Pow(float64(i+1), 1.2) },
	} {
		got := shares(drawn(specFor(t, workload, 16)), 16)
		sum := 0.0
		for i := range got {
			sum += weight(i)
		}
		for i := range got {
			if want := weight(i) / sum; math.Abs(got[i]-want) > 0.1*want {
				t.Errorf("%s: node %d gets %.4f of the requests, want %.4f", workload, i, got[i], want)
			}
		}
	}
}

func TestPlacement_MovingVisitsAllNodesOneAtATime(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{4, 16} {
		at := map[int]int32{} // node by stretch of 10 s
		for _, a := range drawn(specFor(t, "traffic moves every 10 s at 2x", nodes)) {
			stretch := int(a.At / (10 * time.Second))
			if node, ok := at[stretch]; ok && node != a.Node {
				t.Fatalf("%d nodes: two nodes get requests in stretch %d", nodes, stretch)
			}
			at[stretch] = a.Node
		}
		visited := map[int32]bool{}
		for stretch := range nodes {
			visited[at[stretch]] = true
		}
		if len(visited) != nodes {
			t.Errorf("%d nodes: the first %d stretches visit %d of them", nodes, nodes, len(visited))
		}
	}
}

func TestWorkload_SkewsATenthOfTheClocks(t *testing.T) {
	t.Parallel()
	w := Workload{Skew: 2 * time.Second}
	var off []time.Duration
	for i := range 40 {
		if s := w.skew(i); s != 0 {
			off = append(off, s)
		}
	}
	want := []time.Duration{2 * time.Second, -2 * time.Second, 2 * time.Second, -2 * time.Second}
	if diff := cmp.Diff(want, off); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWorkload_RestartsEachNodeInTurn(t *testing.T) {
	t.Parallel()
	w := Workload{Restarts: Span{100 * time.Second, 140 * time.Second}}
	var at []time.Duration
	for i := range 4 {
		at = append(at, w.restart(i, 4))
	}
	want := []time.Duration{100 * time.Second, 110 * time.Second, 120 * time.Second, 130 * time.Second}
	if diff := cmp.Diff(want, at); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := (&Workload{}).restart(0, 4); got != never {
		t.Errorf("a node restarts at %v, want never", got)
	}
}
