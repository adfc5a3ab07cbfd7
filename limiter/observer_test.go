package limiter_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/limiter"
)

func TestObserver_IsToldOfEachTick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		l := mustNew(t, newStore(), limiter.Config{Name: "api", Limit: 1_000_000, Observer: w})
		for range 600 {
			l.Allow("k")
			time.Sleep(100 * time.Millisecond)
		}
		reports := w.take()
		if len(reports) != 60 {
			t.Errorf("%d reports in 60 s, want 60", len(reports))
		}
		for i, r := range reports {
			if r.Limiter != "api" || r.Partition != "" || r.Early {
				t.Errorf("report %d: got %+v", i, r)
			}
			if i > 0 {
				if d := r.Time.Sub(reports[i-1].Time); d != time.Second {
					t.Errorf("report %d comes %v after the one before", i, d)
				}
			}
		}
	})
}

// What the reports say adds up to what was done.
func TestObserver_ReportsAddUp(t *testing.T) {
	t.Parallel()
	c, w, store := newClock(), new(watcher), newStore()
	s := &spy{Store: store}
	l := mustNew(t, s, limiter.Config{Limit: 5, Clock: c, Observer: w})
	var accepted, denied int64
	for i := range 300 {
		for k := range 10 {
			if l.Allow(strconv.Itoa(k)) {
				accepted++
			} else {
				denied++
			}
		}
		store.SetRule(nil)
		if i%10 == 3 {
			store.SetRule(replyLost)
		}
		c.run(700*time.Millisecond, l)
	}
	store.SetRule(nil)
	flush(t, l)
	var adds, expires, gets, commands, exchanges, failed int
	reports := w.take()
	for _, r := range reports {
		if !r.Exchange.Attempted {
			if diff := cmp.Diff(limiter.ExchangeReport{}, r.Exchange); diff != "" {
				t.Errorf("no exchange, yet (-want +got):\n%s", diff)
			}
			continue
		}
		exchanges++
		if r.Exchange.Err != nil {
			failed++
		}
		adds, expires, gets = adds+r.Exchange.Adds, expires+r.Exchange.Expires, gets+r.Exchange.Gets
		if len(r.Exchange.Servers) != 1 {
			t.Errorf("%d servers reported, want the store's one", len(r.Exchange.Servers))
		}
	}
	for _, b := range s.batches {
		commands += operations(b)
	}
	counts := store.Counts()
	if adds != counts.Adds || expires != counts.Expires || gets != counts.Gets || exchanges != counts.Exchanges {
		t.Errorf("reports tell of %d adds, %d expiries, %d gets in %d exchanges, want %+v", adds, expires, gets, exchanges, counts)
	}
	last := reports[len(reports)-1].Totals
	if last.Accepted != accepted || last.Denied != denied || last.FirstSeen != 10 {
		t.Errorf("got %+v, want %d accepted and %d denied of 10 keys", last, accepted, denied)
	}
	if last.Exchanges != int64(exchanges) || last.FailedExchanges != int64(failed) || last.Commands != int64(commands) || failed == 0 {
		t.Errorf("got %+v, want %d exchanges, %d failed, %d commands", last, exchanges, failed, commands)
	}
	if diff := cmp.Diff(l.Totals(), last); diff != "" {
		t.Errorf("Totals and the last report differ:\n%s", diff)
	}
	conserved(t, l, accepted)
}

