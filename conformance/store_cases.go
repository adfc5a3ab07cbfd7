package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// storeCases are all that is checked of a store. A case looks, where it can, at
// its own rule only: it reads counters in an exchange of their own unless it is
// about S2, ignores outcomes unless it is about S6, and so on. So a store that
// breaks one rule sees that rule named.
var storeCases = []ruleCase[*storeSubject]{
	{id: "S1", name: "ACounterIsTheSumOfItsDeltas", run: sumOfDeltas},
	{id: "S1", name: "LargeTotalsAreExact", run: largeTotals},
	{id: "S1", name: "APeerSeesAndAddsToTheSameCounters", run: peerShares},
	{id: "S1", name: "PartsHoldTheirKeys", run: partsHoldTheirKeys},
	{id: "S2", name: "TheTotalOfAnAddIncludesIt", run: totalIncludesAdd},
	{id: "S2", name: "GetsSeeTheAddsOfTheirBatch", run: getsSeeAdds},
	{id: "S2", name: "GetsSeeTheAddsOfALargeBatch", run: getsSeeAddsOfLargeBatch},
	{id: "S3", name: "AnAbsentCounterReadsZero", run: absentReadsZero},
	{id: "S3", name: "ExpiriesAndGetsCreateNothing", run: nothingIsCreated},
	{id: "S4", name: "CountersLiveAsLongAsTheirExpirySays", run: lifetimes},
	{id: "S4", name: "AnExpiredCounterStartsAtZeroAndExpiresAgain", run: bornAnew},
	{id: "S4", name: "ACounterWithoutExpiryLivesForItsWindow", run: livesWithoutExpiry},
	{id: "S5", name: "DuplicatesAllCount", run: duplicates},
	{id: "S6", name: "SuccessIsSaidOfEveryOperation", run: allAnswered},
	{id: "S6", name: "OneFailureSparesTheTruthOfTheOthers", run: partialFailure},
	{id: "S6", name: "OutcomesAreTrueWhenRefused", run: outcomesAreTrue(Refused), alone: true},
	{id: "S6", name: "OutcomesAreTrueWhenStalled", run: outcomesAreTrue(Stalled), alone: true},
	{id: "S6", name: "OutcomesAreTrueWhenRepliesAreLost", run: outcomesAreTrue(RepliesLost), alone: true},
	{id: "S7", name: "AddsArriveAtMostOnceWhenRefused", run: atMostOnce(Refused), alone: true},
	{id: "S7", name: "AddsArriveAtMostOnceWhenStalled", run: atMostOnce(Stalled), alone: true},
	{id: "S7", name: "AddsArriveAtMostOnceWhenRepliesAreLost", run: atMostOnce(RepliesLost), alone: true},
	{id: "S8", name: "ConcurrentExchangesLoseNothing", run: concurrent},
	{id: "S8", name: "ABatchIsLeftAloneAfterItsReturn", run: keepsNoReference},
	{id: "S8", name: "ABatchIsLeftAloneAfterADeadline", run: keepsNoReferenceAfterDeadline, alone: true},
	{id: "S9", name: "ADoneContextAppliesNothing", run: doneContext},
	{id: "S9", name: "ADeadlineEndsAStalledExchange", run: deadlineEndsStall, alone: true},
	{id: "S9", name: "ACancelEndsAStalledExchange", run: cancelEndsStall, alone: true},
	{id: "S10", name: "AnyKeyIsItsOwn", run: anyKey},
	{id: "S10", name: "LongKeysThatDifferInOneByteAreDistinct", run: longKeys},
	{id: "S10", name: "ThePartsOfANameNeverMix", run: partsOfName},
	{id: "S11", name: "ATotalNeverWraps", run: neverWraps},
	{id: "S11", name: "ATotalNeverWrapsWithinABatch", run: neverWrapsWithinBatch},
}

func sumOfDeltas(s *storeSubject) error {
	cs := s.counters(3)
	want := make([]int64, len(cs))
	for round := range 5 {
		b := s.batch()
		for i, c := range cs {
			delta := int64(1) << (3*round + i)
			b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: delta})
			want[i] += delta
		}
		if err := s.exchange(b); err != nil {
			return err
		}
	}
	got, err := s.read(cs...)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return differ("three counters after five exchanges with deltas 1, 2, 4, ...", got, want)
	}
	return nil
}

