package limiter_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/limiter"
)

func TestSetOverrides_ChangesTheNextDecision(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := mustNew(t, newStore(), limiter.Config{Limit: 10, Clock: c, Overrides: map[string]int64{"k": 4}})
	if got := admit(l, "k", 20); got != 4 {
		t.Errorf("limit 4: admitted %d", got)
	}
	if got := admit(l, "other", 20); got != 10 {
		t.Errorf("another key: admitted %d, want 10", got)
	}
	for _, tt := range []struct {
		name   string
		limits map[string]int64
		want   limiter.Decision // of one event
	}{
		{"raised", map[string]int64{"k": 6}, limiter.Decision{Allowed: true, Limit: 6, Remaining: 1}},
		{"lowered", map[string]int64{"k": 3}, limiter.Decision{Reason: limiter.ReasonOverLimit, Limit: 3, RetryAfter: time.Minute + 1}}, // all came just now, and leave together
		{"lowered to nothing", map[string]int64{"k": 0}, limiter.Decision{Reason: limiter.ReasonOverLimit, Limit: 0, RetryAfter: limiter.Never}},
		{"lifted", map[string]int64{"k": limiter.Unlimited}, limiter.Decision{Allowed: true, Reason: limiter.ReasonUnlimited, Limit: limiter.Unlimited, Remaining: limiter.Unlimited}},
		{"the largest", map[string]int64{"k": math.MaxInt64 - 1}, limiter.Decision{Allowed: true, Limit: math.MaxInt64 - 1, Remaining: math.MaxInt64 - 1 - 6}},
		{"removed", map[string]int64{}, limiter.Decision{Allowed: true, Limit: 10, Remaining: 3}},
		{"nil", nil, limiter.Decision{Allowed: true, Limit: 10, Remaining: 2}},
	} {
		if err := l.SetOverrides(tt.limits); err != nil {
			t.Fatal(err)
		}
		if peeked := l.Peek("k"); peeked.Allowed != tt.want.Allowed || peeked.Limit != tt.want.Limit {
			t.Errorf("%s: Peek: got %+v", tt.name, peeked)
		}
		got := l.Check("k", 1)
		flush(t, l)
		got.ResetAfter = 0
		if got.Reason == limiter.ReasonFirstSeen {
			got.Reason = limiter.ReasonUnderLimit
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestSetOverrides_CopiesTheMap(t *testing.T) {
	t.Parallel()
	atStart, later := map[string]int64{"k": 1}, map[string]int64{"k": 2}
	l := mustNew(t, newStore(), limiter.Config{Limit: 10, Clock: newClock(), Overrides: atStart})
	atStart["k"] = 7
	if d := l.Peek("k"); d.Limit != 1 {
		t.Errorf("Config.Overrides is not copied: limit %d", d.Limit)
	}
	if err := l.SetOverrides(later); err != nil {
		t.Fatal(err)
	}
	clear(later)
	if d := l.Peek("k"); d.Limit != 2 {
		t.Errorf("the map is not copied: limit %d", d.Limit)
	}
}

func TestSetOverrides_RefusesNegativeLimits(t *testing.T) {
	t.Parallel()
	l := mustNew(t, newStore(), limiter.Config{Limit: 10, Clock: newClock(), Overrides: map[string]int64{"k": 4}})
	err := l.SetOverrides(map[string]int64{"secret": -1, "hidden": math.MinInt64, "k": 5})
	if !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Errorf("got %v, want ErrInvalidConfig", err)
	}
	if s := err.Error(); strings.Contains(s, "secret") || strings.Contains(s, "hidden") || !strings.Contains(s, "2 negative") {
		t.Errorf("got %q, want how many, and no key", s)
	}
	if d := l.Peek("k"); d.Limit != 4 {
		t.Errorf("the limits were changed: got %d, want 4", d.Limit)
	}
}

// An override that limits a key which was unlimited, or the other way round, also
// in the cache and in the store.
func TestSetOverrides_UnlimitedKeysAreNotCounted(t *testing.T) {
	t.Parallel()
	store := newStore()
	l := mustNew(t, store, limiter.Config{Limit: limiter.Unlimited, Clock: newClock()})
	if got := admit(l, "k", 100); got != 100 {
		t.Errorf("no limit: admitted %d of 100", got)
	}
	if !l.AllowN("k", math.MaxInt64) {
		t.Errorf("no limit: denied the largest request")
	}
	if err := l.SetOverrides(map[string]int64{"k": 5}); err != nil {
		t.Fatal(err)
	}
	if got := admit(l, "k", 100); got != 5 {
		t.Errorf("limit 5: admitted %d", got)
	}
	if err := l.SetOverrides(nil); err != nil {
		t.Fatal(err)
	}
	if got := admit(l, "k", 100); got != 100 {
		t.Errorf("no limit again: admitted %d of 100", got)
	}
	flush(t, l)
	if got := l.Totals(); got.Acknowledged != 5 || got.FirstSeen != 1 {
		t.Errorf("got %+v, want 5 events of one key counted", got)
	}
}

func TestSetOverrides_BesideDecisions(t *testing.T) {
	t.Parallel()
	l := mustNew(t, newStore(), limiter.Config{Limit: 10, Clock: newClock()})
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				switch d := l.Check("k", 1); d.Limit {
				case 10, 0, 1000:
					if d.Remaining < 0 || d.Remaining > d.Limit {
						t.Errorf("got %+v", d)
						return
					}
				default:
					t.Errorf("got limit %d, which was never set", d.Limit)
					return
				}
			}
		})
	}
	for i := range 10_000 {
		var limits map[string]int64
		if i%3 > 0 {
			limits = map[string]int64{"k": int64(i%3-1) * 1000}
		}
		if err := l.SetOverrides(limits); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
	if err := l.SetOverrides(map[string]int64{"k": 7}); err != nil {
		t.Fatal(err)
	}
	if d := l.Peek("k"); d.Limit != 7 {
		t.Errorf("got limit %d after the last change, want 7", d.Limit)
	}
}
