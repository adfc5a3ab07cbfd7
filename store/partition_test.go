package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// partStub is a store that remembers the batches it got and answers each
// operation with its key's length.
type partStub struct {
	mu   sync.Mutex
	keys map[string]bool
	err  error
}

func (s *partStub) Exchange(_ context.Context, b *limiter.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = make(map[string]bool)
	}
	for i := range numOps(b) {
		s.keys[counterOf(b, i).Key] = true
	}
	for i := range b.Adds {
		b.Adds[i].Total, b.Adds[i].Outcome = int64(len(b.Adds[i].Key)), limiter.Applied
	}
	for i := range b.Expires {
		b.Expires[i].Outcome = limiter.Applied
	}
	for i := range b.Gets {
		b.Gets[i].Total, b.Gets[i].OK = int64(len(b.Gets[i].Key)), true
	}
	b.Servers = append(b.Servers, limiter.ServerReport{Commands: numOps(b)})
	return s.err
}

func partNames(names ...string) []limiter.Part {
	parts := make([]limiter.Part, len(names))
	for i, name := range names {
		parts[i] = limiter.Part{Name: name, Store: new(partStub)}
	}
	return parts
}

func partition(tb testing.TB, parts ...limiter.Part) *Partitions {
	tb.Helper()
	p, err := Partition(parts...)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func testKey(i int) string { return fmt.Sprintf("team_%d", i) }

// TestPartOfIsPinned holds the choice that all nodes and versions of a fleet must
// agree on.
func TestPartOfIsPinned(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "redis-0", "redis-1"}
	p := partition(t, partNames(names...)...)
	for _, tc := range []struct{ key, part string }{
		{"", "b"},
		{"k", "a"},
		{"team_42", "b"},
		{"team_43", "redis-0"},
		{"127.0.0.1", "a"},
		{"\x00", "redis-0"},
		{"{tag}:1", "redis-1"},
		{strings.Repeat("x", 300), "redis-1"},
	} {
		if got := names[p.PartOf(tc.key)]; got != tc.part {
			t.Errorf("key %q is in part %q, want %q", tc.key, got, tc.part)
		}
	}
}

func TestPartsAreBalanced(t *testing.T) {
	t.Parallel()
	const keys = 100_000
	for _, n := range []int{2, 3, 5, 16} {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("redis-%d", i))
		}
		p := partition(t, partNames(names...)...)
		counts := make([]int, n)
		for i := range keys {
			counts[p.PartOf(testKey(i))]++
		}
		// Five standard deviations of a fair choice.
		mean := float64(keys) / float64(n)
		slack := 5 * math.Sqrt(mean*(1-1/float64(n)))
		for i, count := range counts {
			if math.Abs(float64(count)-mean) > slack {
				t.Errorf("part %d of %d has %d keys, want %.0f ± %.0f", i, n, count, mean, slack)
			}
		}
	}
}

func TestAPartMoreMovesItsShareOnly(t *testing.T) {
	t.Parallel()
	const keys = 100_000
	for _, n := range []int{1, 2, 4, 9} {
		var names []string
		for i := range n + 1 {
			names = append(names, fmt.Sprintf("part-%d", i))
		}
		fewer, more := partition(t, partNames(names[:n]...)...), partition(t, partNames(names...)...)
		moved := 0
		for i := range keys {
			was, is := fewer.PartOf(testKey(i)), more.PartOf(testKey(i))
			if was == is {
				continue
			}
			moved++
			if is != n {
				t.Fatalf("key %q moved from part %d to %d, although %d was added", testKey(i), was, is, n)
			}
		}
		share := float64(keys) / float64(n+1)
		slack := 5 * math.Sqrt(share)
		if math.Abs(float64(moved)-share) > slack {
			t.Errorf("with %d parts in place of %d, %d keys moved, want %.0f ± %.0f", n+1, n, moved, share, slack)
		}
	}
}

func TestTheOrderOfPartsDoesNotMatter(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d"}
	backwards := slices.Clone(names)
	slices.Reverse(backwards)
	p, q := partition(t, partNames(names...)...), partition(t, partNames(backwards...)...)
	for i := range 10_000 {
		if a, b := names[p.PartOf(testKey(i))], backwards[q.PartOf(testKey(i))]; a != b {
			t.Fatalf("key %q is in part %q or %q, depending on the order", testKey(i), a, b)
		}
	}
}