func largeTotals(s *storeSubject) error {
	c := s.counter("k")
	var want int64
	for _, delta := range []int64{1 << 53, 1, 1 << 61, 1} {
		if err := s.add(c, delta); err != nil {
			return err
		}
		want += delta
		if err := s.wantTotal(fmt.Sprintf("a counter after adding %d", delta), c, want); err != nil {
			return err
		}
	}
	return nil
}

func peerShares(s *storeSubject) error {
	peer, err := s.peer()
	if err != nil {
		return err
	}
	c := s.counter("k")
	if err := s.add(c, 3); err != nil {
		return err
	}
	b := s.batch()
	b.Adds = []limiter.Add{{Counter: c, Delta: 4}}
	if err := s.try(context.Background(), peer, b); err != nil {
		return fmt.Errorf("exchange with the peer: %w", err)
	}
	got, err := s.readFrom(peer, s.prefix, c)
	if err != nil {
		return err
	}
	if got[0] != 7 {
		return differ("the peer's view of a counter after 3 by the store and 4 by the peer", got[0], 7)
	}
	return s.wantTotal("the store's view of a counter after 3 by the store and 4 by the peer", c, 7)
}

// partsHoldTheirKeys checks stores that are a [limiter.Partitioned]; others pass.
func partsHoldTheirKeys(s *storeSubject) error {
	partitioned, ok := s.store.(limiter.Partitioned)
	if !ok {
		return nil
	}
	parts := partitioned.Parts()
	if len(parts) == 0 {
		return differ("number of parts", 0, "at least 1")
	}
	names := make(map[string]bool)
	for i, p := range parts {
		if p.Name == "" || names[p.Name] {
			return differ(fmt.Sprintf("name of part %d", i), fmt.Sprintf("%q", p.Name), "unique and not empty")
		}
		names[p.Name] = true
	}
	for i, c := range s.counters(50) {
		n := partitioned.PartOf(c.Key)
		if n < 0 || n >= len(parts) {
			return differ(fmt.Sprintf("PartOf of key %q", c.Key), n, fmt.Sprintf("0 to %d", len(parts)-1))
		}
		b := s.batch()
		b.Adds = []limiter.Add{{Counter: c, Delta: int64(i + 1)}}
		if err := s.try(context.Background(), parts[n].Store, b); err != nil {
			return fmt.Errorf("exchange with part %d: %w", n, err)
		}
		if err := s.wantTotal(fmt.Sprintf("key %q through the whole store, after an add to its part", c.Key), c, int64(i+1)); err != nil {
			return err
		}
		if again := partitioned.PartOf(c.Key); again != n {
			return differ(fmt.Sprintf("second PartOf of key %q", c.Key), again, n)
		}
	}
	return nil
}

func totalIncludesAdd(s *storeSubject) error {
	c := s.counter("k")
	var want int64
	for _, delta := range []int64{5, 3, 1} {
		b := s.batch()
		b.Adds = []limiter.Add{{Counter: c, Delta: delta}}
		if err := s.exchange(b); err != nil {
			return err
		}
		want += delta
		if got := b.Adds[0].Total; got != want {
			return differ(fmt.Sprintf("total of an add of %d", delta), got, want)
		}
	}
	return nil
}

func getsSeeAdds(s *storeSubject) error {
	known, fresh := s.counter("known"), s.counter("new")
	if err := s.add(known, 10); err != nil {
		return err
	}
	b := s.batch()
	b.Gets = []limiter.Get{{Counter: known}, {Counter: fresh}}
	b.Adds = []limiter.Add{{Counter: fresh, Delta: 2}, {Counter: known, Delta: 1}}
	if err := s.exchange(b); err != nil {
		return err
	}
	if got := b.Gets[0].Total; got != 11 {
		return differ("get of a counter at 10 that its batch adds 1 to", got, 11)
	}
	if got := b.Gets[1].Total; got != 2 {
		return differ("get of a counter that its batch has created with 2", got, 2)
	}
	return nil
}

