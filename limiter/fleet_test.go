package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/internal/faultstore"
	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

func TestFleet_ACountIsSeenAtTheOthersNextExchange(t *testing.T) {
	t.Parallel()
	c := newClock()
	fleet := newFleet(t, 2, newStore(), limiter.Config{Limit: 1000, Clock: c})
	a, b := fleet[0], fleet[1]
	b.Allow("k")
	flush(t, b)
	admit(a, "k", 30)
	flush(t, a)
	if got := used(b, "k"); got != 1 {
		t.Errorf("before its exchange b knows of %d, want 1", got)
	}
	b.Allow("k")
	flush(t, b)
	if got := used(b, "k"); got != 32 {
		t.Errorf("after its exchange b knows of %d, want 32", got)
	}
	if got := used(a, "k"); got != 31 {
		t.Errorf("a knows of %d, want 31 until its own exchange", got)
	}
}

func TestFleet_CountsSpreadWithinTwoTicks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet := newFleet(t, 2, newStore(), limiter.Config{Limit: 1000})
		admit(fleet[0], "k", 60)
		admit(fleet[1], "k", 1)
		time.Sleep(time.Second) // each has ticked once
		admit(fleet[0], "k", 1)
		admit(fleet[1], "k", 1)
		time.Sleep(time.Second)
		if got := used(fleet[0], "k") + used(fleet[1], "k"); got < 2*63-1 {
			// The one that ticked first does not know of the other's last event.
			t.Errorf("the nodes know of %d and %d, want 63 and at least 62", used(fleet[0], "k"), used(fleet[1], "k"))
		}
	})
}

func TestFleet_PrefixesDoNotShare(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newStore()
	var all []*limiter.Limiter
	for _, cfg := range []limiter.Config{
		{Name: "a", Limit: 5},
		{Name: "b", Limit: 5},
		{Name: "a", Limit: 5, Window: 2 * time.Minute},
		{Name: "a", Limit: 5, Epochs: 2},
		{Name: "a", Limit: 5, Prefix: "p"},
	} {
		cfg.Clock = c
		all = append(all, mustNew(t, store, cfg))
	}
	for i, l := range all {
		l.Allow("k")
		flush(t, l)
		if got := admit(l, "k", 10); got != 4 {
			t.Errorf("limiter %d admitted %d beside others on the store, want 4", i, got)
		}
		flush(t, l)
	}
}

// A burst on all nodes at once, from cold: within two ticks of using up the limit
// the fleet admits next to nothing.
func TestFleet_AColdBurstIsLimitedWithinTwoTicks(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{1000, 9600} { // offered in 0.6 s, and in 6 s
		synctest.Test(t, func(t *testing.T) {
			fleet := newFleet(t, 16, newStore(), limiter.Config{Limit: limit})
			var sum, full int64 // admitted, and the second in which that was the limit
			for second := range int64(30) {
				passed := int64(0)
				for range 100 {
					for _, l := range fleet {
						passed += admit(l, "k", 1)
					}
					time.Sleep(10 * time.Millisecond)
				}
				if sum += passed; sum >= limit && full == 0 {
					full = second + 1
				}
				if full > 0 && second >= full+2 && passed > limit/50 {
					t.Errorf("limit %d: admitted %d in second %d, with the limit used up after %d", limit, passed, second, full)
				}
			}
			if worst := map[int64]int64{1000: 2100, 9600: 10_600}[limit]; sum < limit*9/10 || sum > worst {
				t.Errorf("limit %d: admitted %d, want at most %d", limit, sum, worst)
			}
		})
	}
}

