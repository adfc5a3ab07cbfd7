package limiter

import (
	"context"
	"time"
)

// askTimeEvery is how often a store that tells its time is asked.
const askTimeEvery = time.Minute

// health is what a partition knows of its store's state.
type health struct {
	since     int64 // of the first of the present failures, 0 while exchanges succeed
	recovered int64 // when failures last ended
	err       error
	askedTime int64
	skew      int64

	// What the log has last said.
	saidFailing bool
	saidOutage  bool
	saidLost    bool
	lost        int64 // events dropped, in doubt, or forgotten by the store
}

func (h *health) failing() bool { return h.since != 0 }

func (h *health) failingFor(now int64) time.Duration {
	if h.since == 0 {
		return 0
	}
	return time.Duration(max(0, now-h.since))
}

// update takes in how an exchange went, and puts the outage policy in and out of
// force.
func (h *health) update(p *partition, answered bool, err error) {
	now := p.l.time.now()
	h.err = err
	if answered || err == nil {
		if h.since != 0 {
			h.recovered = now // whatever was exchanged before is read afresh in full
		}
		h.since = 0
		p.failing.Store(false)
		p.mode.CompareAndSwap(outage, normal)
		return
	}
	if h.since == 0 {
		h.since = now
		p.failing.Store(true)
	}
	if now-h.since >= int64(p.l.cfg.OutageAfter) {
		p.mode.CompareAndSwap(normal, outage)
	}
}

// inGrace reports whether an outage has just ended: everybody's backlog arrives,
// and there is no rate to go by.
func (h *health) inGrace(l *Limiter, now int64) bool {
	return h.recovered != 0 && now < h.recovered+int64(graceTicks*float64(l.cfg.TickEvery))
}

// log writes a record when something has changed.
func (h *health) log(p *partition) {
	now := p.l.time.now()
	if failing := h.failing(); failing != h.saidFailing {
		h.saidFailing = failing
		if failing {
			p.log.Warn("store exchange fails", "error", h.err, "keys_waiting", len(p.tracked))
		} else {
			p.log.Info("store exchange works again", "keys_waiting", len(p.tracked))
		}
	}
	if acted := p.mode.Load() == outage; acted != h.saidOutage {
		h.saidOutage = acted
		if acted {
			p.log.Error("outage policy in force", "failing_for", h.failingFor(now), "nodes", p.nodes.Load())
		} else {
			p.log.Info("outage policy no longer in force")
		}
	}
	t := p.snapshot()
	lost := t.Dropped + t.Unknown + t.Regressions
	if losing := lost > h.lost; losing != h.saidLost {
		h.saidLost = losing
		if losing {
			p.log.Warn("counts lost", "dropped", t.Dropped, "unknown", t.Unknown, "regressions", t.Regressions)
		}
	}
	h.lost = lost
}

// askTime asks the store for its time, now and then.
func (h *health) askTime(ctx context.Context, p *partition) {
	teller, ok := p.store.(TimeTeller)
	before := p.l.time.now()
	if !ok || h.failing() || h.askedTime != 0 && before-h.askedTime < int64(askTimeEvery) {
		return
	}
	h.askedTime = before
	ctx, cancel := context.WithTimeout(ctx, p.l.cfg.ChunkTimeout)
	defer cancel()
	t, err := teller.Time(ctx)
	if err != nil {
		return // the next exchange will tell what is wrong
	}
	after := p.l.time.now()
	corrected := p.l.time.ahead.Load()
	h.skew = before + (after-before)/2 + corrected - t.UnixNano()
	if p.l.cfg.CorrectSkew && p.index == 0 {
		p.l.time.ahead.Store(h.skew)
	}
}