// getsSeeAddsOfLargeBatch sends a batch that any store will split.
func getsSeeAddsOfLargeBatch(s *storeSubject) error {
	cs := s.counters(4000)
	b := s.batch()
	for i, c := range cs {
		b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: int64(i + 1)})
	}
	for i := len(cs) - 1; i >= 0; i-- {
		b.Gets = append(b.Gets, limiter.Get{Counter: cs[i]})
	}
	if err := s.exchange(b); err != nil {
		return err
	}
	for i := range cs {
		want := int64(i + 1)
		if got := b.Gets[len(cs)-1-i].Total; got != want {
			return differ(fmt.Sprintf("get of counter %d of %d that their batch has created", i, len(cs)), got, want)
		}
	}
	return nil
}

func absentReadsZero(s *storeSubject) error {
	known := s.counter("known")
	if err := s.add(known, 5); err != nil {
		return err
	}
	absent := s.counter("absent")
	otherEpoch, otherSeries := known, known
	otherEpoch.Epoch--
	otherSeries.Series = limiter.SeriesDenied

	b := s.batch()
	for _, c := range []limiter.Counter{absent, otherEpoch, otherSeries} {
		b.Gets = append(b.Gets, limiter.Get{Counter: c, Total: 99}) // left over from an earlier exchange
	}
	err := s.try(context.Background(), s.store, b)
	for _, op := range b.Gets {
		if op.Total != 0 || !op.OK {
			return differ("get of an absent counter", fmt.Sprintf("total %d, ok %t, error %v", op.Total, op.OK, err), "total 0, ok true")
		}
	}
	return err
}

func nothingIsCreated(s *storeSubject) error {
	c := s.counter("k")
	b := s.batch()
	b.Expires = []limiter.Expire{{Counter: c, Lifetime: time.Hour}}
	b.Gets = []limiter.Get{{Counter: c}}
	if err := s.exchange(b); err != nil {
		return err
	}
	if got := b.Gets[0].Total; got != 0 {
		return differ("get of a counter that only an expiry in its batch has named", got, 0)
	}
	return s.wantTotal("a counter that only an expiry and a get have named", c, 0)
}

// maxSlack is how much longer than it must a counter may live.
const maxSlack = 10 * time.Second

// gone waits until counters read 0.
func (s *storeSubject) gone(cs ...limiter.Counter) error {
	const step = 250 * time.Millisecond
	for waited := time.Duration(0); ; waited += step {
		got, err := s.read(cs...)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(got, func(total int64) bool { return total != 0 })
		if i < 0 {
			return nil
		}
		if waited >= maxSlack {
			return differ(fmt.Sprintf("counter %q, %v after its lifetime", cs[i].Key, waited), got[i], "0: gone")
		}
		s.elapse(step)
	}
}

// lifetimes writes counters in all ways that there are, and looks at them shortly
// before and some time after their lifetime.
func lifetimes(s *storeSubject) error {
	return s.withLifetime(func(lifetime time.Duration) ([]limiter.Counter, error) {
		key := func(what string) limiter.Counter { return s.counter(fmt.Sprintf("%s, %v", what, lifetime)) }
		var (
			inOneBatch    = key("expiry in the batch of the first add")
			later         = key("expiry in a later batch")
			addedTo       = key("add after the expiry")
			repeated      = key("expiry repeated")
			inBothBatches = key("add and expiry repeated in one batch")
		)
		for _, b := range []struct {
			adds, expires []limiter.Counter
		}{
			{
				adds:    []limiter.Counter{inOneBatch, later, addedTo, repeated, inBothBatches},
				expires: []limiter.Counter{inOneBatch, addedTo, repeated, inBothBatches},
			},
			{
				adds:    []limiter.Counter{addedTo, inBothBatches},
				expires: []limiter.Counter{later, repeated, inBothBatches},
			},
		} {
			batch := s.batch()
			for _, c := range b.adds {
				batch.Adds = append(batch.Adds, limiter.Add{Counter: c, Delta: 1})
			}
			for _, c := range b.expires {
				batch.Expires = append(batch.Expires, limiter.Expire{Counter: c, Lifetime: lifetime})
			}
			if err := s.exchange(batch); err != nil {
				return nil, err
			}
		}
		return []limiter.Counter{inOneBatch, later, addedTo, repeated, inBothBatches}, nil
	})
}

