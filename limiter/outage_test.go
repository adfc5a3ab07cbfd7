package limiter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/internal/faultstore"
	"github.com/fleetlimit/fleetlimit/limiter"
)

// verdict is what a test says of a decision.
type verdict struct {
	Allowed bool
	Reason  limiter.Reason
}

func verdictOf(d limiter.Decision) verdict { return verdict{d.Allowed, d.Reason} }

// poll asks for n events of key every second, for the given time, and for a new
// key, so that every tick has something to exchange.
func poll(l *limiter.Limiter, key string, n int64, d time.Duration) (last limiter.Decision) {
	for range d / time.Second {
		last = l.Check(key, n)
		l.Allow(time.Now().String())
		time.Sleep(time.Second)
	}
	return last
}

func TestL5_OutagePolicies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		policy  limiter.Outage
		n       int64
		verdict verdict
	}{
		{"local, within the limit", limiter.OutageLocal, 1, verdict{true, limiter.ReasonOutageAllowed}},
		{"local, above it", limiter.OutageLocal, 101, verdict{false, limiter.ReasonOutageDenied}},
		{"allow", limiter.OutageAllow, 101, verdict{true, limiter.ReasonOutageAllowed}},
		{"deny", limiter.OutageDeny, 1, verdict{false, limiter.ReasonOutageDenied}},
	} {
		for name, rule := range map[string]faultstore.Rule{"refused": refused, "hanging": hanging, "reply lost": replyLost} {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := newStore()
					l := mustNew(t, store, limiter.Config{Limit: 100, Outage: tt.policy, OutageAfter: 20 * time.Second})
					poll(l, "k", 1, 5*time.Second)
					store.SetRule(rule)
					if d := poll(l, "k", 1, 20*time.Second); d.Reason != limiter.ReasonUnderLimit {
						t.Errorf("L5: before OutageAfter: got %+v", d)
					}
					poll(l, "k", 1, 5*time.Second) // the first failure, and an exchange that hangs, come late
					if got := verdictOf(l.Check("k", tt.n)); got != tt.verdict {
						t.Errorf("L5: in an outage: got %+v, want %+v", got, tt.verdict)
					}
					if got := verdictOf(l.Check("new", tt.n)); got != tt.verdict {
						t.Errorf("L5: a new key in an outage: got %+v, want %+v", got, tt.verdict)
					}
					store.SetRule(nil)
					poll(l, "k", 1, 4*time.Second) // an exchange that hangs ends, and a tick comes
					if d := l.Peek("k"); !d.Allowed && d.Remaining > 0 || d.Reason == limiter.ReasonOutageAllowed || d.Reason == limiter.ReasonOutageDenied {
						t.Errorf("L5: after recovery: got %+v", d)
					}
				})
			})
		}
	}
}

func TestL5_AnOutageBeginsAfterOutageAfter(t *testing.T) {
	t.Parallel()
	c, store, w := newClock(), newStore(), new(watcher)
	l := mustNew(t, store, limiter.Config{Limit: 1000, Clock: c, Observer: w})
	store.SetRule(refused)
	var first time.Time
	for range 100 {
		l.Allow("k")
		c.tick(l)
		for _, r := range w.take() {
			if first.IsZero() {
				first = r.Time
			}
			failing := r.Time.Sub(first)
			if r.FailingFor != failing {
				t.Errorf("FailingFor: got %v, want %v", r.FailingFor, failing)
			}
			if want := failing >= time.Minute; r.Outage != want {
				t.Errorf("L5: %v after the first failure: outage %t, want %t", failing, r.Outage, want)
			}
		}
	}
	store.SetRule(nil)
	l.Allow("k")
	c.tick(l)
	if r := w.take(); r[0].Outage || r[0].FailingFor != 0 {
		t.Errorf("after recovery: got %+v", r[0])
	}
}

