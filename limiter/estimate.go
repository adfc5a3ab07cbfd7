package limiter

// The estimate for keys near their limit:
//
//	cumulative = what the store has told + own events that it has not been told + unseen
//	level      = cumulative now − cumulative one window ago
//
// where unseen is what other nodes are predicted to have admitted since the last
// reply. The next reply corrects it.

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

// count is the believed count of a slot, with own events.
func (e *Entry) count(i int) int64 {
	s := e.slot(i)
	return s.base.Load() + s.own.Load()
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
	if !l.stale(e, n, now) {
		n.unseen += n.others(&e.demand) * max(0, elapsed)
	} else if n.unseen > 0 {
		n.unseen = 0
		n.history.retract()
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
	limit := float64(e.limit.Load())
	if counted >= nearUntil*limit || n.headroom <= (1-nearUntil)*limit {
		n.busy = in.now
	}
	return in.now-n.busy > int64(l.cfg.Window)
}
