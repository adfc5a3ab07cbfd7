// Package memorystore is a [limiter.Store] in the memory of one process. It is
// the reference for what a store must do: use it in tests, in simulations and
// where there is only one node. Limiters share counts if they share both the
// store and the prefix, so in a fleet of several processes each would enforce
// the limit by itself.
//
// A store keeps no time of its own. Counters expire by the time that the batches
// of their prefix bring along, so that limiters with different clocks can use
// one store as long as they have different prefixes:
//
//   - An expiry lets a counter be read until [limiter.Batch.Now] plus its
//     lifetime, to the next millisecond. Of several expiries the latest deadline
//     wins: a node with a slow clock cannot cut short what another one needs.
//   - A counter that got no expiry yet can be read for Epochs + 3 epochs after it
//     was born. That is longer than any node needs it, and not for ever.
//   - A counter past its deadline reads 0 and is born anew by the next add.
//
// The memory of expired counters is freed by later exchanges of their prefix,
// each of which does a small, bounded part of the work. A prefix that is not used
// any more keeps its last counters until a new prefix appears.
package memorystore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// ErrOverflow says that an add was refused because the counter would have
// exceeded the largest int64 (rule S11). The counter keeps its value.
var ErrOverflow = errors.New("counter would exceed the largest int64")

var errInvalid = errors.New("delta or lifetime is not positive")

// numShards is how many exchanges can work on one prefix at once. More than a
// few per core would only cost memory.
const numShards = 32

// maxSweep bounds the epochs that one exchange looks at for expiry. A shard
// rarely holds more than a window's worth, which is at most 60.
const maxSweep = 128

// Store holds counters in memory. Make one with [New]. It is safe for concurrent
// use, starts no goroutine and needs no closing.
type Store struct {
	seed maphash.Seed

	mu     sync.RWMutex
	spaces map[string]*space // by prefix
}

// New returns an empty store.
func New() *Store {
	return &Store{seed: maphash.MakeSeed(), spaces: make(map[string]*space)}
}

// Exchange implements [limiter.Store]. It never blocks for long, so it looks at
// ctx only once: if ctx is done, nothing is applied and the error wraps that of
// ctx. An add that would overflow is refused with [ErrOverflow], and so is one
// with a delta below 1 or an expiry with a lifetime of 0 or less, with another
// error; the rest of the batch is performed.
func (s *Store) Exchange(ctx context.Context, b *limiter.Batch) error {
	start := time.Now()
	report := limiter.ServerReport{Server: "memory"}
	err := ctx.Err()
	if err != nil {
		refuseAll(b)
	} else {
		err = s.perform(b)
		report.Commands = len(b.Adds) + len(b.Expires) + len(b.Gets)
	}
	report.Duration = time.Since(start)
	report.ErrorKind = errorKind(err)
	b.Servers = append(b.Servers, report)
	if err != nil {
		return fmt.Errorf("memorystore: %w", err)
	}
	return nil
}

// Len returns the number of counters in memory, including those that have expired
// and are not yet freed.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for _, sp := range s.spaces {
		for i := range sp.shards {
			n += sp.shards[i].len()
		}
	}
	return n
}

func refuseAll(b *limiter.Batch) {
	for i := range b.Adds {
		b.Adds[i].Outcome = limiter.NotApplied
	}
	for i := range b.Expires {
		b.Expires[i].Outcome = limiter.NotApplied
	}
	for i := range b.Gets {
		b.Gets[i].OK = false
	}
}

func (s *Store) perform(b *limiter.Batch) error {
	now := b.Now.UnixMilli()
	defaultLife := int64(b.Epochs+3) * millis(b.EpochLength)
	longestLife := defaultLife
	for i := range b.Expires {
		longestLife = max(longestLife, millis(b.Expires[i].Lifetime))
	}
	sp := s.space(b.Prefix, longestLife)

	var overflow, invalid error // nil, or the sentinel once it has happened
	for i := range b.Adds {
		op := &b.Adds[i]
		op.Outcome = limiter.NotApplied
		if op.Delta < 1 {
			invalid = errInvalid
			continue
		}
		total, ok := s.shard(sp, op.Key).add(op.Counter, op.Delta, now, now+defaultLife)
		if !ok {
			overflow = ErrOverflow
			continue
		}
		op.Total, op.Outcome = total, limiter.Applied
	}
	for i := range b.Expires {
		op := &b.Expires[i]
		if op.Lifetime <= 0 {
			op.Outcome, invalid = limiter.NotApplied, errInvalid
			continue
		}
		s.shard(sp, op.Key).expire(op.Counter, now, now+millis(op.Lifetime))
		op.Outcome = limiter.Applied
	}
	for i := range b.Gets {
		op := &b.Gets[i]
		op.Total, op.OK = s.shard(sp, op.Key).get(op.Counter, now), true
	}
	sp.shards[sp.sweeps.Add(1)%numShards].sweep(now)
	return errors.Join(overflow, invalid)
}

