package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetlimit/fleetlimit/internal/faultstore"
	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
	"github.com/google/go-cmp/cmp"
)

// storeFunc makes a store of a function.
type storeFunc func(ctx context.Context, b *limiter.Batch) error

func (f storeFunc) Exchange(ctx context.Context, b *limiter.Batch) error { return f(ctx, b) }

// brokenSuite checks stores that breakIt makes of a correct one. It is for one case
// at a time.
func brokenSuite(breakIt func(inner limiter.Store) limiter.Store) StoreSuite {
	var backend *faultstore.Store
	return StoreSuite{
		New: func(testing.TB) limiter.Store {
			backend = faultstore.Wrap(memorystore.New())
			return breakIt(backend)
		},
		Peer: func(_ testing.TB, s limiter.Store) limiter.Store { return s },
		Outage: func(_ testing.TB, _ limiter.Store, o Outage) (heal func()) {
			backend.SetRule(faultstore.Always(map[Outage]faultstore.Fault{
				Refused:     {Kind: faultstore.Refuse},
				Stalled:     {Kind: faultstore.LoseRequest, Delay: time.Hour},
				RepliesLost: {Kind: faultstore.LoseReply},
			}[o]))
			return func() { backend.SetRule(nil) }
		},
	}
}

// failures runs all cases in virtual time and returns the errors of those that
// fail, by the case's index.
func failures(t *testing.T, suite StoreSuite) map[int]error {
	t.Helper()
	failed := make(map[int]error)
	for i, c := range storeCases {
		synctest.Test(t, func(t *testing.T) {
			if err := suite.run(t, c); err != nil {
				failed[i] = err
			}
			time.Sleep(2 * time.Hour) // until what hangs has ended
		})
	}
	return failed
}

// ruleIDs returns the ids of the cases in failed, sorted and without duplicates.
func ruleIDs[S any](cases []ruleCase[S], failed map[int]error) []string {
	var ids []string
	for i := range failed {
		ids = append(ids, cases[i].id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// caseCoverage notes which cases some broken subject has failed.
type caseCoverage struct {
	mu       sync.Mutex
	subjects int
	failed   map[int]bool
}

func (c *caseCoverage) note(failed map[int]error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subjects++
	if c.failed == nil {
		c.failed = make(map[int]bool)
	}
	for i := range failed {
		c.failed[i] = true
	}
}

// checkCoverage fails t if none of the subjects, all of which have been noted, has
// failed a case: a case that cannot fail is no evidence.
func checkCoverage[S any](t *testing.T, c *caseCoverage, cases []ruleCase[S], subjects int) {
	t.Helper()
	if c.subjects < subjects {
		return // go test -run has chosen some of them
	}
	for i, rc := range cases {
		if !c.failed[i] {
			t.Errorf("no broken subject fails %s_%s", rc.id, rc.name)
		}
	}
}

// whole returns a copy of b that shares no memory with it.
func whole(b *limiter.Batch) *limiter.Batch {
	c := *b
	c.Adds, c.Expires, c.Gets = slices.Clone(b.Adds), slices.Clone(b.Expires), slices.Clone(b.Gets)
	return &c
}

// renaming makes a store that knows counters by other names.
func renaming(inner limiter.Store, prefix func(string) string, rename func(limiter.Counter) limiter.Counter) limiter.Store {
	return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
		work := whole(b)
		work.Prefix = prefix(b.Prefix)
		for i := range work.Adds {
			work.Adds[i].Counter = rename(work.Adds[i].Counter)
		}
		for i := range work.Expires {
			work.Expires[i].Counter = rename(work.Expires[i].Counter)
		}
		for i := range work.Gets {
			work.Gets[i].Counter = rename(work.Gets[i].Counter)
		}
		err := inner.Exchange(ctx, work)
		for i, op := range work.Adds {
			b.Adds[i].Total, b.Adds[i].Outcome = op.Total, op.Outcome
		}
		for i, op := range work.Expires {
			b.Expires[i].Outcome = op.Outcome
		}
		for i, op := range work.Gets {
			b.Gets[i].Total, b.Gets[i].OK = op.Total, op.OK
		}
		return err
	})
}

// renamingKeys is renaming for what changes the key only.
func renamingKeys(rename func(string) string) func(limiter.Store) limiter.Store {
	return func(inner limiter.Store) limiter.Store {
		return renaming(inner, same, func(c limiter.Counter) limiter.Counter {
			c.Key = rename(c.Key)
			return c
		})
	}
}

func same(s string) string { return s }

// answering makes a store that changes the answers of inner.
func answering(change func(ctx context.Context, b *limiter.Batch, err error) error) func(limiter.Store) limiter.Store {
	return func(inner limiter.Store) limiter.Store {
		return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
			return change(ctx, b, inner.Exchange(ctx, b))
		})
	}
}

