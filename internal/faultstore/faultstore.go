// Package faultstore wraps a [limiter.Store] so that tests can make it fail by
// rule, and can compare what the limiter was told with what really happened:
//
//	f := faultstore.Wrap(memorystore.New())
//	f.SetRule(func(call int, b *limiter.Batch) faultstore.Fault {
//		if call == 3 {
//			return faultstore.Fault{Kind: faultstore.LoseReply}
//		}
//		return faultstore.Fault{}
//	})
//
// Whatever fails, every outcome that it reports is true (rule S6).
package faultstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// ErrInjected is wrapped by the error of every exchange that a rule made fail.
var ErrInjected = errors.New("injected fault")

// Forever is a [Fault.Delay] that only the end of the context cuts short.
const Forever time.Duration = math.MaxInt64

// Kind says how an exchange fails.
type Kind uint8

const (
	// None lets the exchange pass.
	None Kind = iota
	// Refuse sends nothing: nothing is applied, and the outcome says so.
	Refuse
	// LoseRequest loses the request on its way: nothing is applied, but the
	// outcome is unknown.
	LoseRequest
	// LoseReply loses the reply: all is applied, but the outcome is unknown.
	LoseReply
)

var kindNames = [...]string{None: "none", Refuse: "refused", LoseRequest: "request lost", LoseReply: "reply lost"}

// String returns what happened in two words.
func (k Kind) String() string { return kindNames[k] }

// Fault says what happens to one exchange. The zero value lets it pass.
type Fault struct {
	// Kind says how the exchange fails.
	Kind Kind
	// After is how many operations, in the order in which they are performed,
	// are performed and answered before Kind strikes the rest.
	After int
	// Delay is how long the exchange waits before anything else happens. If the
	// context ends first, the rest follows at once, and [None] becomes [Refuse].
	Delay time.Duration
}

// Rule chooses the fault of an exchange. Calls are counted from 0. It must not
// change or keep b; it may call the store's methods other than Exchange.
type Rule func(call int, b *limiter.Batch) Fault

// Always is the rule that chooses f each time.
func Always(f Fault) Rule { return func(int, *limiter.Batch) Fault { return f } }

// Counts says what a store was asked, whatever came of it.
type Counts struct {
	Exchanges, Adds, Expires, Gets int
}

// ID names a counter among all prefixes.
type ID struct {
	Prefix string
	limiter.Counter
}

// Store wraps another store. It is safe for concurrent use.
type Store struct {
	inner limiter.Store

	mu      sync.Mutex
	rule    Rule
	counts  Counts
	applied map[ID]int64
	forgot  []float64 // shares of the keys, one for each call of Forget
}

// Wrap returns a store that passes everything to inner until it gets a rule.
func Wrap(inner limiter.Store) *Store {
	return &Store{inner: inner, applied: make(map[ID]int64)}
}

// SetRule replaces the rule for the exchanges that begin from now on. Nil lets
// all of them pass.
func (s *Store) SetRule(rule Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rule = rule
}

// Forget loses the counters of a share of the keys, as a failover or an eviction
// does; a share of 1 loses all. Which keys are hit is the same in every run. The
// inner store keeps the old counters: this one hides them by renaming the keys.
func (s *Store) Forget(share float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgot = append(s.forgot, share)
}

// Counts returns what the store was asked since [Wrap].
func (s *Store) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Applied returns, per counter, the sum of the deltas that were really applied
// since [Wrap], also those that were later forgotten or have expired.
func (s *Store) Applied() map[ID]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.applied)
}

// Exchange implements [limiter.Store].
func (s *Store) Exchange(ctx context.Context, b *limiter.Batch) error {
	f := s.choose(b)
	if ctx.Err() != nil {
		f = Fault{} // what is done before it begins is the inner store's to refuse
	}
	if f.Delay > 0 {
		sleep(ctx, f.Delay)
	}

	work := s.copyOf(b)
	if f.Kind == None {
		err := s.inner.Exchange(ctx, work)
		s.record(b, work)
		copyResults(b, work)
		b.Servers = append(b.Servers, work.Servers...)
		return err
	}

	performed := work
	if f.Kind != LoseReply {
		performed, _ = split(work, f.After)
	}
	// The fault alone decides what is performed, and its error is what the caller
	// sees.
	_ = s.inner.Exchange(context.WithoutCancel(ctx), performed)
	s.record(b, performed)
	copyResults(b, work)
	_, unanswered := split(b, f.After)
	f.Kind.strike(unanswered)
	b.Servers = append(b.Servers, limiter.ServerReport{Server: "faultstore", ErrorKind: f.Kind.String()})
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("faultstore: %v: %w: %w", f.Kind, ErrInjected, err)
	}
	return fmt.Errorf("faultstore: %v: %w", f.Kind, ErrInjected)
}

