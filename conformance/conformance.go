// Package conformance checks implementations of the limiter's interfaces against
// the rules that they must keep. A store's whole test is one line:
//
//	func TestConformance(t *testing.T) {
//		conformance.TestStore(t, func(tb testing.TB) limiter.Store { return mystore.New() })
//	}
//
// [TestLocalCache] and [TestTierPolicy] do the same for caches and tier policies.
// A store that has a server behind it can be checked further: [StoreSuite] takes
// hooks that open a second store, cut the connection or let time pass. What cannot
// be checked is skipped with a reason, or fails the test if the suite is strict.
//
// Each case is a subtest named after the rule that it checks, for example
// S2_GetsSeeTheAddsOfTheirBatch. A failure says what was seen, what was wanted and
// how the rule reads; docs/invariants.md lists all rules. A case that hangs is
// ended after 30 seconds and shows what every goroutine was doing.
//
// Run the suite with the race detector as well. It finds a store that writes to a
// batch after it has returned it, even when the suite itself looks too late.
package conformance

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"
)

// watchdog is how long a case may take.
const watchdog = 30 * time.Second

// rules holds the text of each rule that the package checks.
var rules = map[string]string{
	"S1":  "a counter reads as the sum of the deltas applied to it, from any store on the same namespace",
	"S2":  "the gets of a batch see its adds, and the total of an add includes it",
	"S3":  "a counter that does not exist reads 0, ok",
	"S4":  "a counter can be read for as long as its epoch matters, whatever has written to it, and does not live for ever",
	"S5":  "operations that occur more than once in a batch all count",
	"S6":  "what is said of each operation is true, also when others fail, and the error is nil if and only if all succeeded",
	"S7":  "an add is delivered at most once, whatever fails",
	"S8":  "a store is safe for concurrent use and keeps no reference to a batch",
	"S9":  "an exchange ends promptly when its context is done",
	"S10": "any key works, and counters that differ in prefix, key, epoch or series never share their value",
	"S11": "an add that would exceed the largest int64 fails or saturates; it never wraps",
	"C1":  "a key has one entry, also when callers race, and OnEvict is told once of each that leaves, before the key returns",
	"C2":  "a cache keeps to its bound, and to its timeouts",
	"C3":  "keys in use survive a scan of one-off keys, and a new key in use finds its place in a full cache",
	"C4":  "an iteration sees what stays in the cache throughout, and ends",
	"L1":  "a decision on a cached key neither allocates nor blocks, so neither does Get, which answers after Close too",
	"T1":  "any signal is classified into a valid tier",
	"T2":  "classifying does not allocate",
}

// ruleCase checks one aspect of a rule on a subject of type S. Its result is
// nil, a [skip], or an error that says what was got and what was wanted.
type ruleCase[S any] struct {
	id   string // of the rule
	name string
	run  func(S) error

	// alone says that no other case of the suite may run at the same time.
	alone bool
}

// skip is the result of a case that could not check its rule, with the reason.
type skip string

func (s skip) Error() string { return string(s) }

// conclude reports the result of a case as that of its test.
func conclude(tb testing.TB, id string, err error, strict bool) {
	tb.Helper()
	var reason skip
	switch {
	case err == nil:
	case !errors.As(err, &reason):
		tb.Errorf("%v\nrule %s: %s (docs/invariants.md)", err, id, rules[id])
	case strict:
		tb.Errorf("%s not checked, and the suite is strict: %s", id, reason)
	default:
		tb.Skipf("%s not checked: %s", id, reason)
	}
}

// differ describes a mismatch.
func differ(what string, got, want any) error {
	return fmt.Errorf("%s:\n    got  %v\n    want %v", what, got, want)
}

// guard returns the result of f, or an error if f panics, hangs or ends its
// goroutine.
func guard(limit time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("a hook has ended the case")
		defer func() { done <- err }()
		err = catch(f)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return fmt.Errorf("still running after %v; all goroutines:\n%s", limit, stacks)
	}
}

// catch returns the result of f, or an error if f panics.
func catch(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// together calls f from n goroutines at once and returns the first error.
func together(n int, f func(i int) error) error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			<-start
			errs[i] = catch(func() error { return f(i) })
		})
	}
	close(start)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// allocations returns how often f allocates on average, rounded down. Unlike
// [testing.AllocsPerRun] it may be used while other tests run: what they allocate
// can hide nothing, and it keeps the best of several attempts.
func allocations(f func()) uint64 {
	const attempts, runs = 20, 1000
	best := ^uint64(0)
	f() // what is allocated once does not count
	for range attempts {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			f()
		}
		runtime.ReadMemStats(&after)
		best = min(best, (after.Mallocs-before.Mallocs)/runs)
		if best == 0 {
			break
		}
	}
	return best
}
