package limiter

import (
	"math"
	"sync/atomic"
)

// A key that is not far from its limit is judged by
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
	paceTicks = 1
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

	alone    bool // no other node has had events in the window
	tight    bool
	budget   float64 // events per nanosecond for the whole fleet, if tight
	headroom float64
	interval float64 // nanoseconds until the next exchange, if not tight

	pace   atomic.Pointer[pace]
	credit credit
	unfit  atomic.Int64 // denied events that no thinning would have let pass
}

// approachLimit makes a near of what the counters tell, if the key, now at level,
// has come near its limit and a history can be had. before is
// the fleet's cumulative count at the reply before this one, waiting the time since
// which counts have waited for this one. e.mu is held.
func (l *Limiter) approachLimit(e *Entry, in *instant, level float64, before sample, waiting int64) {
	limit := float64(e.limit.Load())
	soon := level + e.demand.fleet*guardTicks*float64(l.cfg.TickEvery)
	from := nearFrom
	if e.part.failing.Load() {
		from = nearFromFailing
	}
	if l.cfg.Decay != DecayWindow || limit == 0 || limit > maxNearLimit || soon < from*limit || e.has(evicted) {
		return
	}
	if l.histories.Add(1) > l.maxHistories {
		l.histories.Add(-1)
		return // the window counter must do
	}
	quiet := sample{cum: before.cum}
	if e.others(l.grid) == 0 {
		// All that has come since the last reply came in the tick before counts began
		// to wait, or later.
		quiet.at = waiting - int64(l.cfg.TickEvery)
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
		for _, x := range [...]sample{e.outset(start), e.contact, before, quiet} {
			if x.at > n.history.samples[len(n.history.samples)-1].at && x.at < min(l.grid.end(epoch), in.now) {
				n.history.add(x, 1)
			}
		}
	}
	n.history.add(sample{in.now, sum}, 1)
	n.history.firm = len(n.history.samples) - 1
	n.credit.bits.Store(math.Float64bits(l.dither(e.key())))
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

// leaveLimit gives up e's near. e.mu is held.
func (l *Limiter) leaveLimit(e *Entry) {
	if n := e.near.Swap(nil); n != nil {
		n.history.release()
		l.histories.Add(-1)
	}
}

// pacing works out how the key is to be judged from in on, and publishes it.
// e.mu is held.
//
// With H the headroom, D the fleet's demand and drain what leaves the window in
// the next tick, all known:
//
//	tight   H ≤ guard·(D − drain) + 2·√(2·D·tick), as long as D has been measured, and lately
//	budget  B = drain + gain·H, of which each node's requests pass with p = B/D
//	free    the next exchange comes after 0.15·H / (D − drain)
func (l *Limiter) pacing(e *Entry, n *near, in *instant) {
	tick := float64(l.cfg.TickEvery)
	limit := float64(e.limit.Load())
	window := int64(l.cfg.Window)
	own, sent := e.ownSums(l.grid)
	leaving := n.history.at(in.now - window)
	believed := float64(e.retired) + e.believed(l.grid)
	cum := believed + float64(own-sent) + n.unseen
	level := max(0, cum-leaving)
	drain := n.history.growth(in.now-window, in.now-window+int64(tick))
	demand := max(e.demand.fleet, 1e-18)
	surplus := max(0, demand-drain)

	n.headroom = limit - level
	bound := guardTicks*tick*surplus + 2*math.Sqrt(2*demand*tick)
	if n.tight {
		bound *= tightStay
	}
	// While the store is away, others are only not heard of.
	n.alone = e.others(l.grid) == 0 && !e.part.failing.Load()
	fresh := float64(in.now-e.exchanged) <= staleTicks*tick || e.part.failing.Load()
	n.tight = !n.alone && fresh && e.demand.samples > 0 && n.headroom <= min(bound, maxTightHeadroom*limit)
	p := &pace{limit: e.limit.Load(), at: in.now, until: in.now + int64(paceTicks*tick), cum: cum, mark: own, reported: sent, alone: n.alone, tight: n.tight, allowance: math.Inf(1)}
	if n.tight {
		n.budget = max(0, drain+headroomGain/tick*n.headroom)
		n.interval = tick
		p.pass = min(1, n.budget/demand)
		mine := l.share(e) * n.budget
		p.burst, p.rate = 2*mine*tick+3, 2*mine
	} else {
		n.interval = e.demand.patience(n.headroom, drain, tick)
		if !n.alone {
			p.allowance = l.allowance(e, limit-(believed-leaving), level/limit)
		}
	}
	p.blur = leaving - n.history.at(in.now-window-int64(tick))
	p.rise = n.others(&e.demand)
	p.knots = n.history.part(p.left[:], in.now-window, in.now-window+2*int64(tick), window)
	n.pace.Store(p)
}