// withLifetime lets write create counters that must live for a lifetime, and
// checks that they do so, and not much longer.
func (s *storeSubject) withLifetime(write func(time.Duration) ([]limiter.Counter, error)) error {
	for lifetime := 1200 * time.Millisecond; lifetime < maxSlack; lifetime *= 2 {
		began := s.now()
		cs, err := write(lifetime)
		if err != nil {
			return err
		}
		s.elapse(lifetime * 3 / 4)
		got, err := s.read(cs...)
		if err != nil {
			return err
		}
		if i := slices.Index(got, 0); i >= 0 {
			passed := s.now().Sub(began)
			if passed >= lifetime {
				continue // the machine was slow, and the counter right to go
			}
			return differ(fmt.Sprintf("counter %q, %v into its lifetime of %v", cs[i].Key, passed, lifetime), 0, "its count")
		}
		s.elapse(lifetime / 4)
		return s.gone(cs...)
	}
	return skip("the machine is too slow to look at a counter within its lifetime")
}

func bornAnew(s *storeSubject) error {
	const lifetime = 100 * time.Millisecond
	c := s.counter("k")
	for _, delta := range []int64{3, 5} {
		b := s.batch()
		b.Adds = []limiter.Add{{Counter: c, Delta: delta}}
		b.Expires = []limiter.Expire{{Counter: c, Lifetime: lifetime}}
		if err := s.exchange(b); err != nil {
			return err
		}
		if got := b.Adds[0].Total; got != delta {
			return differ(fmt.Sprintf("total of the first add of %d", delta), got, delta)
		}
		s.elapse(lifetime)
		if err := s.gone(c); err != nil {
			return err
		}
	}
	return nil
}

func livesWithoutExpiry(s *storeSubject) error {
	for length := 300 * time.Millisecond; length < maxSlack; length *= 2 {
		b := s.batch()
		b.EpochLength = length
		c := limiter.Counter{Key: length.String(), Epoch: epochOf(b.Now, length)}
		b.Adds = []limiter.Add{{Counter: c, Delta: 1}}
		if err := s.exchange(b); err != nil {
			return err
		}
		// The counter matters until the next epoch is over.
		end := time.Unix(0, (c.Epoch+2)*int64(length))
		s.elapse(max(0, end.Sub(s.now())-length/3))
		got, err := s.read(c)
		if err != nil {
			return err
		}
		if got[0] == 1 {
			return nil
		}
		if left := end.Sub(s.now()); left > 0 {
			return differ(fmt.Sprintf("a counter without expiry in epochs of %v, %v before the next epoch ends", length, left), got[0], 1)
		}
	}
	return skip("the machine is too slow to look at a counter within its window")
}

func duplicates(s *storeSubject) error {
	k, other := s.counter("k"), s.counter("other")
	b := s.batch()
	b.Adds = []limiter.Add{{Counter: k, Delta: 1}, {Counter: other, Delta: 10}, {Counter: k, Delta: 2}, {Counter: k, Delta: 4}}
	b.Expires = []limiter.Expire{{Counter: k, Lifetime: time.Hour}, {Counter: k, Lifetime: time.Hour}}
	if err := s.exchange(b); err != nil {
		return err
	}
	got := []int64{b.Adds[0].Total, b.Adds[2].Total, b.Adds[3].Total}
	if want := []int64{1, 3, 7}; !slices.Equal(got, want) {
		return differ("totals of adds of 1, 2 and 4 to one counter in one batch", got, want)
	}
	got, err := s.read(k, other, k, k)
	if err != nil {
		return err
	}
	if want := []int64{7, 10, 7, 7}; !slices.Equal(got, want) {
		return differ("gets of a counter, another one, and the first again twice", got, want)
	}
	return nil
}

func allAnswered(s *storeSubject) error {
	if err := s.try(context.Background(), s.store, s.batch()); err != nil {
		return differ("error of an exchange of an empty batch", err, nil)
	}
	// Results left over from earlier exchanges must not shine through.
	for _, stale := range []limiter.Outcome{limiter.Unknown, limiter.Applied, limiter.NotApplied} {
		b := s.batch()
		for _, c := range s.counters(5) {
			b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: 1, Outcome: stale})
			b.Expires = append(b.Expires, limiter.Expire{Counter: c, Lifetime: time.Hour, Outcome: stale})
			b.Gets = append(b.Gets, limiter.Get{Counter: c, OK: stale == limiter.Applied})
		}
		if err := s.exchange(b); err != nil {
			return err
		}
		for _, op := range b.Adds {
			if op.Outcome != limiter.Applied {
				return differ("outcome of an add, the exchange having succeeded", op.Outcome, limiter.Applied)
			}
		}
		for _, op := range b.Expires {
			if op.Outcome != limiter.Applied {
				return differ("outcome of an expiry, the exchange having succeeded", op.Outcome, limiter.Applied)
			}
		}
		for _, op := range b.Gets {
			if !op.OK {
				return differ("ok of a get, the exchange having succeeded", op.OK, true)
			}
		}
	}
	return nil
}

