package limiter

import (
	"log/slog"
	"time"
)

// Outage says how to decide once no exchange has succeeded for
// [Config.OutageAfter].
type Outage uint8

const (
	// OutageLocal keeps deciding by this node's own counts, against its share of
	// the limit: the limit divided by the number of nodes last seen.
	OutageLocal Outage = iota
	// OutageAllow admits everything. Events are still counted.
	OutageAllow
	// OutageDeny denies everything.
	OutageDeny
)

// Decay says how a key's level falls between exchanges.
type Decay uint8

const (
	// DecayWindow evaluates the window counter at each decision, so that a level
	// falls just as its window drains.
	DecayWindow Decay = iota
	// DecayLeak drains at limit/window per second since the last exchange, as the
	// reference design does. It is right only for a key whose previous epoch held
	// exactly its limit; it is here for a fleet that moves over.
	DecayLeak
)

// FairShare, as [Config.ColdShare], is one n-th of the limit, with n the number
// of nodes last seen.
const FairShare float64 = -1

// Clock tells the time. Now must be safe for concurrent use.
type Clock interface {
	Now() time.Time
}

// Config configures a [Limiter]. It is passed by value. Name and Limit are
// required; every other field's zero value means the default that its comment
// states.
type Config struct {
	// Name tells limiters on one store apart and labels reports and logs:
	// letters, digits, '.', '_' and '-'. Required.
	Name string
	// Limit is how many events of a key may pass in any Window: at least 1, or
	// [Unlimited]. Required.
	Limit int64
	// Window is the length of the sliding window, at least 1 ms.
	// Default 60 s.
	Window time.Duration
	// Epochs is how many epochs make up a window, 1 to 60: more of them are more
	// accurate for a node that meets a busy key for the first time, and cost one
	// more read per key and epoch. Default 1. All nodes on a prefix must agree.
	Epochs int
	// Overrides gives single keys a limit of their own: at least 0, where 0
	// denies all, or [Unlimited]. The map is copied. See
	// [Limiter.SetOverrides].
	Overrides map[string]int64
	// CountDenied makes denied events count as well, so that a client that keeps
	// hammering stays limited, as in the reference design. Default: only admitted
	// events count.
	CountDenied bool

	// TickEvery is the time between two ticks of the loop: at least 1 ms, at
	// most Window/4. Default min(1 s, Window/60), but at least 10 ms (or
	// Window/4, if that is less).
	TickEvery time.Duration
	// SyncEvery is the base staleness of the default tiers, at most Window/4.
	// Default min(15 s, Window/4).
	SyncEvery time.Duration
	// Tiers is the policy that bounds how stale a key may become. Default
	// [DefaultTiers] of SyncEvery.
	Tiers TierPolicy

	// CacheEntries bounds the number of keys in memory. Default 300,000.
	CacheEntries int
	// CacheTTL is the age at which a cached key is read afresh in full. A key in
	// use is not forgotten. Default 600 s, or 10 windows if that is longer.
	CacheTTL time.Duration
	// CacheIdle is how long an unused key stays cached: less than CacheTTL, at
	// least two windows. Default 300 s, or 5 windows if that is longer.
	CacheIdle time.Duration
	// NewCache makes the cache. Default: package cache.
	NewCache func(CacheConfig) LocalCache

	// Outage and OutageAfter say what holds when the store is away: OutageAfter
	// without a successful exchange, Outage comes into force. Defaults:
	// [OutageLocal], one window.
	Outage      Outage
	OutageAfter time.Duration
	// ColdShare is how much of its limit an unknown key may use before this node
	// has heard from the store: a fraction above 0 and up to 1, or [FairShare];
	// never less than one event. Default 1.
	ColdShare float64
	// Decay is how levels fall between exchanges. Default [DecayWindow].
	Decay Decay

	// ChunkTimeout bounds one round trip to a server, at least 1 ms.
	// Default min(1 s, Window/4).
	ChunkTimeout time.Duration
	// Prefix is the namespace of the counters in the store. It must not be shared
	// by limiters with different windows, and holds no ':'. Default
	// "fleetlimit/<name>/<window>", with "x<epochs>" added for more than one
	// epoch per window.
	Prefix string
	// CorrectSkew makes the limiter keep the store's time if the store tells it.
	// Default: the skew is only reported.
	CorrectSkew bool

	// Observer is told of every tick. Default: nobody.
	Observer Observer
	// Logger gets a record when a store fails or recovers, or when data was lost.
	// Records never hold a key. Default: nothing is logged.
	Logger *slog.Logger

	// Clock, if set, puts the caller in charge of time: the limiter starts no
	// goroutine, and the caller runs it with [Limiter.NextTick] and
	// [Limiter.Tick]. For replay, simulation and tests.
	Clock Clock
	// Seed makes the limiter's random choices (the phase of its ticks, jitter)
	// repeatable. Default: chosen at random.
	Seed uint64
}
