package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// Outage is a way of losing the server behind a store.
type Outage int

const (
	// Refused: connections are cut and new ones are refused.
	Refused Outage = iota
	// Stalled: connections stay open and new ones may be made, but nothing comes
	// back, and what is sent need not arrive.
	Stalled
	// RepliesLost: the server receives and performs what is sent, and then the
	// connection is cut before any reply.
	RepliesLost
)

// String returns the name of the outage.
func (o Outage) String() string {
	return [...]string{"Refused", "Stalled", "RepliesLost"}[o]
}

// StoreSuite checks a [limiter.Store]. Only New is required; each hook that is
// missing leaves something unchecked. A store that is also a [limiter.Partitioned]
// or a [limiter.TimeTeller] is checked as such.
//
// The hooks get the store that New returned for the case that calls them. They run
// in another goroutine than the test, so they report trouble with tb.Error rather
// than tb.Fatal.
//
// Each case uses a prefix of its own that begins with "conformance/", so that
// suites can run at the same time on one server. It leaves behind only counters
// that are about to expire.
type StoreSuite struct {
	// New returns the store to check, and frees it with [testing.TB.Cleanup]. It is
	// called once for each case.
	New func(tb testing.TB) limiter.Store
	// Peer returns another store on the same backend as s, for example with a
	// client of its own.
	Peer func(tb testing.TB, s limiter.Store) limiter.Store
	// Outage takes the backend of s away and returns a function that brings it
	// back, or nil if it cannot make that outage. The cases that use it run one at
	// a time, so that an outage may hit all stores of the suite.
	Outage func(tb testing.TB, s limiter.Store, o Outage) (heal func())
	// Elapse makes the backend of s believe that d has passed; what [limiter.Batch]
	// says is moved along. Nil: the suite sleeps. Counters must be gone 10 seconds
	// after their lifetime.
	Elapse func(tb testing.TB, s limiter.Store, d time.Duration)
	// Strict makes a case that cannot be checked fail instead of being skipped.
	Strict bool
}

// TestStore checks everything about a store that needs no hook. It is
// [StoreSuite.Test] for a suite of which only New is set.
func TestStore(t *testing.T, newStore func(tb testing.TB) limiter.Store) {
	t.Helper()
	StoreSuite{New: newStore}.Test(t)
}

// Test runs one subtest for each case. They run in parallel, except those that
// make an outage.
func (s StoreSuite) Test(t *testing.T) {
	t.Helper()
	for _, c := range storeCases {
		t.Run(c.id+"_"+c.name, func(t *testing.T) {
			if !c.alone {
				t.Parallel()
			}
			conclude(t, c.id, s.run(t, c), s.Strict)
		})
	}
}

func (s StoreSuite) run(tb testing.TB, c ruleCase[*storeSubject]) error {
	subject := s.subject(tb)
	return guard(watchdog, func() error {
		defer subject.cleanUp()
		return c.run(subject)
	})
}

func (s StoreSuite) subject(tb testing.TB) *storeSubject {
	return &storeSubject{
		suite:  s,
		tb:     tb,
		store:  s.New(tb),
		prefix: "conformance/" + rand.Text(),
		used:   make(map[string]map[limiter.Counter]bool),
	}
}

// storeSubject is the store under test, with what the cases do to it.
type storeSubject struct {
	suite  StoreSuite
	tb     testing.TB // for the hooks only
	store  limiter.Store
	prefix string

	mu      sync.Mutex
	skipped time.Duration                       // by Elapse
	used    map[string]map[limiter.Counter]bool // counters that were added to, by prefix
}

// epochLength is that of all batches whose case does not need another one.
const epochLength = time.Minute

// now is the time as the backend should believe it.
func (s *storeSubject) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.skipped)
}