// One node's share of the limit is the limit by the number of nodes that it
// last saw, and what others used has left the window.
func TestL5_LocalShare(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 2, 4, 10} {
		c, store := newClock(), newStore()
		fleet := newFleet(t, nodes, store, limiter.Config{Limit: 20, Clock: c, OutageAfter: 5 * time.Second, CacheIdle: 10 * time.Minute, CacheTTL: 20 * time.Minute})
		c.run(70*time.Second, fleet...)
		store.SetRule(refused)
		for range 5 {
			fleet[0].Allow("k")
			c.run(2*time.Second, fleet...)
		}
		c.run(2*time.Minute, fleet...)
		share := max(1, 20/int64(nodes))
		for round := range 3 {
			if got := admit(fleet[0], "k", 30); got != share {
				t.Errorf("L5: %d nodes, round %d: admitted %d, want %d", nodes, round, got, share)
			}
			d := fleet[0].Peek("k")
			if d.Remaining != 0 || d.Limit != 20 || d.Reason != limiter.ReasonOutageDenied {
				t.Errorf("L5: %d nodes: got %+v", nodes, d)
			}
			c.run(2*time.Minute, fleet...)
		}
		store.SetRule(nil)
		fleet[0].Allow("k")
		c.run(2*time.Second, fleet...)
		if got := admit(fleet[0], "k", 30); got != 19 {
			t.Errorf("L5: %d nodes: admitted %d after recovery, want 19", nodes, got)
		}
	}
}

// Denied events alone must lead to the exchange that ends the outage.
func TestL5_RecoveryIsNoticedAtTheNextTick(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newStore()
	l := mustNew(t, store, limiter.Config{Limit: 1000, Clock: c, Outage: limiter.OutageDeny, OutageAfter: 3 * time.Second})
	for range 5 { // so that the key is not due for being new, nor the census for the epoch
		l.Allow("k")
		flush(t, l)
		c.run(time.Second, l)
	}
	store.SetRule(refused)
	for range 5 {
		l.Allow("k")
		l.Flush(t.Context())
		c.advance(time.Second)
	}
	if d := l.Check("k", 1); d.Reason != limiter.ReasonOutageDenied {
		t.Fatalf("no outage: got %+v", d)
	}
	store.SetRule(nil)
	c.tick(l)
	if d := l.Check("k", 1); d.Reason != limiter.ReasonUnderLimit {
		t.Errorf("L5: after the first tick with a working store: got %+v", d)
	}
}

// A part of the keys that fails is no outage of the others.
func TestL5_APartialFailureIsNoOutage(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newStore()
	l := mustNew(t, store, limiter.Config{Limit: 1000, Clock: c, Outage: limiter.OutageDeny, OutageAfter: 3 * time.Second})
	store.SetRule(faultstore.Always(faultstore.Fault{Kind: faultstore.Refuse, After: 1}))
	for range 30 {
		l.Allow("a")
		l.Allow("b")
		c.run(time.Second, l)
	}
	if d := l.Peek("a"); !d.Allowed {
		t.Errorf("L5: got %+v", d)
	}
}

// At limit 0 and without a limit nothing changes in an outage.
func TestL5_NoOutageForZeroAndUnlimited(t *testing.T) {
	t.Parallel()
	for _, policy := range []limiter.Outage{limiter.OutageLocal, limiter.OutageAllow, limiter.OutageDeny} {
		c, store := newClock(), newStore()
		store.SetRule(refused)
		l := mustNew(t, store, limiter.Config{
			Limit: 10, Clock: c, Outage: policy, OutageAfter: time.Second,
			Overrides: map[string]int64{"zero": 0, "free": limiter.Unlimited},
		})
		c.run(10*time.Second, l)
		if d := l.Check("zero", 1); d.Allowed || d.Reason != limiter.ReasonOverLimit || d.RetryAfter != limiter.Never {
			t.Errorf("L5: limit 0 under policy %d: got %+v", policy, d)
		}
		if d := l.Check("free", 1); !d.Allowed || d.Reason != limiter.ReasonUnlimited {
			t.Errorf("L5: no limit under policy %d: got %+v", policy, d)
		}
	}
}