// A denied key goes on to be exchanged at every tick, by each node that denies it,
// and passes again when the window has drained.
func TestL7_ADeniedKeyKeepsExchanging(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 100
		inner := memorystore.New()
		var spies []*spy
		var fleet []*limiter.Limiter
		for i := range 4 {
			spies = append(spies, &spy{Store: inner})
			fleet = append(fleet, mustNew(t, spies[i], limiter.Config{Limit: limit, Seed: uint64(i + 1)}))
		}
		offer := func(d time.Duration) (passed int64) {
			for range d / (100 * time.Millisecond) {
				for _, l := range fleet {
					passed += admit(l, "k", 2)
				}
				time.Sleep(100 * time.Millisecond)
			}
			return passed
		}
		offer(5 * time.Second)
		for _, s := range spies {
			s.take()
		}
		offer(20 * time.Second)
		for i, s := range spies {
			exchanges := 0
			for _, b := range s.take() {
				if len(b.Adds)+len(b.Gets) > 0 {
					exchanges++
				}
			}
			if exchanges < 19 {
				t.Errorf("L7: node %d exchanged the denied key %d times in 20 ticks", i, exchanges)
			}
		}
		offer(95 * time.Second) // until the first burst has left the window
		if got := offer(2 * time.Minute); got < 2*limit*8/10 || got > 2*limit*12/10 {
			t.Errorf("L7: admitted %d in two windows of limit %d", got, limit)
		}
	})
}

// While the store is away and no policy is in force yet, the model of the fleet
// keeps running: the nodes go on to share the limit.
func TestL5_NoLastingDenialBeforeAnOutage(t *testing.T) {
	t.Parallel()
	const limit = 1000
	c, store := newClock(), newStore()
	fleet := newFleet(t, 4, store, limiter.Config{Limit: limit, Clock: c, OutageAfter: time.Hour})
	offer := func(d time.Duration) (passed []int64) {
		passed = make([]int64, len(fleet))
		for range d / (100 * time.Millisecond) {
			for i, l := range fleet {
				passed[i] += admit(l, "k", 1)
			}
			c.run(100*time.Millisecond, fleet...)
		}
		return passed
	}
	offer(5 * time.Minute)
	store.SetRule(refused)
	for minute := range 4 {
		var sum int64
		for i, n := range offer(time.Minute) {
			if sum += n; n < limit/8 {
				t.Errorf("L5: in minute %d without a store, node %d admitted %d", minute, i, n)
			}
		}
		if sum > limit*5/4 {
			t.Errorf("L5: in minute %d without a store, the fleet admitted %d of limit %d", minute, sum, limit)
		}
	}
}

// Whatever happens, a decision makes sense.
func TestDecision_StaysInBounds(t *testing.T) {
	t.Parallel()
	reasons := make(map[limiter.Reason]bool)
	for seed := range uint64(often(20)) {
		r := rand.New(rand.NewPCG(seed, 8))
		c, store := newClock(), newStore()
		fleet := newFleet(t, 1+r.IntN(4), store, limiter.Config{
			Limit: int64(1 + r.IntN(100)), Clock: c, Epochs: 1 + r.IntN(3),
			Decay: limiter.Decay(seed % 2), Outage: limiter.Outage(seed % 3), OutageAfter: 20 * time.Second,
			CountDenied: seed%5 == 0, ColdShare: []float64{1, 0.2, limiter.FairShare}[seed%3], CacheEntries: 1 + r.IntN(5),
		})
		for range 2000 {
			l, key, n := fleet[r.IntN(len(fleet))], string(rune('a'+r.IntN(4))), int64(r.IntN(8))
			d := l.Check(key, n)
			if r.IntN(5) == 0 {
				d, n = l.Peek(key), 1
			}
			reasons[d.Reason] = true
			if d.Remaining < 0 || d.Remaining > d.Limit || d.ResetAfter < 0 || d.ResetAfter > 2*time.Minute {
				t.Fatalf("seed %d: %d of %s: got %+v", seed, n, key, d)
			}
			if d.Allowed != (d.RetryAfter == 0) || d.RetryAfter < 0 {
				t.Fatalf("seed %d: %d of %s: got %+v, want RetryAfter just if denied", seed, n, key, d)
			}
			if never := d.RetryAfter == limiter.Never; never != (!d.Allowed && max(n, 1) > d.Limit) {
				t.Fatalf("seed %d: %d of %s: got %+v, want Never just for what can never fit", seed, n, key, d)
			}
			switch r.IntN(50) {
			case 0:
				store.SetRule(faultstore.Always(faultstore.Fault{Kind: faultstore.Kind(r.IntN(4))}))
			case 1:
				store.SetRule(nil)
			case 2:
				store.Forget(0.5)
			case 3:
				l.SetOverrides(map[string]int64{"a": int64(r.IntN(20))})
			case 4:
				c.advance(time.Duration(r.Int64N(int64(4*time.Minute))) - 2*time.Minute)
			}
			c.run(time.Duration(r.Int64N(int64(500*time.Millisecond))), fleet...)
		}
	}
	for _, want := range []limiter.Reason{
		limiter.ReasonUnderLimit, limiter.ReasonFirstSeen, limiter.ReasonOverLimit, limiter.ReasonShed, limiter.ReasonOutageAllowed, limiter.ReasonOutageDenied,
	} {
		if !reasons[want] && !race {
			t.Errorf("no decision was %v", want)
		}
	}
}

