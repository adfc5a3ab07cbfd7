package fleetsim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// What the reference design fixes.
const (
	referenceTick   = time.Second
	referenceSync   = 15 * time.Second
	referenceTTL    = 600 * time.Second
	referenceIdle   = 300 * time.Second
	referencePrefix = "reference"
)

// reference is a node by the rules of the reference design, read literally:
//
//   - A key that is not cached is admitted and counted, and a read is queued.
//   - The level is the weighted count of the last read, less limit/window for
//     each second since, plus all that this node has counted since. A request is
//     refused if the level with it reaches the limit; it is then not counted, and
//     queues no read.
//   - An admitted request queues a read if the last one is older than the tier of
//     the level allows: idle keys never queue one.
//   - Each tick sends what was counted, with an expiry each time, and performs
//     the reads. Replies to increments are ignored. A read replaces the estimate
//     and sets this node's own count to zero.
//   - What could not be sent or read is lost.
//   - An entry is dropped after its TTL, or when it was idle for long.
//
// It is not safe for concurrent use.
type reference struct {
	store  limiter.Store
	clock  limiter.Clock
	limit  float64
	window time.Duration

	next    time.Time
	entries map[string]*referenceEntry
	counted map[limiter.Counter]int64
	reads   map[string]bool
}

type referenceEntry struct {
	estimate      float64
	synced        time.Time
	pending       int64
	created, used time.Time
}

func newReference(store limiter.Store, clock limiter.Clock, limit int64, window time.Duration, seed uint64) *reference {
	r := &reference{
		store:   store,
		clock:   clock,
		limit:   float64(limit),
		window:  window,
		entries: make(map[string]*referenceEntry),
		counted: make(map[limiter.Counter]int64),
		reads:   make(map[string]bool),
	}
	phase := rand.New(rand.NewPCG(seed, 0)).Int64N(int64(referenceTick))
	r.next = clock.Now().Add(1 + time.Duration(phase))
	return r
}

// AllowN implements [Node].
func (r *reference) AllowN(key string, n int64) bool {
	now := r.clock.Now()
	e := r.entries[key]
	if e == nil || now.Sub(e.created) >= referenceTTL || now.Sub(e.used) >= referenceIdle {
		e = &referenceEntry{synced: now, created: now}
		r.entries[key] = e
		r.reads[key] = true
	} else {
		e.used = now
		level := r.level(e, now) + float64(n)
		if level >= r.limit {
			return false
		}
		if stale, ok := r.maxStale(level); ok && now.Sub(e.synced) >= stale {
			r.reads[key] = true
		}
	}
	e.used = now
	e.pending += n
	r.counted[limiter.Counter{Key: key, Epoch: r.epoch(now)}] += n
	return true
}

// level is the decayed estimate and what has been counted since.
func (r *reference) level(e *referenceEntry, now time.Time) float64 {
	drained := r.limit * float64(now.Sub(e.synced)) / float64(r.window)
	return max(0, e.estimate-drained) + float64(e.pending)
}

// maxStale is how old the last read of a key at level may be. For an idle key it
// is not ok: any age is.
func (r *reference) maxStale(level float64) (d time.Duration, ok bool) {
	switch pressure := level / r.limit; {
	case pressure < 0.1:
		return 0, false
	case pressure < 0.5:
		return 4 * referenceSync, true
	case pressure < 0.8:
		return referenceSync, true
	default:
		return referenceSync / 2, true
	}
}

func (r *reference) epoch(t time.Time) int64 { return t.UnixNano() / int64(r.window) }

// NextTick implements [Node].
func (r *reference) NextTick() time.Time { return r.next }

// Tick implements [Node].
func (r *reference) Tick(ctx context.Context) error {
	now := r.clock.Now()
	for !r.next.After(now) {
		r.next = r.next.Add(referenceTick)
	}
	b := limiter.Batch{Prefix: referencePrefix, Epochs: 1, EpochLength: r.window, Now: now, ChunkTimeout: time.Second}
	for counter, n := range r.counted {
		b.Adds = append(b.Adds, limiter.Add{Counter: counter, Delta: n})
		b.Expires = append(b.Expires, limiter.Expire{Counter: counter, Lifetime: 2 * r.window})
	}
	clear(r.counted)
	epoch := r.epoch(now)
	for key := range r.reads {
		b.Gets = append(b.Gets,
			limiter.Get{Counter: limiter.Counter{Key: key, Epoch: epoch}},
			limiter.Get{Counter: limiter.Counter{Key: key, Epoch: epoch - 1}})
	}
	clear(r.reads)
	if len(b.Adds)+len(b.Gets) == 0 {
		return nil
	}
	if err := r.store.Exchange(ctx, &b); err != nil {
		return err
	}
	now = r.clock.Now()
	progress := float64(now.UnixNano()%int64(r.window)) / float64(r.window)
	for i := 0; i < len(b.Gets); i += 2 {
		current, previous := &b.Gets[i], &b.Gets[i+1]
		e := r.entries[current.Key]
		e.estimate = float64(previous.Total)*(1-progress) + float64(current.Total)
		e.synced, e.pending = now, 0
	}
	return nil
}

// Shutdown implements [Node]: it sends what was counted.
func (r *reference) Shutdown(ctx context.Context) error { return r.Tick(ctx) }
