package limiter_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/internal/faultstore"
	"github.com/fleetlimit/fleetlimit/limiter"
)

func TestLoop_PromotionAsksForAnEarlyTick(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ every, spacing time.Duration }{
		{time.Second, 50 * time.Millisecond},
		{10 * time.Second, 500 * time.Millisecond},
		{100 * time.Millisecond, 10 * time.Millisecond},
		{4 * time.Millisecond, 4 * time.Millisecond},
	} {
		c, w := newClock(), new(watcher)
		l := mustNew(t, newStore(), limiter.Config{Limit: 1000, Clock: c, TickEvery: tt.every, Observer: w})
		l.Allow("k")
		c.run(5*tt.every, l)
		w.take()
		c.tick(l)
		last := c.Now()
		if next := l.NextTick(); next.Sub(last) != tt.every {
			t.Errorf("ticks are %v apart, want %v", next.Sub(last), tt.every)
		}
		l.AllowN("k", 100) // of an idle key
		if next := l.NextTick(); next.Sub(last) != tt.every {
			t.Errorf("a key in the tier as before: the next tick comes after %v, want %v", next.Sub(last), tt.every)
		}
		l.AllowN("k", 800)
		if next := l.NextTick(); next.Sub(last) != tt.spacing {
			t.Errorf("a key that has become hot: the next tick comes after %v, want %v", next.Sub(last), tt.spacing)
		}
		w.take()
		c.tick(l)
		r := w.take()
		if len(r) != 1 || r[0].Early != (tt.spacing < tt.every) || r[0].Exchange.Adds != 1 {
			t.Errorf("got %d reports, the first %+v, want an early one with an add", len(r), r[0])
		}
		if r[0].Early && l.NextTick().Sub(last) != tt.every {
			t.Errorf("an early tick moved the regular one")
		}
	}
}

// A new key that comes once costs no early tick, one that is used does.
func TestLoop_AFloodOfNewKeysCausesNoEarlyTick(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := mustNew(t, newStore(), limiter.Config{Limit: 1000, Clock: c, CacheEntries: 1000})
	next := l.NextTick()
	for i := range often(100_000) {
		l.Allow(strconv.Itoa(i))
	}
	if got := l.NextTick(); got != next {
		t.Errorf("the flood moved the next tick from %v to %v", next, got)
	}
	admit(l, "busy", 49)
	if got := l.NextTick(); got != next {
		t.Errorf("a key below a twentieth of its limit moved the next tick")
	}
	admit(l, "busy", 1)
	if got := l.NextTick(); !got.Before(next) {
		t.Errorf("a busy new key did not ask for an early tick")
	}
}

func TestLoop_MissedTicksAreSkipped(t *testing.T) {
	t.Parallel()
	c, w := newClock(), new(watcher)
	l := mustNew(t, newStore(), limiter.Config{Limit: 10, Clock: c, Observer: w})
	first := l.NextTick()
	if phase := first.Sub(c.Now()); phase <= 0 || phase > time.Second {
		t.Errorf("the first tick comes after %v, want up to a second", phase)
	}
	l.Tick(t.Context()) // not due
	c.set(first.Add(10*time.Second + 300*time.Millisecond))
	for range 3 {
		l.Tick(t.Context())
	}
	if got := len(w.take()); got != 1 {
		t.Errorf("%d ticks after a pause, want 1", got)
	}
	if got, want := l.NextTick(), first.Add(11*time.Second); !got.Equal(want) {
		t.Errorf("the next tick is at %v, want %v, in phase", got, want)
	}
}

func TestLoop_NodesStartAtPhasesOfTheirOwn(t *testing.T) {
	t.Parallel()
	c := newClock()
	phases := make(map[time.Time]bool)
	for _, l := range newFleet(t, 20, newStore(), limiter.Config{Limit: 10, Clock: c}) {
		phases[l.NextTick()] = true
	}
	if len(phases) < 19 {
		t.Errorf("20 nodes have %d phases", len(phases))
	}
}