// millis rounds d up. All arithmetic on time is in milliseconds, for which no
// window and no lifetime is too long.
func millis(d time.Duration) int64 { return d.Milliseconds() + 1 }

func errorKind(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, ErrOverflow):
		return "refused"
	default:
		return "invalid"
	}
}

// space holds the counters of one prefix.
type space struct {
	shards [numShards]shard
	sweeps atomic.Uint32 // which shard is next to be swept

	mu      sync.Mutex
	lastUse time.Time // by the process's clock
	keep    int64     // longest life given to a counter, in milliseconds
}

// space returns the space of prefix, in which counters are now given a life of
// keep milliseconds or less.
func (s *Store) space(prefix string, keep int64) *space {
	s.mu.RLock()
	sp := s.spaces[prefix]
	if sp != nil {
		sp.use(keep)
	}
	s.mu.RUnlock()
	if sp != nil {
		return sp
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	sp = s.spaces[prefix]
	if sp == nil {
		s.dropUnused()
		sp = new(space)
		s.spaces[prefix] = sp
	}
	sp.use(keep)
	return sp
}

// dropUnused forgets the prefixes that were left alone for longer than their
// counters live. No batch tells their time any more, so the process's clock has
// to do. It is called with s.mu held, when a prefix is new: a process that makes
// ever new limiters does not grow, and nobody else pays.
func (s *Store) dropUnused() {
	for prefix, sp := range s.spaces {
		if sp.unused() {
			delete(s.spaces, prefix)
		}
	}
}

func (sp *space) use(keep int64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.lastUse = time.Now()
	sp.keep = max(sp.keep, keep)
}

func (sp *space) unused() bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return time.Since(sp.lastUse).Milliseconds() > sp.keep
}

// shard holds the counters of some of a prefix's keys.
type shard struct {
	mu     sync.Mutex
	epochs map[int64]*epoch
}

// epoch holds the counters of one epoch. They live about equally long, so they
// are freed together: deleting them one by one would not shrink the map.
type epoch struct {
	counters map[counterID]counter
	deadline int64 // the latest of all counters
}

type counterID struct {
	key    string
	series limiter.Series
}

type counter struct {
	total    int64
	deadline int64 // the last millisecond in which the counter can be read
	armed    bool  // whether the deadline comes from an expiry
}

// shard returns the shard of key in sp.
func (s *Store) shard(sp *space, key string) *shard {
	return &sp.shards[maphash.String(s.seed, key)%numShards]
}

// add adds delta to a counter and returns its total, or false if that would
// overflow. A counter that is born gets defaultDeadline.
func (sh *shard) add(c limiter.Counter, delta, now, defaultDeadline int64) (total int64, ok bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.epochs[c.Epoch]
	if e == nil {
		e = &epoch{counters: make(map[counterID]counter)}
		if sh.epochs == nil {
			sh.epochs = make(map[int64]*epoch)
		}
		sh.epochs[c.Epoch] = e
	}
	id := counterID{c.Key, c.Series}
	v, ok := e.counters[id]
	if !ok || now > v.deadline {
		v = counter{deadline: defaultDeadline}
		e.deadline = max(e.deadline, defaultDeadline)
	}
	if v.total > math.MaxInt64-delta {
		return 0, false
	}
	v.total += delta
	e.counters[id] = v
	return v.total, true
}

// expire sets the deadline of a counter, if it exists.
func (sh *shard) expire(c limiter.Counter, now, deadline int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.epochs[c.Epoch]
	if e == nil {
		return
	}
	id := counterID{c.Key, c.Series}
	v, ok := e.counters[id]
	if !ok || now > v.deadline || v.armed && v.deadline >= deadline {
		return
	}
	v.deadline, v.armed = deadline, true
	e.counters[id] = v
	e.deadline = max(e.deadline, deadline)
}

func (sh *shard) get(c limiter.Counter, now int64) int64 {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.epochs[c.Epoch]
	if e == nil {
		return 0
	}
	v := e.counters[counterID{c.Key, c.Series}]
	if now > v.deadline {
		return 0
	}
	return v.total
}

// sweep frees epochs whose counters have all expired.
func (sh *shard) sweep(now int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	seen := 0
	for n, e := range sh.epochs {
		if now > e.deadline {
			delete(sh.epochs, n)
		}
		if seen++; seen == maxSweep {
			return // the next sweep begins elsewhere: maps are walked in random order
		}
	}
}

func (sh *shard) len() int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := 0
	for _, e := range sh.epochs {
		n += len(e.counters)
	}
	return n
}
