package limiter

import "math"

// demand is what a node knows of how much is offered of a key, by itself and by
// the whole fleet, in events per nanosecond. Both rates pass through one filter,
// so that the nodes' shares add up to 1.
type demand struct {
	own, fleet float64

	samples            int     // taken in so far
	since              int64   // time of the last one
	ownSeen, fleetSeen float64 // offered by then
}

const (
	// demandFilter is the time constant of the filter, in ticks.
	demandFilter = 4
	// demandSpacing is the least time between two samples, in ticks: what early
	// ticks tell is too little to judge a rate by.
	demandSpacing = 0.3
)

// startDemand begins with what the counters tell: events of this node and of the
// fleet over a span of time, and what both have been seen to offer by now.
func startDemand(now int64, mine, events float64, span int64, own, fleet float64) demand {
	return demand{own: mine / float64(span), fleet: events / float64(span), since: now, ownSeen: own, fleetSeen: fleet}
}

// take takes in the events that have been offered by now, by this node as far as
// it has reported them and by the fleet as far as it is known.
func (d *demand) take(now int64, own, fleet float64, tick int64) {
	dt := float64(now - d.since)
	if dt < demandSpacing*float64(tick) {
		return
	}
	d.samples++
	weight := 1 - math.Exp(-dt/math.Max(demandFilter*float64(tick), 2*dt))
	// The first samples count in full, as in a plain mean.
	weight = math.Max(weight, 1/math.Max(1, float64(d.samples-1)))
	d.fleet += weight * (math.Max(0, fleet-d.fleetSeen)/dt - d.fleet)
	d.own += weight * (math.Max(0, own-d.ownSeen)/dt - d.own)
	d.since, d.ownSeen, d.fleetSeen = now, own, fleet
}

// share is this node's part of the demand.
func (d *demand) share() float64 {
	if d.fleet <= 0 {
		return 0
	}
	return math.Min(1, d.own/d.fleet)
}

// others is what the other nodes are offered.
func (d *demand) others() float64 { return math.Max(0, d.fleet-d.own) }

// patience is how many nanoseconds may pass until the next exchange of a key that
// has headroom left, while leaving events per nanosecond leave the window: the
// time in which a part of the headroom is used up (accuracy study, section E).
func (d *demand) patience(headroom, leaving, tick float64) float64 {
	surplus := math.Max(math.Max(0, d.fleet-leaving), 0.2*d.fleet)
	if surplus == 0 {
		return math.Inf(1)
	}
	return math.Max(tick, headroomPart*headroom/surplus)
}

// allowance is how many own events may be unknown to the store: this node's share
// of the headroom that the last reply proved, and a square root more for chance.
// It holds above creditFrom, and while exchanges fail.
func (l *Limiter) allowance(e *Entry, proven, pressure float64) float64 {
	failing := e.part.failing.Load()
	if !failing && pressure < creditFrom {
		return math.Inf(1)
	}
	mine := l.share(e) * max(0, proven)
	if failing {
		return mine + 1
	}
	return 1 + mine + math.Sqrt(mine)
}

// share is this node's part of the fleet's demand, taken to be a fair one until it
// has been measured.
func (l *Limiter) share(e *Entry) float64 {
	share := e.demand.share()
	if e.demand.samples < 2 {
		share = max(share, 1/float64(e.part.nodes.Load()))
	}
	return share
}

// denials is what is known of a key's denied events in the fleet.
type denials struct {
	pending int64 // own, that the store has not been told

	epoch int64   // of the counter that was read last
	total int64   // its value
	birth birth   // whether it will go away by itself
	heard bool    // any has been read
	fleet float64 // denied events of the fleet since the first reply
	own   float64 // those of this node that the store has been told
}

// hear takes in the total of an epoch's counter.
func (d *denials) hear(epoch, total int64) {
	switch {
	case !d.heard:
		d.heard = true
	case epoch == d.epoch:
		d.fleet += float64(max(0, total-d.total))
	default:
		d.fleet += float64(total)
	}
	if epoch != d.epoch {
		d.birth = unborn
	}
	d.epoch, d.total = epoch, total
}
