package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/internal/faultstore"
	"github.com/fleetlimit/fleetlimit/limiter"
)

// While the store refuses for less than an epoch at a time, every event arrives
// in the epoch that it was counted in.
func TestL3_EveryEventReachesItsEpoch(t *testing.T) {
	t.Parallel()
	for seed := range uint64(often(30)) {
		r := rand.New(rand.NewPCG(seed, 3))
		c, store := newClock(), newStore()
		cfg := limiter.Config{Limit: 50, Epochs: 1 + int(seed%4), Clock: c}
		fleet := newFleet(t, 3, store, cfg)
		m := newModel(time.Minute, cfg.Epochs)
		counted := make(map[limiter.Counter]int64)
		for range 400 {
			key := strconv.Itoa(r.IntN(5))
			if n := 1 + r.Int64N(3); fleet[r.IntN(3)].AllowN(key, n) {
				counted[limiter.Counter{Key: key, Epoch: m.epoch(c.Now())}] += n
			}
			store.SetRule(nil)
			if r.IntN(3) > 0 {
				store.SetRule(faultstore.Always(faultstore.Fault{Kind: faultstore.Refuse, After: r.IntN(6)}))
			}
			c.run(time.Duration(r.Int64N(int64(3*time.Second))), fleet...)
		}
		store.SetRule(nil)
		flush(t, fleet...)
		if diff := cmp.Diff(counted, applied(store)); diff != "" {
			t.Errorf("L3: seed %d (-counted +stored):\n%s", seed, diff)
		}
	}
}

// Whatever fails, and however small the cache, it is known what became of each
// event.
func TestL3_NothingIsLostUncounted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(often(50)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 4))
			c, store := newClock(), newStore()
			fleet := newFleet(t, 2, store, limiter.Config{
				Limit: 50, Clock: c,
				Epochs: 1 + int(seed%4), CacheEntries: 1 + int(seed%16), CountDenied: seed%3 == 0, Decay: limiter.Decay(seed % 2),
			})
			accepted := make([]int64, len(fleet))
			var denied int64
			for range 1000 {
				i, n := r.IntN(len(fleet)), 1+r.Int64N(3)
				switch allowed := fleet[i].AllowN(strconv.Itoa(r.IntN(40)), n); {
				case !allowed:
					denied += n
					fallthrough
				default:
					if allowed || seed%3 == 0 {
						accepted[i] += n
					}
				}
				switch r.IntN(40) {
				case 0:
					store.SetRule(faultstore.Always(faultstore.Fault{Kind: faultstore.Kind(r.IntN(4)), After: r.IntN(10)}))
				case 1:
					store.SetRule(nil)
				case 2:
					c.advance(time.Duration(r.Int64N(int64(2 * time.Minute))))
				}
				c.run(time.Duration(r.Int64N(int64(time.Second))), fleet...)
			}
			var sum limiter.Totals
			for i, l := range fleet {
				err := l.Close()
				s := l.Totals()
				conserved(t, l, accepted[i])
				if s.Accepted != accepted[i] {
					t.Errorf("L3: limiter %d has seen %d of %d accepted", i, s.Accepted, accepted[i])
				}
				if unsent := new(limiter.UnsentError); err != nil && !errors.As(err, &unsent) {
					t.Errorf("Close: got %v, want an UnsentError", err)
				}
				sum.Acknowledged += s.Acknowledged
				sum.Unknown += s.Unknown
				sum.Denied += s.Denied
			}
			var stored int64
			for _, n := range applied(store) {
				stored += n
			}
			if stored < sum.Acknowledged || stored > sum.Acknowledged+sum.Unknown {
				t.Errorf("L3: stored %d, want %d acknowledged to %d with those in doubt", stored, sum.Acknowledged, sum.Acknowledged+sum.Unknown)
			}
			if sum.Denied != denied {
				t.Errorf("Denied: got %d, want %d", sum.Denied, denied)
			}
		})
	}
}

