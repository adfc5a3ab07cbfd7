package limiter

import (
	"math"
	"time"
)

// Unlimited, as a limit, admits everything without counting it.
const Unlimited int64 = math.MaxInt64

// Never is the [Decision.RetryAfter] of a request that no waiting will admit:
// one that is larger than the limit, or any at limit 0.
const Never time.Duration = math.MaxInt64

// Reason says why a decision fell as it did.
type Reason uint8

const (
	// ReasonUnderLimit: admitted, the request fits.
	ReasonUnderLimit Reason = iota
	// ReasonFirstSeen: admitted, the request fits and this node has not yet
	// heard from the store about the key.
	ReasonFirstSeen
	// ReasonUnlimited: admitted, the key has no limit.
	ReasonUnlimited
	// ReasonOverLimit: denied, the request does not fit.
	ReasonOverLimit
	// ReasonShed: denied, although there is some room: near the limit the nodes
	// thin their requests so that together they stay within it.
	ReasonShed
	// ReasonOutageAllowed: admitted by [Config.Outage] while the store is away.
	ReasonOutageAllowed
	// ReasonOutageDenied: denied by [Config.Outage] while the store is away.
	ReasonOutageDenied
	// ReasonClosed: decided by what was known when the limiter was closed.
	ReasonClosed
	// ReasonInvalid: denied because n was negative.
	ReasonInvalid

	numReasons
)

var reasonNames = [numReasons]string{
	ReasonUnderLimit:    "under limit",
	ReasonFirstSeen:     "first seen",
	ReasonUnlimited:     "unlimited",
	ReasonOverLimit:     "over limit",
	ReasonShed:          "shed",
	ReasonOutageAllowed: "outage-allowed",
	ReasonOutageDenied:  "outage-denied",
	ReasonClosed:        "closed",
	ReasonInvalid:       "invalid",
}

// String returns the reason in a few words, fit for a log or a metric.
func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Decision is the answer to one request. It is a plain value.
type Decision struct {
	// Allowed says whether the request may pass. If it may, it has been counted
	// (except by [Limiter.Peek], which counts nothing).
	Allowed bool
	// Reason says why.
	Reason Reason
	// Limit is the key's limit in events per window, or [Unlimited].
	Limit int64
	// Remaining is how many more events would fit now, by what this node knows:
	// 0 ≤ Remaining ≤ Limit.
	Remaining int64
	// RetryAfter is 0 if the request was allowed. Otherwise it is how long to
	// wait until the same request would pass if nobody else came, or [Never].
	RetryAfter time.Duration
	// ResetAfter is how long until the key is as good as new if nobody came.
	ResetAfter time.Duration
}
