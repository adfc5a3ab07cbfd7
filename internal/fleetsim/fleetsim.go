// Package fleetsim runs a fleet of limiters on one store in virtual time and
// measures what they let through against an exact sliding-window log of the same
// requests. The limiters and the store are the real ones; what is simulated is
// time, the network between them and the traffic.
//
// A run is a discrete-event simulation: arrivals and ticks happen one at a time,
// in the order of their moments. A tick that exchanges with the store is
// suspended while its messages are on their way, so other nodes, and decisions
// on its own node, go on meanwhile, as they would in a fleet. Nothing depends on
// the machine: a [Spec] always gives the same [Trace].
package fleetsim

import (
	"container/heap"
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

// key is the one that all requests of a run are for.
const key = "customer"

// Node is what the simulator needs of a fleet's member. [limiter.Limiter] is one.
type Node interface {
	AllowN(key string, n int64) bool
	NextTick() time.Time
	Tick(ctx context.Context) error
	Shutdown(ctx context.Context) error
}

// Kind says what the nodes of a fleet are.
type Kind uint8

const (
	// Limiter is the real one.
	Limiter Kind = iota
	// Reference follows the rules of the reference design.
	Reference
)

// String returns the name that tables show.
func (k Kind) String() string {
	if k == Reference {
		return "reference"
	}
	return "fleetlimit"
}

// Spec says what to run.
type Spec struct {
	Workload Workload
	Kind     Kind
	// Nodes is the size of the fleet, at least 1.
	Nodes int
	// Limit is how many events may pass in any Window.
	Limit  int64
	Window time.Duration
	// Epochs per window. The reference design knows only 1.
	Epochs int
	// Phase is how far into an epoch time the run begins.
	Phase time.Duration
	// RTT is the median round trip to the store.
	RTT time.Duration
	// Seed determines, with the rest of the spec, all that is random. Runs that
	// differ in Kind or Epochs only see the same requests.
	Seed uint64
}

// random returns a source of random numbers for one purpose.
func (s *Spec) random(purpose string) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s/%d/%v", purpose, s.Workload.Name, s.Nodes, s.Phase)
	return rand.New(rand.NewPCG(s.Seed, h.Sum64()))
}

// Arrival is one request and what became of it.
type Arrival struct {
	// At is the time since the start of the run.
	At time.Duration
	// N is the number of events.
	N int64
	// Node is the one that decided.
	Node int32
	// Admitted is the decision.
	Admitted bool
}

// Trace is what happened in a run.
type Trace struct {
	Spec     Spec
	Arrivals []Arrival
	// Commands is how many commands for the key the nodes sent to the store.
	Commands int64
}

// sim is the state of a run.
type sim struct {
	spec    Spec
	start   time.Time
	now     time.Duration // since start
	server  *memorystore.Store
	network *rand.Rand
	seeds   *rand.Rand
	members []*member
	agenda  agenda
	trace   Trace
}

// dawn is about when runs take place, as unix time.
const dawn = 1_800_000_000 * time.Second

// Run performs a run from start to end.
func Run(spec Spec) (*Trace, error) {
	s := &sim{
		spec:    spec,
		start:   time.Unix(0, int64(dawn-dawn%spec.Window+spec.Phase)),
		server:  memorystore.New(),
		network: spec.random("network"),
		seeds:   spec.random("nodes"),
		trace:   Trace{Spec: spec},
	}
	defer s.dismiss()
	if err := s.assemble(); err != nil {
		return nil, err
	}

	w := &spec.Workload
	requests := w.requests(&spec)
	for {
		at, node, n, ok := requests.next()
		if !ok {
			at = w.Length
		}
		if err := s.advance(at); err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		s.arrive(node, n)
	}
	for _, m := range s.members {
		s.trace.Commands += m.link.commands
	}
	return &s.trace, nil
}

// arrive has a node decide on n events now.
func (s *sim) arrive(node int, n int64) {
	m := s.members[node]
	admitted := m.node.AllowN(key, n)
	s.trace.Arrivals = append(s.trace.Arrivals, Arrival{At: s.now, N: n, Node: int32(node), Admitted: admitted})
	s.reschedule(m) // it may have asked for an early tick
}