// partialFailure makes one add of several overflow.
func partialFailure(s *storeSubject) error {
	before, full, after := s.counter("before"), s.counter("full"), s.counter("after")
	if err := s.add(full, math.MaxInt64); err != nil {
		return err
	}
	b := s.batch()
	b.Adds = []limiter.Add{{Counter: before, Delta: 1}, {Counter: full, Delta: 1}, {Counter: after, Delta: 1}}
	err := s.try(context.Background(), s.store, b)
	all := true
	for _, op := range b.Adds {
		all = all && op.Outcome == limiter.Applied
	}
	if all != (err == nil) {
		return differ("error of an exchange of which every add was applied: "+fmt.Sprint(all), err, "nil exactly then")
	}
	for _, i := range []int{0, 2} {
		if err := s.outcomeIsTrue(b.Adds[i], 0); err != nil {
			return err
		}
	}
	return nil
}

// outcomeIsTrue checks what is said of an add against what has become of a
// counter.
func (s *storeSubject) outcomeIsTrue(op limiter.Add, before int64) error {
	got, err := s.read(op.Counter)
	if err != nil {
		return err
	}
	change := got[0] - before
	what := fmt.Sprintf("change of a counter by an add of %d whose outcome is %q", op.Delta, op.Outcome)
	switch op.Outcome {
	case limiter.Applied:
		if change < op.Delta {
			return differ(what, change, op.Delta)
		}
	case limiter.NotApplied:
		if change != 0 {
			return differ(what, change, 0)
		}
	case limiter.Unknown: // claims nothing
	default:
		return differ("outcome of an add", uint8(op.Outcome), "one of the three")
	}
	return nil
}

// outageResult is what an outage has done to an exchange.
type outageResult struct {
	batch  *limiter.Batch
	err    error   // of the exchange
	before []int64 // what the counters of the adds read before
}