// parts is a store of two parts: key "b" and all that come after it are in the
// second.
type parts [2]limiter.Store

func (p parts) Parts() []limiter.Part {
	return []limiter.Part{{Name: "first", Store: p[0]}, {Name: "second", Store: p[1]}}
}

func (p parts) PartOf(key string) int {
	if key < "b" {
		return 0
	}
	return 1
}

func (parts) Exchange(context.Context, *limiter.Batch) error {
	panic("the limiter calls the parts only")
}

func TestL5_AnOutageOfOnePartIsNoneOfTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := newStore(), newStore()
		w := new(watcher)
		l := mustNew(t, parts{first, second}, limiter.Config{Limit: 1000, Outage: limiter.OutageDeny, OutageAfter: 5 * time.Second, Observer: w})
		first.SetRule(hanging)
		start := time.Now()
		var got []bool
		for range 20 {
			got = append(got, l.Allow("a"))
			if !l.Allow("b") {
				t.Errorf("L5: the working part denied at %v", time.Since(start))
			}
			time.Sleep(time.Second)
		}
		if got[19] {
			t.Errorf("L5: no outage of the failing part")
		}
		var ticks int
		for _, r := range w.take() {
			if r.Partition == "second" {
				ticks++
			}
		}
		if ticks < 20 {
			t.Errorf("the working part ticked %d times in 20 s", ticks)
		}
	})
}

func TestL6_SilenceSetsFreeWithoutAnExchange(t *testing.T) {
	t.Parallel()
	for epochs := 1; epochs <= 4; epochs++ {
		for decay, name := range []string{"window", "leak"} {
			for _, policy := range []limiter.Outage{limiter.OutageLocal, limiter.OutageAllow} {
				c, store := newClock(), newStore()
				cfg := limiter.Config{Limit: 10, Epochs: epochs, Clock: c, Decay: limiter.Decay(decay), Outage: policy}
				fleet := newFleet(t, 2, store, cfg)
				c.advance(7 * time.Second)
				for range 3 { // the fleet lets three times the limit through
					admit(fleet[0], "k", 20)
					admit(fleet[1], "k", 20)
					c.run(20*time.Second, fleet...)
				}
				l := fleet[0]
				if l.Allow("k") {
					t.Fatalf("the key is not limited")
				}
				store.SetRule(hanging)
				silence := time.Minute + time.Minute/time.Duration(epochs)
				c.advance(silence)
				if d := l.Check("k", 10); !d.Allowed {
					t.Errorf("L6: %d epochs, decay %s: got %+v after %v of silence", epochs, name, d, silence)
				}
				if err := l.SetOverrides(map[string]int64{"k": 0}); err != nil {
					t.Fatal(err)
				}
				c.advance(time.Hour)
				if d := l.Check("k", 1); d.Allowed {
					t.Errorf("L6: limit 0 admits after silence: %+v", d)
				}
			}
		}
	}
}

// Also a key whose limit was lowered far below its level is released in time.
func TestL6_RetryAfterIsNoLongerThanSilence(t *testing.T) {
	t.Parallel()
	for _, decay := range []limiter.Decay{limiter.DecayWindow, limiter.DecayLeak} {
		c := newClock()
		cfg := limiter.Config{Limit: 1000, Clock: c, Decay: decay}
		l := mustNew(t, others(t, cfg, "k", 990), cfg)
		l.AllowN("k", 5)
		flush(t, l)
		if err := l.SetOverrides(map[string]int64{"k": 2}); err != nil {
			t.Fatal(err)
		}
		d := l.Check("k", 1)
		if d.Allowed || d.RetryAfter > 2*time.Minute {
			t.Errorf("L6: decay %d: got %+v, want RetryAfter of two epochs at most", decay, d)
		}
		c.advance(d.RetryAfter)
		if !l.Allow("k") {
			t.Errorf("L6: decay %d: denied after RetryAfter %v", decay, d.RetryAfter)
		}
	}
}

