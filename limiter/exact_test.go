package limiter_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/internal/faultstore"
	"github.com/fleetlimit/fleetlimit/limiter"
)

// script is a sequence of small numbers that a test reads its choices from. It
// ends with zeros.
type script []byte

func (s *script) next() int {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return int(b)
}

func pick[T any](s *script, choices ...T) T { return choices[s.next()%len(choices)] }

// engine runs a lone node beside the model: whatever the store does, each
// decision must be the model's. Only when the clock has been set back, the node
// may know better than the model: the store may remind it of epochs that had
// left the window, and of those that are to come once more. Until all of them are
// gone, it must admit nothing that the model does not.
type engine struct {
	testing.TB
	cfg    limiter.Config
	clock  *clock
	store  *faultstore.Store
	l      *limiter.Limiter
	limits map[string]int64
	models map[string]*model
	added  *big.Int // events counted on all keys
	huge   bool     // counts have gone over the top of what counters hold
	// Limits are multiples of unit. If it is large, no key near its limit gets a
	// history, which would make its level finer than the window counter that the
	// model is of. If it is 1, only that is checked which holds with a history, too.
	unit  int64
	exact int64 // the epoch from which on the clock is as if never set back
}

const top = math.MaxInt64 - 1 // the largest limit

func newEngine(t testing.TB, s *script) *engine {
	w := &engine{TB: t, clock: newClock(), store: newStore(), limits: make(map[string]int64), models: make(map[string]*model), added: new(big.Int)}
	w.unit = pick(s, int64(1)<<41, 1)
	w.cfg = limiter.Config{
		Limit:       pick(s, 10*w.unit, w.unit, 2*w.unit, 1000*w.unit, top),
		Epochs:      1 + s.next()%4,
		CountDenied: s.next()%4 == 1,
		Clock:       w.clock,
		// What the cache forgets and what an outage changes have tests of their own.
		CacheIdle:   10_000 * time.Hour,
		CacheTTL:    20_000 * time.Hour,
		OutageAfter: 10_000 * time.Hour,
		TickEvery:   time.Second,
		Window:      time.Minute,
	}
	w.l = mustNew(t, w.store, w.cfg)
	return w
}

func (w *engine) limit(key string) int64 {
	if limit, ok := w.limits[key]; ok {
		return limit
	}
	return w.cfg.Limit
}

func (w *engine) check(key string, n int64) {
	m, limit, now := w.models[key], w.limit(key), w.clock.Now()
	if m == nil {
		m = newModel(w.cfg.Window, w.cfg.Epochs)
		w.models[key] = m
	}
	m.turn(now)
	want := m.fits(now, n, limit)
	d := w.l.Check(key, n)
	if d.Allowed != want && !w.huge && w.unit > 1 && (d.Allowed || m.epoch(now) >= w.exact) {
		w.Fatalf("L2: at %v, %d events of %s: allowed %t, want %t, with level %v of %d", now, n, key, d.Allowed, want, m.level(now), limit)
	}
	counted := int64(0)
	if d.Allowed {
		counted = n
	} else if w.cfg.CountDenied {
		counted = n
		if room := new(big.Int).Sub(big.NewInt(math.MaxInt64), m.count(m.epoch(now))); room.IsInt64() {
			counted = min(n, room.Int64())
		}
	}
	m.add(now, counted)
	w.added.Add(w.added, big.NewInt(counted))
	w.huge = w.huge || !m.level(now).IsInt64() || !w.added.IsInt64()
	w.compare(key, d)
}

// compare checks what a decision says of key besides the verdict.
func (w *engine) compare(key string, d limiter.Decision) {
	now, limit := w.clock.Now(), w.limit(key)
	room, exact := limit, true
	if m := w.models[key]; m != nil {
		room, exact = m.room(now, limit), m.epoch(now) >= w.exact
	}
	if w.huge || w.unit == 1 {
		room, exact = limit, false
	}
	if d.Reason == limiter.ReasonShed && w.exact == 0 {
		w.Fatalf("L2: at %v, a lone node thins %s: %+v", now, key, d)
	}
	if d.Limit != limit || d.Remaining > room || d.Remaining < room && exact || d.Remaining < 0 {
		w.Fatalf("at %v, %s: %d remaining of %d, want %d of %d", now, key, d.Remaining, d.Limit, room, limit)
	}
}