// asking makes a store that asks inner for something else than it was asked for.
// What it asks for and the original share no memory; the results are those of the
// operations at the same index; if there is none, it goes by the error.
func asking(change func(b *limiter.Batch)) func(limiter.Store) limiter.Store {
	return func(inner limiter.Store) limiter.Store {
		return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
			work := whole(b)
			change(work)
			err := inner.Exchange(ctx, work)
			rest := limiter.Applied
			if err != nil {
				rest = limiter.NotApplied
			}
			for i := range b.Adds {
				b.Adds[i].Total, b.Adds[i].Outcome = b.Adds[i].Delta, rest
				if i < len(work.Adds) {
					b.Adds[i].Total, b.Adds[i].Outcome = work.Adds[i].Total, work.Adds[i].Outcome
				}
			}
			for i := range b.Expires {
				b.Expires[i].Outcome = rest
				if i < len(work.Expires) {
					b.Expires[i].Outcome = work.Expires[i].Outcome
				}
			}
			for i, op := range work.Gets {
				b.Gets[i].Total, b.Gets[i].OK = op.Total, op.OK
			}
			return err
		})
	}
}

// parted is a store of two parts.
type parted struct {
	limiter.Store
	parts  []limiter.Part
	partOf func(key string) int
}

// inParts makes a store with parts of the given names, which hold all keys each.
func inParts(partOf func(key string) int, names ...string) func(limiter.Store) limiter.Store {
	return func(inner limiter.Store) limiter.Store {
		p := parted{Store: inner, partOf: partOf}
		for _, name := range names {
			p.parts = append(p.parts, limiter.Part{Name: name, Store: inner})
		}
		return p
	}
}

func (p parted) Parts() []limiter.Part { return p.parts }
func (p parted) PartOf(key string) int { return p.partOf(key) }

// timeTeller is a store that tells the time.
type timeTeller struct {
	limiter.Store
	tell func(context.Context) (time.Time, error)
}

func (s timeTeller) Time(ctx context.Context) (time.Time, error) { return s.tell(ctx) }

// mergeDuplicates leaves only the last add to each counter.
func mergeDuplicates(b *limiter.Batch) {
	last := make(map[limiter.Counter]int)
	for i, op := range b.Adds {
		last[op.Counter] = i
	}
	merged := b.Adds[:0]
	for i, op := range b.Adds {
		if last[op.Counter] == i {
			merged = append(merged, op)
		}
	}
	b.Adds = merged
}

// claim makes an answer that states an outcome where it is not known.
func claim(o limiter.Outcome) func(context.Context, *limiter.Batch, error) error {
	return func(_ context.Context, b *limiter.Batch, err error) error {
		for i := range b.Adds {
			if b.Adds[i].Outcome == limiter.Unknown {
				b.Adds[i].Outcome = o
			}
		}
		return err
	}
}

