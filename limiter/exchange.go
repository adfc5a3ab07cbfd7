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
	graceTicks = 2
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
		e.turn(*in, l)
	}
	var sum int64
	for i := range l.grid.slots() {
		sum += e.slot(i).own.Load()
	}
	r.accepted = sum - e.accounted
	e.accounted = sum
	r.denied = e.denied.Swap(0)
	r.used = r.accepted != 0 || r.denied != 0
	limit := e.limit.Load()
	if limit > 0 { // at limit 0 there is nothing to be learnt
		e.refused = addSaturating(e.refused, r.denied)
	}
	unsent := e.unsent(l.grid)
	r.unsent = unsent > 0
	finished, owing := e.leftovers(l.grid, in)
	r.outstanding = r.unsent || e.refused > 0 && !e.has(evicted) || owing

	var room [maxEpochs + 1]int64
	counts := room[:l.grid.slots()]
	e.counts(l.grid, in, counts)
	s := newSignal(l.grid.level(in, counts), limit)
	tier := p.classify(s)
	headroom := max(0, float64(limit)-s.Level)
	near := s.Pressure >= nearLimit
	r.near = near
	if e.has(known) {
		e.attention.Store(p.attention(s, tier, headroom, near))
	}
	e.clear(urgent)

	age := in.now - e.exchanged
	bound := float64(p.tiers[tier].MaxStale)
	r.score = s.Pressure + float64(age)/bound
	if e.approach > 0 {
		bound = min(bound, headroomPart*headroom/float64(e.approach)*float64(time.Second))
	}
	switch {
	case !r.outstanding:
	case kind == flushTick, near, finished, !e.has(known), p.health.recovered > e.exchanged:
		r.due = true
	case float64(unsent) >= headroomPart*headroom*e.share(l.grid, s.Level):
		r.due = true
	default:
		// Due if it could not wait for the next tick.
		r.due = float64(age)+float64(l.cfg.TickEvery) > bound*float64(e.jitter)
	}
	return r
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

// share is the part of the key's level that this node's own events make up.
// e.mu is held.
func (e *Entry) share(g grid, level float64) float64 {
	var own int64
	for i := range g.slots() {
		s := e.slot(i)
		own += s.own.Load() - s.start
	}
	return min(1, float64(own+1)/(level+1))
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
// half its headroom is gone. A key near its limit is exchanged at every tick in
// any case.
func (p *partition) attention(s Signal, tier int, headroom float64, near bool) int64 {
	if near || s.Limit == 0 {
		return math.MaxInt64
	}
	low, high := s.Level, s.Level+max(2, attentionPart*headroom)
	stricter := func(level float64) bool {
		t := p.classify(newSignal(int64(level), s.Limit))
		return p.tiers[t].MaxStale < p.tiers[tier].MaxStale
	}
	if stricter(high) {
		for high-low > 1 && high-low > headroom/256 {
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
		c := Counter{Key: e.key(), Epoch: epoch, Series: SeriesAdmitted}
		delta := s.own.Load() - s.sent
		if delta > 0 {
			s.sent += delta
			b.Adds = append(b.Adds, Add{Counter: c, Delta: delta})
		}
		if s.birth == unarmed || delta > 0 && s.birth == unborn {
			b.Expires = append(b.Expires, Expire{Counter: c, Lifetime: l.lifetime(e.key(), epoch, in.now)})
		}
		if delta == 0 && (k == 0 || t.full || s.heard == heardNothing || s.heard == heardOnce && l.settled(epoch, in.now)) {
			b.Gets = append(b.Gets, Get{Counter: c})
		}
	}
	t.adds.to, t.expires.to, t.gets.to = len(b.Adds), len(b.Expires), len(b.Gets)
	p.tasks = append(p.tasks, t)
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
	e, g := t.e, p.l.grid
	e.mu.Lock()
	complete := true
	for i := t.adds.from; i < t.adds.to; i++ {
		complete = p.applyAdd(e, &p.batch.Adds[i], in, totals) && complete
	}
	for i := t.expires.from; i < t.expires.to; i++ {
		x := &p.batch.Expires[i]
		if s, ok := e.live(g, x.Epoch); ok && x.Outcome == Applied && s.birth == unarmed {
			s.birth = armed
		}
	}
	for i := t.gets.from; i < t.gets.to; i++ {
		x := &p.batch.Gets[i]
		if !x.OK {
			complete = false
			continue
		}
		if s, ok := e.live(g, x.Epoch); ok && p.hear(s, x.Epoch, x.Total, 0, in) {
			totals.Regressions++
		}
	}
	if complete {
		p.exchanged(e, in, t.full)
	}
	renew := complete && t.full
	e.mu.Unlock()
	if renew {
		p.l.cache.Renew(e.key())
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
	s.heard = heardOnce
	if p.l.settled(epoch, in.now) {
		s.heard = heardLast
	}
	return regressed
}

// exchanged takes note that all of e has been exchanged at in. e.mu is held.
func (p *partition) exchanged(e *Entry, in *instant, full bool) {
	g := p.l.grid
	e.set(known)
	var room [maxEpochs + 1]int64
	counts := room[:g.slots()]
	e.counts(g, in, counts)
	level := g.level(in, counts)
	// Just after an outage, everybody's backlog arrives: no rate to go by.
	grace := in.now < p.health.recovered+graceTicks*int64(p.l.cfg.TickEvery)
	if before := e.exchanged; before > 0 && in.now > before && !grace {
		e.approach = max(0, float32(level)-e.lastLevel) / float32(time.Duration(in.now-before).Seconds())
	}
	e.lastLevel = float32(level)
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
	e.attention.Store(p.attention(s, tier, max(0, float64(s.Limit)-s.Level), s.Pressure >= nearLimit))
	if p.l.cfg.Decay == DecayLeak {
		e.mark(g, in)
	}
}
