package main

import (
	"time"

	"github.com/fleetlimit/fleetlimit/internal/exactlog"
)

// tally keeps what became of the requests. It grows with the number of distinct
// keys, not with that of requests.
type tally struct {
	window           time.Duration
	keys             map[string]*keyTally
	first, last      time.Time
	admitted, denied int64
}

type keyTally struct {
	key              string
	admitted, denied int64
	log              *exactlog.Log // of what was admitted

	firstDenied, lastDenied time.Time
	limited                 time.Duration
}

func newTally(window time.Duration) *tally {
	return &tally{window: window, keys: make(map[string]*keyTally)}
}

// add records n requests of a key, n at least 0. Times must not go backwards.
func (t *tally) add(at time.Time, key string, n int64, allowed bool) {
	if t.first.IsZero() {
		t.first = at
	}
	t.last = at
	k := t.keys[key]
	if k == nil {
		k = &keyTally{key: key, log: exactlog.New(t.window)}
		t.keys[key] = k
	}
	if n == 0 {
		return
	}
	if allowed {
		t.admitted += n
		k.admitted += n
		k.log.Add(at, n)
		return
	}
	if k.denied == 0 {
		k.firstDenied = at
	} else if gap := at.Sub(k.lastDenied); gap < t.window {
		k.limited += gap
	}
	k.lastDenied = at
	t.denied += n
	k.denied += n
}
