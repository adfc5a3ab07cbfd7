package exactlog_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/internal/exactlog"
)

type event struct {
	at int64 // milliseconds
	n  int64
}

func peak(window time.Duration, events []event) (int64, int64) {
	l := exactlog.New(window)
	for _, e := range events {
		l.Add(time.UnixMilli(e.at), e.n)
	}
	n, end := l.Peak()
	return n, end.UnixMilli()
}

func TestPeak(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		events    []event
		n, endsAt int64
	}{
		{"one event", []event{{5, 3}}, 3, 5},
		{"same time adds up", []event{{5, 3}, {5, 4}}, 7, 5},
		{"exactly one window apart is not together", []event{{0, 1}, {10, 1}}, 1, 0},
		{"just under a window apart is together", []event{{0, 1}, {9, 1}}, 2, 9},
		{"the earliest of equal peaks", []event{{0, 2}, {100, 2}}, 2, 0},
		{"later and fuller", []event{{0, 2}, {100, 1}, {101, 2}}, 3, 101},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n, endsAt := peak(10*time.Millisecond, test.events)
			if n != test.n || endsAt != test.endsAt {
				t.Errorf("peak %d at %d ms, want %d at %d ms", n, endsAt, test.n, test.endsAt)
			}
		})
	}
}

func TestPeak_EmptyLog(t *testing.T) {
	t.Parallel()
	if n, end := exactlog.New(time.Second).Peak(); n != 0 || !end.IsZero() {
		t.Errorf("peak %d at %v, want 0 at the zero time", n, end)
	}
}

func TestPeak_EqualsBruteForce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		window := 1 + rng.Int64N(50)
		events := make([]event, rng.IntN(200))
		var at int64
		for i := range events {
			at += rng.Int64N(1 + rng.Int64N(30)) // often 0, sometimes beyond the window
			events[i] = event{at, 1 + rng.Int64N(5)}
		}

		var wantN, wantEnd int64
		for i, last := range events {
			var n int64
			for _, e := range events[:i+1] {
				if e.at > last.at-window {
					n += e.n
				}
			}
			if n > wantN {
				wantN, wantEnd = n, last.at
			}
		}

		n, end := peak(time.Duration(window)*time.Millisecond, events)
		if n != wantN || n > 0 && end != wantEnd {
			t.Fatalf("seed %d: peak %d at %d ms, want %d at %d ms", seed, n, end, wantN, wantEnd)
		}
	}
}

func TestMemoryIsBoundedByTheWindow(t *testing.T) {
	t.Parallel()
	l := exactlog.New(100 * time.Millisecond)
	for ms := range int64(1_000_000) {
		l.Add(time.UnixMilli(ms), 1)
	}
	if n, _ := l.Peak(); n != 100 {
		t.Errorf("peak %d, want 100", n)
	}
	if held := l.Held(); held > 1000 {
		t.Errorf("room for %d times after a million events, want about 200 for windows of 100", held)
	}
}
