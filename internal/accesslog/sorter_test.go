package accesslog_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/internal/accesslog"
)

// sorted returns "line@second" for each record, with a "!" if it was late.
func sorted(t *testing.T, slack time.Duration, seconds ...int64) []string {
	t.Helper()
	var log strings.Builder
	for _, s := range seconds {
		fmt.Fprintf(&log, "%d key\n", s)
	}
	s := accesslog.NewSorter(accesslog.NewReader(strings.NewReader(log.String())), slack)
	results, err := readAll(t, s.Next)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range results {
		late := ""
		if r.Record.Late {
			late = "!"
		}
		out = append(out, fmt.Sprintf("%d@%d%s", r.Record.Line, r.Record.Time.Unix(), late))
	}
	return out
}

func TestSorter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		slack   time.Duration
		seconds []int64
		want    []string
	}{
		{"in order already", 10 * time.Second, []int64{1, 2, 3}, []string{"1@1", "2@2", "3@3"}},
		{"equal times keep their order", 10 * time.Second, []int64{5, 5, 1, 5}, []string{"3@1", "1@5", "2@5", "4@5"}},
		{"out of order within the slack", 10 * time.Second, []int64{10, 20, 10, 15, 30}, []string{"1@10", "3@10", "4@15", "2@20", "5@30"}},
		{"later than the slack", 10 * time.Second, []int64{10, 20, 9, 21}, []string{"1@10", "3@10!", "2@20", "4@21"}},
		{"no slack", 0, []int64{10, 9, 10, 12}, []string{"1@10", "2@10!", "3@10", "4@12"}},
		{"one time far ahead", 10 * time.Second, []int64{10, 9999, 11, 12}, []string{"1@10", "3@11", "4@12", "2@9999"}},
		{"nothing", 10 * time.Second, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, sorted(t, test.slack, test.seconds...)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestSorter_ReturnsEachRecordOnceInOrder(t *testing.T) {
	t.Parallel()
	const spread = 60
	rng := rand.New(rand.NewPCG(1, 0))
	seconds := make([]int64, 5000)
	for i := range seconds {
		seconds[i] = int64(1000 + i/10 + rng.IntN(spread+1))
	}
	got := sorted(t, spread*time.Second, seconds...)
	if len(got) != len(seconds) {
		t.Fatalf("%d records of %d", len(got), len(seconds))
	}
	seen := make(map[int]bool)
	var last int64
	for _, text := range got {
		var line int
		var at int64
		if n, err := fmt.Sscanf(text+" ", "%d@%d ", &line, &at); n != 2 || err != nil {
			t.Fatalf("record %s is late, although no line is out of order by more than the slack", text)
		}
		if at < last || at != seconds[line-1] || seen[line] {
			t.Fatalf("record %s after time %d, with line %d at %d", text, last, line, seconds[line-1])
		}
		seen[line], last = true, at
	}
}

func TestSorter_HoldsABoundedNumberOfRecords(t *testing.T) {
	t.Parallel()
	const bound = 1 << 18
	lines := 0
	source := readerFunc(func(p []byte) (int, error) {
		lines++
		return copy(p, "1431857103 key\n"), nil
	})
	s := accesslog.NewSorter(accesslog.NewReader(source), time.Hour)
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	if lines != bound+1 {
		t.Errorf("read %d lines before it returned one, want %d", lines, bound+1)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestSorter_ReturnsWhatItHoldsBeforeAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	log := io.MultiReader(strings.NewReader("20 b\njunk\n10 a\n"), iotest.ErrReader(broken))
	s := accesslog.NewSorter(accesslog.NewReader(log), time.Hour)
	results, err := readAll(t, s.Next)
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	var lines []int64
	for _, r := range results {
		lines = append(lines, r.Record.Line)
	}
	if diff := cmp.Diff([]int64{2, 3, 1}, lines); diff != "" {
		t.Errorf("lines, -want +got:\n%s", diff)
	}
	if _, again := s.Next(); again != err {
		t.Errorf("then %v, want the same error again", again)
	}
}