// exchangesOf runs l for d with an event of key per tick, and returns when key
// was exchanged.
func exchangesOf(c *clock, l *limiter.Limiter, s *spy, key string, d time.Duration) (times []time.Time) {
	for end := c.Now().Add(d); c.Now().Before(end); {
		l.Allow(key)
		c.tick(l)
		for _, b := range s.take() {
			for _, x := range b.Adds {
				if x.Key == key {
					times = append(times, c.Now())
				}
			}
		}
	}
	return times
}

// The jitter only shortens, by up to a fifth.
func TestLoop_AnIdleKeyIsExchangedEveryFourSyncIntervals(t *testing.T) {
	t.Parallel()
	c, s := newClock(), &spy{Store: newStore()}
	l := mustNew(t, s, limiter.Config{Limit: 1_000_000, Window: 10 * time.Hour, TickEvery: time.Second, SyncEvery: 15 * time.Second, Clock: c})
	c.advance(time.Hour)
	exchangesOf(c, l, s, "k", 10*time.Second) // the first follow each other
	times := exchangesOf(c, l, s, "k", 2*time.Hour)
	intervals := make(map[time.Duration]bool)
	for i := range times[1:] {
		d := times[i+1].Sub(times[i])
		intervals[d] = true
		if d < 47*time.Second || d > time.Minute {
			t.Errorf("exchanged after %v, want 48 s to 60 s, to the tick", d)
		}
	}
	if len(times) < 120 || len(intervals) < 8 {
		t.Errorf("%d exchanges in 2 h, at %d different intervals", len(times), len(intervals))
	}
}

func TestLoop_AFinishedEpochIsSentAtOnce(t *testing.T) {
	t.Parallel()
	for epochs := 1; epochs <= 4; epochs++ {
		c, s := newClock(), &spy{Store: newStore()}
		l := mustNew(t, s, limiter.Config{Limit: 1_000_000, Epochs: epochs, Clock: c})
		exchangesOf(c, l, s, "k", 5*time.Second)
		flush(t, l)
		length := time.Minute / time.Duration(epochs)
		boundary := epochStart.Add(length)
		c.run(boundary.Sub(c.Now())-1, l)
		s.take()
		l.AllowN("k", 7) // in the last nanosecond
		c.advance(1)
		l.AllowN("k", 5) // in the first of the next epoch
		c.tick(l)
		got := make(map[limiter.Counter]int64)
		for _, b := range s.take() {
			for _, x := range b.Adds {
				got[x.Counter] += x.Delta
			}
		}
		epoch := boundary.UnixNano() / int64(length)
		want := map[limiter.Counter]int64{{Key: "k", Epoch: epoch - 1}: 7, {Key: "k", Epoch: epoch}: 5}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d epochs: sent at the first tick of an epoch (-want +got):\n%s", epochs, diff)
		}
	}
}

// What another node sends late of a finished epoch is seen two ticks after its
// end, and the epoch is read no more after that.
func TestLoop_AFinishedEpochIsReadAgain(t *testing.T) {
	t.Parallel()
	c, s := newClock(), &spy{Store: newStore()}
	cfg := limiter.Config{Limit: 1000, Clock: c}
	late, l := mustNew(t, s.Store, cfg), mustNew(t, s, cfg)
	late.AllowN("k", 40)
	l.AllowN("k", 10)
	flush(t, l)
	if got := used(l, "k"); got != 10 {
		t.Fatalf("knows of %d, want 10", got)
	}
	c.set(epochStart.Add(time.Minute))
	reads := 0
	var known []int64
	for range 10 {
		c.advance(500 * time.Millisecond)
		if c.Now().Sub(epochStart) == time.Minute+1500*time.Millisecond {
			flush(t, late)
		}
		l.Allow("k")
		flush(t, l)
		for _, b := range s.take() {
			for _, x := range b.Gets {
				if x.Key == "k" && x.Epoch*60 == epochStart.Unix() {
					reads++
				}
			}
		}
		known = append(known, used(l, "k"))
	}
	if known[2] > 15 || known[3] < 50 || known[9] < 50 {
		t.Errorf("knew of %d in steps of half a second, want the late 40 from the fourth on", known)
	}
	if reads != 1 {
		t.Errorf("read the finished epoch %d times, want once", reads)
	}
}

