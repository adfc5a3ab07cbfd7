package limiter

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxOperations bounds the operations of one exchange; the rest waits for the
	// next tick. Stores split them into chunks of chunkOperations, a few of which
	// are in flight at a time.
	maxOperations   = 50_000
	chunkOperations = 1_000
	chunksInFlight  = 4
	// probeOperations bounds an exchange while the store is failing.
	probeOperations = chunkOperations
	// earlyFraction of a tick, but at least minEarly, lies between an early tick
	// and the tick before it.
	earlyFraction = 20
	minEarly      = 10 * time.Millisecond
	// settleTicks after the end of an epoch, all nodes have sent what they had of
	// it: they do so at their next tick.
	settleTicks = 2
)

// mode says whether a partition's keys are judged in the normal way.
type mode = int32

const (
	normal mode = iota
	outage
	closed
)

// partition is one store with the loop that exchanges with it, and the entries
// that have something to exchange.
type partition struct {
	l     *Limiter
	index int
	name  string
	store Store
	log   *slog.Logger

	// Read by decisions.
	mode    atomic.Int32
	nodes   atomic.Int64
	failing atomic.Bool // the last exchange failed

	// Written by decisions: entries that the loop has to look at.
	stack atomic.Pointer[Entry]
	early atomic.Bool   // one of them is urgent
	wake  chan struct{} // tells the loop so

	// What does not happen in the loop is counted apart from totals.
	counted struct {
		dropped, misuse, firstSeen, overflow, expired atomic.Int64
	}

	tiers    []Tier
	tierKeys []atomic.Int64

	turn chan struct{} // holds a token while somebody works on what follows

	tracked  []*Entry // all that have counts outstanding, and some that had
	asked    []*Entry // those that asked for the early tick at hand
	due      []candidate
	batch    Batch
	tasks    []task
	census   census
	random   *rand.Rand
	schedule schedule
	health   health
	backlog  backlog
	epoch    int64 // of the last tick, to see the clock being set back
	report   Report

	mu      sync.Mutex
	totals  Totals  // guarded by mu
	entered []int64 // transitions into each tier, guarded by turn
}

// schedule says when ticks are due.
type schedule struct {
	mu      sync.Mutex
	regular int64 // the next regular tick
	last    int64 // the last tick of any kind
}

// backlog is what the last full tick saw waiting.
type backlog struct {
	keys     int
	oldest   int64 // how long
	deferred int
}

// candidate is an entry whose exchange is due.
type candidate struct {
	e     *Entry
	score float64 // the hotter and the later, the higher
}

func newPartition(l *Limiter, index int, part Part, tiers []Tier) *partition {
	p := &partition{
		l:        l,
		index:    index,
		census:   newCensus(),
		name:     part.Name,
		store:    part.Store,
		log:      l.cfg.Logger,
		wake:     make(chan struct{}, 1),
		turn:     make(chan struct{}, 1),
		tiers:    tiers,
		tierKeys: make([]atomic.Int64, len(tiers)),
		entered:  make([]int64, len(tiers)),
		random:   rand.New(rand.NewPCG(l.cfg.Seed, uint64(index))),
	}
	p.nodes.Store(1)
	p.log = p.log.With("limiter", l.cfg.Name, "partition", part.Name)
	now := l.time.now()
	p.epoch = l.grid.epochOf(now)
	p.schedule.last = now
	// A random phase, so that nodes that start together do not tick together.
	p.schedule.regular = now + 1 + p.random.Int64N(int64(l.cfg.TickEvery))
	p.batch.Prefix = l.cfg.Prefix
	p.batch.Epochs = l.cfg.Epochs
	p.batch.EpochLength = time.Duration(l.grid.length)
	p.batch.ChunkTimeout = l.cfg.ChunkTimeout
	return p
}

// list puts e where the loop will find it, and asks for an early tick if the
// entry wants attention.
func (p *partition) list(e *Entry, hurry bool) {
	if p.mode.Load() != closed {
		p.enlist(e, hurry)
	}
	if p.mode.Load() == closed {
		// Nobody will send this any more.
		p.l.forfeit(e)
	}
}

