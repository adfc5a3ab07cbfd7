package limiter

import (
	"math"
	"time"
)

const (
	// headroomPart is how much of a key's headroom may be used up before its
	// counts are exchanged (kappa in docs/architecture.md).
	headroomPart = 0.15
	// nearLimit is the pressure from which on a key is exchanged at every tick.
	nearLimit = 0.9
	// jitterPart is by how much intervals are shortened at random, so that keys
	// that were exchanged together do not stay together.
	jitterPart = 0.2
	// graceTicks after an outage, rates are not trusted.
	graceTicks = 2.2
	// attentionPart is how much of its headroom a key may use up between two ticks
	// until it asks for an early one.
	attentionPart = 0.5
)

// review is what the loop finds out about an entry.
type review struct {
	outstanding bool // the store must still be told something
	unsent      bool // counts, that is
	used        bool // there were decisions since the last review
	near        bool // the key is near its limit
	due         bool
	score       float64
	accepted    int64 // events since the last review
	denied      int64
}

// review looks at e, decides whether its exchange is due, and leaves in it the
// level at which it wants attention. e.mu is held.
func (p *partition) review(e *Entry, in *instant, kind tickKind) (r review) {
	l := p.l
	if !e.turned(l.grid, in) {
		// By the present time: a decision may be in a later epoch than the tick.
		e.turn(l.time.instant(), l)
	}
	own, sent := e.ownSums(l.grid)
	// The clock may have been set back.
	e.exchanged, e.waiting = min(e.exchanged, in.now), min(e.waiting, in.now)
	e.renewed, e.touched = min(e.renewed, in.now), min(e.touched, in.now)
	r.accepted = own - e.accounted
	e.accounted = own
	r.denied = e.denied.Swap(0)
	r.used = r.accepted != 0 || r.denied != 0
	if e.limit.Load() > 0 { // at limit 0 there is nothing to be learnt
		e.refused = addSaturating(e.refused, r.denied)
	}

	var room [maxEpochs + 1]int64
	counts := room[:l.grid.slots()]
	e.counts(l.grid, in, counts)
	s := newSignal(l.grid.level(in, counts), e.limit.Load())
	n := e.near.Load()
	if n == nil && p.health.failing() && e.has(known) {
		l.approachLimit(e, in, s.Level, sample{}, 0)
		n = e.near.Load()
	}
	if n != nil {
		if !l.cfg.CountDenied {
			n.denied.pending = addSaturating(n.denied.pending, max(0, r.denied-n.unfit.Swap(0)))
		}
		l.advance(e, n, in.now)
		l.pacing(e, n, in)
	}

	finished, owing := e.leftovers(l.grid, in)
	r.unsent = own != sent
	r.outstanding = r.unsent || e.refused > 0 && !e.has(evicted) || owing || n != nil && n.denied.birth == unarmed
	u := p.urgency(e, n, in, s, counts[l.grid.epochs])
	r.near = s.Pressure >= nearFrom
	if e.has(known) || p.health.failing() {
		e.attention.Store(p.attention(s, u))
	}
	e.clear(urgent)
	age := in.now - e.exchanged
	r.score = s.Pressure + float64(in.now-e.waiting)/float64(p.tiers[u.tier].MaxStale)
	switch {
	case !r.outstanding:
	case kind == flushTick, kind == earlyTick && n != nil, finished, !e.has(known), p.health.failing():
		r.due = true
	default:
		r.due = u.due(e, float64(own-sent), float64(age), float64(l.cfg.TickEvery)) || p.health.recovered > e.exchanged
	}
	return r
}

// urgency is how soon a key should be exchanged.
type urgency struct {
	tier     int
	always   bool    // at every tick
	headroom float64 // what the key may still use up
	quota    float64 // own events that may be unknown to the store
	interval float64 // nanoseconds between exchanges
}

// urgency works out the exchange rule for a key at s (accuracy study, section E):
//
//	quota     0.15 · share · headroom
//	interval  min(0.15 · headroom / rate at which it goes, the tier's bound)
//
// and an exchange at every tick while requests are thinned, or, for a key that is
// judged by the window counter, above nine tenths of its limit. leaving is the
// count of the epoch that leaves the window.
func (p *partition) urgency(e *Entry, n *near, in *instant, s Signal, leaving int64) urgency {
	l := p.l
	u := urgency{
		tier:     p.classify(s),
		always:   s.Pressure >= nearLimit,
		headroom: max(0, float64(s.Limit)-s.Level),
	}
	if n != nil {
		u.always, u.headroom, u.interval = n.tight, max(0, n.headroom), n.interval
	} else {
		u.interval = e.demand.patience(u.headroom, float64(leaving)/float64(l.grid.length), float64(l.cfg.TickEvery))
	}
	u.quota = headroomPart * u.headroom * l.share(e)
	u.interval = min(u.interval, float64(p.tiers[u.tier].MaxStale)) * float64(e.jitter)
	return u
}

