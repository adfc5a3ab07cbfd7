package limiter_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

// clock is a time that the test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_700_000_000, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

func mustNew(t testing.TB, store limiter.Store, cfg limiter.Config) *limiter.Limiter {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "test"
	}
	l, err := limiter.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// run lets virtual time pass until end, with every tick at its time.
func (c *clock) run(t testing.TB, end time.Time, ls ...*limiter.Limiter) {
	t.Helper()
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
			if !l.NextTick().After(c.Now()) {
				l.Tick(context.Background())
			}
		}
	}
}

func TestL2_ALoneNodeAdmitsExactlyItsLimit(t *testing.T) {
	t.Parallel()
	for _, goroutines := range []int{1, 50} {
		c := newClock()
		l := mustNew(t, memorystore.New(), limiter.Config{Limit: 10, Clock: c})
		var admitted int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range 1000 / goroutines {
					if l.Allow("k") {
						mu.Lock()
						admitted++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		if admitted != 10 {
			t.Errorf("%d goroutines: admitted %d, want 10", goroutines, admitted)
		}
		c.run(t, c.Now().Add(5*time.Second), l)
		if l.Allow("k") {
			t.Errorf("admitted an eleventh after exchanges")
		}
	}
}

func TestFleet_SharesOneLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memorystore.New()
		a := mustNew(t, store, limiter.Config{Limit: 100})
		b := mustNew(t, store, limiter.Config{Limit: 100})
		for range 60 {
			a.Allow("k")
		}
		time.Sleep(1100 * time.Millisecond)
		n := 0
		b.Allow("k")
		time.Sleep(1100 * time.Millisecond)
		for range 100 {
			if b.Allow("k") {
				n++
			}
		}
		if n != 39 {
			t.Errorf("b admitted %d after a's 60 and its own 1, want 39", n)
		}
	})
}
