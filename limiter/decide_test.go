package limiter_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

// It must run alone, so it is not parallel.
func TestL1_DecisionsOnAKnownKeyDoNotAllocate(t *testing.T) {
	for _, cfg := range []limiter.Config{
		{Limit: math.MaxInt64 - 1},
		{Limit: math.MaxInt64 - 1, Epochs: 4},
		{Limit: math.MaxInt64 - 1, CountDenied: true},
		{Limit: math.MaxInt64 - 1, Decay: limiter.DecayLeak},
		{Limit: math.MaxInt64 - 1, Decay: limiter.DecayLeak, Epochs: 60},
	} {
		c := newClock()
		cfg.Clock = c
		cfg.Overrides = map[string]int64{"over": 1, "zero": 0}
		l := mustNew(t, memorystore.New(), cfg)
		for _, key := range []string{"free", "over", "zero"} {
			admit(l, key, 3)
		}
		flush(t, l)
		check := func(name, key string, decide func()) {
			if n := testing.AllocsPerRun(100, decide); n != 0 {
				t.Errorf("L1: %s on key %s, %d epochs, decay %d: got %v allocations, want 0", name, key, cfg.Epochs, cfg.Decay, n)
			}
		}
		for _, key := range []string{"free", "over", "zero"} {
			check("Allow", key, func() { l.Allow(key) })
			check("AllowN", key, func() { l.AllowN(key, 2) })
			check("Check", key, func() { l.Check(key, 1) })
			check("Check of 0", key, func() { l.Check(key, 0) })
			check("Check of -1", key, func() { l.Check(key, -1) })
			check("Peek", key, func() { l.Peek(key) })
		}
		check("a new epoch", "free", func() { c.advance(time.Minute); l.Allow("free") })
		check("a long pause", "free", func() { c.advance(time.Hour); l.Check("free", 1) })
	}
}

// Near the limit of a fleet, too: but for the first decision after a tick without
// the loop, which works out how to judge the key.
func TestL1_DecisionsNearTheLimitDoNotAllocate(t *testing.T) {
	for _, used := range []int64{600, 850, 990} {
		c := newClock()
		cfg := limiter.Config{Limit: 1000, Clock: c}
		l := mustNew(t, others(t, cfg, "k", used), cfg)
		for range 3 {
			l.Allow("k")
			flush(t, l)
			c.advance(time.Second)
		}
		l.Peek("k")
		for name, decide := range map[string]func(){
			"Allow":                  func() { l.Allow("k") },
			"Check":                  func() { l.Check("k", 1) },
			"Check of what is large": func() { l.Check("k", 900) },
			"Peek":                   func() { l.Peek("k") },
		} {
			if n := testing.AllocsPerRun(50, decide); n != 0 {
				t.Errorf("L1: %s at %d of 1000: got %v allocations, want 0", name, used, n)
			}
		}
		c.advance(2 * time.Second)
		calls := 0
		n := testing.AllocsPerRun(1, func() {
			if calls++; calls == 2 { // the first is not counted
				l.Allow("k")
			}
		})
		if n > 1 {
			t.Errorf("L1: the first decision after a tick at %d of 1000: got %v allocations, want 1 at most", used, n)
		}
	}
}

// In a bubble time passes only while everybody waits, so a decision that waited
// for the store would see it pass, or never end.
func TestL1_DecisionsDoNotWaitForTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStuck()
		l := mustNew(t, store, limiter.Config{Limit: 10})
		t.Cleanup(func() { close(store.end) })
		l.Allow("cached")
		<-store.entered
		begin := time.Now()
		for range 5 {
			start := time.Now()
			l.Allow("cached")
			l.AllowN("cached", 20)
			l.Check("cached", 1)
			l.Peek("cached")
			l.Check("new at "+start.String(), 1)
			if passed := time.Since(start); passed != 0 {
				t.Errorf("L1: decisions took %v", passed)
			}
			time.Sleep(40 * time.Second) // epochs begin while the exchange is under way
		}
		if len(store.entered) != 0 || time.Since(begin) != 200*time.Second {
			t.Errorf("the exchange ended early")
		}
	})
}

func TestL1_DecisionsDoNotWaitForASlowStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		l := mustNew(t, store, limiter.Config{Limit: 1000})
		for i, rule := range []func(){
			func() { store.SetRule(hanging) },
			func() { store.SetRule(refused) },
			func() { store.SetRule(nil) },
		} {
			rule()
			for range 500 {
				start := time.Now()
				l.Allow("k")
				if passed := time.Since(start); passed != 0 {
					t.Fatalf("L1: with rule %d, a decision took %v", i, passed)
				}
				time.Sleep(13 * time.Millisecond)
			}
		}
	})
}

func TestL2_ALoneNodeAdmitsExactlyItsLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{1, 2, 10, 1000} {
		for _, goroutines := range []int{1, 50} {
			c := newClock()
			l := mustNew(t, memorystore.New(), limiter.Config{Limit: limit, Clock: c})
			var passed atomic.Int64
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() { passed.Add(admit(l, "k", 2000/goroutines)) })
			}
			wg.Wait()
			if got := passed.Load(); got != limit {
				t.Errorf("L2: limit %d, %d goroutines: admitted %d", limit, goroutines, got)
			}
			c.run(5*time.Second, l)
			if l.Allow("k") {
				t.Errorf("L2: limit %d: admitted one more after exchanges", limit)
			}
		}
	}
}

// While goroutines decide, the loop exchanges: no event may be seen twice or not
// at all.
func TestL2_ExchangesDoNotDisturbTheCount(t *testing.T) {
	t.Parallel()
	const limit = 5000
	c := newClock()
	l := mustNew(t, memorystore.New(), limiter.Config{Limit: limit, Clock: c})
	var passed atomic.Int64
	var deciders, loop sync.WaitGroup
	done := make(chan struct{})
	loop.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				l.Flush(context.Background())
			}
		}
	})
	for range 4 {
		deciders.Go(func() { passed.Add(admit(l, "k", limit)) })
	}
	deciders.Wait()
	close(done)
	loop.Wait()
	if got := passed.Load(); got != limit {
		t.Errorf("L2: admitted %d of limit %d", got, limit)
	}
	flush(t, l)
	conserved(t, l, limit)
}

func TestL2_Weights(t *testing.T) {
	t.Parallel()
	const huge = math.MaxInt64 - 1
	for _, tt := range []struct {
		limit int64
		ask   []int64
		want  []bool
	}{
		{10, []int64{11, 10, 1}, []bool{false, true, false}},
		{10, []int64{7, 4, 3, 1}, []bool{true, false, true, false}},
		{10, []int64{math.MaxInt64, 10}, []bool{false, true}},
		{1, []int64{2, 1, 1}, []bool{false, true, false}},
		{huge, []int64{math.MaxInt64, huge, 1}, []bool{false, true, false}},
		{huge, []int64{huge - 1, 2, 1, 1}, []bool{true, false, true, false}},
		{huge, []int64{huge / 2, huge / 2, 1, huge}, []bool{true, true, false, false}},
	} {
		l := mustNew(t, memorystore.New(), limiter.Config{Limit: tt.limit, Clock: newClock()})
		var got []bool
		for _, n := range tt.ask {
			got = append(got, l.AllowN("k", n))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("L2: limit %d, events %d (-want +got):\n%s", tt.limit, tt.ask, diff)
		}
	}
}

// Large requests that fail must not make small ones beside them fail.
func TestL2_ALargeRequestLeavesNoTrace(t *testing.T) {
	t.Parallel()
	l := mustNew(t, memorystore.New(), limiter.Config{Limit: 1000, Clock: newClock()})
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { passed.Add(admit(l, "k", 250)) })
		wg.Go(func() {
			for range 1000 {
				l.AllowN("k", 1001)
			}
		})
	}
	wg.Wait()
	if got := passed.Load(); got != 1000 {
		t.Errorf("L2: admitted %d of 1000 that fit", got)
	}
}

// The level is the same in every epoch, however much the counters have counted.
func TestL2_HugeCountsThroughManyEpochs(t *testing.T) {
	t.Parallel()
	const limit = math.MaxInt64 - 1
	for epochs := 1; epochs <= 4; epochs++ {
		c := newClock()
		l := mustNew(t, memorystore.New(), limiter.Config{Limit: limit, Epochs: epochs, Clock: c})
		for range 20 {
			if !l.AllowN("k", limit) {
				t.Fatalf("L2: %d epochs: denied the whole limit to a key as good as new", epochs)
			}
			if l.Allow("k") {
				t.Fatalf("L2: %d epochs: admitted one above the limit", epochs)
			}
			c.run(2*time.Minute, l)
		}
	}
}

