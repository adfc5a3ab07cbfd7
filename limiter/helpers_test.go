package limiter_test

import (
	"cmp"
	"context"
	"math/big"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/internal/faultstore"
	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

// epochStart begins an epoch of every window that divides a minute, in the tests
// that drive a clock. In a bubble of synctest, the start does so.
var epochStart = time.Unix(1_700_000_040, 0)

// clock is a time that the test sets.
type clock struct{ nanos atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.set(epochStart)
	return c
}

func (c *clock) Now() time.Time          { return time.Unix(0, c.nanos.Load()) }
func (c *clock) set(t time.Time)         { c.nanos.Store(t.UnixNano()) }
func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// run lets d pass, with every tick of ls at its time.
func (c *clock) run(d time.Duration, ls ...*limiter.Limiter) {
	end := c.Now().Add(d)
	for {
		next := end
		for _, l := range ls {
			if at := l.NextTick(); at.Before(next) {
				next = at
			}
		}
		if next.After(c.Now()) {
			c.set(next)
		}
		if !next.Before(end) {
			return
		}
		for _, l := range ls {
			l.Tick(context.Background()) // does nothing unless it is due
		}
	}
}

// tick goes to l's next tick and runs it.
func (c *clock) tick(l *limiter.Limiter) error {
	if next := l.NextTick(); next.After(c.Now()) {
		c.set(next)
	}
	return l.Tick(context.Background())
}

// often returns n, or a part of it under the race detector, which makes everything
// slow and has nothing to find in tests that use one goroutine.
func often(n int) int {
	if race {
		return max(1, n/10)
	}
	return n
}

// mustNew returns a limiter with repeatable choices, closed when the test ends.
func mustNew(t testing.TB, store limiter.Store, cfg limiter.Config) *limiter.Limiter {
	t.Helper()
	cfg.Name = cmp.Or(cfg.Name, "test")
	cfg.Seed = cmp.Or(cfg.Seed, 1)
	cfg.CacheEntries = cmp.Or(cfg.CacheEntries, 128) // the default takes long to make
	l, err := limiter.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// newFleet returns n limiters on one store, with phases of their own.
func newFleet(t testing.TB, n int, store limiter.Store, cfg limiter.Config) []*limiter.Limiter {
	t.Helper()
	fleet := make([]*limiter.Limiter, n)
	for i := range fleet {
		cfg.Seed = uint64(i + 1)
		fleet[i] = mustNew(t, store, cfg)
	}
	return fleet
}

// newStore returns a store that fails by rule.
func newStore() *faultstore.Store { return faultstore.Wrap(memorystore.New()) }

// The ways in which a store can be away.
var (
	refused     = faultstore.Always(faultstore.Fault{Kind: faultstore.Refuse})
	requestLost = faultstore.Always(faultstore.Fault{Kind: faultstore.LoseRequest})
	replyLost   = faultstore.Always(faultstore.Fault{Kind: faultstore.LoseReply})
	hanging     = faultstore.Always(faultstore.Fault{Kind: faultstore.LoseRequest, Delay: faultstore.Forever})
)

// admit asks for one event of key n times and returns how many passed.
func admit(l *limiter.Limiter, key string, n int) (passed int64) {
	for range n {
		if l.Allow(key) {
			passed++
		}
	}
	return passed
}

func flush(t testing.TB, ls ...*limiter.Limiter) {
	t.Helper()
	for _, l := range ls {
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// used returns how much of key's limit is used up, by what l knows.
func used(l *limiter.Limiter, key string) int64 {
	d := l.Peek(key)
	return d.Limit - d.Remaining
}

// conserved fails the test unless l has accepted just so much, and knows what
// became of all of it (rule L3). It holds when nothing is unsent or in flight.
func conserved(t testing.TB, l *limiter.Limiter, accepted int64) {
	t.Helper()
	if s := l.Totals(); s.Acknowledged+s.Unknown+s.Dropped != accepted {
		t.Errorf("L3: %d acknowledged + %d unknown + %d dropped, want %d accepted", s.Acknowledged, s.Unknown, s.Dropped, accepted)
	}
}

// applied returns what the store was really made to count per key and epoch.
func applied(s *faultstore.Store) map[limiter.Counter]int64 {
	sums := make(map[limiter.Counter]int64)
	for id, n := range s.Applied() {
		if id.Series == limiter.SeriesAdmitted {
			sums[id.Counter] += n
		}
	}
	return sums
}

// spy keeps a copy of each batch, with its results.
type spy struct {
	limiter.Store
	mu      sync.Mutex
	batches []limiter.Batch
}

func (s *spy) Exchange(ctx context.Context, b *limiter.Batch) error {
	err := s.Store.Exchange(ctx, b)
	kept := *b
	kept.Adds, kept.Expires, kept.Gets = slices.Clone(b.Adds), slices.Clone(b.Expires), slices.Clone(b.Gets)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, kept)
	return err
}

// take returns the batches since the last call, the census left out of them.
func (s *spy) take() []limiter.Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.batches
	s.batches = nil
	for i := range taken {
		b := &taken[i]
		b.Adds = slices.DeleteFunc(b.Adds, func(x limiter.Add) bool { return x.Series == limiter.SeriesNodes })
		b.Expires = slices.DeleteFunc(b.Expires, func(x limiter.Expire) bool { return x.Series == limiter.SeriesNodes })
		b.Gets = slices.DeleteFunc(b.Gets, func(x limiter.Get) bool { return x.Series == limiter.SeriesNodes })
	}
	return slices.DeleteFunc(taken, func(b limiter.Batch) bool { return len(b.Adds)+len(b.Expires)+len(b.Gets) == 0 })
}

// stuck is a store whose exchanges end when the test says so, whatever their
// context says.
type stuck struct {
	entered chan struct{} // gets a value per exchange
	end     chan struct{} // closed to end all
}

func newStuck() *stuck {
	return &stuck{entered: make(chan struct{}, 1000), end: make(chan struct{})}
}

func (s *stuck) Exchange(context.Context, *limiter.Batch) error {
	s.entered <- struct{}{}
	<-s.end
	return faultstore.ErrInjected
}

// watcher keeps a copy of each report.
type watcher struct {
	mu      sync.Mutex
	reports []limiter.Report
}

func (w *watcher) Observe(r *limiter.Report) {
	kept := *r
	kept.Tiers = slices.Clone(r.Tiers)
	kept.Exchange.Servers = slices.Clone(r.Exchange.Servers)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, kept)
}

// take returns the reports since the last call.
func (w *watcher) take() []limiter.Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.reports
	w.reports = nil
	return taken
}