func (p *partition) enlist(e *Entry, hurry bool) {
	want := listed
	if hurry {
		want |= urgent
	}
	before := e.state.Or(want)
	if before&want != want && e.set(stacked) {
		p.push(e)
	}
	if before&(evicted|listed) == evicted {
		p.l.keep(e) // it was evicted before it had anything to keep
	}
	if hurry && before&urgent == 0 {
		p.early.Store(true)
		select {
		case p.wake <- struct{}{}:
		default: // the loop has been told
		}
	}
}

func (p *partition) push(e *Entry) {
	for {
		head := p.stack.Load()
		e.next = head
		if p.stack.CompareAndSwap(head, e) {
			return
		}
	}
}

// collect takes what decisions have listed: new entries are tracked, urgent ones
// are noted as having asked.
func (p *partition) collect(now int64) {
	p.early.Store(false)
	p.asked = p.asked[:0]
	for e := p.stack.Swap(nil); e != nil; {
		next := e.next
		e.clear(stacked) // from here on it may be pushed again
		if !e.tracked {
			e.set(listed) // it may have been let go while it was on the stack
			e.tracked = true
			e.waiting = now
			p.tracked = append(p.tracked, e)
		}
		if e.has(urgent) {
			p.asked = append(p.asked, e)
		}
		e = next
	}
}

// letGo stops tracking e, unless a decision has added to it meanwhile.
func (p *partition) letGo(e *Entry) bool {
	e.clear(listed)
	e.mu.Lock()
	idle := e.unsent(p.l.grid) == 0 && e.denied.Load() == 0
	e.mu.Unlock()
	if !idle && e.set(listed) {
		return false // still ours: nobody has pushed it
	}
	e.tracked = false
	if e.has(evicted) {
		p.l.orphans.remove(e)
	}
	return true
}

// acquire waits for the turn to work on the partition.
func (p *partition) acquire(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *partition) release() { <-p.turn }

// run ticks until the limiter stops.
func (p *partition) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Duration(p.next() - p.l.time.now()))
		select {
		case <-p.l.stop:
			return
		case <-p.wake:
			continue
		case <-timer.C:
		}
		if p.acquire(ctx) != nil {
			return
		}
		p.tickIfDue(ctx) // the error is in the report and the log
		p.release()
	}
}

// next returns when the next tick is due.
func (p *partition) next() int64 {
	now := p.l.time.now()
	p.schedule.mu.Lock()
	defer p.schedule.mu.Unlock()
	if p.schedule.regular > now+int64(p.l.cfg.TickEvery) {
		return now // the clock was set back; see started
	}
	if p.early.Load() {
		return min(p.schedule.regular, p.schedule.last+int64(p.l.cfg.earlySpacing()))
	}
	return p.schedule.regular
}

// started takes note of a tick at now and reports which kind it is. Regular ticks
// that were missed are skipped.
func (p *partition) started(now int64) (kind tickKind, due bool) {
	p.schedule.mu.Lock()
	defer p.schedule.mu.Unlock()
	every := int64(p.l.cfg.TickEvery)
	if p.schedule.regular > now+every { // the clock was set back
		p.schedule.regular, p.schedule.last = now, now
	}
	switch {
	case now >= p.schedule.regular:
		p.schedule.regular += ((now-p.schedule.regular)/every + 1) * every
		kind, due = regularTick, true
	case p.early.Load() && now >= p.schedule.last+int64(p.l.cfg.earlySpacing()):
		kind, due = earlyTick, true
	default:
		return 0, false
	}
	p.schedule.last = now
	return kind, due
}

type tickKind uint8

const (
	regularTick tickKind = iota
	// earlyTick looks at the entries that asked for it only.
	earlyTick
	// flushTick sends everything.
	flushTick
)

func (p *partition) tickIfDue(ctx context.Context) error {
	kind, due := p.started(p.l.time.now())
	if !due {
		return nil
	}
	_, err := p.tick(ctx, kind)
	return err
}

// flush sends everything that is outstanding.
func (p *partition) flush(ctx context.Context) error {
	for {
		left, err := p.tick(ctx, flushTick)
		if left == 0 || err != nil {
			return err
		}
	}
}