func operations(b limiter.Batch) int { return len(b.Adds) + len(b.Expires) + len(b.Gets) }

func TestLoop_ATicksWorkIsBoundedAndTheHottestGoFirst(t *testing.T) {
	t.Parallel()
	const cold, hot = 20_000, 50
	c, s, w := newClock(), &spy{Store: newStore()}, new(watcher)
	l := mustNew(t, s, limiter.Config{
		Limit: 100, Clock: c, Observer: w, CacheEntries: 30_000,
		Tiers: limiter.PressureTiers{{Name: "one", MaxStale: 15 * time.Second}}, // no promotion, hence no early tick
	})
	use := func() {
		for i := range hot {
			l.AllowN("hot"+strconv.Itoa(i), 12)
		}
	}
	for range 4 { // so that the hot keys are not due for being new
		use()
		flush(t, l)
		c.run(time.Second, l)
	}
	use()
	for i := range cold {
		l.Allow(strconv.Itoa(i))
	}
	s.take()
	w.take()
	sent := make(map[string]bool)
	for tick := range 2 {
		c.tick(l)
		batches := s.take()
		if len(batches) != 1 || operations(batches[0]) > 50_000 {
			t.Fatalf("tick %d: %d exchanges, the first with %d operations", tick, len(batches), operations(batches[0]))
		}
		hotSent := 0
		for _, x := range batches[0].Adds {
			if sent[x.Key] = true; x.Key[0] == 'h' {
				hotSent++
			}
		}
		last := w.take()[0]
		if tick == 0 && (hotSent != hot || last.Deferred < cold/8 || last.Backlog != cold+hot) {
			t.Errorf("%d of %d hot keys were sent, %d keys deferred of a backlog of %d", hotSent, hot, last.Deferred, last.Backlog)
		}
	}
	if len(sent) != cold+hot {
		t.Errorf("%d of %d keys were sent in two ticks", len(sent), cold+hot)
	}
}

func TestLoop_AFailingStoreIsProbedWithLittle(t *testing.T) {
	t.Parallel()
	for _, epochs := range []int{1, 4, 60} {
		keys := 1200 / min(epochs, 10) // enough for more operations than a probe has
		c, store := newClock(), newStore()
		s := &spy{Store: store}
		l := mustNew(t, s, limiter.Config{Limit: 100, Epochs: epochs, Clock: c, CacheEntries: 1200})
		store.SetRule(refused)
		for i := range keys {
			l.AllowN(strconv.Itoa(i), 10)
		}
		c.tick(l)
		for _, b := range s.take() {
			if n := operations(b); n > 50_000 {
				t.Errorf("%d epochs: %d operations in an exchange", epochs, n)
			}
		}
		for range 5 {
			for i := range keys {
				l.Allow(strconv.Itoa(i))
			}
			if c.tick(l) == nil {
				t.Errorf("the failing store was not tried")
			}
			for _, b := range s.take() {
				if n := operations(b); n > 1000 || n < 500 {
					t.Errorf("%d epochs: the failing store was probed with %d operations", epochs, n)
				}
			}
		}
		store.SetRule(nil)
		c.run(10*time.Second, l)
		if got := l.Totals(); got.Acknowledged != got.Accepted || got.Dropped != 0 {
			t.Errorf("%d epochs: after recovery: got %+v", epochs, got)
		}
	}
}

