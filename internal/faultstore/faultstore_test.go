package faultstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetlimit/fleetlimit/internal/faultstore"
	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
	"github.com/google/go-cmp/cmp"
)

var start = time.Unix(60_000, 0)

func counter(key string) limiter.Counter { return limiter.Counter{Key: key, Epoch: 1000} }

// newBatch returns a batch that adds 1, expires and gets each of keys. Its
// results are wrong on purpose, so that a store has to set them all.
func newBatch(keys ...string) *limiter.Batch {
	b := &limiter.Batch{Prefix: "p", Epochs: 1, EpochLength: time.Minute, Now: start, ChunkTimeout: time.Second}
	for _, k := range keys {
		b.Adds = append(b.Adds, limiter.Add{Counter: counter(k), Delta: 1, Total: -1, Outcome: 99})
		b.Expires = append(b.Expires, limiter.Expire{Counter: counter(k), Lifetime: time.Hour, Outcome: 99})
		b.Gets = append(b.Gets, limiter.Get{Counter: counter(k), Total: -1})
	}
	return b
}

// results describes the results of a batch, one operation each.
func results(b *limiter.Batch) (out []string) {
	for _, op := range b.Adds {
		out = append(out, fmt.Sprintf("add %s: %v %d", op.Key, op.Outcome, op.Total))
	}
	for _, op := range b.Expires {
		out = append(out, fmt.Sprintf("expire %s: %v", op.Key, op.Outcome))
	}
	for _, op := range b.Gets {
		out = append(out, fmt.Sprintf("get %s: %t %d", op.Key, op.OK, op.Total))
	}
	return out
}

// stored returns what the store holds for a key, which no rule may hide.
func stored(t *testing.T, s *faultstore.Store, key string) int64 {
	t.Helper()
	s.SetRule(nil)
	b := newBatch()
	b.Gets = []limiter.Get{{Counter: counter(key)}}
	if err := s.Exchange(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return b.Gets[0].Total
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		fault   faultstore.Fault
		want    []string
		applied map[faultstore.ID]int64
	}{
		{
			"none", faultstore.Fault{},
			[]string{"add a: applied 1", "add b: applied 1", "expire a: applied", "expire b: applied", "get a: true 1", "get b: true 1"},
			map[faultstore.ID]int64{{"p", counter("a")}: 1, {"p", counter("b")}: 1},
		},
		{
			"refused", faultstore.Fault{Kind: faultstore.Refuse},
			[]string{"add a: not applied 0", "add b: not applied 0", "expire a: not applied", "expire b: not applied", "get a: false 0", "get b: false 0"},
			map[faultstore.ID]int64{},
		},
		{
			"request lost", faultstore.Fault{Kind: faultstore.LoseRequest},
			[]string{"add a: unknown 0", "add b: unknown 0", "expire a: unknown", "expire b: unknown", "get a: false 0", "get b: false 0"},
			map[faultstore.ID]int64{},
		},
		{
			"reply lost", faultstore.Fault{Kind: faultstore.LoseReply},
			[]string{"add a: unknown 0", "add b: unknown 0", "expire a: unknown", "expire b: unknown", "get a: false 0", "get b: false 0"},
			map[faultstore.ID]int64{{"p", counter("a")}: 1, {"p", counter("b")}: 1},
		},
		{
			"refused after an add", faultstore.Fault{Kind: faultstore.Refuse, After: 1},
			[]string{"add a: applied 1", "add b: not applied 0", "expire a: not applied", "expire b: not applied", "get a: false 0", "get b: false 0"},
			map[faultstore.ID]int64{{"p", counter("a")}: 1},
		},
		{
			"request lost after an expiry", faultstore.Fault{Kind: faultstore.LoseRequest, After: 3},
			[]string{"add a: applied 1", "add b: applied 1", "expire a: applied", "expire b: unknown", "get a: false 0", "get b: false 0"},
			map[faultstore.ID]int64{{"p", counter("a")}: 1, {"p", counter("b")}: 1},
		},
		{
			"reply lost after a get", faultstore.Fault{Kind: faultstore.LoseReply, After: 5},
			[]string{"add a: applied 1", "add b: applied 1", "expire a: applied", "expire b: applied", "get a: true 1", "get b: false 0"},
			map[faultstore.ID]int64{{"p", counter("a")}: 1, {"p", counter("b")}: 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := faultstore.Wrap(memorystore.New())
			f.SetRule(faultstore.Always(tc.fault))
			b := newBatch("a", "b")
			err := f.Exchange(t.Context(), b)
			if got, want := errors.Is(err, faultstore.ErrInjected), tc.fault.Kind != faultstore.None; got != want {
				t.Errorf("got error %v, want an injected fault: %t", err, want)
			}
			if diff := cmp.Diff(tc.want, results(b)); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.applied, f.Applied()); diff != "" {
				t.Errorf("applied (-want +got):\n%s", diff)
			}
			for _, key := range []string{"a", "b"} {
				if got, want := stored(t, f, key), tc.applied[faultstore.ID{"p", counter(key)}]; got != want {
					t.Errorf("key %s: stored %d, want %d", key, got, want)
				}
			}
			if len(b.Servers) != 1 {
				t.Errorf("got %d reports, want 1", len(b.Servers))
			}
		})
	}
}

