package limiter

import (
	"fmt"
	"math"
	"time"
)

// Tier is a class of keys by pressure. It bounds how stale a key may become.
type Tier struct {
	// Name labels the tier in reports: not empty, unique in its policy.
	Name string
	// MaxStale is the longest time that counted events of a key in this tier
	// may wait for an exchange. It is positive. The limiter never waits longer,
	// and exchanges sooner when the key's headroom is going fast.
	MaxStale time.Duration
}

// Signal is what a [TierPolicy] may judge a key by.
type Signal struct {
	// Pressure is Level / Limit. It is 0 or more, and may be +Inf.
	Pressure float64
	// Level is the estimate of the key's fleet-wide events in the window that
	// ends now.
	Level float64
	// Limit is the key's limit in events per window, possibly 0.
	Limit int64
}

// TierPolicy sorts keys into tiers. It is called by the background loop only,
// never by a decision, and must be safe for concurrent use by the loops of
// several partitions.
type TierPolicy interface {
	// Tiers returns the tiers, at least one and at most 64. It is called once,
	// in [New].
	Tiers() []Tier
	// Classify returns an index into Tiers. It takes any signal, including NaN
	// and infinities (rule T1), does not allocate (rule T2) and does not block.
	// An index outside Tiers is taken as the nearest valid one.
	Classify(s Signal) int
}

// PressureTier is one step of [PressureTiers].
type PressureTier struct {
	// Name labels the tier: not empty, unique.
	Name string
	// From is the pressure at which the tier begins, inclusive: 0 for the first
	// tier, then ascending.
	From float64
	// MaxStale is the tier's [Tier.MaxStale].
	MaxStale time.Duration
}

// PressureTiers is a [TierPolicy] that looks at pressure alone: a key is in the
// last tier whose From its pressure reaches. The intervals are half open, so a
// pressure of exactly From belongs to the tier that begins there. [New]
// refuses a list that is empty, out of order or does not begin at 0.
type PressureTiers []PressureTier

// DefaultTiers returns the reference design's four tiers for a base sync
// interval: idle below 10 % of the limit and low below 50 % (4 times the
// interval), normal below 80 % (once) and hot above (half of it).
func DefaultTiers(syncEvery time.Duration) PressureTiers {
	return PressureTiers{
		{Name: "idle", From: 0, MaxStale: 4 * syncEvery},
		{Name: "low", From: 0.10, MaxStale: 4 * syncEvery},
		{Name: "normal", From: 0.50, MaxStale: syncEvery},
		{Name: "hot", From: 0.80, MaxStale: syncEvery / 2},
	}
}

// Tiers implements [TierPolicy].
func (p PressureTiers) Tiers() []Tier {
	tiers := make([]Tier, len(p))
	for i, t := range p {
		tiers[i] = Tier{Name: t.Name, MaxStale: t.MaxStale}
	}
	return tiers
}

// Classify implements [TierPolicy]. NaN counts as the highest pressure: what
// cannot be judged is watched most closely.
func (p PressureTiers) Classify(s Signal) int {
	if math.IsNaN(s.Pressure) {
		return len(p) - 1
	}
	for i := len(p) - 1; i > 0; i-- {
		if s.Pressure >= p[i].From {
			return i
		}
	}
	return 0
}

func (p PressureTiers) problems() []string {
	var out []string
	for i, t := range p {
		switch {
		case i == 0 && t.From != 0:
			out = append(out, fmt.Sprintf("Tiers[0].From is %v, want 0", t.From))
		case i > 0 && !(t.From > p[i-1].From): // also catches NaN
			out = append(out, fmt.Sprintf("Tiers[%d].From is %v, want more than Tiers[%d].From, %v", i, t.From, i-1, p[i-1].From))
		}
	}
	return out
}