// An exchange may take so long that its epochs have left the window.
func TestL3_AnExchangeThatOutlastsItsEpochs(t *testing.T) {
	t.Parallel()
	for kind, want := range map[faultstore.Kind]limiter.Totals{
		faultstore.None:        {Acknowledged: 3},
		faultstore.Refuse:      {Dropped: 3},
		faultstore.LoseRequest: {Unknown: 3},
		faultstore.LoseReply:   {Unknown: 3},
	} {
		c, store := newClock(), newStore()
		slow := &before{Store: store}
		l := mustNew(t, slow, limiter.Config{Limit: 10, Clock: c})
		admit(l, "k", 3)
		store.SetRule(faultstore.Always(faultstore.Fault{Kind: kind}))
		slow.do = func() {
			c.advance(2 * time.Minute)
			admit(l, "k", 4)
		}
		l.Flush(t.Context())
		got := l.Totals()
		got = limiter.Totals{Acknowledged: got.Acknowledged, Unknown: got.Unknown, Dropped: got.Dropped}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("L3: %v (-want +got):\n%s", kind, diff)
		}
		if got := used(l, "k"); got != 4 {
			t.Errorf("%v: %d used, want 4", kind, got)
		}
		store.SetRule(nil)
		flush(t, l)
		conserved(t, l, 7)
	}
}

// What is in doubt counts as arrived, so that a node whose requests get lost does
// not let through the same events again.
func TestL3_WhatIsInDoubtIsCounted(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]faultstore.Rule{"request lost": requestLost, "reply lost": replyLost} {
		cfg := limiter.Config{Limit: 1000, Clock: newClock()}
		store := faultstore.Wrap(others(t, cfg, "k", 30))
		l := mustNew(t, store, cfg)
		l.AllowN("k", 5)
		flush(t, l)
		store.SetRule(rule)
		l.AllowN("k", 10)
		l.Flush(t.Context())
		if got := used(l, "k"); got != 45 {
			t.Errorf("%s: %d used, want 45", name, got)
		}
		store.SetRule(nil)
		l.AllowN("k", 1)
		flush(t, l)
		if got := used(l, "k"); got != 46 {
			t.Errorf("%s: %d used after the next reply, want 46", name, got)
		}
		if s := l.Totals(); s.Unknown != 10 || s.Acknowledged != 6 {
			t.Errorf("%s: got %+v, want 10 in doubt and 6 acknowledged", name, s)
		}
	}
}

// between is a clock that does something while a decision asks for the time.
type between struct {
	*clock
	do func()
}

func (b *between) Now() time.Time {
	once(&b.do)
	return b.clock.Now()
}

// A decision looks at its key, asks for the time, and counts. Whatever the loop does
// in between, the event is not forgotten.
func TestL3_TheLoopActsInTheMiddleOfADecision(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(l *limiter.Limiter){
		"sends all":          func(l *limiter.Limiter) { l.Flush(context.Background()) },
		"lets go of the key": func(l *limiter.Limiter) { l.Flush(context.Background()); l.Flush(context.Background()) },
		"ends":               func(l *limiter.Limiter) { l.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			c := &between{clock: newClock()}
			l := mustNew(t, newStore(), limiter.Config{Limit: 1000, Clock: c})
			l.Allow("k")
			flush(t, l)
			l.Allow("k") // known, and on the loop's list
			c.do = func() { act(l) }
			l.Allow("k")
			if c.do != nil {
				t.Fatal("the decision did not ask for the time")
			}
			l.Flush(t.Context())
			conserved(t, l, 3)
		})
	}
}

// Deciding goes on while everything is sent over and over, and while the limiter
// is closed.
func TestL3_DecisionsBesideExchangesAndShutdown(t *testing.T) {
	t.Parallel()
	for range 20 {
		store := newStore()
		l := mustNew(t, store, limiter.Config{Limit: 1 << 40, Clock: newClock(), CacheEntries: 8})
		var accepted atomic.Int64
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := range 2000 {
					if l.Allow(strconv.Itoa((i + g) % 10)) {
						accepted.Add(1)
					}
				}
			})
		}
		for range 2 {
			wg.Go(func() {
				for range 50 {
					l.Flush(context.Background())
				}
				l.Shutdown(context.Background())
			})
		}
		wg.Wait()
		conserved(t, l, accepted.Load())
		var stored int64
		for _, n := range applied(store) {
			stored += n
		}
		if s := l.Totals(); stored != s.Acknowledged || s.Unknown != 0 {
			t.Errorf("L3: stored %d, got %+v", stored, s)
		}
	}
}