// others returns a store in which another node has let n events of key pass in
// the present epoch.
func others(t *testing.T, cfg limiter.Config, key string, n int64) limiter.Store {
	t.Helper()
	store := memorystore.New()
	other := mustNew(t, store, cfg)
	if !other.AllowN(key, n) {
		t.Fatal("the other node denied what it was to count")
	}
	flush(t, other)
	return store
}

// The reply to a node's own count comes when it has counted on: the sum of the
// fleet's total and what is unsent goes over the top.
func TestL2_TheSumOfOwnAndOthersSaturates(t *testing.T) {
	t.Parallel()
	const limit = math.MaxInt64 - 1
	for _, countDenied := range []bool{false, true} {
		cfg := limiter.Config{Limit: limit, Clock: newClock(), CountDenied: countDenied}
		store := &before{Store: others(t, cfg, "k", limit-10)}
		l := mustNew(t, store, cfg)
		l.AllowN("k", 5)
		store.do = func() { l.AllowN("k", limit-10) }
		flush(t, l)
		for range 3 {
			if d := l.Check("k", math.MaxInt64); d.Allowed || d.Remaining != 0 {
				t.Errorf("L2: got %+v with twice the limit used up", d)
			}
			l.Flush(t.Context()) // counts the denied ones; the store refuses what goes over the top
		}
		l.Close()
		if s := l.Totals(); s.Accepted != limit-5 || s.Denied != math.MaxInt64 {
			t.Errorf("got %+v, want %d accepted, and as many denied as can be told", s, limit-5)
		}
		conserved(t, l, limit-5)
	}
}

// aliasing returns a string that changes with b.
func aliasing(b []byte) string { return unsafe.String(&b[0], len(b)) }

// before is a store that does something before an exchange.
type before struct {
	limiter.Store
	do func()
}

func (s *before) Exchange(ctx context.Context, b *limiter.Batch) error {
	if do := s.do; do != nil {
		s.do = nil
		do()
	}
	return s.Store.Exchange(ctx, b)
}