// due reports whether it is time, with unsent own events and the last exchange age
// ago, or would be before the next tick. The first exchanges of a key follow each
// other at every tick, until its demand is known.
func (u *urgency) due(e *Entry, unsent, age, tick float64) bool {
	return u.always || e.demand.samples < 2 || unsent > 0 && unsent >= u.quota || age+tick > u.interval
}

// leftovers reports whether a finished epoch has counts unsent or is unread, and
// whether the expiry of a counter is still to be confirmed. e.mu is held.
func (e *Entry) leftovers(g grid, in *instant) (finished, owing bool) {
	for k := range g.slots() {
		s := e.slot(g.before(in, k))
		owing = owing || s.birth == unarmed
		if k > 0 && (s.own.Load() != s.sent || s.heard == heardNothing) {
			finished = true
		}
	}
	return finished, owing
}

func newSignal(level, limit int64) Signal {
	s := Signal{Level: float64(level), Limit: limit}
	switch {
	case limit > 0:
		s.Pressure = s.Level / float64(limit)
	case level > 0:
		s.Pressure = math.Inf(1)
	}
	return s
}

// classify asks the policy, whose answer may be anything.
func (p *partition) classify(s Signal) int {
	return min(max(p.l.cfg.Tiers.Classify(s), 0), len(p.tiers)-1)
}

// attention returns the level from which on the key, now at s, is to ask for an
// early tick: where the policy has it in a tier that may be less stale, or where
// half its headroom is gone. A key that is exchanged at every tick need not ask.
func (p *partition) attention(s Signal, u urgency) int64 {
	if u.always || s.Limit == 0 {
		return math.MaxInt64
	}
	low, high := s.Level, s.Level+max(2, attentionPart*u.headroom)
	stricter := func(level float64) bool {
		t := p.classify(newSignal(int64(level), s.Limit))
		return p.tiers[t].MaxStale < p.tiers[u.tier].MaxStale
	}
	if stricter(high) {
		for high-low > 1 && high-low > u.headroom/256 {
			if middle := (low + high) / 2; stricter(middle) {
				high = middle
			} else {
				low = middle
			}
		}
	}
	if high >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(math.Ceil(high))
}

// task is an entry's part of a batch.
type task struct {
	e             *Entry
	adds, expires span
	gets          span
	full          bool // everything of the window is read
}

// span is a range of one of the batch's slices.
type span struct{ from, to int }

// plan adds to the batch what e has to exchange: an add for each epoch with
// counts that the store does not have, whose replies are the totals; a read of
// the current epoch if there is nothing to add to it; and a read of each finished
// one that has not been read since its stragglers landed. e.mu is held.
func (p *partition) plan(e *Entry, in *instant) {
	l, b := p.l, &p.batch
	t := task{
		e:       e,
		adds:    span{from: len(b.Adds)},
		expires: span{from: len(b.Expires)},
		gets:    span{from: len(b.Gets)},
		full:    in.now-e.renewed >= int64(l.cfg.CacheTTL)/2 || p.health.recovered > e.exchanged,
	}
	for k := range l.grid.slots() {
		epoch := in.epoch - int64(k)
		s := e.slot(l.grid.slotOf(epoch))
		if s.epoch.Load() != epoch {
			continue // turned over since the tick began
		}
		c := Counter{Key: e.key(), Epoch: epoch, Series: SeriesAdmitted}
		delta := s.own.Load() - s.sent
		if delta > 0 {
			s.sent += delta
			b.Adds = append(b.Adds, Add{Counter: c, Delta: delta})
		}
		if s.birth == unarmed || delta > 0 && s.birth == unborn {
			b.Expires = append(b.Expires, Expire{Counter: c, Lifetime: l.lifetime(e.key(), epoch, in.now)})
		}
		if delta == 0 && (k == 0 || t.full || l.worthReading(s.heard, e.near.Load() != nil, epoch, in.now)) {
			b.Gets = append(b.Gets, Get{Counter: c})
		}
	}
	if n := e.near.Load(); n != nil && !n.alone && !l.cfg.CountDenied {
		p.planDenied(e, n, in)
	}
	t.adds.to, t.expires.to, t.gets.to = len(b.Adds), len(b.Expires), len(b.Gets)
	p.tasks = append(p.tasks, t)
}

