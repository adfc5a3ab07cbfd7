// Package exactlog is the yardstick for a rate limiter: an exact sliding-window
// log of one key's events, which remembers the fullest window it has seen.
package exactlog

import "time"

// Log holds the events of one key that lie in the window ending at the last of
// them, so its memory is bounded by what one window admits. It is not safe for
// concurrent use. Make one with [New].
type Log struct {
	window time.Duration
	events []event // one for each distinct time, oldest first, from head on
	head   int
	count  int64 // sum of events[head:]

	peak   int64
	peakAt time.Time
}

type event struct {
	at time.Time
	n  int64
}

// New returns an empty log for windows of the given positive length.
func New(window time.Duration) *Log {
	return &Log{window: window}
}

// Add records n events at a time, n at least 1. Times must not go backwards,
// and the events of a window must fit an int64.
func (l *Log) Add(at time.Time, n int64) {
	// The window that ends now is half open: an event exactly one window ago
	// has just left it.
	for l.head < len(l.events) && at.Sub(l.events[l.head].at) >= l.window {
		l.count -= l.events[l.head].n
		l.head++
	}
	// Moving the rest down only when half the slice is used up costs each event
	// a constant number of moves.
	if l.head > len(l.events)/2 {
		l.events = l.events[:copy(l.events, l.events[l.head:])]
		l.head = 0
	}

	if last := len(l.events) - 1; last >= l.head && l.events[last].at.Equal(at) {
		l.events[last].n += n
	} else {
		l.events = append(l.events, event{at, n})
	}
	l.count += n
	if l.count > l.peak {
		l.peak, l.peakAt = l.count, at
	}
}

// Peak returns the largest number of events in any window (end-window, end],
// and the earliest end at which it was reached. It is 0 and the zero time for an
// empty log.
func (l *Log) Peak() (n int64, end time.Time) {
	return l.peak, l.peakAt
}