func TestDecision_Fields(t *testing.T) {
	t.Parallel()
	const (
		m = time.Minute
		s = time.Second
	)
	c := newClock()
	l := mustNew(t, memorystore.New(), limiter.Config{
		Limit: 10, Clock: c,
		Overrides: map[string]int64{"zero": 0, "free": limiter.Unlimited, "top": math.MaxInt64 - 1},
	})
	unlimited := limiter.Decision{Allowed: true, Reason: limiter.ReasonUnlimited, Limit: limiter.Unlimited, Remaining: limiter.Unlimited}
	zero := limiter.Decision{Reason: limiter.ReasonOverLimit, RetryAfter: limiter.Never}
	for _, tt := range []struct {
		name string
		do   func() limiter.Decision
		want limiter.Decision
	}{
		{"Peek at an unknown key", func() limiter.Decision { return l.Peek("k") },
			limiter.Decision{Allowed: true, Reason: limiter.ReasonFirstSeen, Limit: 10, Remaining: 10}},
		{"the first events", func() limiter.Decision { return l.Check("k", 4) },
			limiter.Decision{Allowed: true, Reason: limiter.ReasonFirstSeen, Limit: 10, Remaining: 6, ResetAfter: 2 * m}},
		{"after an exchange", func() limiter.Decision { flush(t, l); c.advance(15 * s); return l.Check("k", 4) },
			limiter.Decision{Allowed: true, Limit: 10, Remaining: 2, ResetAfter: 2*m - 15*s}},
		{"Peek", func() limiter.Decision { return l.Peek("k") },
			limiter.Decision{Allowed: true, Limit: 10, Remaining: 2, ResetAfter: 2*m - 15*s}},
		{"n of 0", func() limiter.Decision { return l.Check("k", 0) },
			limiter.Decision{Allowed: true, Limit: 10, Remaining: 2, ResetAfter: 2*m - 15*s}},
		// The node knows that all 8 came when the epoch began, and leave together.
		{"one too many", func() limiter.Decision { return l.Check("k", 3) },
			limiter.Decision{Reason: limiter.ReasonOverLimit, Limit: 10, Remaining: 2, RetryAfter: 45*s + 1, ResetAfter: 2*m - 15*s}},
		{"more than the limit", func() limiter.Decision { return l.Check("k", 11) },
			limiter.Decision{Reason: limiter.ReasonOverLimit, Limit: 10, Remaining: 2, RetryAfter: limiter.Never, ResetAfter: 2*m - 15*s}},
		{"a negative n", func() limiter.Decision { return l.Check("k", -5) },
			limiter.Decision{Reason: limiter.ReasonInvalid, Limit: 10, Remaining: 2, RetryAfter: limiter.Never, ResetAfter: 2*m - 15*s}},
		{"a negative n of an unknown key", func() limiter.Decision { return l.Check("new", math.MinInt64) },
			limiter.Decision{Reason: limiter.ReasonInvalid, Limit: 10, Remaining: 10, RetryAfter: limiter.Never}},
		{"the next epoch", func() limiter.Decision { c.advance(75 * s); return l.Check("k", 6) },
			limiter.Decision{Allowed: true, Limit: 10, Remaining: 4, ResetAfter: m + 30*s}},
		{"two epochs later", func() limiter.Decision { c.advance(2 * m); return l.Peek("k") },
			limiter.Decision{Allowed: true, Reason: limiter.ReasonFirstSeen, Limit: 10, Remaining: 10}},
		{"limit 0", func() limiter.Decision { return l.Check("zero", 1) }, zero},
		{"limit 0 once more", func() limiter.Decision { return l.Check("zero", 1) }, zero},
		{"Peek at limit 0", func() limiter.Decision { return l.Peek("zero") }, zero},
		{"unlimited", func() limiter.Decision { return l.Check("free", math.MaxInt64) }, unlimited},
		{"Peek at an unlimited key", func() limiter.Decision { return l.Peek("free") }, unlimited},
		{"the largest limit", func() limiter.Decision { return l.Check("top", math.MaxInt64-2) },
			limiter.Decision{Allowed: true, Reason: limiter.ReasonFirstSeen, Limit: math.MaxInt64 - 1, Remaining: 1, ResetAfter: m + 30*s}},
	} {
		if diff := cmp.Diff(tt.want, tt.do()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if got := l.Totals().Misuse; got != 2 {
		t.Errorf("Misuse: got %d, want 2", got)
	}
}

func TestAllowN_OfNothingOrLessCountsNothing(t *testing.T) {
	t.Parallel()
	l := mustNew(t, memorystore.New(), limiter.Config{Limit: 1, Clock: newClock()})
	if !l.AllowN("k", 0) {
		t.Errorf("AllowN of 0 events with room for one: denied")
	}
	if l.AllowN("k", -1) || l.AllowN("k", math.MinInt64) {
		t.Errorf("AllowN of a negative number: allowed")
	}
	if l.Totals().FirstSeen != 0 {
		t.Errorf("AllowN of 0 or less left an entry")
	}
	if !l.Allow("k") || l.AllowN("k", 0) {
		t.Errorf("AllowN of 0 did not tell whether there is room")
	}
	if got := l.Totals().Misuse; got != 2 {
		t.Errorf("Misuse: got %d, want 2", got)
	}
}

func TestPeek_LeavesNoTrace(t *testing.T) {
	t.Parallel()
	c := newClock()
	store := &spy{Store: memorystore.New()}
	w := new(watcher)
	l := mustNew(t, store, limiter.Config{Limit: 1, Clock: c, Observer: w})
	for range 5 {
		l.Peek("unknown")
		c.run(time.Second, l)
	}
	if r := w.take(); r[len(r)-1].CacheEntries != 0 || l.Totals().FirstSeen != 0 {
		t.Errorf("Peek left an entry")
	}
	l.Allow("k")
	flush(t, l)
	store.take()
	for range 100 {
		l.Peek("k")
		c.run(time.Second, l)
	}
	if got := store.take(); len(got) != 0 {
		t.Errorf("Peek made %d exchanges", len(got))
	}
}

func TestAllow_TakesAnyKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 64<<10)
	keys := []string{"", ":", "a:b", "{a}b", "{", "\x00", "\xff\xfe", "é", " ", "\n", long, long + "1", "a", "a\x00", "unlimited"}
	c := newClock()
	store := newStore()
	l := mustNew(t, store, limiter.Config{Limit: 3, Clock: c, Overrides: map[string]int64{"unlimited": limiter.Unlimited}})
	for _, key := range keys[:len(keys)-1] {
		if got := admit(l, key, 5); got != 3 {
			t.Errorf("key %.20q: admitted %d, want 3", key, got)
		}
	}
	if got := admit(l, "unlimited", 5); got != 5 {
		t.Errorf("unlimited key: admitted %d of 5", got)
	}
	flush(t, l)
	if sums := applied(store); len(sums) != len(keys)-1 {
		t.Errorf("the store counts %d keys, want %d", len(sums), len(keys)-1)
	}
}

