package fleetsim

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
)

var (
	errDown = errors.New("store is down")
	errOver = errors.New("the run is over")
)

// link is a node's connection to the store.
type link struct {
	sim *sim
	// wait suspends the tick that is under way. It reports false if the run is
	// over. It is nil outside of ticks, when messages arrive at once.
	wait func(time.Duration) bool
	// mget says that the gets of a key travel as one command.
	mget     bool
	commands int64
}

// Exchange implements [limiter.Store]. The store sees the batch half a round trip
// after it was sent, and goes by its own clock as a server does.
func (l *link) Exchange(_ context.Context, b *limiter.Batch) error {
	l.count(b)
	if !l.travel() {
		return refuse(b, errOver)
	}
	if l.sim.spec.Workload.Outage.holds(l.sim.now) {
		return refuse(b, errDown)
	}
	nodes := b.Now
	b.Now = l.sim.start.Add(l.sim.now)
	// The batch's deadline is in real time, of which a run takes next to none.
	err := l.sim.server.Exchange(context.Background(), b)
	b.Now = nodes
	l.travel()
	return err
}

// count adds up the commands that concern the key.
func (l *link) count(b *limiter.Batch) {
	count := func(k string) {
		if k == key {
			l.commands++
		}
	}
	for i := range b.Adds {
		count(b.Adds[i].Key)
	}
	for i := range b.Expires {
		count(b.Expires[i].Key)
	}
	for i := range b.Gets {
		count(b.Gets[i].Key)
		if l.mget {
			break
		}
	}
}

// Half a round trip is lognormal with this spread, and now and then there is up
// to a tail on top.
const (
	spread   = 0.3
	tailPart = 0.005
	tail     = 40 * time.Millisecond
)

// travel waits for half a round trip.
func (l *link) travel() bool {
	s := l.sim
	delay := float64(s.spec.RTT/2) * math.Exp(spread*s.network.NormFloat64())
	if s.network.Float64() < tailPart {
		delay += s.network.Float64() * float64(tail)
	}
	if l.wait == nil || s.spec.RTT == 0 {
		return true
	}
	return l.wait(time.Duration(delay))
}

// refuse marks all of b as not performed.
func refuse(b *limiter.Batch, err error) error {
	for i := range b.Adds {
		b.Adds[i].Outcome = limiter.NotApplied
	}
	for i := range b.Expires {
		b.Expires[i].Outcome = limiter.NotApplied
	}
	for i := range b.Gets {
		b.Gets[i].OK = false
	}
	return err
}