// brokenStores are stores with the rules that they break.
var brokenStores = []struct {
	name    string
	breakIt func(inner limiter.Store) limiter.Store
	want    []string
}{
	{"correct", correct, nil},
	{"correct, and forgets soon", forgetful, nil},
	{"correct, and saturates", answering(func(_ context.Context, b *limiter.Batch, err error) error {
		if !errors.Is(err, memorystore.ErrOverflow) {
			return err
		}
		for i := range b.Adds {
			if b.Adds[i].Outcome == limiter.NotApplied {
				b.Adds[i].Total, b.Adds[i].Outcome = math.MaxInt64, limiter.Applied
			}
		}
		return nil
	}), nil},
	{"drops the last add of several", asking(func(b *limiter.Batch) {
		if n := len(b.Adds); n > 1 {
			b.Adds = b.Adds[:n-1]
		}
	}), []string{"S1", "S10", "S2", "S4", "S5", "S8"}},
	{"performs at most 1000 gets", asking(func(b *limiter.Batch) {
		b.Gets = b.Gets[:min(1000, len(b.Gets))]
	}), []string{"S2"}},
	{"delivers every add twice", asking(func(b *limiter.Batch) {
		b.Adds = append(b.Adds, b.Adds...)
	}), []string{"S1", "S10", "S11", "S2", "S4", "S5", "S6", "S7", "S8"}},
	{"repeats an exchange that has failed", func(inner limiter.Store) limiter.Store {
		return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
			err := inner.Exchange(ctx, b)
			if errors.Is(err, faultstore.ErrInjected) {
				err = inner.Exchange(ctx, b)
			}
			return err
		})
	}, []string{"S7"}},
	{"sends a batch that has failed along with all later ones", func(inner limiter.Store) limiter.Store {
		var kept *limiter.Batch
		return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
			if kept != nil {
				_ = inner.Exchange(ctx, whole(kept))
			}
			err := inner.Exchange(ctx, b)
			if errors.Is(err, faultstore.ErrInjected) {
				kept = b
			}
			return err
		})
	}, []string{"S6", "S7", "S8"}},
	{"writes to a batch that it has returned", func(inner limiter.Store) limiter.Store {
		var kept atomic.Pointer[limiter.Batch]
		return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
			err := inner.Exchange(ctx, b)
			if len(b.Adds) == 3 { // so that concurrent callers have no race
				kept.Store(b)
			} else if old := kept.Load(); old != nil {
				old.Adds[0].Outcome = limiter.Applied
			}
			return err
		})
	}, []string{"S8"}},
	{"reports totals that it has read before", func(inner limiter.Store) limiter.Store {
		return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
			read := whole(b)
			read.Adds, read.Expires, read.Gets = nil, nil, nil
			for _, op := range b.Adds {
				read.Gets = append(read.Gets, limiter.Get{Counter: op.Counter})
			}
			if err := inner.Exchange(ctx, read); err != nil {
				return inner.Exchange(ctx, b)
			}
			time.Sleep(time.Millisecond)
			err := inner.Exchange(ctx, b)
			sums := make(map[limiter.Counter]int64)
			for i := range b.Adds {
				op := &b.Adds[i]
				sums[op.Counter] += op.Delta
				if err == nil {
					op.Total = read.Gets[i].Total + sums[op.Counter]
				}
			}
			return err
		})
	}, []string{"S8"}},
	{"gets before it adds", func(inner limiter.Store) limiter.Store {
		return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
			gets := whole(b)
			gets.Adds, gets.Expires = nil, nil
			if err := inner.Exchange(ctx, gets); err != nil {
				return inner.Exchange(ctx, b)
			}
			err := inner.Exchange(ctx, b)
			copy(b.Gets, gets.Gets)
			return err
		})
	}, []string{"S2"}},
	{"answers an add with the total before it", answering(func(_ context.Context, b *limiter.Batch, err error) error {
		for i := range b.Adds {
			b.Adds[i].Total -= b.Adds[i].Delta
		}
		return err
	}), []string{"S11", "S2", "S4", "S5"}},
	{"does not know absent counters", answering(func(_ context.Context, b *limiter.Batch, err error) error {
		for i := range b.Gets {
			b.Gets[i].OK = b.Gets[i].Total != 0
		}
		return err
	}), []string{"S3"}},
	{"leaves the total of an absent counter as it was", func(inner limiter.Store) limiter.Store {
		return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
			before := slices.Clone(b.Gets)
			err := inner.Exchange(ctx, b)
			for i := range b.Gets {
				if b.Gets[i].Total == 0 {
					b.Gets[i].Total = before[i].Total
				}
			}
			return err
		})
	}, []string{"S3"}},
	{"creates counters when they shall expire", func(inner limiter.Store) limiter.Store {
		return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
			created := whole(b)
			created.Adds, created.Gets = nil, nil
			for _, op := range b.Expires {
				if op.Lifetime == time.Hour && len(b.Adds) == 0 {
					created.Adds = append(created.Adds, limiter.Add{Counter: op.Counter, Delta: 1})
				}
			}
			if err := inner.Exchange(ctx, created); err != nil {
				return inner.Exchange(ctx, b)
			}
			return inner.Exchange(ctx, b)
		})
	}, []string{"S3"}},
	{"expires early", asking(func(b *limiter.Batch) {
		for i := range b.Expires {
			b.Expires[i].Lifetime /= 2
		}
	}), []string{"S4"}},
	{"never expires", asking(func(b *limiter.Batch) {
		b.Epochs, b.Expires = 1e6, nil
	}), []string{"S4"}},
	{"forgets the expiry at the next add", asking(func(b *limiter.Batch) {
		for _, op := range b.Adds {
			b.Expires = append(b.Expires, limiter.Expire{Counter: op.Counter, Lifetime: math.MaxInt64})
		}
	}), []string{"S4"}},
	{"expires at the end of an epoch what has no expiry", asking(func(b *limiter.Batch) {
		for _, op := range b.Adds {
			b.Expires = append(b.Expires, limiter.Expire{Counter: op.Counter, Lifetime: b.EpochLength})
		}
	}), []string{"S4"}},
	{"merges duplicates", asking(mergeDuplicates), []string{"S11", "S5"}},
	{"leaves outcomes as they were", func(inner limiter.Store) limiter.Store {
		return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
			before := whole(b)
			err := inner.Exchange(ctx, b)
			for i := range b.Adds {
				if err == nil {
					b.Adds[i].Outcome = before.Adds[i].Outcome
				}
			}
			return err
		})
	}, []string{"S6"}},
	{"leaves the outcomes of expiries as they were", func(inner limiter.Store) limiter.Store {
		return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
			before := whole(b)
			err := inner.Exchange(ctx, b)
			for i := range b.Expires {
				if err == nil {
					b.Expires[i].Outcome = before.Expires[i].Outcome
				}
			}
			return err
		})
	}, []string{"S6"}},
	{"says applied of what may be so", answering(claim(limiter.Applied)), []string{"S6"}},
	{"says not applied of what may be so", answering(claim(limiter.NotApplied)), []string{"S6"}},
	{"says ok of gets that have failed", answering(func(_ context.Context, b *limiter.Batch, err error) error {
		if errors.Is(err, faultstore.ErrInjected) {
			for i := range b.Gets {
				b.Gets[i].OK = true
			}
		}
		return err
	}), []string{"S6"}},
	{"fails although all succeeded", answering(func(_ context.Context, b *limiter.Batch, err error) error {
		if len(b.Adds)+len(b.Expires)+len(b.Gets) == 0 {
			return errors.New("nothing to do")
		}
		return err
	}), []string{"S6"}},
	{"hides that an add was refused", answering(func(_ context.Context, b *limiter.Batch, err error) error {
		if errors.Is(err, memorystore.ErrOverflow) {
			return nil
		}
		return err
	}), []string{"S11", "S6"}},
	{"hides all errors", answering(func(context.Context, *limiter.Batch, error) error { return nil }),
		[]string{"S11", "S6", "S9"}},
	{"ignores the context", func(inner limiter.Store) limiter.Store {
		return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.ChunkTimeout)
			defer cancel()
			return inner.Exchange(ctx, b)
		})
	}, []string{"S9"}},
	{"does not wrap the error of the context", answering(func(ctx context.Context, b *limiter.Batch, err error) error {
		if err != nil && ctx.Err() != nil {
			return errors.New("out of time")
		}
		return err
	}), []string{"S9"}},
	{"says unknown of what a done context kept from being sent", answering(func(ctx context.Context, b *limiter.Batch, err error) error {
		if err != nil && ctx.Err() != nil {
			for i := range b.Adds {
				b.Adds[i].Outcome = limiter.Unknown
			}
		}
		return err
	}), []string{"S9"}},
	{"tells the time without end", func(inner limiter.Store) limiter.Store {
		return timeTeller{inner, func(context.Context) (time.Time, error) {
			time.Sleep(time.Hour)
			return time.Time{}, nil
		}}
	}, []string{"S9"}},
	{"joins key and epoch", func(inner limiter.Store) limiter.Store {
		return renaming(inner, same, func(c limiter.Counter) limiter.Counter {
			c.Key, c.Epoch = fmt.Sprint(c.Key, c.Epoch), 0
			return c
		})
	}, []string{"S10"}},
	{"joins prefix and key", func(inner limiter.Store) limiter.Store {
		return storeFunc(func(ctx context.Context, b *limiter.Batch) error {
			return renaming(inner, func(string) string { return "" }, func(c limiter.Counter) limiter.Counter {
				c.Key = b.Prefix + c.Key
				return c
			}).Exchange(ctx, b)
		})
	}, []string{"S10"}},
	{"shares counters across prefixes", func(inner limiter.Store) limiter.Store {
		return renaming(inner, func(string) string { return "p" }, func(c limiter.Counter) limiter.Counter { return c })
	}, []string{"S10"}},
	{"shares counters across series", func(inner limiter.Store) limiter.Store {
		return renaming(inner, same, func(c limiter.Counter) limiter.Counter {
			c.Series = limiter.SeriesAdmitted
			return c
		})
	}, []string{"S10", "S3"}},
	{"cuts keys at 256 bytes", renamingKeys(func(k string) string { return k[:min(len(k), 256)] }), []string{"S10"}},
	{"ends keys at a NUL", renamingKeys(func(k string) string { k, _, _ = strings.Cut(k, "\x00"); return k }), []string{"S10"}},
	{"ignores the case of keys", renamingKeys(strings.ToLower), []string{"S10"}},
	{"mends keys that are not UTF-8", renamingKeys(func(k string) string { return strings.ToValidUTF8(k, "?") }), []string{"S10"}},
	{"panics on the empty key", renamingKeys(func(k string) string { return k[:1] + k[1:] }), []string{"S10"}},
	{"wraps", func(inner limiter.Store) limiter.Store {
		var wrapped sync.Map
		return answering(func(_ context.Context, b *limiter.Batch, err error) error {
			if errors.Is(err, memorystore.ErrOverflow) {
				err = nil
				for i := range b.Adds {
					op := &b.Adds[i]
					if op.Outcome == limiter.NotApplied {
						op.Total, op.Outcome = math.MinInt64, limiter.Applied
						wrapped.Store(op.Counter, true)
					}
				}
			}
			for i := range b.Gets {
				if _, ok := wrapped.Load(b.Gets[i].Counter); ok {
					b.Gets[i].Total = math.MinInt64
				}
			}
			return err
		})(inner)
	}, []string{"S11"}},
	{"in two parts, correct", inParts(func(key string) int { return len(key) % 2 }, "a", "b"), nil},
	{"in parts without a name", inParts(func(key string) int { return 0 }, "a", ""), []string{"S1"}},
	{"in no parts", inParts(func(key string) int { return 0 }), []string{"S1"}},
	{"in parts that do not exist", inParts(func(key string) int { return len(key) }, "a", "b"), []string{"S1"}},
	{"in parts that change", func(inner limiter.Store) limiter.Store {
		calls := 0
		return inParts(func(string) int { calls++; return calls % 2 }, "a", "b")(inner)
	}, []string{"S1"}},
	{"in parts that it does not use", func(inner limiter.Store) limiter.Store {
		p := inParts(func(string) int { return 0 }, "a")(inner).(parted)
		p.parts[0].Store = memorystore.New()
		return p
	}, []string{"S1"}},
	{"counts in floating point", answering(func(_ context.Context, b *limiter.Batch, err error) error {
		round := func(n int64) int64 {
			if n > 1<<53 {
				return n &^ 1
			}
			return n
		}
		for i := range b.Adds {
			b.Adds[i].Total = round(b.Adds[i].Total)
		}
		for i := range b.Gets {
			b.Gets[i].Total = round(b.Gets[i].Total)
		}
		return err
	}), []string{"S1", "S11"}},
}