// model is the window counter by its definition, in arithmetic without bounds.
type model struct {
	length int64 // of an epoch
	epochs int64 // per window
	counts map[int64]*big.Int
}

func newModel(window time.Duration, epochs int) *model {
	return &model{length: int64(window) / int64(epochs), epochs: int64(epochs), counts: make(map[int64]*big.Int)}
}

// epoch returns floor(now / length).
func (m *model) epoch(now time.Time) int64 {
	e := now.UnixNano() / m.length
	if now.UnixNano() < e*m.length {
		e--
	}
	return e
}

func (m *model) count(epoch int64) *big.Int {
	if m.counts[epoch] == nil {
		m.counts[epoch] = new(big.Int)
	}
	return m.counts[epoch]
}

func (m *model) add(now time.Time, n int64) {
	c := m.count(m.epoch(now))
	c.Add(c, big.NewInt(n))
}

// turn does what a node does that looks at its clock: what has left the window
// is forgotten, and what lies ahead, because the clock was set back, counts as
// of now.
func (m *model) turn(now time.Time) {
	current := m.epoch(now)
	for e, n := range m.counts {
		if e > current {
			c := m.count(current)
			c.Add(c, n)
		}
		if e > current || e < current-m.epochs {
			delete(m.counts, e)
		}
	}
}

// level returns the count in the window that ends now, rounded up.
func (m *model) level(now time.Time) *big.Int {
	e := m.epoch(now)
	length := big.NewInt(m.length)
	level := new(big.Int).Mul(m.count(e-m.epochs), big.NewInt((e+1)*m.length-now.UnixNano()))
	level.Add(level, big.NewInt(m.length-1))
	level.Div(level, length)
	for k := range m.epochs {
		level.Add(level, m.count(e-k))
	}
	return level
}

// fits says whether n more events stay within limit.
func (m *model) fits(now time.Time, n, limit int64) bool {
	level := m.level(now)
	return level.Add(level, big.NewInt(n)).Cmp(big.NewInt(limit)) <= 0
}

// room returns how many more events fit.
func (m *model) room(now time.Time, limit int64) int64 {
	level := m.level(now)
	if level.Cmp(big.NewInt(limit)) >= 0 {
		return 0
	}
	return limit - level.Int64()
}
