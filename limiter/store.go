package limiter

import (
	"context"
	"time"
)

// Series names which count of a key a counter holds.
type Series uint8

const (
	// SeriesAdmitted counts the events of a key that were let through. It is
	// the series that the limit is judged by.
	SeriesAdmitted Series = iota
	// SeriesDenied counts the events of a key that were refused.
	SeriesDenied
	// SeriesNodes counts the nodes that ran in an epoch. Its key is always
	// empty: each node adds one to it once per epoch and partition.
	SeriesNodes
)

// Outcome is what is known of an operation after an exchange. The zero value
// is [Unknown], so a store that sets nothing claims nothing.
type Outcome uint8

const (
	// Unknown means that the operation may or may not have been applied: it
	// was sent and no reply came. The limiter never sends it again.
	Unknown Outcome = iota
	// Applied means that the store performed the operation and said so.
	Applied
	// NotApplied means that the operation certainly had no effect: it was not
	// sent, or the store refused it. The limiter will send it again while its
	// epoch can still be read.
	NotApplied
)

// String returns the name of o in lower case.
func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case NotApplied:
		return "not applied"
	default:
		return "unknown"
	}
}

// Counter identifies one counter within a batch's prefix. Distinct counters
// must never share their value (rule S10).
type Counter struct {
	// Key is any string: empty, with separators or braces, not UTF-8, long.
	Key string
	// Epoch is the number of the window slice: floor(unix time / epoch length).
	Epoch int64
	// Series tells the key's counts apart.
	Series Series
}

// Add adds Delta to a counter and asks for the total after it.
type Add struct {
	Counter
	// Delta is at least 1.
	Delta int64

	// Total is the counter's value after this add. Set by the store; valid if
	// Outcome is [Applied].
	Total int64
	// Outcome is set by the store.
	Outcome Outcome
}

// Expire limits the remaining life of a counter. The limiter repeats it until
// it was [Applied] once.
type Expire struct {
	Counter
	// Lifetime is how long from now the counter must stay readable. It is
	// positive. A store may keep the counter a little longer, never for ever.
	Lifetime time.Duration

	// Outcome is set by the store. Applied is also right for a counter that
	// does not exist.
	Outcome Outcome
}

// Get reads a counter.
type Get struct {
	Counter

	// Total is the counter's value, 0 if it does not exist. Set by the store;
	// valid if OK.
	Total int64
	// OK is set by the store: whether Total was read.
	OK bool
}

// ServerReport says what one exchange cost at one server. Stores append one
// for each server they talked to; the limiter hands them to the [Observer].
type ServerReport struct {
	// Server names the server in few words that hold no secret: an address or
	// a configured name. The set of names must be small and stable.
	Server string
	// Duration is the time from the first byte sent to the last reply.
	Duration time.Duration
	// Commands is the number of commands sent.
	Commands int
	// BytesOut and BytesIn are the sizes on the wire, 0 where unknown.
	BytesOut, BytesIn int64
	// ErrorKind classifies a failure in one of few words ("timeout", "dial",
	// "refused"); empty when all went well.
	ErrorKind string
}

// Batch is the work of one exchange. The limiter fills it, the store performs
// it and writes the results into it.
//
// The limiter owns the memory and uses it again for the next exchange: a store
// must not keep the batch, its slices or a pointer into them after Exchange
// has returned, also not in a goroutine that outlives a deadline (rule S8).
// The key strings may be kept.
type Batch struct {
	// Prefix is the namespace of all counters of this batch. It holds no ':'.
	Prefix string
	// Epochs is the number of epochs per window, at least 1.
	Epochs int
	// EpochLength is the length of one epoch, at least a millisecond.
	EpochLength time.Duration
	// Now is the limiter's time at the start of the exchange. A store that has
	// no clock of its own expires counters by it.
	Now time.Time
	// ChunkTimeout is how long one round trip may take; a store that splits the
	// batch gives each chunk that long. Always positive.
	ChunkTimeout time.Duration

	// The operations, performed in this order: all Adds, then all Expires,
	// then all Gets. The same counter may occur more than once (rule S5).
	Adds    []Add
	Expires []Expire
	Gets    []Get

	// Servers is empty when Exchange is called; the store appends to it.
	Servers []ServerReport
}

// Store holds counters that all nodes of the fleet share. It is the only thing
// that nodes have in common; it knows nothing of limits and windows.
//
// A store is safe for concurrent use. Rules S1 to S11 in docs/invariants.md
// say what else it must keep.
type Store interface {
	// Exchange performs all of b's adds, then its expiries, then its gets, in
	// one round trip per server, split into chunks above a stated size with all
	// operations of a key in one chunk. Results are written into b in place.
	//
	// An add is delivered at most once, whatever fails (rule S7). Each outcome
	// is true (rule S6): operations that were not reached are [NotApplied],
	// those that may have been performed are [Unknown].
	//
	// It returns promptly when ctx is done (rule S9). The error is nil if and
	// only if every operation succeeded; it holds no key and no credential.
	Exchange(ctx context.Context, b *Batch) error
}

// Part is one of the stores behind a [Partitioned] store.
type Part struct {
	// Name labels the part in reports and logs. Names are unique and not empty.
	Name string
	// Store holds the part's counters.
	Store Store
}

// Partitioned is implemented by a store that spreads keys over several others.
// The limiter then runs one loop per part, so that a slow or dead part costs
// the others nothing, and calls Exchange on the parts only.
type Partitioned interface {
	Store
	// Parts returns the parts, at least one. It is called once, in [New].
	Parts() []Part
	// PartOf returns the index in Parts of the part that holds key. It must not
	// change while the store lives, and is safe for concurrent use.
	PartOf(key string) int
}

// TimeTeller is implemented by a store that has a clock which all nodes can
// ask. The limiter reports how far its own clock is off; see
// [Config.CorrectSkew].
type TimeTeller interface {
	// Time returns the store's time. It ends promptly when ctx is done.
	Time(ctx context.Context) (time.Time, error)
}