// duringOutage exchanges during an outage, which is over when it returns.
func (s *storeSubject) duringOutage(o Outage) (outageResult, error) {
	cs := s.counters(20)
	known, b := s.batch(), s.batch()
	b.ChunkTimeout = 200 * time.Millisecond
	for i, c := range cs {
		known.Adds = append(known.Adds, limiter.Add{Counter: c, Delta: 100})
		b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: int64(i + 1)})
		b.Expires = append(b.Expires, limiter.Expire{Counter: c, Lifetime: time.Hour})
		b.Gets = append(b.Gets, limiter.Get{Counter: c})
	}
	if err := s.exchange(known); err != nil {
		return outageResult{}, err
	}
	before, err := s.read(cs...)
	if err != nil {
		return outageResult{}, err
	}
	heal, err := s.outage(o)
	if err != nil {
		return outageResult{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	failure := s.try(ctx, s.store, b)
	heal()
	s.recovered()
	settle() // what is late may still arrive
	return outageResult{b, failure, before}, nil
}

func outcomesAreTrue(o Outage) func(*storeSubject) error {
	return func(s *storeSubject) error {
		r, err := s.duringOutage(o)
		if err != nil {
			return err
		}
		if r.err == nil {
			return differ(fmt.Sprintf("error of an exchange during the outage %v (if it is true, StoreSuite.Outage has no effect)", o), nil, "an error")
		}
		all := true
		for i, op := range r.batch.Adds {
			all = all && op.Outcome == limiter.Applied
			if err := s.outcomeIsTrue(op, r.before[i]); err != nil {
				return err
			}
		}
		for _, op := range r.batch.Expires {
			all = all && op.Outcome == limiter.Applied
		}
		for i, op := range r.batch.Gets {
			all = all && op.OK
			before, after := r.before[i], r.before[i]+r.batch.Adds[i].Delta
			if op.OK && op.Total != before && op.Total != after {
				return differ("total of a get that is ok", op.Total, fmt.Sprintf("%d or %d", before, after))
			}
		}
		if all {
			return differ("error of an exchange of which every operation succeeded", r.err, nil)
		}
		return nil
	}
}

func atMostOnce(o Outage) func(*storeSubject) error {
	return func(s *storeSubject) error {
		r, err := s.duringOutage(o)
		if err != nil {
			return err
		}
		for i, op := range r.batch.Adds {
			got, err := s.read(op.Counter)
			if err != nil {
				return err
			}
			if change := got[0] - r.before[i]; change != 0 && change != op.Delta {
				return differ(fmt.Sprintf("change of a counter by one add of %d during the outage %v", op.Delta, o), change, fmt.Sprintf("0 or %d", op.Delta))
			}
		}
		return nil
	}
}

func concurrent(s *storeSubject) error {
	const callers, rounds = 8, 25
	cs := s.counters(20)
	var mu sync.Mutex
	totals := make([][]int64, len(cs)) // of all adds, by counter
	err := together(callers, func(int) error {
		b := s.batch()
		for _, c := range cs {
			b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: 1})
			b.Gets = append(b.Gets, limiter.Get{Counter: c})
		}
		for range rounds {
			b.Servers = b.Servers[:0]
			if err := s.exchange(b); err != nil {
				return err
			}
			mu.Lock()
			for i, op := range b.Adds {
				totals[i] = append(totals[i], op.Total)
			}
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return err
	}
	got, err := s.read(cs...)
	if err != nil {
		return err
	}
	for i, total := range got {
		if total != callers*rounds {
			return differ(fmt.Sprintf("a counter after %d callers have each added 1 to it %d times", callers, rounds), total, callers*rounds)
		}
		slices.Sort(totals[i])
		if distinct := len(slices.Compact(totals[i])); distinct != callers*rounds {
			return differ(fmt.Sprintf("different totals of %d adds to one counter", callers*rounds), distinct, callers*rounds)
		}
	}
	return nil
}

func keepsNoReference(s *storeSubject) error {
	cs := s.counters(3)
	b := s.batch()
	for _, c := range cs {
		b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: 1})
		b.Expires = append(b.Expires, limiter.Expire{Counter: c, Lifetime: time.Hour})
		b.Gets = append(b.Gets, limiter.Get{Counter: c})
	}
	if err := s.exchange(b); err != nil {
		return err
	}
	return s.leftAlone(b, func() error {
		got, err := s.read(cs...)
		if err != nil {
			return err
		}
		if want := []int64{1, 1, 1}; !slices.Equal(got, want) {
			return differ("three counters whose batch was overwritten after it had returned", got, want)
		}
		return nil
	})
}

func keepsNoReferenceAfterDeadline(s *storeSubject) error {
	heal, err := s.outage(Stalled)
	if err != nil {
		return err
	}
	b := s.batch()
	b.ChunkTimeout = 200 * time.Millisecond
	for _, c := range s.counters(3) {
		b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: 1})
		b.Expires = append(b.Expires, limiter.Expire{Counter: c, Lifetime: time.Hour})
		b.Gets = append(b.Gets, limiter.Get{Counter: c})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_ = s.try(ctx, s.store, b)
	return s.leftAlone(b, func() error {
		heal()
		s.recovered()
		return nil
	})
}

// leftAlone overwrites a batch that the store has returned, does something else,
// and checks that the store has neither written to the batch nor used what is in
// it now.
func (s *storeSubject) leftAlone(b *limiter.Batch, meanwhile func() error) error {
	poison := s.counter("poison")
	for i := range b.Adds {
		b.Adds[i] = limiter.Add{Counter: poison, Delta: 1, Total: -1, Outcome: 99}
	}
	for i := range b.Expires {
		b.Expires[i] = limiter.Expire{Counter: poison, Lifetime: time.Hour, Outcome: 99}
	}
	for i := range b.Gets {
		b.Gets[i] = limiter.Get{Counter: poison, Total: -1, OK: true}
	}
	adds, expires, gets := slices.Clone(b.Adds), slices.Clone(b.Expires), slices.Clone(b.Gets)
	if err := meanwhile(); err != nil {
		return err
	}
	settle()
	if !slices.Equal(b.Adds, adds) || !slices.Equal(b.Expires, expires) || !slices.Equal(b.Gets, gets) {
		return differ("a batch some time after it was returned and overwritten", *b, limiter.Batch{Adds: adds, Expires: expires, Gets: gets})
	}
	return s.wantTotal("a counter that was only written into a batch after its return", poison, 0)
}

