package limiter_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

// steps are by how many epochs a clock is set back or forward.
var steps = []float64{0.3, 1, 2, 5, 100}

func TestClock_SetBackKeepsCounts(t *testing.T) {
	t.Parallel()
	for _, step := range steps {
		for epochs := 1; epochs <= 4; epochs++ {
			for _, decay := range []limiter.Decay{limiter.DecayWindow, limiter.DecayLeak} {
				for _, sent := range []bool{false, true} {
					name := fmt.Sprintf("back by %v of %d epochs, decay %d, sent %t", step, epochs, decay, sent)
					c, store := newClock(), newStore()
					l := mustNew(t, store, limiter.Config{Limit: 10, Epochs: epochs, Clock: c, Decay: decay})
					length := time.Minute / time.Duration(epochs)
					c.run(length/2, l) // so that 0.3 stays in the epoch, and 1 does not
					admit(l, "k", 4)
					if sent {
						flush(t, l)
					}
					c.advance(-time.Duration(step * float64(length)))
					if got := used(l, "k"); got != 4 {
						t.Errorf("%s: %d used, want 4", name, got)
					}
					if got := admit(l, "k", 10); got != 6 {
						t.Errorf("%s: admitted %d more, want 6", name, got)
					}
					c.run(3*time.Second, l)
					if l.Allow("k") {
						t.Errorf("%s: admitted above the limit", name)
					}
					flush(t, l)
					conserved(t, l, 10)
					var stored int64
					for _, n := range applied(store) {
						stored += n
					}
					if s := l.Totals(); stored != 10 || s.Dropped != 0 {
						t.Errorf("%s: stored %d, dropped %d, want all 10 stored", name, stored, s.Dropped)
					}
					c.advance(time.Minute + length)
					if !l.AllowN("k", 10) {
						t.Errorf("%s: L6: not free after silence", name)
					}
				}
			}
		}
	}
}

func TestClock_SetForwardKeepsWhatCanBeRead(t *testing.T) {
	t.Parallel()
	for _, step := range steps {
		for epochs := 1; epochs <= 4; epochs++ {
			name := fmt.Sprintf("forward by %v of %d epochs", step, epochs)
			c, store := newClock(), newStore()
			l := mustNew(t, store, limiter.Config{Limit: 10, Epochs: epochs, Clock: c})
			m := newModel(time.Minute, epochs)
			length := time.Minute / time.Duration(epochs)
			c.advance(length / 2)
			m.add(c.Now(), admit(l, "k", 4))
			c.advance(time.Duration(step * float64(length)))
			if got, want := used(l, "k"), m.level(c.Now()).Int64(); got != want {
				t.Errorf("%s: %d used, want %d", name, got, want)
			}
			flush(t, l)
			conserved(t, l, 4)
			want := int64(4) // sent, if anybody can still read it
			if step > float64(epochs) {
				want = 0
			}
			if s := l.Totals(); s.Acknowledged != want {
				t.Errorf("%s: %d acknowledged, %d dropped, want %d sent", name, s.Acknowledged, s.Dropped, want)
			}
		}
	}
}

// The caller's loop goes by NextTick, which must not wait for the old time.
func TestClock_SetBackDoesNotStopTheTicks(t *testing.T) {
	t.Parallel()
	for _, back := range []time.Duration{500 * time.Millisecond, 3 * time.Second, time.Hour} {
		c, w := newClock(), new(watcher)
		l := mustNew(t, newStore(), limiter.Config{Limit: 10, Clock: c, Observer: w})
		c.run(10*time.Second, l)
		c.advance(-back)
		w.take()
		if wait := l.NextTick().Sub(c.Now()); wait > time.Second {
			t.Errorf("back by %v: the next tick comes after %v", back, wait)
		}
		for range 100 {
			l.Allow("k")
			c.run(100*time.Millisecond, l)
		}
		if got := len(w.take()); got < 10 || got > 15 {
			t.Errorf("back by %v: %d ticks in 10 s", back, got)
		}
	}
}

// Ages that were measured before the clock was set back must not keep a key from
// being exchanged, nor from staying in the cache.
func TestClock_SetBackKeepsAKeyExchanging(t *testing.T) {
	t.Parallel()
	c, s := newClock(), &spy{Store: newStore()}
	l := mustNew(t, s, limiter.Config{Limit: 1_000_000, Window: 10 * time.Hour, TickEvery: time.Second, Clock: c, SyncEvery: 15 * time.Second})
	c.advance(5 * time.Hour)
	exchangesOf(c, l, s, "k", time.Minute)
	c.advance(-3 * time.Hour) // within the epoch
	if got := len(exchangesOf(c, l, s, "k", 10*time.Minute)); got < 10 {
		t.Errorf("%d exchanges in 10 minutes, want one per minute at least", got)
	}
}