// exactLevel is the level by the definition, of all that the fleet admitted.
type exactLevel struct {
	counter *model
	times   []time.Time // of single events
}

func (x *exactLevel) add(now time.Time) {
	x.counter.add(now, 1)
	x.times = append(x.times, now)
}

// at returns the greater of what the window counter and a log of events say.
func (x *exactLevel) at(now time.Time) int64 {
	x.counter.turn(now)
	for len(x.times) > 0 && now.Sub(x.times[0]) >= time.Minute {
		x.times = x.times[1:]
	}
	return max(x.counter.level(now).Int64(), int64(len(x.times)))
}

func TestL9_NothingIsDeniedUnderHalfTheLimit(t *testing.T) {
	t.Parallel()
	for seed := range uint64(often(12)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 9))
			limit := int64(20 + r.IntN(400))
			nodes := 1 + r.IntN(8)
			c := newClock()
			fleet := newFleet(t, nodes, newStore(), limiter.Config{Limit: limit, Clock: c, Epochs: 1 + int(seed%2)})
			exact := &exactLevel{counter: newModel(time.Minute, 1+int(seed%2))}
			denied := 0
			rate, weights := 0.5, make([]float64, nodes)
			for step := range 6 * 600 { // six minutes
				if step%300 == 0 { // another load, of 0.1 to 5 limits per window
					rate = 0.1 + 5*r.Float64()*r.Float64()
					for i := range weights {
						weights[i] = r.Float64() * r.Float64() / float64(nodes) * 4
					}
				}
				for i, l := range fleet {
					offered := rate * weights[i] * float64(limit) / 600
					for ; r.Float64() < offered; offered-- {
						if level := exact.at(c.Now()); l.Allow("k") {
							exact.add(c.Now())
						} else if denied++; level < limit/2 {
							t.Fatalf("L9: node %d denied at level %d of %d", i, level, limit)
						}
					}
				}
				c.run(100*time.Millisecond, fleet...)
			}
			t.Logf("%d denied", denied)
		})
	}
}

// With several limiters, what the store holds lies between what they know it to
// hold and that with what is in doubt, at any time.
func TestL3_TheStoreHoldsWhatTheFleetKnows(t *testing.T) {
	t.Parallel()
	for seed := range uint64(often(20)) {
		r := rand.New(rand.NewPCG(seed, 5))
		c, store := newClock(), newStore()
		fleet := newFleet(t, 4, store, limiter.Config{Limit: 30, Clock: c})
		for range 200 {
			admit(fleet[r.IntN(4)], "k", r.IntN(5))
			store.SetRule(nil)
			if r.IntN(2) == 0 {
				store.SetRule(faultstore.Always(faultstore.Fault{Kind: faultstore.Kind(r.IntN(4)), After: r.IntN(3)}))
			}
			c.run(time.Duration(r.Int64N(int64(3*time.Second))), fleet...)
			var stored, acknowledged, unknown int64
			for _, n := range applied(store) {
				stored += n
			}
			for _, l := range fleet {
				acknowledged += l.Totals().Acknowledged
				unknown += l.Totals().Unknown
			}
			if stored < acknowledged || stored > acknowledged+unknown {
				t.Fatalf("L3: seed %d: stored %d, want %d to %d", seed, stored, acknowledged, acknowledged+unknown)
			}
		}
	}
}

