package limiter

import (
	"math"
	"sync/atomic"
)

// A key that several nodes use and that is not far from its limit is judged by
// more than the window counter: by a history of the fleet's count, a prediction
// of what other nodes have admitted since the last reply, and a rule by which the
// nodes share what is left. The formulas are those of the accuracy study,
// section E; docs/architecture.md explains them in order.
//
// The loop works on near under Entry.mu, and publishes a pace for decisions.

const (
	// nearFrom is the pressure from which on a key is near its limit, nearUntil
	// the one below which it no longer is.
	// While exchanges fail, keys become near earlier: nothing else would hold their
	// nodes to a share.
	nearFrom        = 0.5
	nearUntil       = 0.4
	nearFromFailing = 0.25
	// maxNearLimit is a limit up to which sums of counts are exact as float64.
	maxNearLimit = 1 << 40
	// maxTightHeadroom is the headroom, as a part of the limit, up to which nodes
	// may thin requests. It keeps a key at half its limit from being refused (rule
	// L9), with a margin for what a node cannot know.
	maxTightHeadroom = 0.45
	// guardTicks is for how many ticks at the present demand the headroom must
	// last for decisions to be free.
	guardTicks = 2
	// tightStay is by how much more the headroom must grow for decisions to be free
	// again.
	tightStay = 1.3
	// headroomGain is the part of the headroom that is offered per tick, on top of
	// what leaves the window.
	headroomGain = 0.25
	// creditFrom is the pressure from which on a node is held to its share of the
	// headroom between replies.
	creditFrom = 0.8
	// minHistories, or one for historiesPart cached keys if that is more, bounds how
	// many keys have a history. The others near their limit are judged by the
	// window counter.
	minHistories  = 1024
	historiesPart = 8
	// paceTicks is how long a pace holds.
	paceTicks = 2.5
	// A node that has not exchanged a key for a sixth of the window, but at least for
	// staleTicks ticks and two intervals, no longer believes in its prediction.
	staleTicks = 3
	stalePart  = 6
)

// near is what an entry keeps while its key is near its limit.
type near struct {
	history history
	denied  denials

	unseen   float64 // events of other nodes since the last reply, predicted
	modelled int64   // the time up to which unseen has been predicted
	busy     int64   // when the key was last near its limit

	tight    bool
	budget   float64 // events per nanosecond for the whole fleet, if tight
	headroom float64
	interval float64 // nanoseconds until the next exchange, if not tight

	pace   atomic.Pointer[pace]
	credit credit
	unfit  atomic.Int64 // denied events that no thinning would have let pass
}