// Fleet counts of epochs that lie ahead are believed as well.
func TestClock_SetBackKeepsTheCountsOfOthers(t *testing.T) {
	t.Parallel()
	c := newClock()
	cfg := limiter.Config{Limit: 100, Clock: c}
	l := mustNew(t, others(t, cfg, "k", 30), cfg)
	admit(l, "k", 5)
	flush(t, l)
	c.advance(-2 * time.Minute)
	if got := used(l, "k"); got != 35 {
		t.Errorf("%d used, want 35", got)
	}
	l.Allow("k")
	flush(t, l)
	if got := used(l, "k"); got != 36 {
		t.Errorf("%d used after a reply about the epoch that is current again, want 36", got)
	}
}

// hooked is a cache that the loop asks for its size before it looks at keys, and
// that it tells of a key's use between its look at the key and its plan for it.
type hooked struct {
	limiter.LocalCache
	onLen, onTouch func()
}

func (h *hooked) Len() int {
	once(&h.onLen)
	return h.LocalCache.Len()
}

func (h *hooked) Touch(key string) {
	once(&h.onTouch)
	h.LocalCache.Touch(key)
}

// once calls *f, if it is not nil, and forgets it.
func once(f *func()) {
	if do := *f; do != nil {
		*f = nil
		do()
	}
}

// A decision may be in a later epoch than the tick that looks at its key.
func TestClock_AnEpochBeginsDuringATick(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before the look at the key", "after it"} {
		c, store, cache := newClock(), newStore(), new(hooked)
		l := mustNew(t, store, limiter.Config{
			Limit: 100, Clock: c,
			NewCache: func(cfg limiter.CacheConfig) limiter.LocalCache {
				cache.LocalCache = limiter.NewDefaultCache(cfg)
				return cache
			},
			CacheEntries: 1, // so that each use is told to the cache
		})
		admit(l, "k", 3)
		flush(t, l)
		c.set(epochStart.Add(time.Minute - time.Millisecond))
		admit(l, "k", 4)
		begun := false
		begin := func() {
			begun = true
			c.set(epochStart.Add(time.Minute))
			admit(l, "k", 5)
		}
		if when == "after it" {
			cache.onTouch = begin
		} else {
			cache.onLen = begin
		}
		flush(t, l)
		flush(t, l)
		if !begun {
			t.Fatalf("%s: the loop did not call the cache", when)
		}
		first := epochStart.Unix() / 60
		want := map[limiter.Counter]int64{{Key: "k", Epoch: first}: 7, {Key: "k", Epoch: first + 1}: 5}
		if diff := cmp.Diff(want, applied(store)); diff != "" {
			t.Errorf("L3: the epoch began %s (-want +stored):\n%s", when, diff)
		}
		conserved(t, l, 12)
		if got := used(l, "k"); got != 12 {
			t.Errorf("the epoch began %s: %d used, want 12", when, got)
		}
	}
}

// skewed is a store whose clock differs from the node's.
type skewed struct {
	limiter.Store
	ahead time.Duration // of the node's
	asked int
	err   error
}

func (s *skewed) Time(context.Context) (time.Time, error) {
	s.asked++
	return time.Now().Add(s.ahead), s.err
}

func TestClock_SkewIsReportedAndCorrected(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, 300 * time.Millisecond, -5 * time.Second, 90 * time.Minute, -90 * time.Minute} {
		for _, correct := range []bool{false, true} {
			t.Run(fmt.Sprintf("store ahead by %v, corrected %t", ahead, correct), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := &spy{Store: memorystore.New()}
					store := &skewed{Store: s, ahead: ahead}
					w := new(watcher)
					l := mustNew(t, store, limiter.Config{Limit: 100, CorrectSkew: correct, Observer: w})
					for range 300 {
						l.Allow("k")
						time.Sleep(time.Second)
					}
					r := w.take()
					last := r[len(r)-1]
					if want := -ahead; last.ClockSkew != want {
						t.Errorf("ClockSkew: got %v, want %v", last.ClockSkew, want)
					}
					if len(r) < 300 || len(r) > 330 {
						t.Errorf("%d ticks in 300 s", len(r))
					}
					if store.asked < 5 || store.asked > 7 {
						t.Errorf("asked for the time %d times in 5 minutes, want once a minute", store.asked)
					}
					want := last.Time
					if batches := s.take(); batches[len(batches)-1].Now.Sub(want).Abs() > 30*time.Second {
						t.Errorf("the last batch is of %v, the last tick of %v", batches[len(batches)-1].Now, want)
					}
					off := time.Until(want).Round(10 * time.Second)
					if correct && off != ahead.Round(10*time.Second) || !correct && off != 0 {
						t.Errorf("the limiter's time is off by %v", off)
					}
				})
			})
		}
	}
}

// A store that cannot tell its time is no reason to stop, nor is one that fails.
func TestClock_AStoreThatCannotTellTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		l := mustNew(t, &skewed{Store: memorystore.New(), ahead: time.Hour, err: context.DeadlineExceeded}, limiter.Config{Limit: 100, CorrectSkew: true, Observer: w})
		l.Allow("k")
		time.Sleep(5 * time.Second)
		r := w.take()
		if last := r[len(r)-1]; last.ClockSkew != 0 || last.FailingFor != 0 || last.Totals.Acknowledged != 1 {
			t.Errorf("got %+v", last)
		}
	})
}
