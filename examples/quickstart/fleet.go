package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// fleet is a number of nodes that share their counts. In a real one, each node is
// a process of its own.
type fleet struct {
	nodes       []*limiter.Limiter
	keys        []string
	closeStores []func() error

	// What the observers, called by the loops of all nodes, have heard.
	commands atomic.Int64 // sent to the stores
	trips    atomic.Int64
	failed   atomic.Int64 // of trips
	lastErr  atomic.Pointer[error]
}

func newFleet(o options) (*fleet, error) {
	f := &fleet{}
	// Runs that share a server must not share counts: this one would not know what
	// the others let through.
	prefix := "fleetlimit/quickstart/" + rand.Text()
	for i := range o.nodes {
		s, closeStores, err := openStores(o.stores)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("node %d: %w", i+1, err), f.close())
		}
		f.closeStores = append(f.closeStores, closeStores)
		node, err := limiter.New(s, limiter.Config{
			Name:     "quickstart",
			Limit:    o.limit,
			Window:   o.window,
			Epochs:   int(o.epochs),
			Prefix:   prefix,
			Observer: limiter.ObserverFunc(f.observe),
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("node %d: %w", i+1, err), f.close())
		}
		f.nodes = append(f.nodes, node)
		f.keys = keysFor(s) // the same for all nodes
	}
	return f, nil
}

// observe is told of each tick.
func (f *fleet) observe(r *limiter.Report) {
	if !r.Exchange.Attempted {
		return
	}
	f.trips.Add(1)
	for _, server := range r.Exchange.Servers {
		f.commands.Add(int64(server.Commands))
	}
	if err := r.Exchange.Err; err != nil {
		f.failed.Add(1)
		f.lastErr.Store(&err)
	}
}

// level returns how full the fullest key's window is, by what the nodes know.
func (f *fleet) level() int64 {
	var level int64
	for _, node := range f.nodes {
		for _, key := range f.keys {
			d := node.Peek(key)
			level = max(level, d.Limit-d.Remaining)
		}
	}
	return level
}

// close has the nodes send what is outstanding and closes the stores.
func (f *fleet) close() error {
	var errs []error
	for i, node := range f.nodes {
		if err := node.Close(); err != nil {
			errs = append(errs, fmt.Errorf("node %d: %w", i+1, err))
		}
	}
	for _, c := range f.closeStores {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}