// A busy key that the store cannot tell about must not ask for early ticks over
// and over.
func TestLoop_AFailingStoreIsNotTriedOverAndOver(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newStore()
	store.SetRule(refused)
	l := mustNew(t, store, limiter.Config{Limit: 10_000, Clock: c})
	for range 1000 {
		admit(l, "k", 3)
		c.run(10*time.Millisecond, l)
	}
	if got := store.Counts().Exchanges; got > 20 {
		t.Errorf("%d exchanges in 10 s", got)
	}
}

// Each counter that a limiter makes gets an expiry that lasts as long as anybody
// reads it, repeated until it is confirmed and not after that.
func TestLoop_EachCounterExpires(t *testing.T) {
	t.Parallel()
	for seed := range uint64(often(30)) {
		r := rand.New(rand.NewPCG(seed, 6))
		c, store := newClock(), newStore()
		s := &spy{Store: store}
		epochs := 1 + int(seed%4)
		length := time.Minute / time.Duration(epochs)
		fleet := []*limiter.Limiter{
			mustNew(t, s, limiter.Config{Limit: 30, Epochs: epochs, Clock: c}),
			mustNew(t, store, limiter.Config{Limit: 30, Epochs: epochs, Clock: c, Seed: 2}),
		}
		for range 300 {
			for _, l := range fleet {
				admit(l, strconv.Itoa(r.IntN(3)), r.IntN(4))
			}
			store.SetRule(nil)
			if r.IntN(3) == 0 {
				store.SetRule(faultstore.Always(faultstore.Fault{Kind: faultstore.Kind(r.IntN(4)), After: r.IntN(6)}))
			}
			c.run(time.Duration(r.Int64N(int64(time.Second))), fleet...)
		}
		store.SetRule(nil)
		for range 5 { // the expiries of the last adds
			admit(fleet[0], "0", 1)
			admit(fleet[0], "1", 1)
			admit(fleet[0], "2", 1)
			flush(t, fleet[0])
			c.run(time.Second, fleet...) // the census
		}
		made, confirmed := make(map[limiter.Counter]bool), make(map[limiter.Counter]int)
		for _, b := range s.batches {
			for _, x := range b.Adds {
				if x.Outcome == limiter.Applied {
					made[x.Counter] = true
				}
			}
			for _, x := range b.Expires {
				end := time.Unix(0, (x.Epoch+int64(epochs)+1)*int64(length))
				if until := b.Now.Add(x.Lifetime); x.Series == limiter.SeriesAdmitted && until.Before(end) || x.Lifetime <= 0 {
					t.Errorf("seed %d: epoch %d of %v is to expire at %v, want at least %v", seed, x.Epoch, length, until, end)
				}
				if x.Outcome == limiter.Applied {
					confirmed[x.Counter]++
				}
			}
		}
		for counter := range made {
			// Of denied events it may be sent again, when the key comes near its limit anew.
			if n := confirmed[counter]; n == 0 || n > 1 && counter.Series != limiter.SeriesDenied {
				t.Errorf("seed %d: %d expiries of %+v were confirmed, want one", seed, n, counter)
			}
		}
	}
}