// worthReading reports whether the store has more to tell of a finished epoch than
// has been heard. When an epoch ends, what nodes had of it arrives within
// settleTicks; a key near its limit cannot wait for that and is read at once, too.
func (l *Limiter) worthReading(h heard, near bool, epoch, now int64) bool {
	switch h {
	case heardNothing:
		return true
	case heardOpen:
		return near || l.settled(epoch, now)
	case heardClosed:
		return l.settled(epoch, now)
	default:
		return false
	}
}

// planDenied adds to the batch what e has to tell of denied events, or reads what
// others have told: near a limit, every node must know the fleet's demand.
func (p *partition) planDenied(e *Entry, n *near, in *instant) {
	b, d := &p.batch, &n.denied
	c := Counter{Key: e.key(), Epoch: in.epoch, Series: SeriesDenied}
	delta := d.pending
	if delta > 0 {
		d.pending = 0
		b.Adds = append(b.Adds, Add{Counter: c, Delta: delta})
	} else {
		b.Gets = append(b.Gets, Get{Counter: c})
	}
	if owed := d.epoch; d.birth == unarmed && owed != in.epoch {
		old := Counter{Key: e.key(), Epoch: owed, Series: SeriesDenied}
		b.Expires = append(b.Expires, Expire{Counter: old, Lifetime: max(time.Millisecond, p.l.lifetime(e.key(), owed, in.now))})
	}
	if d.birth == unarmed && d.epoch == in.epoch || delta > 0 && (d.birth == unborn || d.epoch != in.epoch) {
		b.Expires = append(b.Expires, Expire{Counter: c, Lifetime: p.l.lifetime(e.key(), in.epoch, in.now)})
	}
}

// settled reports whether every node has had the time to send what it had of
// epoch.
func (l *Limiter) settled(epoch, now int64) bool {
	return now >= l.grid.end(epoch)+settleTicks*int64(l.cfg.TickEvery)
}

// lifetime returns how long from now a counter must stay: until it has left the
// window, with some grace for clocks that differ, and spread by key, so that the
// counters of an epoch do not all expire at one moment.
func (l *Limiter) lifetime(key string, epoch, now int64) time.Duration {
	grace := max(l.grid.length/4, int64(time.Second))
	spread := int64(hashKey(key) % uint64(grace))
	return time.Duration(l.grid.end(epoch+int64(l.grid.epochs)) - now + grace + spread)
}

// hashKey is 64-bit FNV-1a.
func hashKey(key string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return h
}

// apply takes in the results of e's part of the batch.
func (p *partition) apply(t *task, in *instant, totals *Totals) {
	e, l := t.e, p.l
	e.mu.Lock()
	n := e.near.Load()
	var expected float64
	var others int64
	if n != nil {
		l.advance(e, n, in.now)
		expected, others = e.cumulative(l.grid, n), e.others(l.grid)
	}
	complete := true
	for i := t.adds.from; i < t.adds.to; i++ {
		x := &p.batch.Adds[i]
		if x.Series == SeriesDenied {
			complete = applyDenied(n, x) && complete
		} else {
			complete = p.applyAdd(e, x, in, totals) && complete
		}
	}
	for i := t.expires.from; i < t.expires.to; i++ {
		e.applyExpire(l.grid, n, &p.batch.Expires[i])
	}
	for i := t.gets.from; i < t.gets.to; i++ {
		x := &p.batch.Gets[i]
		switch s, live := e.live(l.grid, x.Epoch); {
		case !x.OK:
			complete = false
		case x.Series == SeriesDenied:
			if n != nil {
				n.denied.hear(x.Epoch, x.Total)
			}
		case live && p.hear(s, x.Epoch, x.Total, 0, in):
			totals.Regressions++
		}
	}
	if complete {
		before, waiting := sample{e.demand.since, e.demand.fleetSeen}, e.waiting
		since, counted := p.exchanged(e, in, t.full)
		if n == nil {
			l.approachLimit(e, in, counted, before, waiting)
		} else if l.confirm(e, n, in, since, expected, float64(e.others(l.grid)-others), counted) {
			l.leaveLimit(e)
		}
	} else if n != nil {
		l.pacing(e, n, in)
	}
	renew := complete && t.full
	e.mu.Unlock()
	if renew {
		l.cache.Renew(e.key())
	}
}

// applyDenied takes in the outcome of an add to the denied series. What may have
// arrived is not told again. e.mu is held.
func applyDenied(n *near, x *Add) bool {
	if n == nil {
		return true // the key has left its limit behind meanwhile
	}
	switch x.Outcome {
	case Applied:
		n.denied.own += float64(x.Delta)
		n.denied.hear(x.Epoch, x.Total)
		if n.denied.birth == unborn {
			n.denied.birth = unarmed
		}
		return true
	case NotApplied:
		n.denied.pending = addSaturating(n.denied.pending, x.Delta)
	}
	return false
}