func TestStoreSuite_ABrokenStoreFailsTheRulesThatItBreaks(t *testing.T) {
	t.Parallel()
	var coverage caseCoverage
	t.Run("stores", func(t *testing.T) {
		for _, tc := range brokenStores {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				failed := failures(t, brokenSuite(tc.breakIt))
				if diff := cmp.Diff(tc.want, ruleIDs(storeCases, failed)); diff != "" {
					t.Errorf("failed rules (-want +got):\n%s\n%v", diff, failed)
				}
				coverage.note(failed)
			})
		}
		t.Run("does not share with its peer", func(t *testing.T) {
			t.Parallel()
			suite := brokenSuite(correct)
			suite.Peer = func(testing.TB, limiter.Store) limiter.Store { return memorystore.New() }
			failed := failures(t, suite)
			if diff := cmp.Diff([]string{"S1"}, ruleIDs(storeCases, failed)); diff != "" {
				t.Errorf("failed rules (-want +got):\n%s\n%v", diff, failed)
			}
			coverage.note(failed)
		})
	})
	checkCoverage(t, &coverage, storeCases, len(brokenStores)+1)
}

func correct(inner limiter.Store) limiter.Store { return inner }

// forgetful makes a store that lets counters of short epochs live no longer than
// it must, if they have no expiry.
func forgetful(inner limiter.Store) limiter.Store {
	return asking(func(b *limiter.Batch) {
		if b.EpochLength >= epochLength {
			return
		}
		for _, op := range b.Adds {
			end := time.Unix(0, (op.Epoch+int64(b.Epochs)+1)*int64(b.EpochLength))
			b.Expires = append(b.Expires, limiter.Expire{Counter: op.Counter, Lifetime: end.Sub(b.Now)})
		}
	})(inner)
}