func TestPartOfDoesNotAllocate(t *testing.T) {
	p := partition(t, partNames("a", "b", "c")...)
	if n := testing.AllocsPerRun(100, func() { p.PartOf("team_42") }); n != 0 {
		t.Errorf("PartOf makes %v allocations, want 0", n)
	}
}

func TestPartitionNamesEveryProblem(t *testing.T) {
	t.Parallel()
	s := new(partStub)
	for _, tc := range []struct {
		name  string
		parts []limiter.Part
		want  []string
	}{
		{"none", nil, []string{"no parts"}},
		{"several", []limiter.Part{{Name: "a", Store: s}, {Store: s}, {Name: "a"}}, []string{"parts[1].Name is empty", `parts[2].Name is "a"`, "parts[2].Store is nil"}},
	} {
		_, err := Partition(tc.parts...)
		if !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("%s: error %v does not wrap ErrInvalidConfig", tc.name, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q does not say %q", tc.name, err, want)
			}
		}
	}
}

func TestPartsCannotBeChangedFromOutside(t *testing.T) {
	t.Parallel()
	given := partNames("a", "b")
	p := partition(t, given...)
	given[0].Name = "x"
	p.Parts()[1].Name = "y"
	if got := p.Parts(); got[0].Name != "a" || got[1].Name != "b" {
		t.Errorf("parts are %q and %q, want a and b", got[0].Name, got[1].Name)
	}
}

func TestPartitionsExchangeDividesABatch(t *testing.T) {
	t.Parallel()
	stubs := []*partStub{{}, {}, {}}
	p := partition(t, limiter.Part{Name: "a", Store: stubs[0]}, limiter.Part{Name: "b", Store: stubs[1]}, limiter.Part{Name: "c", Store: stubs[2]})
	var b limiter.Batch
	for i := range 300 {
		c := limiter.Counter{Key: strings.Repeat("k", i)}
		b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: 1})
		b.Expires = append(b.Expires, limiter.Expire{Counter: c, Lifetime: 1})
		b.Gets = append(b.Gets, limiter.Get{Counter: c})
	}
	if err := p.Exchange(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if b.Adds[i].Total != int64(i) || b.Adds[i].Outcome != limiter.Applied || b.Expires[i].Outcome != limiter.Applied ||
			b.Gets[i].Total != int64(i) || !b.Gets[i].OK {
			t.Fatalf("results of key %d: %+v, %+v, %+v", i, b.Adds[i], b.Expires[i], b.Gets[i])
		}
		for n, stub := range stubs {
			if has, want := stub.keys[b.Adds[i].Key], n == p.PartOf(b.Adds[i].Key); has != want {
				t.Fatalf("part %d got key %d: %t, want %t", n, i, has, want)
			}
		}
	}
	if len(b.Servers) != 3 || b.Servers[0].Commands+b.Servers[1].Commands+b.Servers[2].Commands != 900 {
		t.Errorf("reports are %+v, want those of three parts with 900 commands", b.Servers)
	}
}

func TestAPartThatFailsSparesTheOthers(t *testing.T) {
	t.Parallel()
	failure := errors.New("out of order")
	p := partition(t, limiter.Part{Name: "good", Store: new(partStub)}, limiter.Part{Name: "bad", Store: &partStub{err: failure}})
	var b limiter.Batch
	for i := range 100 {
		b.Adds = append(b.Adds, limiter.Add{Counter: limiter.Counter{Key: testKey(i)}, Delta: 1})
	}
	err := p.Exchange(context.Background(), &b)
	if !errors.Is(err, failure) || !strings.Contains(err.Error(), `part "bad"`) {
		t.Errorf("error = %v, want that of part bad", err)
	}
	for i := range b.Adds {
		if b.Adds[i].Outcome != limiter.Applied {
			t.Fatalf("outcome of add %d is %v", i, b.Adds[i].Outcome)
		}
	}
}