// The reference's leak of limit/window per second: level of an estimate that was
// heard some seconds ago, with events pending since.
func TestDecayLeak_MatchesTheReferenceCases(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ estimate, elapsed, pending, want int64 }{
		{100, 0, 0, 100}, {100, 10, 0, 0}, {100, 5, 0, 50}, {100, 0, 50, 150}, {100, 5, 30, 80}, {10, 20, 0, 0}, {10, 20, 5, 5},
	} {
		c := newClock()
		cfg := limiter.Config{Limit: 600, Clock: c, Decay: limiter.DecayLeak} // 10 per second
		l := mustNew(t, others(t, cfg, "k", tt.estimate-1), cfg)
		l.Allow("k")
		flush(t, l)
		c.advance(time.Duration(tt.elapsed) * time.Second)
		if tt.pending > 0 {
			l.AllowN("k", tt.pending)
		}
		if got := used(l, "k"); got != tt.want {
			t.Errorf("%d heard %d s ago, %d since: got %d, want %d", tt.estimate, tt.elapsed, tt.pending, got, tt.want)
		}
	}
}

func TestColdShare_BoundsAKeyUntilTheStoreHasTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		share float64
		limit int64
		want  int64
	}{
		{"the default", 0, 100, 100},
		{"a tenth", 0.1, 100, 10},
		{"at least one", 0.001, 100, 1},
		{"at least one of one", 0.5, 1, 1},
		{"a fourth of four nodes", limiter.FairShare, 100, 25},
		{"at least one of four nodes", limiter.FairShare, 3, 1},
	} {
		c, store := newClock(), newStore()
		fleet := newFleet(t, 4, store, limiter.Config{Limit: tt.limit, Clock: c, ColdShare: tt.share})
		c.run(70*time.Second, fleet...) // the census
		l := fleet[0]
		if d := l.Peek("k"); !d.Allowed || d.Reason != limiter.ReasonFirstSeen || d.Remaining != tt.want {
			t.Errorf("%s: Peek: got %+v, want %d remaining", tt.name, d, tt.want)
		}
		for round := range 2 {
			if d := l.Check("k", tt.want+1); d.Allowed {
				t.Errorf("%s, round %d: got %+v, want no more than %d", tt.name, round, d, tt.want)
			}
			if got := admit(l, "k", 200); got != tt.want {
				t.Errorf("%s, round %d: admitted %d, want %d", tt.name, round, got, tt.want)
			}
			flush(t, l)
			if got := admit(l, "k", 200); got != tt.limit-tt.want {
				t.Errorf("%s, round %d: admitted %d when the store had told, want %d", tt.name, round, got, tt.limit-tt.want)
			}
			c.advance(5 * time.Minute) // nothing of what it told is left
		}
	}
}

func TestOutage_ReportsAndReasonsAgree(t *testing.T) {
	t.Parallel()
	want := map[limiter.Outage]verdict{
		limiter.OutageLocal: {true, limiter.ReasonOutageAllowed},
		limiter.OutageAllow: {true, limiter.ReasonOutageAllowed},
		limiter.OutageDeny:  {false, limiter.ReasonOutageDenied},
	}
	got := make(map[limiter.Outage]verdict)
	for policy := range want {
		c, store, w := newClock(), newStore(), new(watcher)
		store.SetRule(refused)
		l := mustNew(t, store, limiter.Config{Limit: 10, Clock: c, Outage: policy, OutageAfter: 2 * time.Second, Observer: w})
		c.run(5*time.Second, l)
		got[policy] = verdictOf(l.Peek("k"))
		if r := w.take(); !r[len(r)-1].Outage {
			t.Errorf("policy %d: the report tells of no outage", policy)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("L5: verdicts (-want +got):\n%s", diff)
	}
}
