package limiter

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/fleetlimit/fleetlimit/cache"
)

// An entry's state bits.
const (
	// listed: on the partition's stack or among the entries it tracks, so that
	// nothing more need be done for its counts to reach the store.
	listed uint32 = 1 << iota
	// stacked: on the partition's stack.
	stacked
	// urgent: it has asked for an early tick.
	urgent
	// known: the store has told about the current window.
	known
	// evicted: no longer in the cache.
	evicted
)

// Entry is what this node knows of one key: per epoch of the window a counter
// of its own events, and the fleet's total as last heard. It is opaque; caches
// hold pointers to entries and nothing else.
//
// Decisions read and write entries without locks. Each epoch has a slot, and
//
//	count(epoch) = own + base
//
// where own only ever grows and is written by decisions, and base is written by
// the loop: the fleet's total at the last reply, less what this node had sent of
// own by then. A reply thus publishes one number, and a decision that runs
// beside it sees every event exactly once. Slots are used again for later epochs
// without resetting own: base is set so that the count is 0.
//
// An entry is two cache lines: a decision on a key in use reads the first and
// writes the second, and its writes do not disturb what decisions on other cores
// only read. What decisions do not need is kept apart, so that the entries of many
// keys are close together.
type Entry struct {
	// Read by decisions, written rarely.
	link      cache.Link
	part      *partition
	*books                 // never nil
	limit     atomic.Int64 // as of the set that overrides tells
	attention atomic.Int64 // the level at which to ask for an early tick

	// Read and written by decisions.
	views     [2]view
	own       [2]atomic.Int64
	state     atomic.Uint32
	overrides atomic.Uint32        // number of the set that limit was taken from
	near      atomic.Pointer[near] // while near its limit
}

// books is the loop's part of an entry. It is guarded by mu, which a decision takes
// at most once per epoch, to turn the slots over.
type books struct {
	mu        sync.Mutex
	ledgers   [2]ledger
	exchanged int64 // time of the last successful exchange, 0 before
	waiting   int64 // time since which counts have been waiting
	renewed   int64 // time of the last full read
	touched   int64 // time at which the cache last heard of use
	accounted int64 // the sum of the slots' own that Totals.Accepted holds
	refused   int64 // denied events since the last exchange
	demand    demand
	retired   int64   // events of epochs that the slots no longer hold
	contact   sample  // the beginning of what is known: first own event, others' count then
	jitter    float32 // shortens the next interval: 0.8 to 1
	tier      int8    // as of the last exchange, -1 before
	tracked   bool    // among the partition's tracked entries
	extra     *extra  // nil if the limiter is simple

	// Written by decisions.
	denied atomic.Int64 // since the last review
	next   *Entry       // while stacked
}

// extra is for more than one epoch per window, and for [DecayLeak].
type extra struct {
	slots []moreSlot
	leak  atomic.Pointer[leakMark]
}

// slot is what an entry keeps for one epoch: what decisions read, what the loop
// reckons with, and the counter that decisions write.
type slot struct {
	*view
	*ledger
	own *atomic.Int64
}

// view is the part of a slot that decisions only read.
type view struct {
	epoch atomic.Int64
	base  atomic.Int64
}

// ledger is the loop's part of a slot. It is guarded by Entry.mu.
type ledger struct {
	start   int64 // own when the epoch began to use the slot
	sent    int64 // own as far as it has been sent, in-flight counts included
	total   int64 // the store's counter at the last reply
	trouble *trouble
	heard   heard
	birth   birth
}

// heard says how much the store has told about an epoch.
type heard uint8

const (
	heardNothing heard = iota
	// heardOpen: read while the epoch was the current one.
	heardOpen
	// heardClosed: read after its end.
	heardClosed
	// heardLast: read after the epoch's stragglers had time to land, so that the
	// total will not change any more.
	heardLast
)

// birth says whether the counter in the store will go away by itself.
type birth uint8

const (
	unborn  birth = iota // this node has added nothing to it
	unarmed              // added to, no expiry confirmed
	armed                // an expiry has been confirmed
)

// trouble remembers, for one epoch, what the store's totals leave out.
type trouble struct {
	// lost is added to every total: the store has forgotten that much.
	lost int64
	// floor is the least that the fleet's total can be, given adds that may or
	// may not have arrived.
	floor int64
}

// moreSlot is one of the slots beyond the two that a one-epoch window needs.
type moreSlot struct {
	view   view
	ledger ledger
	own    atomic.Int64
}

func (e *Entry) slot(i int) slot {
	if i < len(e.views) {
		return slot{&e.views[i], &e.ledgers[i], &e.own[i]}
	}
	m := &e.extra.slots[i-len(e.views)]
	return slot{&m.view, &m.ledger, &m.own}
}

// key returns the key that e is for.
func (e *Entry) key() string { return e.link.Key() }

// newEntry returns an entry for key that knows nothing.
func (l *Limiter) newEntry(key string) *Entry {
	e := &Entry{link: cache.NewLink(key), part: l.partitionOf(key), books: &books{tier: -1}}
	if !l.simple {
		e.extra = &extra{slots: make([]moreSlot, l.grid.slots()-len(e.views))}
	}
	in := l.time.instant()
	e.renewed, e.touched = in.now, in.now
	e.turn(in, l)
	return e
}

