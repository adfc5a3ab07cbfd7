package limiter

import (
	"math"
	"sync/atomic"
	"time"
)

// The admission rule for keys near their limit. While there is room, a request
// passes if the level with it stays within the limit, and if this node has not yet
// used up its share of the room between two replies. When room is short, requests
// are thinned: of all that is offered, the part passes that the budget allows.

// maxKnots bounds how many samples of the history a pace holds: those that leave
// the window in the next tick, of which there are seldom more.
const maxKnots = 5

// pace is what decisions go by until the loop looks at the key again. It is
// immutable.
type pace struct {
	limit     int64 // for which it was worked out
	at, until int64
	cum       float64          // cumulative count at the time at, with own events up to mark
	rise      float64          // by which it grows without own events, per nanosecond
	left      [maxKnots]sample // how much of it has left the window, by time
	knots     int
	blur      float64 // how much of the level may have left the window, or be about to
	mark      int64   // sum of the slots' own at the time at
	reported  int64   // own events beyond it are not known to the store

	alone bool
	tight bool
	// If tight: the part of what is offered that may pass, and a bound on own
	// events since at: burst + rate·elapsed.
	pass, burst, rate float64
	// If not tight: how many own events may be unknown to the store.
	allowance float64
}

// credit is the account of deterministic thinning, in events. It is changed by
// decisions only.
type credit struct{ bits atomic.Uint64 }

// spend adds what n events bring in, and takes what they cost if there is at least
// one event's worth. The account may become negative, so that a large request
// gets its turn and the requests after it wait.
func (c *credit) spend(n, pass float64) bool {
	for {
		old := c.bits.Load()
		sum := math.Float64frombits(old) + n*pass
		ok := sum >= 1
		if ok {
			sum -= n
		}
		if c.bits.CompareAndSwap(old, math.Float64bits(sum)) {
			return ok
		}
	}
}

// enough reports whether spend(1, pass) would succeed.
func (c *credit) enough(pass float64) bool {
	return math.Float64frombits(c.bits.Load())+pass >= 1
}

// nearOf returns what to judge e by if it is near its limit, or nil.
func (r *rule) nearOf(e *Entry) *near {
	if r.yes != ReasonUnderLimit || r.limit == 0 || r.limit > maxNearLimit {
		return nil
	}
	return e.near.Load()
}

// peekNear says whether one event would pass.
func (l *Limiter) peekNear(e *Entry, n *near, in *instant, r *rule) (bool, Reason) {
	p, _ := l.paceOf(e, n, in)
	over := p.levelAt(in.now, e.ownSum(l.grid))+1 > float64(r.cap)
	switch {
	case p.tight && n.credit.enough(p.pass), !p.tight && !over:
		return true, ReasonUnderLimit
	case over:
		return false, ReasonOverLimit
	default:
		return false, ReasonShed
	}
}

// takeNear is take for a key near its limit. It also reports whether the loop
// should look at the key soon.
func (l *Limiter) takeNear(e *Entry, n *near, in *instant, count int64, r *rule) (taken bool, reason Reason, hurry bool) {
	p, hurry := l.paceOf(e, n, in)
	_, _, own := l.standing(e, in)
	for {
		x := own.Load()
		sum := e.ownSum(l.grid)
		level := p.levelAt(in.now, sum)
		switch {
		case count > 1 && !p.alone && level+p.needs(count, r) > float64(r.cap):
			// What is thinned is small change. A large request must fit as a whole, and
			// while it waits for that, it is no part of the demand that is thinned.
			n.unfit.Add(min(count, r.limit))
			return false, ReasonOverLimit, hurry || !p.tight && !p.alone
		case p.tight:
			if !p.within(float64(sum-p.mark), float64(in.now-p.at), float64(count)) || !n.credit.spend(float64(count), p.pass) {
				if level+float64(count) > float64(r.cap) {
					return false, ReasonOverLimit, hurry
				}
				return false, ReasonShed, hurry
			}
			own.Add(count)
			return true, ReasonUnderLimit, hurry
		case level+float64(count) > float64(r.cap):
			return false, ReasonOverLimit, hurry || !p.alone
		case !p.affords(float64(sum-p.reported), float64(count)):
			return false, ReasonShed, true
		case own.CompareAndSwap(x, x+count):
			// What is large, others should hear of soon.
			return true, ReasonUnderLimit, hurry || count > 1 && !p.alone && float64(count) > headroomPart*(float64(r.cap)-level)
		}
	}
}

// within reports whether own events since the pace began, with count more, stay
// in bounds when requests are thinned: twice this node's part of the budget, so
// that a node whose traffic grows does not take what is due to others. The first
// request is not held to it, however large.
func (p *pace) within(since, elapsed, count float64) bool {
	return since == 0 || since+count <= p.burst+p.rate*elapsed
}

// affords reports whether count more own events may pass before the next reply,
// with unknown ones passed since the last. With nothing unknown it is the headroom
// alone that decides, so that a request larger than this node's share is not
// refused for ever; otherwise one such request may overdraw the share.
func (p *pace) affords(unknown, count float64) bool {
	if unknown == 0 || unknown+count <= p.allowance {
		return true
	}
	return count > 1 && unknown+1 <= p.allowance
}

// needs returns how much room a request must find to pass. One of several events
// must find it with what may already have left the window counted in full; and, up
// to a quarter of the limit, leave room for another one like it, which other nodes
// may let pass before they hear of this one.
func (p *pace) needs(count int64, r *rule) float64 {
	switch {
	case count == 1:
		return 1
	case count <= r.cap/4:
		return float64(2*count) + p.blur
	default:
		return float64(count) + p.blur
	}
}

// levelAt is the level at a time, given the sum of own counters.
func (p *pace) levelAt(now, own int64) float64 {
	return max(0, p.cum+float64(own-p.mark)+p.rise*float64(now-p.at)-interpolate(p.left[:p.knots], now))
}

// ownSum is the sum of the own counters, for decisions.
func (e *Entry) ownSum(g grid) (sum int64) {
	for i := range g.slots() {
		sum += e.slot(i).own.Load()
	}
	return sum
}

// paceOf returns the pace to go by: a new one if the loop has not looked at the key
// for long because nobody asked for it, or not since its limit changed. It reports
// whether an exchange would then be good.
func (l *Limiter) paceOf(e *Entry, n *near, in *instant) (p *pace, hurry bool) {
	if p = n.pace.Load(); in.now <= p.until && p.limit == e.limit.Load() {
		return p, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.near.Load() == n { // else its history is gone
		l.advance(e, n, in.now)
		l.pacing(e, n, in)
	}
	return n.pace.Load(), l.stale(e, n, in.now)
}

// nearRetryAfter returns the wait after which count events would pass under r if
// nobody else came: until enough of the history has left the window. For a key that
// other nodes use as well, it is at least a tick.
func (l *Limiter) nearRetryAfter(e *Entry, n *near, in *instant, count int64, r *rule) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.near.Load() != n {
		return l.cfg.TickEvery // all has changed meanwhile
	}
	p := n.pace.Load()
	need, least := float64(count), time.Duration(1)
	if !p.alone {
		need, least = p.needs(count, r), l.cfg.TickEvery
	}
	n.history.add(sample{in.now, e.cumulative(l.grid, n)}, l.resolution)
	must := e.cumulative(l.grid, n) + need - float64(r.cap) // have left by then
	x := n.history.reaches(must)
	for step := int64(1); n.history.at(x) < must && step < 1<<20; step *= 2 {
		x += step // rounding
	}
	return max(least, time.Duration(x+int64(l.cfg.Window)-in.now)) + l.time.lag
}