// assemble makes the nodes.
func (s *sim) assemble() error {
	w := &s.spec.Workload
	for i := range s.spec.Nodes {
		m := &member{id: i, skew: w.skew(i), restart: w.restart(i, s.spec.Nodes)}
		m.link = &link{sim: s, mget: s.spec.Kind == Reference}
		if err := s.replace(m); err != nil {
			return err
		}
		s.join(m)
	}
	return nil
}

// join makes m, which has its node, part of the fleet.
func (s *sim) join(m *member) {
	m.resume, m.cancel = iter.Pull(m.loop)
	m.wake = s.due(m)
	s.members = append(s.members, m)
	heap.Push(&s.agenda, m)
}

// dismiss ends the nodes' loops.
func (s *sim) dismiss() {
	for _, m := range s.members {
		m.cancel()
	}
}

// advance performs all that happens up to a moment.
func (s *sim) advance(to time.Duration) error {
	for {
		m := s.agenda[0]
		if m.wake > to {
			s.now = to
			return nil
		}
		s.now = max(s.now, m.wake)
		if !m.ticking && s.now >= m.restart {
			if err := s.restart(m); err != nil {
				return err
			}
		} else {
			s.proceed(m)
		}
		s.reschedule(m)
	}
}

// ticked is what a loop yields at the end of a tick.
const ticked time.Duration = -1

// loop is a node's loop, as a coroutine: it ticks whenever it is resumed, and
// yields how long its messages take while they are on their way.
func (m *member) loop(yield func(time.Duration) bool) {
	for running := true; running; running = yield(ticked) {
		m.link.wait = yield
		// An outage is part of the run; the node is to cope with it.
		_ = m.node.Tick(context.Background())
		m.link.wait = nil
	}
}

// proceed begins m's tick, or goes on with it.
func (s *sim) proceed(m *member) {
	delay, _ := m.resume()
	if m.ticking = delay != ticked; m.ticking {
		m.wake = s.now + delay
	}
}

// restart replaces m by a node that knows nothing. Even ones are shut down in
// order, and send what they have without delay; odd ones crash, and what they
// have not sent is lost.
func (s *sim) restart(m *member) error {
	m.restart = never
	if m.id%2 == 0 {
		_ = m.node.Shutdown(context.Background()) // during an outage it cannot send
	}
	return s.replace(m)
}

// replace puts a new node in m's place.
func (s *sim) replace(m *member) error {
	clock := &clock{sim: s, skew: m.skew}
	seed := s.seeds.Uint64() | 1 // 0 would mean a seed of the node's own choice
	if s.spec.Kind == Reference {
		m.node = newReference(m.link, clock, s.spec.Limit, s.spec.Window, seed)
		return nil
	}
	l, err := limiter.New(m.link, limiter.Config{
		Name:         "fleetsim",
		Limit:        s.spec.Limit,
		Window:       s.spec.Window,
		Epochs:       s.spec.Epochs,
		CacheEntries: 64, // there is one key
		Clock:        clock,
		Seed:         seed,
	})
	m.node = l
	return err
}

// due returns when m has its next tick or its restart.
func (s *sim) due(m *member) time.Duration {
	return min(m.node.NextTick().Sub(s.start)-m.skew, m.restart)
}

// reschedule finds m its place on the agenda.
func (s *sim) reschedule(m *member) {
	if !m.ticking {
		m.wake = s.due(m)
	}
	heap.Fix(&s.agenda, m.index)
}

// member is a node's place in the fleet. Its node may be replaced.
type member struct {
	id      int
	node    Node
	link    *link
	skew    time.Duration // how far its clock is ahead
	restart time.Duration // never, if not to happen any more

	// Its loop, and whether that is in the midst of a tick.
	resume  func() (time.Duration, bool)
	cancel  func()
	ticking bool

	wake  time.Duration // when to look at it next
	index int           // on the agenda
}

// clock is a node's.
type clock struct {
	sim  *sim
	skew time.Duration
}

func (c *clock) Now() time.Time { return c.sim.start.Add(c.sim.now + c.skew) }

// agenda is a heap of members by the time to look at them.
type agenda []*member

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	if a[i].wake != a[j].wake {
		return a[i].wake < a[j].wake
	}
	return a[i].id < a[j].id
}
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}
func (a *agenda) Push(x any) {
	m := x.(*member)
	m.index = len(*a)
	*a = append(*a, m)
}

// Pop is part of heap.Interface; members never leave.
func (a *agenda) Pop() any {
	old := *a
	m := old[len(old)-1]
	*a = old[:len(old)-1]
	return m
}