// tick is one run of the loop: collect, choose, exchange, apply, report. It
// returns how many entries were due and had to wait.
func (p *partition) tick(ctx context.Context, kind tickKind) (deferred int, err error) {
	l := p.l
	start, in := l.time.now(), l.time.instant()
	p.collect(in.now)
	entries := p.asked
	if kind != earlyTick {
		entries = p.tracked
		if in.epoch < p.epoch {
			p.setBack(in)
		}
		p.epoch = in.epoch
	}
	if kind == regularTick {
		p.health.askTime(ctx, p)
	}
	p.choose(entries, &in, kind)
	deferred = p.prepare(&in, kind)
	exchanged := p.operations() > 0
	if exchanged {
		err = p.exchange(ctx, &in)
	}
	p.observe(start, kind, exchanged, err)
	if kind != earlyTick {
		l.cache.Maintain()
	}
	return deferred, err
}

// setBack makes the counts of epochs that now lie ahead part of the current one.
func (p *partition) setBack(in instant) {
	h := &p.health
	h.since, h.recovered, h.askedTime = min(h.since, in.now), min(h.recovered, in.now), 0
	turn := func(e *Entry) bool {
		e.mu.Lock()
		e.turn(in, p.l)
		e.mu.Unlock()
		return true
	}
	p.l.cache.Range(turn)
	for _, e := range p.tracked { // some may have been evicted
		turn(e)
	}
}

// choose looks through entries: it collects in p.due those whose exchange is due,
// lets go of tracked ones that are done, and tells the cache which are in use.
func (p *partition) choose(entries []*Entry, in *instant, kind tickKind) {
	p.due = p.due[:0]
	var accepted, denied int64
	kept := p.tracked[:0]
	sweep := kind != earlyTick
	if sweep {
		p.backlog = backlog{}
	}
	// When the cache is crowded, what is in use must be told often, and always what
	// an eviction would forgive.
	often := int64(p.l.cfg.TickEvery) / 2
	quiet := int64(p.l.cfg.CacheIdle) / 8
	if c := p.l.cache; c.Len() >= c.Cap()/4*3 {
		quiet = often
	}
	for _, e := range entries {
		e.mu.Lock()
		r := p.review(e, in, kind)
		unsaid := in.now - e.touched
		touch := r.used && (unsaid >= quiet || r.near && unsaid >= often)
		if touch {
			e.touched = in.now
		}
		waited := in.now - e.waiting
		e.mu.Unlock()
		accepted += r.accepted
		denied = addSaturating(denied, r.denied)
		if touch {
			p.l.cache.Touch(e.key())
		}
		if sweep {
			if !r.outstanding && p.letGo(e) {
				continue
			}
			kept = append(kept, e)
			if r.unsent {
				p.backlog.keys++
				p.backlog.oldest = max(p.backlog.oldest, waited)
			}
		}
		if r.due {
			p.due = append(p.due, candidate{e, r.score})
		}
	}
	if sweep {
		clear(p.tracked[len(kept):]) // for the garbage collector
		p.tracked = kept
	}
	p.mu.Lock()
	p.totals.Accepted += accepted
	p.totals.Denied = addSaturating(p.totals.Denied, denied)
	p.mu.Unlock()
}

