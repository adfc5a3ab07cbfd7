package limiter

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
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

// Defaults of Config, where they do not depend on other fields.
const (
	defaultWindow       = 60 * time.Second
	defaultCacheEntries = 300_000
	defaultCacheTTL     = 600 * time.Second
	defaultCacheIdle    = 300 * time.Second
)

const (
	minEpochLength = time.Millisecond
	maxTiers       = 64
	// maxWindow keeps sums of a few windows and a time in the range of an int64 of
	// nanoseconds.
	maxWindow = 10 * 365 * 24 * time.Hour
)

// withDefaults returns cfg with defaults for the fields that are zero.
func (cfg Config) withDefaults() Config {
	cfg.Epochs = cmp.Or(cfg.Epochs, 1)
	cfg.Window = cmp.Or(cfg.Window, defaultWindow)
	window := cfg.Window
	if window < 0 || window > maxWindow {
		window = defaultWindow // so that validate names the window only
	}
	cfg.TickEvery = cmp.Or(cfg.TickEvery, min(max(min(time.Second, window/60), 10*time.Millisecond), max(window/4, time.Millisecond)))
	cfg.SyncEvery = cmp.Or(cfg.SyncEvery, min(15*time.Second, window/4))
	if cfg.Tiers == nil {
		cfg.Tiers = DefaultTiers(cfg.SyncEvery)
	}
	cfg.CacheEntries = cmp.Or(cfg.CacheEntries, defaultCacheEntries)
	cfg.CacheTTL = cmp.Or(cfg.CacheTTL, max(defaultCacheTTL, 10*window))
	cfg.CacheIdle = cmp.Or(cfg.CacheIdle, max(defaultCacheIdle, 5*window))
	if cfg.NewCache == nil {
		cfg.NewCache = newDefaultCache
	}
	cfg.OutageAfter = cmp.Or(cfg.OutageAfter, window)
	cfg.ColdShare = cmp.Or(cfg.ColdShare, 1)
	cfg.ChunkTimeout = cmp.Or(cfg.ChunkTimeout, max(min(time.Second, window/4), time.Millisecond))
	if cfg.Prefix == "" && validName(cfg.Name) {
		cfg.Prefix = "fleetlimit/" + cfg.Name + "/" + cfg.Window.String()
		if cfg.Epochs > 1 {
			cfg.Prefix += "x" + strconv.Itoa(cfg.Epochs)
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	return cfg
}

// earlySpacing is the least time between a tick and an early one after it.
func (cfg *Config) earlySpacing() time.Duration {
	return min(max(cfg.TickEvery/earlyFraction, minEarly), cfg.TickEvery)
}

// validate checks store and cfg, whose defaults are filled in, and returns the
// parts of the store.
func (cfg *Config) validate(store Store) (parts []Part, split Partitioned, err error) {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }

	parts, split, storeProblems := partsOf(store)
	problems = append(problems, storeProblems...)
	if !validName(cfg.Name) {
		bad("Name is %q, want letters, digits, '.', '_' and '-', at least one", cfg.Name)
	}
	if cfg.Limit < 1 {
		bad("Limit is %d, want at least 1, or Unlimited", cfg.Limit)
	}
	if cfg.Epochs < 1 || cfg.Epochs > maxEpochs {
		bad("Epochs is %d, want 1 to %d", cfg.Epochs, maxEpochs)
	} else if cfg.Window < minEpochLength*time.Duration(cfg.Epochs) || cfg.Window > maxWindow {
		bad("Window is %v, want at least 1ms per epoch and at most %v", cfg.Window, maxWindow)
	}
	if p := overrideProblems(cfg.Overrides); p != "" {
		problems = append(problems, p)
	}
	// What follows is compared with the window; a bad window would be named twice.
	window := cfg.Window
	if window < 0 || window > maxWindow {
		window = 0
	}
	if cfg.TickEvery < time.Millisecond && cfg.TickEvery != window/4 || window > 0 && cfg.TickEvery > max(window/4, time.Millisecond) {
		bad("TickEvery is %v, want 1ms to Window/4, %v", cfg.TickEvery, window/4)
	}
	if cfg.SyncEvery <= 0 || window > 0 && cfg.SyncEvery > window/4 {
		bad("SyncEvery is %v, want more than 0 and at most Window/4, %v", cfg.SyncEvery, window/4)
	}
	problems = append(problems, tierProblems(cfg.Tiers)...)
	if cfg.CacheEntries < 1 {
		bad("CacheEntries is %d, want at least 1", cfg.CacheEntries)
	}
	if cfg.CacheIdle < 2*window {
		bad("CacheIdle is %v, want at least two windows, %v", cfg.CacheIdle, 2*window)
	}
	if cfg.CacheTTL <= cfg.CacheIdle {
		bad("CacheTTL is %v, want more than CacheIdle, %v", cfg.CacheTTL, cfg.CacheIdle)
	}
	if cfg.Outage > OutageDeny {
		bad("Outage is %d, want OutageLocal, OutageAllow or OutageDeny", cfg.Outage)
	}
	if cfg.OutageAfter < 0 {
		bad("OutageAfter is %v, want more than 0", cfg.OutageAfter)
	}
	if !(cfg.ColdShare > 0 && cfg.ColdShare <= 1) && cfg.ColdShare != FairShare {
		bad("ColdShare is %v, want more than 0 and at most 1, or FairShare", cfg.ColdShare)
	}
	if cfg.Decay > DecayLeak {
		bad("Decay is %d, want DecayWindow or DecayLeak", cfg.Decay)
	}
	if cfg.ChunkTimeout < time.Millisecond {
		bad("ChunkTimeout is %v, want at least 1ms", cfg.ChunkTimeout)
	}
	if strings.ContainsRune(cfg.Prefix, ':') {
		bad("Prefix is %q, want no ':'", cfg.Prefix)
	}
	return parts, split, configError(problems)
}

func configError(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrInvalidConfig, strings.Join(problems, "; "))
}