func TestL3_TheLoopBesideDecisions(t *testing.T) {
	t.Parallel()
	store := newStore()
	l := mustNew(t, store, limiter.Config{Limit: 1 << 40, Window: 100 * time.Millisecond, CacheEntries: 8})
	var accepted atomic.Int64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 30_000 {
				if l.Allow(strconv.Itoa((i + g) % 10)) {
					accepted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	conserved(t, l, accepted.Load())
}

func TestL8_ShutdownSendsWhatWasAccepted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		l := mustNew(t, store, limiter.Config{Limit: 100})
		for i := range 50 {
			l.AllowN(strconv.Itoa(i), 2)
		}
		if err := l.Shutdown(t.Context()); err != nil {
			t.Errorf("L8: %v", err)
		}
		if got := len(applied(store)); got != 50 {
			t.Errorf("L8: the store counts %d keys, want 50", got)
		}
		conserved(t, l, 100)
		if s := l.Totals(); s.Acknowledged != 100 {
			t.Errorf("L8: %d acknowledged, want 100", s.Acknowledged)
		}
	})
}

func TestL8_ShutdownReturnsWhatItCouldNotSend(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		fault           faultstore.Fault
		events, unknown int64
	}{
		{"refused", faultstore.Fault{Kind: faultstore.Refuse}, 30, 0},
		{"request lost", faultstore.Fault{Kind: faultstore.LoseRequest}, 0, 30},
		{"reply lost", faultstore.Fault{Kind: faultstore.LoseReply}, 0, 30},
		{"refused after four keys", faultstore.Fault{Kind: faultstore.Refuse, After: 4}, 18, 0},
		{"reply lost after four keys", faultstore.Fault{Kind: faultstore.LoseReply, After: 4}, 0, 18},
		{"hanging", faultstore.Fault{Kind: faultstore.LoseRequest, Delay: faultstore.Forever}, 0, 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newStore()
				store.SetRule(faultstore.Always(tt.fault))
				l := mustNew(t, store, limiter.Config{Limit: 100})
				for i := range 10 {
					l.AllowN(strconv.Itoa(i), 3)
				}
				err := l.Shutdown(t.Context())
				var unsent *limiter.UnsentError
				if !errors.As(err, &unsent) || unsent.Events != tt.events || unsent.Unknown != tt.unknown {
					t.Errorf("L8: got %v, want %d events unsent and %d in doubt", err, tt.events, tt.unknown)
				}
				if !errors.Is(err, faultstore.ErrInjected) {
					t.Errorf("L8: got %v, want the store's error in it", err)
				}
				conserved(t, l, 30)
			})
		})
	}
}

func TestUnsentError_SaysHowMuch(t *testing.T) {
	t.Parallel()
	err := &limiter.UnsentError{Events: 7, Unknown: 3, Err: context.Canceled}
	if got, want := err.Error(), "limiter: shutdown left 7 events unsent and 3 in doubt: context canceled"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestL8_ShutdownKeepsToItsContext(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		busy    func(l *limiter.Limiter) // what is under way
		timeout time.Duration
	}{
		{"nothing under way", func(*limiter.Limiter) {}, 100 * time.Millisecond},
		{"done before it begins", func(*limiter.Limiter) {}, 0},
		{"an exchange of the loop's", func(*limiter.Limiter) { time.Sleep(1500 * time.Millisecond) }, 100 * time.Millisecond},
		{"a Flush", func(l *limiter.Limiter) { go l.Flush(context.Background()); synctest.Wait() }, 100 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newStore()
				store.SetRule(hanging)
				l := mustNew(t, store, limiter.Config{Limit: 100})
				admit(l, "k", 10)
				tt.busy(l)
				admit(l, "l", 10)
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				start := time.Now()
				err := l.Shutdown(ctx)
				if took := time.Since(start); took != tt.timeout {
					t.Errorf("L8: Shutdown took %v, want %v", took, tt.timeout)
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("L8: got %v, want DeadlineExceeded in it", err)
				}
				conserved(t, l, 20)
			})
		})
	}
}