// elapse lets d pass.
func (s *storeSubject) elapse(d time.Duration) {
	if s.suite.Elapse == nil {
		time.Sleep(d)
		return
	}
	s.suite.Elapse(s.tb, s.store, d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipped += d
}

// settle gives things that should not happen some time to happen.
func settle() { time.Sleep(50 * time.Millisecond) }

func (s *storeSubject) peer() (limiter.Store, error) {
	if s.suite.Peer == nil {
		return nil, skip("StoreSuite.Peer is nil, so there is no second store on the same backend")
	}
	return s.suite.Peer(s.tb, s.store), nil
}

func (s *storeSubject) outage(o Outage) (heal func(), err error) {
	if s.suite.Outage == nil {
		return nil, skip("StoreSuite.Outage is nil, so the backend cannot be taken away")
	}
	heal = s.suite.Outage(s.tb, s.store, o)
	if heal == nil {
		return nil, skip(fmt.Sprintf("StoreSuite.Outage cannot make the outage %v", o))
	}
	heal = sync.OnceFunc(heal)
	s.tb.Cleanup(heal) // in case the store hangs
	return heal, nil
}

// recovered waits until exchanges succeed again after an outage.
func (s *storeSubject) recovered() {
	for {
		if _, err := s.read(s.counter("recovered?")); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// batch returns an empty batch.
func (s *storeSubject) batch() *limiter.Batch { return s.batchOf(s.prefix) }

func (s *storeSubject) batchOf(prefix string) *limiter.Batch {
	return &limiter.Batch{
		Prefix:       prefix,
		Epochs:       1,
		EpochLength:  epochLength,
		Now:          s.now(),
		ChunkTimeout: 10 * time.Second,
	}
}

// counter returns the counter of admitted events of key in the current epoch.
func (s *storeSubject) counter(key string) limiter.Counter {
	return limiter.Counter{Key: key, Epoch: epochOf(s.now(), epochLength)}
}

func (s *storeSubject) counters(n int) []limiter.Counter {
	cs := make([]limiter.Counter, n)
	for i := range cs {
		cs[i] = s.counter(fmt.Sprintf("key%d", i))
	}
	return cs
}

func epochOf(t time.Time, length time.Duration) int64 { return t.UnixNano() / int64(length) }

// exchange performs b, which must succeed.
func (s *storeSubject) exchange(b *limiter.Batch) error {
	if err := s.try(context.Background(), s.store, b); err != nil {
		return fmt.Errorf("exchange: %w", err)
	}
	return nil
}

// try performs b on any store of the backend.
func (s *storeSubject) try(ctx context.Context, store limiter.Store, b *limiter.Batch) error {
	s.mu.Lock()
	if s.used[b.Prefix] == nil {
		s.used[b.Prefix] = make(map[limiter.Counter]bool)
	}
	for _, op := range b.Adds {
		s.used[b.Prefix][op.Counter] = true
	}
	s.mu.Unlock()
	return store.Exchange(ctx, b)
}

// add adds delta to c in an exchange of its own.
func (s *storeSubject) add(c limiter.Counter, delta int64) error {
	b := s.batch()
	b.Adds = []limiter.Add{{Counter: c, Delta: delta}}
	return s.exchange(b)
}

// read returns the totals of counters, by an exchange of its own.
func (s *storeSubject) read(cs ...limiter.Counter) ([]int64, error) {
	return s.readFrom(s.store, s.prefix, cs...)
}

func (s *storeSubject) readFrom(store limiter.Store, prefix string, cs ...limiter.Counter) ([]int64, error) {
	b := s.batchOf(prefix)
	for _, c := range cs {
		b.Gets = append(b.Gets, limiter.Get{Counter: c})
	}
	if err := s.try(context.Background(), store, b); err != nil {
		return nil, fmt.Errorf("reading %d counters: %w", len(cs), err)
	}
	totals := make([]int64, len(cs))
	for i, op := range b.Gets {
		totals[i] = op.Total
	}
	return totals, nil
}

// wantTotal checks what a counter reads.
func (s *storeSubject) wantTotal(what string, c limiter.Counter, want int64) error {
	got, err := s.read(c)
	if err != nil {
		return err
	}
	if got[0] != want {
		return differ(what, got[0], want)
	}
	return nil
}

// cleanUp lets what the case has counted expire. It is best effort.
func (s *storeSubject) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for prefix, cs := range s.used {
		b := s.batchOf(prefix)
		for c := range cs {
			b.Expires = append(b.Expires, limiter.Expire{Counter: c, Lifetime: time.Millisecond})
		}
		_ = s.store.Exchange(ctx, b)
	}
}

// name describes a counter in a failure.
func name(prefix string, c limiter.Counter) string {
	key := fmt.Sprintf("%q", c.Key)
	if len(key) > 60 {
		key = fmt.Sprintf("%s..., %d bytes,", key[:60], len(c.Key))
	}
	return fmt.Sprintf("prefix %q, key %s, epoch %d, series %d", prefix, key, c.Epoch, c.Series)
}