// choose counts the exchange and asks the rule.
func (s *Store) choose(b *limiter.Batch) Fault {
	s.mu.Lock()
	call, rule := s.counts.Exchanges, s.rule
	s.counts.Exchanges++
	s.counts.Adds += len(b.Adds)
	s.counts.Expires += len(b.Expires)
	s.counts.Gets += len(b.Gets)
	s.mu.Unlock()
	if rule == nil {
		return Fault{}
	}
	return rule(call, b)
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// copyOf returns a copy of b that the inner store may write to, with the keys as
// the inner store knows them.
func (s *Store) copyOf(b *limiter.Batch) *limiter.Batch {
	s.mu.Lock()
	forgot := s.forgot
	s.mu.Unlock()
	work := *b
	work.Adds, work.Expires, work.Gets = slices.Clone(b.Adds), slices.Clone(b.Expires), slices.Clone(b.Gets)
	work.Servers = nil
	for i := range work.Adds {
		work.Adds[i].Key = rename(work.Adds[i].Key, forgot)
	}
	for i := range work.Expires {
		work.Expires[i].Key = rename(work.Expires[i].Key, forgot)
	}
	for i := range work.Gets {
		work.Gets[i].Key = rename(work.Gets[i].Key, forgot)
	}
	return &work
}

// rename gives key a new name for each time that it was forgotten.
func rename(key string, forgot []float64) string {
	times := 0
	for i, share := range forgot {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d %s", i, key)
		if float64(h.Sum64()>>11)/(1<<53) < share {
			times++
		}
	}
	if times == 0 {
		return key
	}
	return fmt.Sprintf("forgotten %d times\x00%s", times, key)
}

// record notes what was really applied. The operations of performed are the first
// of b's, under the names that the inner store knows.
func (s *Store) record(b, performed *limiter.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, op := range performed.Adds {
		if op.Outcome == limiter.Applied {
			s.applied[ID{b.Prefix, b.Adds[i].Counter}] += op.Delta
		}
	}
}

func copyResults(b, work *limiter.Batch) {
	for i, op := range work.Adds {
		b.Adds[i].Total, b.Adds[i].Outcome = op.Total, op.Outcome
	}
	for i, op := range work.Expires {
		b.Expires[i].Outcome = op.Outcome
	}
	for i, op := range work.Gets {
		b.Gets[i].Total, b.Gets[i].OK = op.Total, op.OK
	}
}

// split returns the first n of b's operations and the rest, which share b's
// memory.
func split(b *limiter.Batch, n int) (head, tail *limiter.Batch) {
	head, tail = new(limiter.Batch), new(limiter.Batch)
	*head, *tail = *b, *b
	head.Adds, tail.Adds, n = splitSlice(b.Adds, n)
	head.Expires, tail.Expires, n = splitSlice(b.Expires, n)
	head.Gets, tail.Gets, _ = splitSlice(b.Gets, n)
	return head, tail
}

func splitSlice[T any](ops []T, n int) (head, tail []T, rest int) {
	k := min(n, len(ops))
	return ops[:k], ops[k:], n - k
}

// strike writes into b what is known of operations that a fault has hit.
func (k Kind) strike(b *limiter.Batch) {
	outcome := limiter.Unknown
	if k == Refuse {
		outcome = limiter.NotApplied
	}
	for i := range b.Adds {
		b.Adds[i].Total, b.Adds[i].Outcome = 0, outcome
	}
	for i := range b.Expires {
		b.Expires[i].Outcome = outcome
	}
	for i := range b.Gets {
		b.Gets[i].Total, b.Gets[i].OK = 0, false
	}
}