// turn brings the slots to the window that ends with in's epoch. What the slots
// held of epochs that nobody can read any more is dropped, and what they held of
// epochs that lie ahead, because the clock was set back, becomes part of the
// current one. e.mu is held, or e is not shared yet.
func (e *Entry) turn(in instant, l *Limiter) {
	var aheadUnsent, aheadSent, aheadOwn, dropped int64
	room := int64(math.MaxInt64) // for unsent counts in the current epoch's slot
	turned := 0
	for k := range l.grid.slots() {
		epoch := in.epoch - int64(k)
		s := e.slot(l.grid.slotOf(epoch))
		held, x := s.epoch.Load(), s.own.Load()
		unsent := x - s.sent
		if held == epoch {
			if k == 0 {
				room -= unsent
			}
			continue
		}
		turned++
		if held > in.epoch {
			aheadOwn += s.sent - s.start
		}
		switch {
		case held < in.epoch:
			dropped += unsent
			e.retired += s.base.Load() + x
		case unsent <= room:
			aheadSent = addSaturating(aheadSent, s.base.Load()+s.sent) // others' counts included: they were admitted as well
			aheadUnsent, room = aheadUnsent+unsent, room-unsent
		default:
			aheadSent = addSaturating(aheadSent, s.base.Load()+x)
			dropped += unsent
		}
		s.start, s.sent, s.total, s.trouble = x, x, 0, nil
		s.heard, s.birth = heardNothing, unborn
		s.base.Store(-x)
		s.epoch.Store(epoch)
	}
	if dropped != 0 {
		e.part.counted.dropped.Add(dropped)
	}
	if turned == l.grid.slots() {
		// Nothing is left of what the store has told.
		l.leaveLimit(e)
		e.clear(known)
		e.contact = sample{in.now, float64(e.retired)}
		e.attention.Store(coldAttention(e.limit.Load()))
	}
	if aheadUnsent > 0 || aheadSent > 0 {
		l.leaveLimit(e) // its history is of times to come
		if e.extra != nil {
			e.extra.leak.Store(nil) // it began at a time that lies ahead
		}
		s := e.slot(in.slot)
		count := s.base.Load() + s.own.Load()
		total := addSaturating(addSaturating(whole(count), aheadSent), aheadUnsent)
		s.base.Add(total - count - aheadUnsent)
		if aheadSent > 0 {
			s.start -= aheadOwn // so that they do not pass for events of other nodes
			s.assume()
		}
		s.own.Add(aheadUnsent)
		e.accounted += aheadUnsent
	}
}

// mend returns the slot's trouble, made if there was none.
func (l *ledger) mend() *trouble {
	if l.trouble == nil {
		l.trouble = &trouble{}
	}
	return l.trouble
}

// set and clear change state bits. set reports whether any of them was unset.
func (e *Entry) set(bits uint32) bool { return e.state.Or(bits)&bits != bits }
func (e *Entry) clear(bits uint32)    { e.state.And(^bits) }
func (e *Entry) has(bits uint32) bool { return e.state.Load()&bits == bits }

// counts writes the fleet's count per epoch into counts, as grid.level wants
// them. Slots of other epochs count as 0.
func (e *Entry) counts(g grid, in *instant, counts []int64) {
	for k := range g.slots() {
		counts[k] = 0
		if s := e.slot(g.before(in, k)); s.epoch.Load() == in.epoch-int64(k) {
			counts[k] = whole(s.base.Load() + s.own.Load())
		}
	}
}

// unsent returns how many of this node's events the store does not have, not
// counting those in flight. e.mu is held.
func (e *Entry) unsent(g grid) int64 {
	var sum int64
	for i := range g.slots() {
		s := e.slot(i)
		sum = addSaturating(sum, s.own.Load()-s.sent)
	}
	return sum
}

// acknowledge takes in a reply about an epoch: the store's total, after delta of
// this node's events were added. e.mu is held.
func (s slot) acknowledge(total, delta int64) (regressed bool) {
	before := s.believed(delta)
	t := s.trouble
	if s.heard != heardNothing && total < addSaturating(s.total, delta) {
		// Counters only grow: the store has lost data. What was believed stays
		// believed for the rest of the window, and later totals count on top.
		regressed = true
		t = s.mend()
		t.lost = addSaturating(t.lost, addSaturating(s.total, delta)-total)
		if s.birth == armed {
			s.birth = unarmed
		}
	}
	s.total = total
	if t != nil {
		total = addSaturating(total, t.lost)
		if t.floor > 0 {
			// This node's own events are certain, whatever became of earlier ones.
			t.floor = addSaturating(before, delta)
			total = max(total, t.floor)
		}
	}
	// Never less than this node's own.
	total = max(total, s.sent-s.start)
	s.base.Store(total - s.sent)
	return regressed
}

// believed returns the fleet's total as believed before the reply to an add of
// delta. e.mu is held.
func (s slot) believed(delta int64) int64 { return s.base.Load() + s.sent - delta }

// doubt takes in that the last add may or may not have reached the store. The
// node counts it as arrived, and never sends it again. e.mu is held.
func (s slot) doubt() {
	s.assume()
	if s.birth == unborn {
		s.birth = unarmed
	}
}

// assume takes all that has been sent for counted, whatever totals the store
// will report. e.mu is held.
func (s slot) assume() { s.mend().floor = s.base.Load() + s.sent }