func validName(name string) bool {
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		default:
			return false
		}
	}
	return name != ""
}

// overrideProblems says how many limits are bad. It names no keys, which may be
// personal.
func overrideProblems(limits map[string]int64) string {
	var negative int
	var least int64
	for _, limit := range limits {
		if limit < 0 {
			negative++
			least = min(least, limit)
		}
	}
	if negative == 0 {
		return ""
	}
	return fmt.Sprintf("Overrides has %d negative limits, the least %d, want at least 0, or Unlimited", negative, least)
}

func tierProblems(policy TierPolicy) []string {
	var problems []string
	tiers := policy.Tiers()
	if len(tiers) < 1 || len(tiers) > maxTiers {
		problems = append(problems, fmt.Sprintf("Tiers has %d tiers, want 1 to %d", len(tiers), maxTiers))
	}
	seen := make(map[string]bool)
	for i, t := range tiers {
		if t.Name == "" || seen[t.Name] {
			problems = append(problems, fmt.Sprintf("Tiers[%d].Name is %q, want a name of its own", i, t.Name))
		}
		seen[t.Name] = true
		if t.MaxStale <= 0 {
			problems = append(problems, fmt.Sprintf("Tiers[%d].MaxStale is %v, want more than 0", i, t.MaxStale))
		}
	}
	if p, ok := policy.(PressureTiers); ok {
		problems = append(problems, p.problems()...)
	}
	return problems
}

// partsOf returns the stores to run a loop for.
func partsOf(store Store) (parts []Part, split Partitioned, problems []string) {
	if isNil(store) {
		return nil, nil, []string{"store is nil, want a Store"}
	}
	split, ok := store.(Partitioned)
	if !ok {
		return []Part{{Store: store}}, nil, nil
	}
	parts = split.Parts()
	if len(parts) == 0 {
		problems = append(problems, "store has no parts, want at least one")
	}
	seen := make(map[string]bool)
	for i, part := range parts {
		if part.Name == "" || seen[part.Name] {
			problems = append(problems, fmt.Sprintf("store's part %d is named %q, want a name of its own", i, part.Name))
		}
		seen[part.Name] = true
		if isNil(part.Store) {
			problems = append(problems, fmt.Sprintf("store's part %d is nil, want a Store", i))
		}
	}
	return parts, split, problems
}

// isNil also catches a nil pointer in the interface, as a failed constructor
// leaves behind.
func isNil(store Store) bool {
	if store == nil {
		return true
	}
	v := reflect.ValueOf(store)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