// More keys are near their limits than may have a history: the window counter
// judges the others.
func TestFleet_ManyKeysNearTheirLimit(t *testing.T) {
	t.Parallel()
	c := newClock()
	fleet := newFleet(t, 2, newStore(), limiter.Config{Limit: 10, Clock: c, CacheEntries: 4000})
	key := func(i int) string { return fmt.Sprint(i) }
	const keys = 2000
	for i := range keys {
		fleet[0].AllowN(key(i), 7)
		fleet[1].AllowN(key(i), 1)
	}
	flush(t, fleet...)
	var passed int64
	for range 10 {
		for i := range keys {
			passed += admit(fleet[1], key(i), 3)
		}
		c.run(time.Second, fleet...)
	}
	if passed < keys || passed > 3*keys {
		t.Errorf("admitted %d of %d keys that had two events left each", passed, keys)
	}
}

// The counter of nodes expires, too, even if that is confirmed after its epoch.
func TestCensus_ExpiryIsRepeated(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newStore()
	s := &spy{Store: store}
	l := mustNew(t, s, limiter.Config{Limit: 10, Clock: c})
	store.SetRule(func(_ int, b *limiter.Batch) faultstore.Fault {
		return faultstore.Fault{Kind: faultstore.Refuse, After: len(b.Adds)}
	})
	c.run(30*time.Second, l)
	c.set(epochStart.Add(time.Minute))
	store.SetRule(nil)
	c.run(3*time.Second, l)
	confirmed := make(map[int64]int)
	for _, b := range s.batches {
		for _, x := range b.Expires {
			if x.Outcome == limiter.Applied {
				confirmed[x.Epoch-epochStart.Unix()/60]++
			}
		}
	}
	if diff := cmp.Diff(map[int64]int{0: 1, 1: 1}, confirmed); diff != "" {
		t.Errorf("confirmed expiries per epoch (-want +got):\n%s", diff)
	}
}

// The number of nodes follows the fleet, as far as it can be seen.
func TestCensus(t *testing.T) {
	t.Parallel()
	c, store, w := newClock(), newStore(), new(watcher)
	nodes := func() int64 {
		r := w.take()
		return r[len(r)-1].Nodes
	}
	l := mustNew(t, store, limiter.Config{Limit: 10, Clock: c, Observer: w})
	c.run(3*time.Second, l)
	if got := nodes(); got != 1 {
		t.Errorf("alone: %d nodes", got)
	}
	fleet := append(newFleet(t, 4, store, limiter.Config{Limit: 10, Clock: c, Seed: 7}), l)
	c.run(2*time.Minute, fleet...)
	if got := nodes(); got != 5 {
		t.Errorf("with four others: %d nodes", got)
	}
	c.run(3*time.Minute, fleet[3:]...) // three are gone
	if got := nodes(); got != 2 {
		t.Errorf("with one other: %d nodes", got)
	}
	store.SetRule(refused)
	c.run(10*time.Minute, fleet[3:]...)
	if got := nodes(); got != 2 {
		t.Errorf("in an outage: %d nodes, want those last seen", got)
	}
	store.SetRule(nil)
	c.run(3*time.Minute, fleet...)
	if got := nodes(); got != 5 {
		t.Errorf("when all are back: %d nodes", got)
	}
}
