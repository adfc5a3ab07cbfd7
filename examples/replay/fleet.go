package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

// fleet is a number of nodes that share a store, in a time of its own.
type fleet struct {
	nodes  []*limiter.Limiter
	next   []time.Time // when each node's next tick is due
	store  *countingStore
	clock  *clock
	settle time.Duration
	busy   time.Time // time of the last request
	pick   func(key string) int
}

// newFleet returns a fleet that is up and running when the first request comes,
// at the given time.
func newFleet(o options, first time.Time) (*fleet, error) {
	f := &fleet{
		store: &countingStore{Store: memorystore.New()},
		clock: &clock{},
		// Two windows after the last request all is sent and has drained. Two
		// windows before the next one, the nodes can begin to learn anew all that
		// there is to know: how many they are.
		settle: 2 * o.window,
		pick:   picker(o),
	}
	f.clock.set(first.Add(-f.settle))
	for i := range o.nodes {
		node, err := limiter.New(f.store, limiter.Config{
			Name:   "replay",
			Limit:  o.limit,
			Window: o.window,
			Clock:  f.clock,
			Seed:   o.seed + uint64(i) + 1, // never 0, which would mean any
		})
		if err != nil {
			return nil, err
		}
		f.nodes = append(f.nodes, node)
		f.next = append(f.next, node.NextTick())
	}
	f.busy = first
	return f, nil
}

// check brings the fleet to the given time, which must not be before the last
// one, and has one of its nodes decide.
func (f *fleet) check(ctx context.Context, at time.Time, key string, n int64) (limiter.Decision, error) {
	// Days without a request need no ticks.
	if asleep, awake := f.busy.Add(f.settle), at.Add(-f.settle); asleep.Before(awake) {
		if err := f.tickUntil(ctx, asleep); err != nil {
			return limiter.Decision{}, err
		}
		f.clock.set(awake)
	}
	if err := f.tickUntil(ctx, at); err != nil {
		return limiter.Decision{}, err
	}
	f.clock.set(at)
	f.busy = at

	i := f.pick(key)
	d := f.nodes[i].Check(key, n)
	f.next[i] = f.nodes[i].NextTick() // the decision may have asked for an early one
	return d, nil
}

// tickUntil runs all ticks that are due by the given time, in the order of their
// times.
func (f *fleet) tickUntil(ctx context.Context, until time.Time) error {
	for {
		i := 0
		for j := range f.next {
			if f.next[j].Before(f.next[i]) {
				i = j
			}
		}
		if f.next[i].After(until) {
			return nil
		}
		f.clock.set(f.next[i])
		if err := f.nodes[i].Tick(ctx); err != nil {
			return fmt.Errorf("tick of node %d: %w", i, err)
		}
		f.next[i] = f.nodes[i].NextTick()
	}
}

// shutdown ends all nodes and returns how many admitted events the store has
// confirmed.
func (f *fleet) shutdown(ctx context.Context) (acknowledged int64, err error) {
	var errs []error
	for i, node := range f.nodes {
		if err := node.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("shutdown of node %d: %w", i, err))
		}
		acknowledged += node.Totals().Acknowledged
	}
	return acknowledged, errors.Join(errs...)
}

// picker returns the function that chooses the node of a request.
func picker(o options) func(key string) int {
	switch o.spread {
	case spreadKey:
		return func(key string) int {
			h := fnv.New64a()
			h.Write([]byte(key))
			return int(h.Sum64() % uint64(o.nodes))
		}
	case spreadRound:
		turn := -1
		return func(string) int {
			turn = (turn + 1) % o.nodes
			return turn
		}
	default:
		rng := rand.New(rand.NewPCG(o.seed, 0))
		return func(string) int { return rng.IntN(o.nodes) }
	}
}

// clock is the time of a replay.
type clock struct{ now atomic.Pointer[time.Time] }

// Now implements [limiter.Clock].
func (c *clock) Now() time.Time { return *c.now.Load() }

// set moves the clock on. It never goes backwards.
func (c *clock) set(t time.Time) {
	if now := c.now.Load(); now == nil || t.After(*now) {
		c.now.Store(&t)
	}
}

// countingStore counts what the nodes ask of the store: commands for the keys,
// which requests give rise to, and for the census of the nodes, which time does.
type countingStore struct {
	limiter.Store
	exchanges, commands, census int64
}

// Exchange implements [limiter.Store].
func (s *countingStore) Exchange(ctx context.Context, b *limiter.Batch) error {
	s.exchanges++
	for i := range b.Adds {
		s.count(b.Adds[i].Series)
	}
	for i := range b.Expires {
		s.count(b.Expires[i].Series)
	}
	for i := range b.Gets {
		s.count(b.Gets[i].Series)
	}
	return s.Store.Exchange(ctx, b)
}

func (s *countingStore) count(series limiter.Series) {
	if series == limiter.SeriesNodes {
		s.census++
	} else {
		s.commands++
	}
}
