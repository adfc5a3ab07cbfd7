package limiter

import "time"

// Observer is told what the limiter did. Observe is called by the background
// loop once per tick and partition, outside all locks and never by a decision.
// It must be safe for concurrent use when the store has several partitions, and
// should return quickly: the next tick of that partition waits for it.
//
// The report and all that it points to belong to the limiter and are reused: an
// observer must not keep them.
type Observer interface {
	Observe(r *Report)
}

// ObserverFunc makes an [Observer] of a function.
type ObserverFunc func(r *Report)

// Observe implements [Observer].
func (f ObserverFunc) Observe(r *Report) { f(r) }

// Report describes one tick of one partition.
type Report struct {
	// Limiter is the configured name.
	Limiter string
	// Partition is the part's name, empty if the store is not partitioned.
	Partition string
	// Time is the limiter's time at the start of the tick.
	Time time.Time
	// Early says that an entry asked for this tick before its turn.
	Early bool
	// Duration is how long the tick took, exchange included, by the limiter's
	// clock.
	Duration time.Duration

	// Exchange describes the exchange of this tick.
	Exchange ExchangeReport

	// Backlog is the number of keys with counts that the store does not have.
	Backlog int
	// BacklogAge is how long the oldest of them has waited.
	BacklogAge time.Duration
	// Deferred is how many keys were due but had to wait because the tick's work
	// is bounded.
	Deferred int

	// Tiers holds the number of cached keys per tier, in the policy's order, as
	// of their last exchange.
	Tiers []TierCount
	// CacheEntries and CacheCapacity are the size and the bound of the cache,
	// which all partitions share.
	CacheEntries, CacheCapacity int

	// Outage says whether the outage policy is in force, and FailingFor for how
	// long exchanges have failed (0 while they succeed).
	Outage     bool
	FailingFor time.Duration
	// Nodes is the size of the fleet as this node knows it, at least 1.
	Nodes int64
	// ClockSkew is how far this node's clock is ahead of the store's, if the
	// store tells its time and has been asked; negative if it is behind.
	ClockSkew time.Duration

	// Totals counts since the partition's start.
	Totals Totals
}

// ExchangeReport describes one exchange with the store.
type ExchangeReport struct {
	// Attempted is false if the tick had nothing to exchange.
	Attempted bool
	// Duration is how long the store took, by the limiter's clock.
	Duration time.Duration
	// Adds, Expires and Gets count the operations.
	Adds, Expires, Gets int
	// Err is the store's error.
	Err error
	// Servers is what the store reported, per server.
	Servers []ServerReport
}

// TierCount is the number of keys in a tier.
type TierCount struct {
	// Name is the tier's name.
	Name string
	// Keys is how many cached keys were in the tier at their last exchange.
	Keys int64
	// Entered is how many times a key came into this tier from another one.
	Entered int64
}

// Totals counts events and happenings since the start. For every event that
// was counted as accepted, conservation (rule L3) holds:
//
//	Accepted = Acknowledged + Unknown + Dropped + what is unsent or in flight
type Totals struct {
	// Accepted counts events that a decision added to a key, as far as the loop
	// has seen them: all but those since the last tick.
	Accepted int64
	// Denied counts refused events, as far as the loop has seen them.
	Denied int64
	// FirstSeen counts keys that came into the cache.
	FirstSeen int64
	// Acknowledged counts events that the store has confirmed.
	Acknowledged int64
	// Unknown counts events that were sent and never confirmed.
	Unknown int64
	// Dropped counts events that were never sent: their epoch was over, the
	// backlog was full, or the limiter was closed.
	Dropped int64
	// Regressions counts replies that showed that the store had lost data.
	Regressions int64
	// Exchanges and FailedExchanges count round trips.
	Exchanges, FailedExchanges int64
	// Commands counts operations in exchanges.
	Commands int64
	// Misuse counts decisions with a negative n.
	Misuse int64
	// EvictedOverflow and EvictedExpired count entries that left the cache.
	EvictedOverflow, EvictedExpired int64
}

// add adds u to t.
func (t *Totals) add(u Totals) {
	t.Accepted += u.Accepted
	t.Denied += u.Denied
	t.FirstSeen += u.FirstSeen
	t.Acknowledged += u.Acknowledged
	t.Unknown += u.Unknown
	t.Dropped += u.Dropped
	t.Regressions += u.Regressions
	t.Exchanges += u.Exchanges
	t.FailedExchanges += u.FailedExchanges
	t.Commands += u.Commands
	t.Misuse += u.Misuse
	t.EvictedOverflow += u.EvictedOverflow
	t.EvictedExpired += u.EvictedExpired
}