// pace is what decisions go by until the loop looks at the key again. It is
// immutable.
type pace struct {
	limit     int64 // for which it was worked out
	at, until int64
	level     float64 // at the time at, with own events up to mark
	blur float64
	slope     float64 // by which the level changes without own events, per nanosecond
	mark      int64   // sum of the slots' own at the time at
	reported  int64   // own events beyond it are not known to the store

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

// believed is the fleet's count as the store has told it, summed over the slots.
func (e *Entry) believed(g grid) (sum float64) {
	for i := range g.slots() {
		s := e.slot(i)
		sum += float64(s.base.Load() + s.sent)
	}
	return sum
}

// ownSums returns the sum of all own counters, and the part of it that the store
// has been told, in-flight counts included. Both only grow.
func (e *Entry) ownSums(g grid) (own, sent int64) {
	for i := range g.slots() {
		s := e.slot(i)
		own += s.own.Load()
		sent += s.sent
	}
	return own, sent
}

// others returns how many events other nodes have reported in the slots' epochs.
func (e *Entry) others(g grid) (sum int64) {
	for i := range g.slots() {
		s := e.slot(i)
		sum += s.base.Load() + s.start
	}
	return sum
}

// cumulative is the fleet's count now, as far as this node can tell: what the
// store has told, own events that it has not been told, and what others are
// predicted to have admitted since.
func (e *Entry) cumulative(g grid, n *near) float64 {
	var sum int64
	for i := range g.slots() {
		sum += e.count(i)
	}
	return float64(e.retired) + float64(sum) + n.unseen
}

// approachLimit makes a near of what the counters tell, if the key, now at level,
// has come near its limit, other nodes use it and a history can be had. before is
// the fleet's cumulative count at the reply before this one. e.mu is held.
func (l *Limiter) approachLimit(e *Entry, in *instant, level float64, before sample) {
	limit := float64(e.limit.Load())
	soon := level + e.demand.fleet*guardTicks*float64(l.cfg.TickEvery)
	from := nearFrom
	if e.part.failing.Load() {
		from = nearFromFailing
	}
	if l.cfg.Decay != DecayWindow || limit == 0 || limit > maxNearLimit || soon < from*limit || e.others(l.grid) == 0 || e.has(evicted) {
		return
	}
	if l.histories.Add(1) > l.maxHistories {
		l.histories.Add(-1)
		return // the window counter must do
	}
	n := &near{history: newHistory(), modelled: in.now, denied: denials{epoch: in.epoch}}
	// What is known of the past: the counts at the ends of epochs, the first reply
	// and the one before this.
	sum := float64(e.retired)
	for k := l.grid.epochs; k >= 0; k-- {
		epoch := in.epoch - int64(k)
		start := sample{epoch * l.grid.length, sum}
		n.history.add(start, 1)
		sum += float64(e.count(l.grid.slotOf(epoch)))
		for _, x := range [...]sample{e.outset(start), e.contact, before} {
			if x.at > start.at && x.at < min(l.grid.end(epoch), in.now) {
				n.history.add(x, 1)
			}
		}
	}
	n.history.add(sample{in.now, sum}, 1)
	n.history.firm = len(n.history.samples) - 1
	n.credit.bits.Store(math.Float64bits(l.dither(e.key)))
	e.near.Store(n)
	l.pacing(e, n, in)
}

// outset is when the events that the first reply told of may have begun, in the
// epoch that began with start: at the demand that was seen since, they would have
// come in the time just before that reply. Without it, a key that came to life in
// the middle of an epoch would seem to drain from the epoch's beginning.
func (e *Entry) outset(start sample) sample {
	return sample{e.contact.at - int64((e.contact.cum-start.cum)/max(e.demand.fleet, 1e-18)), start.cum}
}

// dither starts each node's thinning at a point of its own, so that nodes do not
// admit in step.
func (l *Limiter) dither(key string) float64 {
	return float64((hashKey(key)^l.cfg.Seed)*0x9E3779B97F4A7C15>>11) / (1 << 53)
}

// count is the believed count of a slot, with own events.
func (e *Entry) count(i int) int64 {
	s := e.slot(i)
	return s.base.Load() + s.own.Load()
}

// leaveLimit gives up e's near. e.mu is held.
func (l *Limiter) leaveLimit(e *Entry) {
	if n := e.near.Swap(nil); n != nil {
		n.history.release()
		l.histories.Add(-1)
	}
}

// advance brings the prediction to now, and drops it when it has not been
// confirmed for too long although the store works. e.mu is held.
func (l *Limiter) advance(e *Entry, n *near, now int64) {
	elapsed := float64(now - n.modelled)
	switch {
	case elapsed < -float64(l.cfg.TickEvery): // the clock was set back
		n.history.rewind(now)
	case elapsed <= 0:
		return
	}
	n.modelled = now
	if l.stale(e, n, now) {
		n.unseen = 0
		n.history.retract()
	} else {
		n.unseen += n.others(&e.demand) * max(0, elapsed)
	}
	n.history.add(sample{now, e.cumulative(l.grid, n)}, l.resolution)
}

// stale reports whether the key has not been exchanged for so long that what was
// predicted of other nodes since is worth nothing.
func (l *Limiter) stale(e *Entry, n *near, now int64) bool {
	horizon := max(staleTicks*float64(l.cfg.TickEvery), 2*n.interval, float64(l.cfg.Window)/stalePart)
	return !e.part.failing.Load() && float64(now-e.exchanged) > horizon
}

// others is the rate at which other nodes admit, as far as it can be predicted:
// what they are offered, or their part of the budget.
func (n *near) others(d *demand) float64 {
	if n.tight {
		return min(d.others(), (1-d.share())*n.budget)
	}
	return d.others()
}

// confirm takes in a reply, since nanoseconds after the last one: before is the
// cumulative count as it was expected, seen what other nodes have reported since,
// counted the level by the window counter. e.mu is held.
func (l *Limiter) confirm(e *Entry, n *near, in *instant, since, before, seen, counted float64) (far bool) {
	tick := float64(l.cfg.TickEvery)
	// Of what others admitted before the reply they have reported all but the last
	// part: half an interval's worth, taken to be as long as this node's.
	lag := tick / 2
	if !n.tight {
		lag = min(max(n.interval, tick), max(since, tick)) / 2
	}
	predicted := n.unseen
	n.unseen = n.others(&e.demand) * lag
	if e.part.health.inGrace(l, in.now) {
		// Backlogs arrive one after the other: what was predicted stays until seen.
		n.unseen = max(n.unseen, predicted-max(0, seen))
	}
	n.history.confirm(in.now, e.cumulative(l.grid, n), before, l.resolution)
	n.history.forget(in.now - int64(l.cfg.Window) - 2*l.resolution)
	l.pacing(e, n, in)
	if e.others(l.grid) == 0 {
		return true // alone again: the window counter is exact
	}
	limit := float64(e.limit.Load())
	if counted >= nearUntil*limit || n.headroom <= (1-nearUntil)*limit {
		n.busy = in.now
	}
	return in.now-n.busy > int64(l.cfg.Window)
}

// pacing works out how the key is to be judged from in on, and publishes it.
// e.mu is held.
//
// With H the headroom, D the fleet's demand and drain what leaves the window in
// the next tick, all known:
//
//	tight   H ≤ guard·(D − drain) + 2·√(2·D·tick), as long as D is news
//	budget  B = drain + gain·H, of which each node's requests pass with p = B/D
//	free    the next exchange comes after 0.15·H / (D − drain)
func (l *Limiter) pacing(e *Entry, n *near, in *instant) {
	tick := float64(l.cfg.TickEvery)
	limit := float64(e.limit.Load())
	window := int64(l.cfg.Window)
	own, sent := e.ownSums(l.grid)
	leaving := n.history.at(in.now - window)
	believed := float64(e.retired) + e.believed(l.grid)
	level := max(0, believed+float64(own-sent)+n.unseen-leaving)
	drain := n.history.growth(in.now-window, in.now-window+int64(tick))
	demand := max(e.demand.fleet, 1e-18)
	surplus := max(0, demand-drain)

	n.headroom = limit - level
	bound := guardTicks*tick*surplus + 2*math.Sqrt(2*demand*tick)
	if n.tight {
		bound *= tightStay
	}
	fresh := float64(in.now-e.exchanged) <= staleTicks*tick || e.part.failing.Load()
	n.tight = fresh && n.headroom <= min(bound, maxTightHeadroom*limit)
	p := &pace{limit: e.limit.Load(), at: in.now, until: in.now + int64(paceTicks*tick), level: level, mark: own, reported: sent, tight: n.tight, allowance: math.Inf(1)}
	if n.tight {
		n.budget = max(0, drain+headroomGain/tick*n.headroom)
		n.interval = tick
		p.pass = min(1, n.budget/demand)
		mine := l.share(e) * n.budget
		p.burst, p.rate = 2*mine*tick+3, 2*mine
	} else {
		n.interval = e.demand.patience(n.headroom, drain, tick)
		p.allowance = l.allowance(e, limit-(believed-leaving), level/limit)
	}
	p.blur = leaving - n.history.at(in.now-window-int64(tick))
	p.slope = n.others(&e.demand) - drain
	n.pace.Store(p)
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

// nearOf returns what to judge e by if it is near its limit, or nil.
func (r *rule) nearOf(e *Entry) *near {
	if r.yes != ReasonUnderLimit || r.limit == 0 || r.limit > maxNearLimit {
		return nil
	}
	return e.near.Load()
}

// peekNear says whether one event would pass.
func (l *Limiter) peekNear(e *Entry, n *near, in *instant, r *rule) (bool, Reason) {
	switch p, _ := l.paceOf(e, n, in); {
	case p.tight && !n.credit.enough(p.pass):
		return false, ReasonShed
	case !p.tight && p.levelAt(in.now, e.ownSum(l.grid))+1 > float64(r.cap):
		return false, ReasonOverLimit
	}
	return true, ReasonUnderLimit
}

// takeNear is take for a key near its limit. It also reports whether the loop
// should look at the key soon.
func (l *Limiter) takeNear(e *Entry, n *near, in *instant, count int64, r *rule) (taken bool, reason Reason, _ bool) {
	p, hurry := l.paceOf(e, n, in)
	_, _, own := l.standing(e, in)
	if p.tight {
		sum := e.ownSum(l.grid)
		since := float64(sum - p.mark)
		switch {
		case count > r.limit, count > 1 && p.levelAt(in.now, sum)+p.blur+float64(count) > float64(r.cap):
			// What is thinned is small change. A large request must fit as a whole, and
			// as it waits for that, it is no part of the demand that is to be thinned.
			n.unfit.Add(min(count, r.limit))
			return false, ReasonOverLimit, hurry
		case since > 0 && since+float64(count) > p.burst+p.rate*float64(in.now-p.at),
			!n.credit.spend(float64(count), p.pass):
			return false, ReasonShed, hurry
		}
		own.Add(count)
		return true, ReasonUnderLimit, hurry
	}
	for {
		x := own.Load()
		sum := e.ownSum(l.grid)
		unknown := float64(sum - p.reported)
		switch {
		case p.levelAt(in.now, sum)+float64(count) > float64(r.cap), count > 1 && p.levelAt(in.now, sum)+p.blur+float64(count) > float64(r.cap):
			if count > 1 {
				n.unfit.Add(min(count, r.limit))
			}
			return false, ReasonOverLimit, true
		case unknown > 0 && unknown+float64(count) > p.allowance && (count == 1 || unknown+1 > p.allowance || p.levelAt(in.now, sum)+2*float64(count) > float64(r.cap)):
			return false, ReasonShed, true
		case own.CompareAndSwap(x, x+count):
			return true, ReasonUnderLimit, hurry
		}
	}
}

// levelAt is the level at a time, given the sum of own counters.
func (p *pace) levelAt(now, own int64) float64 {
	return max(0, p.level+float64(own-p.mark)+p.slope*float64(now-p.at))
}

// ownSum is the sum of the own counters, for decisions.
func (e *Entry) ownSum(g grid) (sum int64) {
	for i := range g.slots() {
		sum += e.slot(i).own.Load()
	}
	return sum
}

// paceOf returns the pace to go by, a new one if the loop has not looked at the key
// for long because nobody asked for it, or since its limit changed. It reports whether an exchange would then
// be good.
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

// denials is what is known of a key's denied events in the fleet.
type denials struct {
	pending int64 // own, that the store has not been told
	sent    bool  // they are in the batch

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
