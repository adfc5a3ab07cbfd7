package limiter

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetlimit/fleetlimit/cache"
)

// closeTimeout bounds [Limiter.Close].
const closeTimeout = 5 * time.Second

// Limiter holds keys to limits across all limiters that share its store and
// prefix. Make one with [New]. All methods are safe for concurrent use.
type Limiter struct {
	cfg   Config
	grid  grid
	time  *timekeeper
	cache LocalCache
	parts []*partition
	split Partitioned // nil if the store is a single one

	simple bool // one epoch per window and the window's own decay

	resolution   int64        // of histories, in nanoseconds
	histories    atomic.Int64 // in use
	maxHistories int64

	overrides atomic.Pointer[overrides]
	sets      atomic.Uint32 // how many there have been
	orphans   orphans

	closed    atomic.Bool
	stop      chan struct{}      // tells the loops to end
	alive     context.Context    // of all exchanges but the last
	abort     context.CancelFunc // ends alive
	loops     sync.WaitGroup
	closeErr  error         // of Shutdown, once closeDone is closed
	closeDone chan struct{} // a channel, so that waiting for it does not hold up a synctest bubble
}

// overrides is one immutable set of per-key limits. Sets have numbers from 1.
type overrides struct {
	limits map[string]int64
	number uint32
}

// New returns a limiter that shares its counts through store. It does no I/O. An
// error wraps [ErrInvalidConfig] and names every problem. Unless cfg.Clock is
// set, the limiter runs one goroutine per partition and one that keeps time,
// until [Limiter.Shutdown] or [Limiter.Close]; neither closes the store.
func New(store Store, cfg Config) (*Limiter, error) {
	cfg = cfg.withDefaults()
	parts, split, err := cfg.validate(store)
	if err != nil {
		return nil, err
	}
	g := grid{length: int64(cfg.Window) / int64(cfg.Epochs), epochs: cfg.Epochs}
	l := &Limiter{
		cfg:     cfg,
		grid:    g,
		time:    newTimekeeper(g, cfg.Window, cfg.Clock),
		split:   split,
		orphans: orphans{limit: cfg.CacheEntries},
		simple:  cfg.Epochs == 1 && cfg.Decay == DecayWindow,
		stop:    make(chan struct{}),

		resolution:   max(int64(cfg.TickEvery), int64(cfg.Window)/samplesPerWindow),
		maxHistories: max(minHistories, int64(cfg.CacheEntries)/historiesPart),
		closeDone:    make(chan struct{}),
	}
	l.override(cfg.Overrides)
	cacheCfg := CacheConfig{MaxEntries: cfg.CacheEntries, TTL: cfg.CacheTTL, IdleTimeout: cfg.CacheIdle, OnEvict: l.evict}
	if cfg.Clock != nil {
		cacheCfg.Now = l.time.time
	}
	l.cache = cfg.NewCache(cacheCfg)
	tiers := cfg.Tiers.Tiers()
	for i, part := range parts {
		l.parts = append(l.parts, newPartition(l, i, part, tiers))
	}
	l.alive, l.abort = context.WithCancel(context.Background())
	if cfg.Clock == nil {
		for _, p := range l.parts {
			l.loops.Go(func() { p.run(l.alive) })
		}
	}
	return l, nil
}

func (l *Limiter) partitionOf(key string) *partition {
	if l.split == nil {
		return l.parts[0]
	}
	return l.parts[min(max(l.split.PartOf(key), 0), len(l.parts)-1)]
}

// Allow reports whether one event of key may pass now, and counts it if so. Like
// all decisions it is made from memory: it does no I/O and, for a key that is
// cached, does not allocate and takes no lock that keys share.
func (l *Limiter) Allow(key string) bool { return l.AllowN(key, 1) }

// AllowN reports whether n events of key may pass together, and counts all of
// them if so, none if not. n = 0 asks what [Limiter.Peek] would say; a negative n
// is refused and counted as misuse.
func (l *Limiter) AllowN(key string, n int64) bool {
	if n <= 0 {
		return l.Check(key, n).Allowed
	}
	e, ok := l.cache.Get(key)
	if ok && l.quick(e, n) {
		return true
	}
	if !ok {
		if e = l.add(key); e == nil {
			return true
		}
	}
	in := l.time.instant()
	allowed, _ := l.decide(e, &in, n)
	return allowed
}