// peek also has the node look at its clock, as the model does.
func (w *engine) peek(key string) {
	if m := w.models[key]; m != nil {
		m.turn(w.clock.Now())
	}
	d := w.l.Peek(key)
	w.compare(key, d)
	if m := w.models[key]; d.Allowed != (d.Remaining > 0) && (m == nil || m.epoch(w.clock.Now()) >= w.exact) {
		w.Fatalf("Peek at %s: %+v", key, d)
	}
}

// step runs one operation of the script.
func (w *engine) step(s *script) {
	op := s.next()
	key := pick(s, "a", "b", "c")
	fraction := time.Duration(s.next()) * time.Minute / 256
	switch op % 12 {
	default:
		w.check(key, pick(s, w.unit, 1, 2*w.unit, 3*w.unit, 5*w.unit-1, 10*w.unit, 11*w.unit, 400*w.unit+1, top/3, top, math.MaxInt64))
	case 4:
		w.clock.advance(fraction)
	case 5:
		w.clock.advance(fraction / 16)
		w.l.Tick(w.Context())
	case 6:
		w.clock.tick(w.l)
	case 7:
		w.l.Flush(w.Context())
	case 8:
		w.peek(key)
	case 9:
		w.limits[key] = pick(s, 10*w.unit, 0, w.unit, 1000*w.unit, top)
		if err := w.l.SetOverrides(w.limits); err != nil {
			w.Fatal(err)
		}
		w.peek(key)
	case 10:
		epoch := w.cfg.Window / time.Duration(w.cfg.Epochs)
		highest := w.clock.Now().UnixNano() / int64(epoch)
		for _, m := range w.models {
			m.turn(w.clock.Now()) // the node may have, in a tick
		}
		w.clock.advance(pick(s, -3*epoch/10, -epoch, -2*epoch, -5*epoch, 3*epoch/10, epoch, 2*epoch, 5*epoch) + fraction/64)
		if w.clock.Now().UnixNano()/int64(epoch) < highest {
			w.exact = max(w.exact, highest+int64(w.cfg.Epochs)+1)
		}
		for _, key := range []string{"a", "b", "c"} {
			w.peek(key)
		}
	case 11:
		f := faultstore.Fault{Kind: faultstore.Kind(s.next() % 4), After: s.next() % 8}
		w.store.SetRule(faultstore.Always(f))
		if s.next()%4 == 0 {
			w.store.Forget(0.5)
		}
	}
}

// finish checks that nothing was lost.
func (w *engine) finish() {
	w.store.SetRule(nil)
	w.l.Close() // at the largest limit the store may have refused what is above the top
	s := w.l.Totals()
	if s.Acknowledged+s.Unknown+s.Dropped != s.Accepted { // modulo 2^64, if need be
		w.Errorf("L3: got %+v", s)
	}
	if w.huge {
		return
	}
	if s.Accepted != w.added.Int64() {
		w.Errorf("L3: %d accepted, want %v", s.Accepted, w.added)
	}
	var sum int64
	for _, n := range applied(w.store) {
		sum += n
	}
	if sum < s.Acknowledged || sum > s.Acknowledged+s.Unknown {
		w.Errorf("L3: the store was made to count %d, want %d acknowledged to %d with those in doubt", sum, s.Acknowledged, s.Acknowledged+s.Unknown)
	}
}

func runEngine(t testing.TB, s script) {
	w := newEngine(t, &s)
	for len(s) > 0 {
		w.step(&s)
	}
	w.finish()
}

func TestL2_ALoneNodeDecidesAsTheModelDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(often(200)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			runEngine(t, randomScript(seed, 1000))
		})
	}
}

func randomScript(seed uint64, n int) script {
	r := rand.New(rand.NewPCG(seed, 1))
	var s script
	for len(s) < n {
		s = binary.LittleEndian.AppendUint64(s, r.Uint64())
	}
	return s
}

func FuzzEngine(f *testing.F) {
	f.Add([]byte{})
	for seed := range uint64(8) {
		f.Add([]byte(randomScript(seed, 80)))
	}
	f.Fuzz(func(t *testing.T, s []byte) {
		if len(s) > 4000 {
			return
		}
		runEngine(t, s)
	})
}
