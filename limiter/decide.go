package limiter

import (
	"math"
	"sync/atomic"
)

// verdict is what a rule says before the counts are looked at.
type verdict uint8

const (
	judge verdict = iota // compare with cap
	admit
	refuse
)

// rule is how a key is judged at the moment.
type rule struct {
	limit   int64 // the key's limit
	cap     int64 // what the level is compared with: the limit or a share of it
	verdict verdict
	yes, no Reason
}

func (r *rule) reason(allowed bool) Reason {
	if allowed {
		return r.yes
	}
	return r.no
}

// ruleFor returns the rule that e is under: its limit, unless the store has not
// told about the key yet, the outage policy is in force, or the limiter is
// closed. It first turns the entry's slots over if an epoch has begun, because
// nothing of what the store has told may be left then.
func (l *Limiter) ruleFor(e *Entry, in *instant) rule {
	for !e.turned(l.grid, in) {
		e.mu.Lock()
		// A decision that was held up for long must not turn the slots back.
		*in = l.time.instant()
		e.turn(*in, l)
		e.mu.Unlock()
	}
	limit := l.limitFor(e)
	r := rule{limit: limit, cap: limit, yes: ReasonUnderLimit, no: ReasonOverLimit}
	if mode := e.part.mode.Load(); mode != normal {
		l.outside(e, &r, mode)
	} else if !e.has(known) {
		r.yes = ReasonFirstSeen
		r.cap = l.coldCap(e.part, limit)
	}
	return r
}

// limitFor returns e's limit, taken afresh if the overrides have changed.
func (l *Limiter) limitFor(e *Entry) int64 {
	if set := l.overrides.Load(); e.overrides.Load() != set.number {
		limit := set.limitOf(e.key(), l.cfg.Limit)
		e.limit.Store(limit)
		attention := int64(0) // have the loop look at it soon
		if !e.has(known) {
			attention = coldAttention(limit)
		}
		e.attention.Store(attention)
		e.overrides.Store(set.number)
		return limit
	}
	return e.limit.Load()
}

// outside changes r for an outage or a closed limiter.
func (l *Limiter) outside(e *Entry, r *rule, m mode) {
	if m == closed {
		r.yes, r.no = ReasonClosed, ReasonClosed
		return
	}
	if r.limit == 0 {
		return // denied for reasons of its own
	}
	r.yes, r.no = ReasonOutageAllowed, ReasonOutageDenied
	switch l.cfg.Outage {
	case OutageAllow:
		r.verdict = admit
	case OutageDeny:
		r.verdict = refuse
	default:
		r.cap = share(r.limit, e.part.nodes.Load())
	}
}

// coldCap is how much of limit a key may use before the store has told about it.
func (l *Limiter) coldCap(p *partition, limit int64) int64 {
	switch fraction := l.cfg.ColdShare; {
	case fraction == 1 || limit == 0:
		return limit
	case fraction == FairShare:
		return share(limit, p.nodes.Load())
	default:
		return max(1, int64(fraction*float64(limit)))
	}
}

// share is one of n equal parts of limit, at least 1.
func share(limit, n int64) int64 { return max(1, limit/n) }

// coldAttention is the count at which a key that the store has not told about
// asks for an early tick: a twentieth of its limit, but more than one event, so
// that a flood of keys that come once costs no early ticks.
func coldAttention(limit int64) int64 { return max(2, limit/20) }

// decide judges n > 0 events of e at in, and counts them in the way that the
// verdict asks for.
func (l *Limiter) decide(e *Entry, in *instant, n int64) (bool, Reason) {
	r := l.ruleFor(e, in)
	if r.limit == Unlimited {
		return true, ReasonUnlimited
	}
	allowed, reason, hurry := l.judge(e, in, n, &r)
	if !allowed {
		e.refuse(n)
		if l.cfg.CountDenied {
			l.take(e, in, n, &rule{verdict: admit})
		}
	}
	l.notice(e, hurry)
	return allowed, reason
}

// judge finds out whether n events pass under r, and counts them if they do. It
// also reports whether the loop should look at the key soon.
func (l *Limiter) judge(e *Entry, in *instant, n int64, r *rule) (allowed bool, reason Reason, hurry bool) {
	if near := r.nearOf(e); near != nil {
		return l.takeNear(e, near, in, n, r)
	}
	var level int64
	if r.verdict != refuse {
		allowed, level = l.take(e, in, n, r)
	}
	return allowed, r.reason(allowed), level >= e.attention.Load()
}