// The caller may use the memory of a key for something else.
func TestAllow_KeepsNoKeyOfTheCallers(t *testing.T) {
	t.Parallel()
	store := newStore()
	l := mustNew(t, store, limiter.Config{Limit: 3, Clock: newClock()})
	buf := []byte("key-0")
	for i := range 10 {
		buf[4] = '0' + byte(i)
		l.Allow(aliasing(buf))
	}
	flush(t, l)
	if sums := applied(store); len(sums) != 10 {
		t.Errorf("the store counts %d keys, want 10", len(sums))
	}
	for i := range 10 {
		if got := used(l, fmt.Sprintf("key-%d", i)); got != 1 {
			t.Errorf("key-%d: %d used, want 1", i, got)
		}
	}
}

func TestDecision_RetryAfterIsTheFirstMomentThatPasses(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	denied, late := 0, 0
	for range often(300) {
		c := newClock()
		c.advance(time.Duration(r.Int64N(int64(time.Hour))))
		limit := 1 + r.Int64N(1<<r.IntN(40))
		l := mustNew(t, memorystore.New(), limiter.Config{Limit: limit, Epochs: 1 + r.IntN(4), Clock: c, Decay: limiter.DecayWindow})
		for range 20 {
			l.AllowN("k", 1+r.Int64N(limit))
			if r.IntN(4) == 0 {
				l.Tick(t.Context())
			}
			c.advance(time.Duration(r.Int64N(int64(20 * time.Second))))
		}
		n := 1 + r.Int64N(limit)
		d := l.Check("k", n)
		if d.Allowed {
			continue
		}
		denied++
		c.advance(d.RetryAfter - 1)
		if l.AllowN("k", n) {
			t.Errorf("%d of %d passed before RetryAfter %v", n, limit, d.RetryAfter)
		}
		c.advance(1)
		if l.AllowN("k", n) {
			continue
		}
		// Near its limit, a key has a history, whose samples move when it is looked at.
		late++
		c.advance(time.Second)
		if !l.AllowN("k", n) {
			t.Errorf("%d of %d did not pass a tick after RetryAfter %v", n, limit, d.RetryAfter)
		}
	}
	if late > denied/20 {
		t.Errorf("%d of %d did not pass at once after RetryAfter", late, denied)
	}
	if denied < often(50) {
		t.Errorf("only %d requests were denied", denied)
	}
}

func TestDecision_ResetAfterIsWhenTheKeyIsAsNew(t *testing.T) {
	t.Parallel()
	for epochs := 1; epochs <= 4; epochs++ {
		c := newClock()
		l := mustNew(t, memorystore.New(), limiter.Config{Limit: 1 << 50, Epochs: epochs, Clock: c})
		for range 10 {
			d := l.Check("k", 1<<45)
			c.advance(d.ResetAfter - 1)
			if used(l, "k") == 0 {
				t.Errorf("%d epochs: as new before ResetAfter %v", epochs, d.ResetAfter)
			}
			c.advance(1)
			if got := used(l, "k"); got != 0 {
				t.Errorf("%d epochs: %d used after ResetAfter %v", epochs, got, d.ResetAfter)
			}
			c.advance(7 * time.Second)
		}
	}
}

func TestReason_String(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for r := limiter.ReasonUnderLimit; r <= limiter.ReasonInvalid; r++ {
		if s := r.String(); s == "" || s == "unknown" || seen[s] {
			t.Errorf("reason %d is %q, want a name of its own", r, s)
		}
		seen[r.String()] = true
	}
	if got := limiter.Reason(200).String(); got != "unknown" {
		t.Errorf("no reason: got %q, want unknown", got)
	}
}