// prepare fills the batch with what is due, the most pressing first if it is too
// much, and returns how many entries must wait.
func (p *partition) prepare(in *instant, kind tickKind) (deferred int) {
	b := &p.batch
	b.Adds, b.Expires, b.Gets, b.Servers = b.Adds[:0], b.Expires[:0], b.Gets[:0], b.Servers[:0]
	p.tasks = p.tasks[:0]
	if kind == regularTick {
		p.census.plan(p, in)
	}
	bound := maxOperations
	perKey := 2 * p.l.grid.slots() // at most: an add or a get, and an expiry, per epoch
	if p.health.failing() && kind != flushTick {
		bound = probeOperations
	} else if len(p.due)*perKey > bound {
		slices.SortFunc(p.due, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	}
	for i, c := range p.due {
		if p.operations()+perKey > bound {
			deferred = len(p.due) - i
			break
		}
		c.e.mu.Lock()
		p.plan(c.e, in)
		c.e.mu.Unlock()
	}
	clear(p.due)
	p.backlog.deferred = deferred
	return deferred
}

func (p *partition) operations() int {
	return len(p.batch.Adds) + len(p.batch.Expires) + len(p.batch.Gets)
}

// exchange performs the batch and takes in the results.
func (p *partition) exchange(ctx context.Context, in *instant) error {
	b := &p.batch
	b.Now = time.Unix(0, p.l.time.now()).UTC()
	rounds := p.operations()/(chunkOperations*chunksInFlight) + 2
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rounds)*p.l.cfg.ChunkTimeout)
	defer cancel()
	before := p.l.time.now()
	err := p.store.Exchange(ctx, b)
	p.report.Exchange = ExchangeReport{
		Attempted: true,
		Duration:  time.Duration(p.l.time.now() - before),
		Adds:      len(b.Adds),
		Expires:   len(b.Expires),
		Gets:      len(b.Gets),
		Err:       err,
		Servers:   b.Servers,
	}
	t := Totals{Exchanges: 1, Commands: int64(p.operations())}
	if err != nil {
		t.FailedExchanges = 1
	}
	p.health.update(p, answered(b), err)
	p.census.apply(p)
	for i := range p.tasks {
		p.apply(&p.tasks[i], in, &t)
	}
	clear(p.tasks)
	p.mu.Lock()
	p.totals.add(t)
	p.mu.Unlock()
	return err
}

// answered reports whether the store answered at all.
func answered(b *Batch) bool {
	for i := range b.Adds {
		if b.Adds[i].Outcome == Applied {
			return true
		}
	}
	for i := range b.Gets {
		if b.Gets[i].OK {
			return true
		}
	}
	for i := range b.Expires {
		if b.Expires[i].Outcome == Applied {
			return true
		}
	}
	return false
}

// finish sends what is outstanding for the last time and gives up the rest.
func (p *partition) finish(ctx context.Context) (dropped, unknown int64, err error) {
	p.mode.Store(closed)
	before := p.snapshot().Unknown
	err = p.flush(ctx)
	p.collect(p.l.time.now()) // what came while the flush was under way
	for _, e := range p.tracked {
		e.clear(listed)
		dropped += p.l.forfeit(e)
	}
	p.tracked = nil
	return dropped, p.snapshot().Unknown - before, err
}

func (p *partition) snapshot() Totals {
	p.mu.Lock()
	t := p.totals
	p.mu.Unlock()
	t.Dropped = p.counted.dropped.Load()
	t.Misuse = p.counted.misuse.Load()
	t.FirstSeen = p.counted.firstSeen.Load()
	t.EvictedOverflow = p.counted.overflow.Load()
	t.EvictedExpired = p.counted.expired.Load()
	return t
}

func (p *partition) observe(start int64, kind tickKind, exchanged bool, err error) {
	p.health.log(p)
	if p.l.cfg.Observer == nil {
		return
	}
	l := p.l
	r := &p.report
	if !exchanged {
		r.Exchange = ExchangeReport{}
	}
	r.Limiter, r.Partition = l.cfg.Name, p.name
	r.Time = time.Unix(0, start).UTC()
	r.Early = kind == earlyTick
	r.Duration = time.Duration(l.time.now() - start)
	r.Backlog, r.BacklogAge, r.Deferred = p.backlog.keys, time.Duration(p.backlog.oldest), p.backlog.deferred
	if r.Tiers == nil {
		r.Tiers = make([]TierCount, len(p.tiers))
	}
	for i, t := range p.tiers {
		r.Tiers[i] = TierCount{Name: t.Name, Keys: p.tierKeys[i].Load(), Entered: p.entered[i]}
	}
	r.CacheEntries, r.CacheCapacity = l.cache.Len(), l.cache.Cap()
	r.Outage = p.mode.Load() == outage
	r.FailingFor = p.health.failingFor(start)
	r.Nodes = p.nodes.Load()
	r.ClockSkew = time.Duration(p.health.skew)
	r.Totals = p.snapshot()
	l.cfg.Observer.Observe(r)
}