func TestObserver_TiersHoldTheCachedKeys(t *testing.T) {
	t.Parallel()
	c, w := newClock(), new(watcher)
	l := mustNew(t, newStore(), limiter.Config{Limit: 100, Clock: c, Observer: w, CacheEntries: 8, CacheIdle: 3 * time.Minute, CacheTTL: 5 * time.Minute})
	tiers := func() (keys []int64, entered []int64) {
		flush(t, l)
		r := w.take()
		last := r[len(r)-1]
		var sum int64
		for _, tier := range last.Tiers {
			keys, entered, sum = append(keys, tier.Keys), append(entered, tier.Entered), sum+tier.Keys
		}
		if sum != int64(last.CacheEntries) {
			t.Errorf("%d keys in tiers, %d in the cache", sum, last.CacheEntries)
		}
		return keys, entered
	}
	// The reference's scan: pressures 0.01, 0.05, 0.3, 0.6, 0.9, 0.95.
	for i, n := range []int64{1, 5, 30, 60, 90, 95} {
		l.AllowN(strconv.Itoa(i), n)
	}
	keys, entered := tiers()
	if diff := cmp.Diff([]int64{2, 1, 1, 2}, keys); diff != "" {
		t.Errorf("keys per tier (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int64{0, 0, 0, 0}, entered); diff != "" {
		t.Errorf("transitions (-want +got):\n%s", diff)
	}
	l.AllowN("0", 84)
	l.AllowN("1", 10)
	keys, entered = tiers()
	if diff := cmp.Diff([]int64{0, 2, 1, 3}, keys); diff != "" {
		t.Errorf("keys per tier after promotions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int64{0, 1, 0, 1}, entered); diff != "" {
		t.Errorf("transitions after promotions (-want +got):\n%s", diff)
	}
	for i := range 30 {
		l.AllowN("more"+strconv.Itoa(i), 20)
		if i%3 == 0 {
			c.run(time.Second, l)
		}
	}
	tiers()
	c.run(10*time.Minute, l)
	if keys, _ := tiersOf(t, l, w); keys != 0 {
		t.Errorf("%d keys in tiers when all have expired", keys)
	}
}

// tiersOf returns the number of keys in tiers, and in the cache.
func tiersOf(t *testing.T, l *limiter.Limiter, w *watcher) (inTiers int64, cached int) {
	t.Helper()
	flush(t, l)
	r := w.take()
	last := r[len(r)-1]
	for _, tier := range last.Tiers {
		inTiers += tier.Keys
	}
	return inTiers, last.CacheEntries
}

func TestObserver_BacklogHoldsWhatWaits(t *testing.T) {
	t.Parallel()
	c, w, store := newClock(), new(watcher), newStore()
	l := mustNew(t, store, limiter.Config{Limit: 100, Clock: c, Observer: w})
	store.SetRule(refused)
	for i := range 5 {
		l.Allow(strconv.Itoa(i))
		c.tick(l)
	}
	for range 10 {
		c.tick(l)
	}
	r := w.take()
	last := r[len(r)-1]
	if last.Backlog != 5 || last.BacklogAge != 14*time.Second || last.FailingFor != 14*time.Second {
		t.Errorf("got a backlog of %d, the oldest waiting for %v, failing for %v, want 5 and 14 s", last.Backlog, last.BacklogAge, last.FailingFor)
	}
	store.SetRule(nil)
	c.tick(l)
	c.tick(l)
	r = w.take()
	if last := r[len(r)-1]; last.Backlog != 0 || last.BacklogAge != 0 {
		t.Errorf("after recovery: a backlog of %d, the oldest waiting for %v", last.Backlog, last.BacklogAge)
	}
}

func TestObserver_PartitionsReportApart(t *testing.T) {
	t.Parallel()
	c, w := newClock(), new(watcher)
	first, second := newStore(), newStore()
	l := mustNew(t, parts{first, second}, limiter.Config{Limit: 100, Clock: c, Observer: w})
	admit(l, "a", 3)
	admit(l, "b", 4)
	l.Check("b", -1)
	c.run(3*time.Second, l)
	acknowledged := make(map[string]int64)
	for _, r := range w.take() {
		acknowledged[r.Partition] = r.Totals.Acknowledged
	}
	if diff := cmp.Diff(map[string]int64{"first": 3, "second": 4}, acknowledged); diff != "" {
		t.Errorf("acknowledged per part (-want +got):\n%s", diff)
	}
	if len(applied(first)) != 1 || len(applied(second)) != 1 {
		t.Errorf("the parts hold %v and %v, want one key each", applied(first), applied(second))
	}
	if s := l.Totals(); s.Accepted != 7 || s.Acknowledged != 7 || s.Misuse != 1 || s.FirstSeen != 2 {
		t.Errorf("got %+v", s)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// PartOf may answer anything.
type wrongParts struct{ parts }

func (wrongParts) PartOf(key string) int { return len(key) - 3 }

func TestPartitions_AnyAnswerOfAStoreWillDo(t *testing.T) {
	t.Parallel()
	first, second := newStore(), newStore()
	l := mustNew(t, wrongParts{parts{first, second}}, limiter.Config{Limit: 3, Clock: newClock()})
	for _, key := range []string{"", "a", "aaa", "aaaa", "aaaaaaaaaa"} {
		if got := admit(l, key, 5); got != 3 {
			t.Errorf("key %q: admitted %d, want 3", key, got)
		}
	}
	flush(t, l)
	if len(applied(first)) != 3 || len(applied(second)) != 2 {
		t.Errorf("the parts hold %v and %v", applied(first), applied(second))
	}
}

// Something is said when a state changes, once, and never a key.
func TestLogger_SaysWhatChanged(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	c, store := newClock(), newStore()
	l := mustNew(t, store, limiter.Config{
		Limit: 100, Clock: c, OutageAfter: 10 * time.Second,
		Logger: slog.New(slog.NewTextHandler(&buf, nil)),
	})
	said := func() (records []string) {
		for line := range strings.Lines(buf.String()) {
			_, rest, _ := strings.Cut(line, "level=")
			level, rest, _ := strings.Cut(rest, " msg=")
			msg, _, _ := strings.Cut(strings.TrimPrefix(rest, `"`), `"`)
			records = append(records, fmt.Sprint(level, " ", msg))
		}
		if strings.Contains(buf.String(), "secret") {
			t.Errorf("a record holds a key:\n%s", buf.String())
		}
		buf.Reset()
		return records
	}
	spend := func(d time.Duration) {
		for range d / time.Second {
			l.Allow("secret")
			c.run(time.Second, l)
		}
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, said()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	spend(20 * time.Second)
	expect("all well")
	store.SetRule(refused)
	spend(5 * time.Second)
	expect("failing", "WARN store exchange fails")
	spend(20 * time.Second)
	expect("outage", "ERROR outage policy in force")
	store.SetRule(nil)
	spend(5 * time.Second)
	expect("recovered", "INFO store exchange works again", "INFO outage policy no longer in force")
	store.SetRule(replyLost)
	l.Allow("secret")
	l.Flush(t.Context())
	expect("a reply was lost", "WARN store exchange fails", "WARN counts lost")
}
