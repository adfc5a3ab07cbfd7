package fleetsim

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

// slowStore takes as long as a round trip, in the time of its bubble.
type slowStore struct {
	server   *memorystore.Store
	rtt      time.Duration
	commands *atomic.Int64
}

func (s *slowStore) Exchange(ctx context.Context, b *limiter.Batch) error {
	l := link{}
	l.count(b)
	s.commands.Add(l.commands)
	time.Sleep(s.rtt / 2)
	err := s.server.Exchange(ctx, b)
	time.Sleep(s.rtt / 2)
	return err
}

// runLoops performs a run in which the nodes tick by themselves.
func runLoops(t *testing.T, spec Spec) *Trace {
	t.Helper()
	trace := &Trace{Spec: spec}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(spec.Phase) // bubbles begin with an epoch
		var commands atomic.Int64
		server := memorystore.New()
		seeds := spec.random("nodes")
		nodes := make([]*limiter.Limiter, spec.Nodes)
		for i := range nodes {
			store := &slowStore{server, spec.RTT, &commands}
			l, err := limiter.New(store, limiter.Config{
				Name: "loops", Limit: spec.Limit, Window: spec.Window, Epochs: spec.Epochs, CacheEntries: 64, Seed: seeds.Uint64() | 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			nodes[i] = l
		}
		start := time.Now()
		for q := spec.Workload.requests(&spec); ; {
			at, node, n, ok := q.next()
			if !ok {
				break
			}
			time.Sleep(at - time.Since(start))
			admitted := nodes[node].AllowN(key, n)
			trace.Arrivals = append(trace.Arrivals, Arrival{At: at, N: n, Node: int32(node), Admitted: admitted})
		}
		trace.Commands = commands.Load()
	})
	return trace
}

// The limiters' own goroutines and clocks, and a store that blocks, make no
// difference to the figures.
func TestRun_AgreesWithNodesThatTickByThemselves(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		nodes int
		rtt   time.Duration
	}{{4, 2 * ms}, {16, 2 * ms}, {4, 200 * ms}} {
		t.Run(fmt.Sprintf("%d nodes, round trip %v", test.nodes, test.rtt), func(t *testing.T) {
			t.Parallel()
			spec := specFor(t, "const 2x", test.nodes)
			spec.Workload.Length = 150 * time.Second
			spec.RTT, spec.Phase = test.rtt, 25*time.Second
			simulated, loops := mustRun(t, spec).Figures(), runLoops(t, spec).Figures()
			agree := func(name string, simulated, loops, tolerance float64) {
				t.Helper()
				if math.Abs(simulated-loops) > tolerance {
					t.Errorf("%s is %.2f simulated, %.2f by loops", name, simulated, loops)
				}
			}
			agree("over-admission", simulated.Over, loops.Over, 0.5)
			agree("over-admission for 99 % of the time", simulated.OverP99, loops.OverP99, 0.5)
			agree("goodput lost", simulated.Lost, loops.Lost, 0.5)
			agree("lowest denial", simulated.LowestDenial, loops.LowestDenial, 3)
			agree("fairness", simulated.Fairness, loops.Fairness, 0.01)
			agree("commands", simulated.Commands, loops.Commands, 0.1)
		})
	}
}
