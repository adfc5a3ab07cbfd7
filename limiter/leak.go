package limiter

import (
	"math"
	"sync/atomic"
	"time"
)

// The reference design's decay (DecayLeak): between exchanges
//
//	level = max(0, level at the last reply − limit/window · elapsed) + own events since
//
// It is right only for a key whose leaving epoch held just its limit. Two things
// are mended: a key that has been silent for the whole window is at 0, and own
// events stop counting when their epoch has left the window.

// leakMark is what the decay starts from. It is immutable.
type leakMark struct {
	at    int64
	level float64
	sent  []leakSent // by slot
}

// leakSent says how far a slot's own had been sent, and in which epoch.
type leakSent struct{ epoch, own int64 }

// mark publishes the state after a reply as the start of the decay. e.mu is held.
func (e *Entry) mark(g grid, in *instant) {
	m := &leakMark{at: in.now, sent: make([]leakSent, g.slots())}
	counts := make([]int64, g.slots())
	for k := range counts {
		i := g.before(in, k)
		s := e.slot(i)
		counts[k] = s.base.Load() + s.sent
		m.sent[i] = leakSent{s.epoch.Load(), s.sent}
	}
	m.level = float64(g.level(in, counts))
	e.extra.leak.Store(m)
}

// leakOf returns what e's decay starts from, or nil if levels fall in another way.
func (l *Limiter) leakOf(e *Entry) *leakMark {
	if l.cfg.Decay != DecayLeak {
		return nil
	}
	return e.extra.leak.Load()
}

// leaking is standing for DecayLeak.
func (l *Limiter) leaking(e *Entry, in *instant, m *leakMark) (fixed, base int64, own *atomic.Int64) {
	fixed = int64(math.Ceil(l.leaked(e, in, m)))
	for k := range l.grid.slots() {
		i := l.grid.before(in, k)
		s := e.slot(i)
		from := s.base.Load() // the whole count, if the epoch began after the reply
		if m.sent[i].epoch == in.epoch-int64(k) {
			from = -m.sent[i].own
		}
		if k == 0 {
			base, own = from, s.own
		} else {
			fixed = addSaturating(fixed, from+s.own.Load())
		}
	}
	return fixed, base, own
}

// leaked returns what is left at in of the level at the last reply.
func (l *Limiter) leaked(e *Entry, in *instant, m *leakMark) float64 {
	elapsed := max(0, in.now-m.at) // the clock may have been set back
	if elapsed >= l.grid.silence() {
		return 0
	}
	return max(0, m.level-l.leakRate(e)*float64(elapsed))
}

// leakRate is the decay per nanosecond.
func (l *Limiter) leakRate(e *Entry) float64 {
	return float64(e.limit.Load()) / float64(l.cfg.Window)
}

// retryAfter returns the wait after which n ≤ limit events would fit under limit.
func (l *Limiter) retryAfter(e *Entry, in *instant, counts []int64, n, limit int64) time.Duration {
	var wait time.Duration
	if m := l.leakOf(e); m != nil {
		wait = l.leakRetryAfter(e, in, m, n, limit)
	} else {
		wait = l.grid.retryAfter(in, counts, n, limit)
	}
	return max(wait, 1) + l.time.lag
}

// leakRetryAfter solves the decay for the time, if that is enough to make room; at
// the latest, all of the level at the last reply is gone after the silence. If
// not, own events must leave the window, and the answer is when all have.
func (l *Limiter) leakRetryAfter(e *Entry, in *instant, m *leakMark, n, limit int64) time.Duration {
	fixed, base, own := l.leaking(e, in, m)
	excess := float64(addSaturating(fixed, base+own.Load())) - float64(limit-n)
	if excess <= l.leaked(e, in, m) {
		silence := float64(l.grid.silence() - max(0, in.now-m.at))
		return time.Duration(math.Ceil(min(excess/l.leakRate(e), silence)))
	}
	return time.Duration(in.left + int64(l.grid.epochs)*l.grid.length)
}