// Cut off, its outcome would be unknown.
func TestL8_ShutdownLetsAnExchangeFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		store.SetRule(faultstore.Always(faultstore.Fault{Delay: 700 * time.Millisecond}))
		l := mustNew(t, store, limiter.Config{Limit: 100})
		admit(l, "k", 10)
		go l.Flush(context.Background())
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Errorf("L8: %v", err)
		}
		if s := l.Totals(); s.Acknowledged != 10 {
			t.Errorf("L8: %d acknowledged, want 10", s.Acknowledged)
		}
	})
}

func TestL8_ShutdownHappensOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		store.SetRule(faultstore.Always(faultstore.Fault{Kind: faultstore.Refuse, Delay: 100 * time.Millisecond}))
		l := mustNew(t, store, limiter.Config{Limit: 100})
		admit(l, "k", 10)
		errs := make([]error, 10)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				if i%2 == 0 {
					errs[i] = l.Close()
				} else {
					errs[i] = l.Shutdown(t.Context())
				}
			})
		}
		wg.Wait()
		for _, err := range append(errs, l.Close()) {
			if err == nil || err != errs[0] {
				t.Errorf("L8: got %v, want what the first call got: %v", err, errs[0])
			}
		}
	})
}

func TestL8_AfterCloseDecisionsAreExactAndSendNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		l := mustNew(t, store, limiter.Config{Limit: 10, Overrides: map[string]int64{"zero": 0, "free": limiter.Unlimited}})
		admit(l, "k", 4)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		before := store.Counts()
		for _, tt := range []struct {
			key     string
			n       int64
			allowed bool
		}{{"k", 7, false}, {"k", 6, true}, {"k", 1, false}, {"new", 10, true}, {"new", 1, false}, {"zero", 1, false}} {
			if d := l.Check(tt.key, tt.n); d.Allowed != tt.allowed || d.Reason != limiter.ReasonClosed {
				t.Errorf("L8: %d of %s: got %+v, want %t, closed", tt.n, tt.key, d, tt.allowed)
			}
		}
		if d := l.Peek("k"); d.Allowed || d.Reason != limiter.ReasonClosed {
			t.Errorf("L8: Peek: got %+v", d)
		}
		if d := l.Check("free", 1); !d.Allowed || d.Reason != limiter.ReasonUnlimited {
			t.Errorf("L8: an unlimited key: got %+v", d)
		}
		time.Sleep(30*time.Second + time.Minute) // the bubble's time began with an epoch
		if d := l.Check("k", 6); d.Allowed {
			t.Errorf("L8: got %+v when half of 10 had left the window", d)
		}
		if d := l.Check("k", 5); !d.Allowed || d.Remaining != 0 {
			t.Errorf("L8: got %+v when half of 10 had left the window", d)
		}
		if err := l.Flush(t.Context()); err != limiter.ErrClosed {
			t.Errorf("Flush: got %v, want ErrClosed", err)
		}
		if err := l.Tick(t.Context()); err != limiter.ErrClosed {
			t.Errorf("Tick: got %v, want ErrClosed", err)
		}
		if diff := cmp.Diff(before, store.Counts()); diff != "" {
			t.Errorf("L8: the store was asked after Close (-before +after):\n%s", diff)
		}
		conserved(t, l, 4+6+10+5)
	})
}

// Nothing is left to clear away what decisions would leave for the loop.
func TestL8_AfterCloseMemoryIsBounded(t *testing.T) {
	t.Parallel()
	l := mustNew(t, newStore(), limiter.Config{Limit: 10, Clock: newClock(), CacheEntries: 10})
	l.Close()
	for i := range 1000 {
		l.Allow(strconv.Itoa(i))
	}
	if got := limiter.Held(l); got > 30 {
		t.Errorf("L8: %d entries are held, with a cache of 10", got)
	}
}

// A bubble ends only if all of its goroutines have ended.
func TestClose_LeavesNoGoroutine(t *testing.T) {
	t.Parallel()
	for _, window := range []time.Duration{time.Millisecond, 10 * time.Millisecond, time.Minute, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			l := mustNew(t, newStore(), limiter.Config{Limit: 1, Window: window})
			l.Allow("k")
			time.Sleep(min(2*window, time.Minute))
			l.Close()
		})
	}
}