// Check is like [Limiter.AllowN] and says more about the decision.
func (l *Limiter) Check(key string, n int64) Decision {
	switch {
	case n == 0:
		return l.Peek(key)
	case n < 0:
		l.partitionOf(key).counted.misuse.Add(1)
		d := l.Peek(key)
		d.Allowed, d.Reason, d.RetryAfter = false, ReasonInvalid, Never
		return d
	}
	e, ok := l.cache.Get(key)
	if !ok {
		if e = l.add(key); e == nil {
			return unlimited()
		}
	}
	in := l.time.instant()
	allowed, reason := true, ReasonUnderLimit
	if !l.quick(e, n) {
		allowed, reason = l.decide(e, &in, n)
	}
	return l.describe(e, &in, n, allowed, reason)
}

// Peek says what Check(key, 1) would decide now. It counts nothing and leaves no
// trace of an unknown key.
func (l *Limiter) Peek(key string) Decision {
	in := l.time.instant()
	e, ok := l.cache.Get(key)
	if !ok {
		limit := l.overrides.Load().limitOf(key, l.cfg.Limit)
		if limit == Unlimited {
			return unlimited()
		}
		if e = l.orphans.get(key); e == nil {
			e = l.newEntry(key)
		}
	}
	return l.peek(e, &in)
}

func (l *Limiter) peek(e *Entry, in *instant) Decision {
	rule := l.ruleFor(e, in)
	if rule.limit == Unlimited {
		return unlimited()
	}
	if n := rule.nearOf(e); n != nil {
		allowed, reason := l.peekNear(e, n, in, &rule)
		return l.describe(e, in, 1, allowed, reason)
	}
	allowed := rule.verdict == admit
	if rule.verdict == judge {
		fixed, base, own := l.standing(e, in)
		allowed = addSaturating(fixed, base+own.Load()) < rule.cap
	}
	return l.describe(e, in, 1, allowed, rule.reason(allowed))
}

func unlimited() Decision {
	return Decision{Allowed: true, Reason: ReasonUnlimited, Limit: Unlimited, Remaining: Unlimited}
}

// add returns the entry of a key that was not found in the cache, or nil if the
// key is not limited.
func (l *Limiter) add(key string) *Entry {
	if l.overrides.Load().limitOf(key, l.cfg.Limit) == Unlimited {
		return nil
	}
	key = strings.Clone(key) // the caller's may alias a buffer, or pin a larger string
	e, added := l.cache.GetOrAdd(key, func() *Entry {
		if e := l.orphans.take(key); e != nil {
			e.clear(evicted)
			return e
		}
		return l.newEntry(key)
	})
	if added {
		e.part.counted.firstSeen.Add(1)
	}
	return e
}

// evict is told by the cache that e has left it.
func (l *Limiter) evict(e *Entry, cause EvictionCause) {
	if cause == cache.CauseOverflow {
		e.part.counted.overflow.Add(1)
	} else {
		e.part.counted.expired.Add(1)
	}
	e.set(evicted)
	e.mu.Lock()
	l.leaveLimit(e)
	if e.tier >= 0 {
		e.part.tierKeys[e.tier].Add(-1)
		e.tier = -1
	}
	e.mu.Unlock()
	if e.has(listed) {
		l.keep(e)
	}
}

// keep puts an evicted entry in the backlog, where its key finds it if it returns.
func (l *Limiter) keep(e *Entry) {
	if !l.orphans.put(e) {
		// The backlog is as full as the cache, and the cache found this key the
		// least worth keeping.
		l.forfeit(e)
		return
	}
	if !e.has(listed) { // the loop has finished with it meanwhile
		l.orphans.remove(e)
	}
}