func doneContext(s *storeSubject) error {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	for _, ctx := range []context.Context{canceled, late} {
		b := s.batch()
		for _, c := range s.counters(3) {
			b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: 1, Outcome: limiter.Applied})
			b.Expires = append(b.Expires, limiter.Expire{Counter: c, Lifetime: time.Hour, Outcome: limiter.Applied})
			b.Gets = append(b.Gets, limiter.Get{Counter: c, OK: true})
		}
		if err := s.try(ctx, s.store, b); !errors.Is(err, ctx.Err()) {
			return differ("error of an exchange whose context was done", err, fmt.Sprintf("one that wraps %q", ctx.Err()))
		}
		for i := range b.Adds {
			got := fmt.Sprintf("add %v, expiry %v, get ok %t", b.Adds[i].Outcome, b.Expires[i].Outcome, b.Gets[i].OK)
			want := fmt.Sprintf("add %v, expiry %v, get ok %t", limiter.NotApplied, limiter.NotApplied, false)
			if got != want {
				return differ("results of an exchange whose context was done", got, want)
			}
		}
	}
	got, err := s.read(s.counters(3)...)
	if err != nil {
		return err
	}
	if want := []int64{0, 0, 0}; !slices.Equal(got, want) {
		return differ("counters after exchanges whose context was done", got, want)
	}
	return nil
}

func deadlineEndsStall(s *storeSubject) error {
	return s.endsStall(func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), 200*time.Millisecond)
	})
}

func cancelEndsStall(s *storeSubject) error {
	return s.endsStall(func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(context.Background())
		timer := time.AfterFunc(200*time.Millisecond, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	})
}

// endsStall checks that only the end of a context is needed to end what waits for
// a stalled backend. If it does not end, neither does the case.
func (s *storeSubject) endsStall(newContext func() (context.Context, context.CancelFunc)) error {
	cs := s.counters(3)
	if _, err := s.read(cs...); err != nil { // so that there is a connection
		return err
	}
	heal, err := s.outage(Stalled)
	if err != nil {
		return err
	}
	defer heal()
	b := s.batch()
	b.ChunkTimeout = time.Hour
	for _, c := range cs {
		b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: 1})
	}
	ctx, cancel := newContext()
	defer cancel()
	if err := s.try(ctx, s.store, b); err == nil {
		return differ("error of an exchange during the outage Stalled (if it is true, StoreSuite.Outage has no effect)", nil, "an error")
	}
	if teller, ok := s.store.(limiter.TimeTeller); ok {
		ctx, cancel := newContext()
		defer cancel()
		_, _ = teller.Time(ctx) // whatever it says, it must end
	}
	return nil
}

// oddKeys are keys that some encoding, some client or some server trips over.
var oddKeys = []string{
	"", " ", "  ", "k", "K", "k ", " k", "k\x00", "\x00", "\x00\x00", "\x00k",
	":", "::", "k:", ":k", "k:1", "k:1:0", "k/1", "k/", "/", "k,1", "k|1", "k-1", "k_1", "k.1", "k#1",
	"{", "}", "{}", "}{", "{k}", "{k}1", "{{k}}", "k{", "k}", "a{k}",
	"\n", "\r", "\r\n", "k\r\n", "\t", "\x1b", "\x7f",
	"*", "?", "[k]", "k*", "\\", "\\x00", "%", "%s", "%00", "%6b", "'", "\"", "`", "$", "$1", "$-1", "*1\r\n$1\r\nk\r\n",
	"0", "00", "1", "-1", "1e0", "nil", "null", "true", "--",
	"\xff", "\xff\xfe", "\xc3\x28", "\xed\xa0\x80", "k\xff", "\u00e9", "e\u0301", "\u65e5\u672c", "\U0001f511", "\ufeffk", "\u200bk", "\u212a",
}

func anyKey(s *storeSubject) error {
	var names []counterName
	for _, key := range oddKeys {
		names = append(names, counterName{s.prefix, s.counter(key)})
	}
	return s.distinct(names)
}