// When the store has lost data, the level stays as it was, nothing is sent twice,
// and the counter that is born anew expires as well.
func TestLoop_TheStoreLosesData(t *testing.T) {
	t.Parallel()
	for epochs := 1; epochs <= 3; epochs++ {
		c, store := newClock(), newStore()
		s := &spy{Store: store}
		l := mustNew(t, s, limiter.Config{Limit: 1000, Epochs: epochs, Clock: c})
		other := mustNew(t, store, limiter.Config{Limit: 1000, Epochs: epochs, Clock: c, Seed: 2})
		other.AllowN("k", 20)
		flush(t, other)
		l.AllowN("k", 10)
		flush(t, l)
		flush(t, l)
		s.take()
		store.Forget(1)
		l.AllowN("k", 5)
		flush(t, l)
		flush(t, l) // an expiry, anew
		if got := used(l, "k"); got != 35 {
			t.Errorf("%d epochs: %d used after the loss, want 35", epochs, got)
		}
		if got := l.Totals(); got.Regressions != 1 || got.Acknowledged != 15 {
			t.Errorf("%d epochs: got %+v, want one regression and 15 acknowledged", epochs, got)
		}
		expiries := 0
		for _, b := range s.take() {
			for _, x := range b.Expires {
				if x.Outcome == limiter.Applied {
					expiries++
				}
			}
		}
		if expiries != 1 {
			t.Errorf("%d epochs: %d expiries of the counter that was born anew, want 1", epochs, expiries)
		}
		other.AllowN("k", 3)
		flush(t, other)
		l.AllowN("k", 1)
		flush(t, l)
		if got := used(l, "k"); got != 39 {
			t.Errorf("%d epochs: %d used when others went on, want 39", epochs, got)
		}
		var sent int64
		for id, n := range store.Applied() {
			if id.Key == "k" && id.Series == limiter.SeriesAdmitted {
				sent += n
			}
		}
		if sent != 39 {
			t.Errorf("%d epochs: %d sent in all, want 39", epochs, sent)
		}
		c.advance(2 * time.Minute)
		if got := used(l, "k"); got != 0 {
			t.Errorf("%d epochs: %d used two windows later", epochs, got)
		}
	}
}

func TestFlush_SaysWhatKeptIt(t *testing.T) {
	t.Parallel()
	store := newStore()
	l := mustNew(t, store, limiter.Config{Limit: 10, Clock: newClock()})
	if err := l.Flush(t.Context()); err != nil || store.Counts().Exchanges != 0 {
		t.Errorf("with nothing to send: got %v after %d exchanges", err, store.Counts().Exchanges)
	}
	l.Allow("k")
	store.SetRule(refused)
	if err := l.Flush(t.Context()); !errors.Is(err, faultstore.ErrInjected) {
		t.Errorf("got %v, want the store's error", err)
	}
	store.SetRule(nil)
	flush(t, l)
	if sums := applied(store); len(sums) != 1 {
		t.Errorf("the store holds %v, want one count", sums)
	}
}

func TestFlush_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStuck()
		l := mustNew(t, store, limiter.Config{Limit: 10})
		t.Cleanup(func() { close(store.end) })
		l.Allow("k")
		<-store.entered // the loop has its turn
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := l.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, want DeadlineExceeded after 1s", err, time.Since(start))
		}
		if err := l.Tick(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
	})
}

// More keys than one exchange takes are flushed all the same.
func TestFlush_SendsEverything(t *testing.T) {
	t.Parallel()
	const keys = 20_000
	c, store := newClock(), newStore()
	l := mustNew(t, store, limiter.Config{Limit: 10, Clock: c, CacheEntries: 2 * keys})
	for i := range keys {
		l.Allow(strconv.Itoa(i))
	}
	flush(t, l)
	if got := l.Totals().Acknowledged; got != keys {
		t.Errorf("%d acknowledged, want %d", got, keys)
	}
	if got := store.Counts().Exchanges; got != 2 {
		t.Errorf("%d exchanges, want 2", got)
	}
}

// A key is only exchanged while there is something to tell or to learn.
func TestLoop_ASilentKeyCostsNothing(t *testing.T) {
	t.Parallel()
	c, s := newClock(), &spy{Store: newStore()}
	l := mustNew(t, s, limiter.Config{Limit: 10, Clock: c})
	admit(l, "k", 15)
	c.run(3*time.Second, l)
	s.take()
	c.run(10*time.Minute, l)
	if got := s.take(); len(got) != 0 {
		t.Errorf("%d exchanges of a silent key", len(got))
	}
	if got := limiter.Held(l); got != 0 {
		t.Errorf("%d entries are held", got)
	}
}