// forfeit gives up the counts of e that have not been sent.
func (l *Limiter) forfeit(e *Entry) (events int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range l.grid.slots() {
		s := e.slot(i)
		if unsent := s.own.Load() - s.sent; unsent > 0 {
			s.sent += unsent
			s.assume()
			events += unsent
		}
	}
	e.part.counted.dropped.Add(events)
	return events
}

// limitOf returns the limit of key, or def if it has none of its own.
func (o *overrides) limitOf(key string, def int64) int64 {
	if limit, ok := o.limits[key]; ok {
		return limit
	}
	return def
}

// SetOverrides replaces the limits of single keys: at least 0, where 0 denies
// all, or [Unlimited]. The map is copied. Keys keep their counts and follow their
// new limit at their next decision. An error wraps [ErrInvalidConfig] and leaves
// the old limits in force.
func (l *Limiter) SetOverrides(limits map[string]int64) error {
	if p := overrideProblems(limits); p != "" {
		return configError([]string{p})
	}
	l.override(limits)
	return nil
}

func (l *Limiter) override(limits map[string]int64) {
	l.overrides.Store(&overrides{maps.Clone(limits), l.sets.Add(1)})
}

// NextTick returns when the next tick is due. For callers that drive the limiter
// through [Config.Clock].
func (l *Limiter) NextTick() time.Time {
	next := l.parts[0].next()
	for _, p := range l.parts[1:] {
		next = min(next, p.next())
	}
	return time.Unix(0, next).UTC()
}

// Tick runs the ticks that are due, one partition after the other. The error
// joins those of the exchanges; the limiter goes on all the same. It may be
// called beside running loops. After Close it returns [ErrClosed].
func (l *Limiter) Tick(ctx context.Context) error {
	return l.each(ctx, (*partition).tickIfDue)
}

// Flush sends all counts that were accepted before the call. It returns when the
// store has them, or with the error that kept it, which may be ctx's; what was
// not sent stays for a later tick. After Close it returns [ErrClosed].
func (l *Limiter) Flush(ctx context.Context) error {
	return l.each(ctx, (*partition).flush)
}

// each runs f for every partition while no loop is at work on it.
func (l *Limiter) each(ctx context.Context, f func(*partition, context.Context) error) error {
	if l.closed.Load() {
		return ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.alive, cancel)()
	var errs []error
	for _, p := range l.parts {
		err := p.acquire(ctx)
		if err == nil {
			if err = ErrClosed; p.mode.Load() != closed {
				err = f(p, ctx)
			}
			p.release()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Shutdown stops the limiter: it ends the loops and sends what is outstanding,
// within ctx. If something could not be sent, the error is an [*UnsentError].
// Decisions go on to be answered by what is known, with [ReasonClosed]; they send
// nothing. Further calls of Shutdown or Close wait for the first and return its
// error.
func (l *Limiter) Shutdown(ctx context.Context) error {
	if l.closed.CompareAndSwap(false, true) {
		l.closeErr = l.shutdown(ctx)
		close(l.closeDone)
	}
	<-l.closeDone
	return l.closeErr
}

// Close is [Limiter.Shutdown] with 5 s to send what is outstanding.
func (l *Limiter) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return l.Shutdown(ctx)
}

func (l *Limiter) shutdown(ctx context.Context) error {
	close(l.stop)
	// Let an exchange under way finish: cut off, its outcome would be unknown.
	defer l.abort()
	defer context.AfterFunc(ctx, l.abort)()
	l.loops.Wait()
	var unsent UnsentError
	var errs []error
	for _, p := range l.parts {
		p.turn <- struct{}{} // whoever has it is bound by l.alive
		events, unknown, err := p.finish(ctx)
		p.release()
		unsent.Events += events
		unsent.Unknown += unknown
		errs = append(errs, err)
	}
	l.time.close()
	l.cache.Close()
	if unsent.Events == 0 && unsent.Unknown == 0 {
		return nil
	}
	unsent.Err = errors.Join(errs...)
	return &unsent
}

// Totals returns what the limiter has counted so far, over all partitions.
// Accepted and Denied lag by what was decided since the last tick.
func (l *Limiter) Totals() Totals {
	var sum Totals
	for _, p := range l.parts {
		sum.add(p.snapshot())
	}
	return sum
}