// applyExpire takes in the outcome of an expiry. e.mu is held.
func (e *Entry) applyExpire(g grid, n *near, x *Expire) {
	switch s, live := e.live(g, x.Epoch); {
	case x.Outcome != Applied:
	case x.Series == SeriesDenied:
		if n != nil && n.denied.epoch == x.Epoch && n.denied.birth == unarmed {
			n.denied.birth = armed
		}
	case live && s.birth == unarmed:
		s.birth = armed
	}
}

// applyAdd takes in the outcome of an add and reports whether it told the total.
// e.mu is held.
func (p *partition) applyAdd(e *Entry, x *Add, in *instant, totals *Totals) bool {
	s, live := e.live(p.l.grid, x.Epoch)
	switch x.Outcome {
	case Applied:
		totals.Acknowledged += x.Delta
		if live {
			if p.hear(s, x.Epoch, x.Total, x.Delta, in) {
				totals.Regressions++
			}
			if s.birth == unborn {
				s.birth = unarmed
			}
		}
		return true
	case NotApplied:
		if live {
			s.sent -= x.Delta
		} else {
			p.counted.dropped.Add(x.Delta) // its epoch went by meanwhile
		}
	default:
		totals.Unknown += x.Delta
		if live {
			s.doubt()
		}
	}
	return false
}

// live returns the slot of epoch, unless another epoch has taken it.
func (e *Entry) live(g grid, epoch int64) (s slot, ok bool) {
	s = e.slot(g.slotOf(epoch))
	return s, s.epoch.Load() == epoch
}

// hear takes in a total of epoch, and reports whether the store has lost data.
func (p *partition) hear(s slot, epoch, total, delta int64, in *instant) (regressed bool) {
	regressed = s.acknowledge(max(total, 0), delta)
	switch {
	case p.l.settled(epoch, in.now):
		s.heard = heardLast
	case epoch < in.epoch:
		s.heard = heardClosed
	default:
		s.heard = heardOpen
	}
	return regressed
}

// exchanged takes note that all of e has been exchanged at in, and returns how many
// nanoseconds after the last time that was, and the level. e.mu is held.
func (p *partition) exchanged(e *Entry, in *instant, full bool) (since, counted float64) {
	g := p.l.grid
	fresh := e.set(known)
	var room [maxEpochs + 1]int64
	counts := room[:g.slots()]
	e.counts(g, in, counts)
	level := g.level(in, counts)
	since = float64(in.now - e.exchanged)
	p.learn(e, in, fresh, counts)
	e.exchanged, e.waiting, e.refused = in.now, in.now, 0
	e.jitter = 1 - jitterPart*p.random.Float32()
	if full {
		e.renewed = in.now
	}
	s := newSignal(level, e.limit.Load())
	tier := p.classify(s)
	if int(e.tier) != tier && !e.has(evicted) {
		p.tierKeys[tier].Add(1)
		if e.tier >= 0 {
			p.tierKeys[e.tier].Add(-1)
			p.entered[tier]++
		}
		e.tier = int8(tier)
	}
	e.attention.Store(p.attention(s, p.urgency(e, e.near.Load(), in, s, counts[g.epochs])))
	if p.l.cfg.Decay == DecayLeak {
		e.mark(g, in)
	}
	return since, float64(level)
}

// learn takes in what the counters tell of demand. e.mu is held.
func (p *partition) learn(e *Entry, in *instant, fresh bool, counts []int64) {
	l := p.l
	_, sent := e.ownSums(l.grid)
	own, fleet := float64(sent), float64(e.retired)+e.believed(l.grid)
	if n := e.near.Load(); n != nil {
		own += n.denied.own
		fleet += n.denied.fleet
	}
	switch {
	case fresh:
		span := l.grid.length - in.left
		var events int64
		for k, c := range counts {
			events = addSaturating(events, c)
			if k > 0 && c > 0 {
				span = l.grid.length - in.left + int64(k)*l.grid.length
			}
		}
		mine := events - e.others(l.grid)
		e.contact.cum += float64(events - mine) // others' events may have come before
		e.demand = startDemand(in.now, float64(mine), float64(events), max(span, int64(l.cfg.TickEvery)), own, fleet)
	case !p.health.inGrace(l, in.now):
		e.demand.take(in.now, own, fleet, int64(l.cfg.TickEvery))
	}
}