// quick admits n events if nothing about the case is special: a key under its
// usual rule that the loop knows of, with two slots that are in place, a request
// that fits and a level that calls for no attention. It does in one go what
// decide does for such a case, which is nearly all of them; anything else, a lost
// race included, is left to decide. It copies nothing and tests one thing at a
// time, because the compiler's code for conditions that are joined is slower.
func (l *Limiter) quick(e *Entry, n int64) bool {
	const wanted = known | listed
	if e.state.Load()&wanted != wanted {
		return false
	}
	if !l.simple || e.near.Load() != nil {
		return false
	}
	part := e.part
	if part.mode.Load() != normal {
		return false
	}
	if e.overrides.Load() != l.overrides.Load().number {
		return false
	}
	in := l.time.current.Load()
	if in == nil {
		now := l.time.instant()
		in = &now
	}
	i, j := in.slot&1, ^in.slot&1
	if e.views[i].epoch.Load() != in.epoch {
		return false
	}
	if e.views[j].epoch.Load() != in.epoch-1 {
		return false
	}
	x := e.own[i].Load()
	count := e.views[i].base.Load() + x
	leaving := e.views[j].base.Load() + e.own[j].Load()
	if count < 0 || leaving < 0 { // past the end of the range
		return false
	}
	room := min(e.limit.Load(), e.attention.Load()-1) - count
	if n > room {
		return false
	}
	// What still counts of the leaving epoch is at most all of it.
	if leaving > room-n && l.grid.leaving(in, leaving) > room-n {
		return false
	}
	if !e.own[i].CompareAndSwap(x, x+n) {
		return false
	}
	// Meanwhile the loop may have let go of e, or have ended.
	if e.state.Load()&listed == 0 || part.mode.Load() == closed {
		l.notice(e, false)
	}
	return true
}

// take adds n to e's own count of the current epoch if the level with it stays
// within r.cap, or in any case if r.verdict is admit. It returns the level after
// that, or the level that kept it from fitting.
//
// A request that does not fit leaves no trace, not even for a moment: a large
// request that fails cannot make a small one beside it fail.
func (l *Limiter) take(e *Entry, in *instant, n int64, r *rule) (taken bool, level int64) {
	fixed, base, own := l.standing(e, in)
	for {
		x := own.Load()
		count := whole(base + x)
		used := addSaturating(fixed, count)
		add := n
		if r.verdict == admit {
			add = min(n, math.MaxInt64-count)
		} else if n > r.cap-used {
			return false, addSaturating(used, n)
		}
		if own.CompareAndSwap(x, x+add) {
			return true, addSaturating(used, add)
		}
	}
}

// standing returns where a key stands: the level without the current epoch, and
// the current epoch's count as base and own, which other decisions may raise at
// any moment. The entry's slots are those of in's window.
func (l *Limiter) standing(e *Entry, in *instant) (fixed, base int64, own *atomic.Int64) {
	if m := l.leakOf(e); m != nil {
		return l.leaking(e, in, m)
	}
	leaving := e.slot(l.grid.before(in, l.grid.epochs))
	fixed = l.grid.leaving(in, leaving.base.Load()+leaving.own.Load())
	for k := 1; k < l.grid.epochs; k++ {
		s := e.slot(l.grid.before(in, k))
		fixed = addSaturating(fixed, s.base.Load()+s.own.Load())
	}
	current := e.slot(in.slot)
	return fixed, current.base.Load(), current.own
}

// turned reports whether the slots are those of in's window.
func (e *Entry) turned(g grid, in *instant) bool {
	for k := range g.slots() {
		if s := e.slot(g.before(in, k)); s.epoch.Load() != in.epoch-int64(k) {
			return false
		}
	}
	return true
}

// refuse counts n denied events.
func (e *Entry) refuse(n int64) {
	for {
		denied := e.denied.Load()
		if e.denied.CompareAndSwap(denied, addSaturating(denied, n)) {
			return
		}
	}
}

// notice makes sure that the loop will see e, soon if hurry is set.
func (l *Limiter) notice(e *Entry, hurry bool) {
	state := e.state.Load()
	if state&listed != 0 && (!hurry || state&urgent != 0) && e.part.mode.Load() != closed {
		return
	}
	e.part.list(e, hurry)
}

// describe makes the Decision of a verdict.
func (l *Limiter) describe(e *Entry, in *instant, n int64, allowed bool, reason Reason) Decision {
	r := l.ruleFor(e, in)
	if r.limit == Unlimited {
		return unlimited()
	}
	var room [maxEpochs + 1]int64
	counts := room[:l.grid.slots()]
	e.counts(l.grid, in, counts)
	fixed, base, own := l.standing(e, in)
	d := Decision{
		Allowed:    allowed,
		Reason:     reason,
		Limit:      r.limit,
		Remaining:  max(0, r.cap-addSaturating(fixed, base+own.Load())),
		ResetAfter: l.grid.resetAfter(in, counts),
	}
	if near := r.nearOf(e); near != nil {
		p := near.pace.Load()
		level := p.levelAt(in.now, e.ownSum(l.grid))
		d.Remaining = int64(max(0, float64(r.cap)-level))
		if reason == ReasonShed {
			d.RetryAfter = l.cfg.TickEvery
			return d
		}
		if !allowed && n <= r.cap {
			d.RetryAfter = l.nearRetryAfter(e, near, in, n, &r)
			return d
		}
	}
	switch {
	case allowed:
	case n > r.limit:
		d.RetryAfter = Never
	case r.verdict == refuse || n > r.cap:
		d.RetryAfter = l.cfg.TickEvery // the store may be back
	default:
		d.RetryAfter = l.retryAfter(e, in, counts, n, r.cap)
	}
	return d
}