func TestRuleSeesTheNumberOfTheCallAndTheBatch(t *testing.T) {
	t.Parallel()
	f := faultstore.Wrap(memorystore.New())
	var got []string
	f.SetRule(func(call int, b *limiter.Batch) faultstore.Fault {
		got = append(got, fmt.Sprint(call, len(b.Adds)))
		if call == 1 {
			return faultstore.Fault{Kind: faultstore.Refuse}
		}
		return faultstore.Fault{}
	})
	var failed []bool
	for _, b := range []*limiter.Batch{newBatch("a"), newBatch("a", "b"), newBatch()} {
		failed = append(failed, f.Exchange(t.Context(), b) != nil)
	}
	if diff := cmp.Diff([]string{"0 1", "1 2", "2 0"}, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]bool{false, true, false}, failed); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(faultstore.Counts{Exchanges: 3, Adds: 3, Expires: 3, Gets: 3}, f.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	const deadline = 10 * time.Second
	for _, tc := range []struct {
		name    string
		fault   faultstore.Fault
		elapsed time.Duration
		outcome limiter.Outcome
		stored  int64
		err     error
	}{
		{"passes after it", faultstore.Fault{Delay: time.Second}, time.Second, limiter.Applied, 1, nil},
		{"strikes after it", faultstore.Fault{Kind: faultstore.LoseReply, Delay: time.Second}, time.Second, limiter.Unknown, 1, faultstore.ErrInjected},
		{"too long for the context", faultstore.Fault{Delay: faultstore.Forever}, deadline, limiter.NotApplied, 0, context.DeadlineExceeded},
		{"hangs with the request lost", faultstore.Fault{Kind: faultstore.LoseRequest, Delay: faultstore.Forever}, deadline, limiter.Unknown, 0, context.DeadlineExceeded},
		{"hangs with the reply lost", faultstore.Fault{Kind: faultstore.LoseReply, Delay: faultstore.Forever}, deadline, limiter.Unknown, 1, context.DeadlineExceeded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := faultstore.Wrap(memorystore.New())
				f.SetRule(faultstore.Always(tc.fault))
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				b, began := newBatch("a"), time.Now()
				if err := f.Exchange(ctx, b); !errors.Is(err, tc.err) {
					t.Errorf("got error %v, want %v", err, tc.err)
				}
				if got := time.Since(began); got != tc.elapsed {
					t.Errorf("took %v, want %v", got, tc.elapsed)
				}
				if got := b.Adds[0].Outcome; got != tc.outcome {
					t.Errorf("got %v, want %v", got, tc.outcome)
				}
				if got := stored(t, f, "a"); got != tc.stored {
					t.Errorf("stored %d, want %d", got, tc.stored)
				}
			})
		})
	}
}

func TestAContextThatIsDoneIsLeftToTheInnerStore(t *testing.T) {
	t.Parallel()
	f := faultstore.Wrap(memorystore.New())
	f.SetRule(faultstore.Always(faultstore.Fault{Kind: faultstore.LoseReply}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := newBatch("a")
	if err := f.Exchange(ctx, b); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	if got := b.Adds[0].Outcome; got != limiter.NotApplied {
		t.Errorf("got %v, want %v", got, limiter.NotApplied)
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	const keys = 1000
	var names []string
	for k := range keys {
		names = append(names, fmt.Sprint(k))
	}
	f := faultstore.Wrap(memorystore.New())
	kept := func() int {
		n := 0
		for _, k := range names {
			n += int(stored(t, f, k))
		}
		return n
	}
	if err := f.Exchange(t.Context(), newBatch(names...)); err != nil {
		t.Fatal(err)
	}

	f.Forget(0.3)
	if got := kept(); got < 600 || got > 800 {
		t.Errorf("after forgetting 30%% of %d keys: %d are left", keys, got)
	}
	f.Forget(1)
	if got := kept(); got != 0 {
		t.Errorf("after forgetting all keys: %d are left", got)
	}

	if err := f.Exchange(t.Context(), newBatch(names...)); err != nil {
		t.Fatal(err)
	}
	if got := kept(); got != keys {
		t.Errorf("after counting anew: got %d, want %d", got, keys)
	}
	if got, want := f.Applied()[faultstore.ID{"p", counter("7")}], int64(2); got != want {
		t.Errorf("applied in all: got %d, want %d", got, want)
	}
}