func longKeys(s *storeSubject) error {
	var names []counterName
	for _, n := range []int{250, 255, 256, 257, 258, 1000, 1 << 16} {
		key := strings.Repeat("k", n)
		for _, key := range []string{key, "x" + key[1:], key[:n/2] + "x" + key[n/2+1:], key[:n-1] + "x"} {
			names = append(names, counterName{s.prefix, s.counter(key)})
		}
	}
	return s.distinct(names)
}

func partsOfName(s *storeSubject) error {
	var names []counterName
	for _, prefix := range []string{"", "1", "11", "k", "/", "{", "}", "{k}"} {
		for _, key := range []string{"", "1", "k", "1k", "k1", "1:1", ":1", "1:", "{k}"} {
			for _, epoch := range []int64{0, 1, -1, 11, 111, math.MaxInt64, math.MinInt64} {
				for _, series := range []limiter.Series{limiter.SeriesAdmitted, limiter.SeriesDenied, limiter.SeriesNodes} {
					names = append(names, counterName{s.prefix + prefix, limiter.Counter{Key: key, Epoch: epoch, Series: series}})
				}
			}
		}
	}
	return s.distinct(names)
}

// counterName is what tells a counter from all others.
type counterName struct {
	prefix string
	limiter.Counter
}

// distinct adds a different number to each of some counters, which differ in their
// names, and checks that each reads its own number. Names with one prefix stand
// together.
func (s *storeSubject) distinct(names []counterName) error {
	var batches []*limiter.Batch
	for i, n := range names {
		if i == 0 || n.prefix != names[i-1].prefix {
			batches = append(batches, s.batchOf(n.prefix))
		}
		b := batches[len(batches)-1]
		b.Adds = append(b.Adds, limiter.Add{Counter: n.Counter, Delta: int64(i + 1)})
	}
	for _, b := range batches {
		if err := s.exchange(b); err != nil {
			return err
		}
	}
	for _, b := range batches {
		cs := make([]limiter.Counter, len(b.Adds))
		for i, op := range b.Adds {
			cs[i] = op.Counter
		}
		got, err := s.readFrom(s.store, b.Prefix, cs...)
		if err != nil {
			return err
		}
		for i, op := range b.Adds {
			if got[i] != op.Delta {
				return differ(fmt.Sprintf("%s, after one add of %d and other adds to %d other counters", name(b.Prefix, op.Counter), op.Delta, len(names)-1), got[i], op.Delta)
			}
		}
	}
	return nil
}

func neverWraps(s *storeSubject) error {
	c := s.counter("k")
	var total int64
	for _, delta := range []int64{math.MaxInt64 / 2, math.MaxInt64 / 2, 1, 1, math.MaxInt64} {
		b := s.batch()
		b.Adds = []limiter.Add{{Counter: c, Delta: delta}}
		err := s.try(context.Background(), s.store, b)
		got, readErr := s.read(c)
		if readErr != nil {
			return readErr
		}
		what := fmt.Sprintf("a counter at %d after an add of %d (outcome %q, error %v)", total, delta, b.Adds[0].Outcome, err)
		if sum := saturating(total, delta); got[0] != sum && (err == nil || got[0] != total) {
			return differ(what, got[0], fmt.Sprintf("%d, or an error", sum))
		}
		if err == nil && b.Adds[0].Total != got[0] {
			return differ("total of the add, for "+what, b.Adds[0].Total, got[0])
		}
		total = got[0]
	}
	return nil
}

func neverWrapsWithinBatch(s *storeSubject) error {
	c := s.counter("k")
	b := s.batch()
	b.Adds = []limiter.Add{{Counter: c, Delta: math.MaxInt64}, {Counter: c, Delta: math.MaxInt64}, {Counter: c, Delta: 2}}
	err := s.try(context.Background(), s.store, b)
	got, readErr := s.read(c)
	if readErr != nil {
		return readErr
	}
	// A store may also refuse the batch as a whole, or the adds that do not fit in
	// another order.
	if got[0] != math.MaxInt64 && (err == nil || got[0] != 0 && got[0] != 2) {
		what := fmt.Sprintf("a counter after adds of %d, %d and 2 in one batch (error %v)", math.MaxInt64, math.MaxInt64, err)
		return differ(what, got[0], fmt.Sprintf("%d, or an error", math.MaxInt64))
	}
	return nil
}

// saturating returns a + b, at most the largest int64.
func saturating(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
