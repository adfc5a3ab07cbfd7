package limiter

import (
	"sync/atomic"
	"time"
)

// Resolution of the time that decisions see, for windows of coarseFrom and
// longer: a 6,000th of the window, between 1 ms and 10 ms. Reading the system's
// clock costs several times what the rest of a decision does, and a time that
// lags by so little only delays the decay of a level by as much. Shorter windows
// read the clock each time.
const (
	coarseFrom    = time.Second
	coarseDivisor = 6000
	coarseMin     = time.Millisecond
	coarseMax     = 10 * time.Millisecond
)

// maxClockDrift is how far monotonic and wall time may part before the wall
// clock is taken to have been set.
const maxClockDrift = time.Second

// timekeeper is the limiter's one source of time: decisions, loop, epochs and
// the time told to stores and caches all come from it.
type timekeeper struct {
	grid   grid
	clock  Clock // the caller's, or nil
	coarse bool
	lag    time.Duration // how far instant may lag behind now

	current atomic.Pointer[instant] // in coarse mode
	ahead   atomic.Int64            // correction: how far the clock is ahead of the store's

	anchor atomic.Pointer[anchor]

	stop chan struct{}
	done chan struct{}
}

// anchor is a moment at which monotonic and wall time were the same.
type anchor struct {
	at   time.Time // with its monotonic reading
	wall int64     // unix time in nanoseconds
}

func newTimekeeper(g grid, window time.Duration, clock Clock) *timekeeper {
	k := &timekeeper{grid: g, clock: clock, coarse: clock == nil && window >= coarseFrom}
	now := time.Now()
	k.anchor.Store(&anchor{now, now.UnixNano()})
	if k.coarse {
		k.lag = min(max(window/coarseDivisor, coarseMin), coarseMax)
		k.publish()
		k.stop, k.done = make(chan struct{}), make(chan struct{})
		go k.run()
	}
	return k
}

func (k *timekeeper) run() {
	defer close(k.done)
	ticker := time.NewTicker(k.lag)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			k.publish()
		case <-k.stop:
			return
		}
	}
}

// close ends the goroutine; the time stands still from then on in coarse mode,
// so decisions after it read the clock.
func (k *timekeeper) close() {
	if k.stop != nil {
		close(k.stop)
		<-k.done
		k.current.Store(nil)
	}
}

func (k *timekeeper) publish() {
	in := k.grid.at(k.now())
	k.current.Store(&in)
}

// instant returns the present as decisions see it.
func (k *timekeeper) instant() instant {
	if k.coarse {
		if in := k.current.Load(); in != nil {
			return *in
		}
	}
	return k.grid.at(k.now())
}

// now returns the present as unix time in nanoseconds. Without a clock of the
// caller's, it is monotonic time anchored to the wall clock, anchored anew when
// the two part by more than a second.
func (k *timekeeper) now() int64 {
	if k.clock != nil {
		return k.clock.Now().UnixNano() - k.ahead.Load()
	}
	t, a := time.Now(), k.anchor.Load()
	now := a.wall + int64(t.Sub(a.at))
	if drift := t.UnixNano() - now; drift > int64(maxClockDrift) || drift < -int64(maxClockDrift) {
		now = t.UnixNano()
		k.anchor.Store(&anchor{t, now})
	}
	return now - k.ahead.Load()
}

// time returns now as a time.
func (k *timekeeper) time() time.Time { return time.Unix(0, k.now()).UTC() }