// names returns the names of the cases in failed.
func names(failed map[int]error) []string {
	var out []string
	for _, i := range slices.Sorted(maps.Keys(failed)) {
		out = append(out, storeCases[i].name)
	}
	return out
}

func TestStoreSuite_SkipsWhatItCannotCheck(t *testing.T) {
	t.Parallel()
	var alone []string // the cases that make an outage
	for _, c := range storeCases {
		if c.alone {
			alone = append(alone, c.name)
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*StoreSuite)
		want   []string
	}{
		{"without Peer", func(s *StoreSuite) { s.Peer = nil }, []string{"APeerSeesAndAddsToTheSameCounters"}},
		{"without Outage", func(s *StoreSuite) { s.Outage = nil }, alone},
		{"with an Outage that can do nothing", func(s *StoreSuite) {
			s.Outage = func(testing.TB, limiter.Store, Outage) func() { return nil }
		}, alone},
		{"on a machine that is too slow", func(s *StoreSuite) {
			s.Elapse = func(_ testing.TB, _ limiter.Store, d time.Duration) { time.Sleep(d) } // and d besides
		}, []string{"CountersLiveAsLongAsTheirExpirySays", "ACounterWithoutExpiryLivesForItsWindow"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			suite := brokenSuite(forgetful)
			tc.change(&suite)
			failed := failures(t, suite)
			if diff := cmp.Diff(tc.want, names(failed)); diff != "" {
				t.Errorf("cases that were not passed (-want +got):\n%s", diff)
			}
			for i, err := range failed {
				if _, ok := err.(skip); !ok {
					t.Errorf("%s: got %v, want it skipped", storeCases[i].name, err)
				}
			}
		})
	}
}

func TestStoreSuite_AnOutageWithoutEffectFails(t *testing.T) {
	t.Parallel()
	suite := brokenSuite(correct)
	suite.Outage = func(testing.TB, limiter.Store, Outage) func() { return func() {} }
	failed := failures(t, suite)
	if diff := cmp.Diff([]string{"S6", "S9"}, ruleIDs(storeCases, failed)); diff != "" {
		t.Errorf("failed rules (-want +got):\n%s", diff)
	}
}

func TestStoreSuite_LetsWhatItCountedExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memorystore.New()
		suite := StoreSuite{New: func(testing.TB) limiter.Store { return store }}
		subject := suite.subject(t)
		if err := guard(watchdog, func() error { return partsOfName(subject) }); err != nil {
			t.Fatal(err)
		}
		subject.cleanUp()
		time.Sleep(time.Second)
		for prefix, cs := range subject.used {
			totals, err := subject.readFrom(store, prefix, slices.Collect(maps.Keys(cs))...)
			if err != nil {
				t.Fatal(err)
			}
			if left := slices.IndexFunc(totals, func(n int64) bool { return n != 0 }); left >= 0 {
				t.Errorf("prefix %q still has counters", prefix)
			}
		}
	})
}
