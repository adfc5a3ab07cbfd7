// Package limiter keeps rate limits that hold across a fleet of nodes.
//
// Each node decides from its own memory, without waiting for anything. The nodes
// share their counts through a [Store]: in one batched exchange per tick a node
// sends what it has admitted and hears what all have admitted together.
//
// # Start
//
//	store, err := redisstore.New(rdb, redisstore.Config{})
//	lim, err := limiter.New(store, limiter.Config{Name: "api", Limit: 1000, Window: time.Minute})
//	defer lim.Close()
//	if !lim.Allow("team_42") { /* refuse the request */ }
//
// The key says who is limited: a tenant, a token, an address. A limit is so many
// events of a key in any window of the given length. All nodes whose limiters have
// the same name and window on the same store share it.
//
// # Deciding
//
// [Limiter.Allow] answers yes or no for one event and [Limiter.AllowN] for several
// that pass together or not at all. [Limiter.Check] says more: why, how much room
// is left, and when to try again. All three count what they admit.
// [Limiter.Peek] only looks.
//
// A key that this node sees for the first time is admitted up to its limit, without
// waiting for the store; [Config.ColdShare] makes that less. A denied event is not
// counted, so a client that is over its limit gets through at the rate of the limit;
// [Config.CountDenied] changes that.
//
// Single keys get limits of their own in [Config.Overrides] or, at any time, by
// [Limiter.SetOverrides]. [ConfigFromEnv] reads a configuration from the
// environment.
//
// # What happens behind it
//
// A loop runs every [Config.TickEvery]. It sends what this node has admitted and
// learns the fleet's totals from the replies. Not every key takes part in every
// tick: a [TierPolicy] says how stale a key may become, given how near it is to its
// limit. A key whose room is going fast is exchanged sooner, if need be before the
// next tick is due, and one near its limit at every tick.
//
// An [Observer] is told what each tick did; [Limiter.Totals] can be asked.
//
// # When the store is away
//
// Decisions go on as before, and no count is lost that can still be sent. After
// [Config.OutageAfter] without a successful exchange [Config.Outage] comes into
// force: go on with this node's share of the limit, admit all, or deny all. The
// [Reason] of a decision says so.
//
// # What it is not
//
// A fleet can exceed a limit for a moment, because no node knows what the others
// have admitted since the last exchange. Limits of less than about 20 events for
// each node are where this shows most.
//
// A node that is alone admits exactly what the window counter allows. That counter
// takes the events of the epoch that is leaving the window as spread evenly over
// it. So after an uneven epoch it is off; more [Config.Epochs] make it less so.
//
// docs/invariants.md lists the rules that hold, by number.
//
// There is no default store: a limiter on a store in memory would be local without
// saying so. Package memorystore is for tests and for programs that run once.
package limiter
