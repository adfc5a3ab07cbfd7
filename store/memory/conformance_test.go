package memorystore_test

import (
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/conformance"
	"github.com/fleetlimit/fleetlimit/internal/faultstore"
	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

// suite checks the store behind faults of all kinds, as if it were away on a
// server.
var suite = conformance.StoreSuite{
	New: func(testing.TB) limiter.Store { return faultstore.Wrap(memorystore.New()) },
	Peer: func(_ testing.TB, s limiter.Store) limiter.Store {
		return s // all limiters of a process use one store
	},
	Outage: func(_ testing.TB, s limiter.Store, o conformance.Outage) (heal func()) {
		f := s.(*faultstore.Store)
		f.SetRule(faultstore.Always(map[conformance.Outage]faultstore.Fault{
			conformance.Refused:     {Kind: faultstore.Refuse},
			conformance.Stalled:     {Kind: faultstore.LoseRequest, Delay: faultstore.Forever},
			conformance.RepliesLost: {Kind: faultstore.LoseReply},
		}[o]))
		return func() { f.SetRule(nil) }
	},
	Elapse: func(testing.TB, limiter.Store, time.Duration) {}, // it goes by the batch's time
	Strict: true,
}

func TestConformance(t *testing.T) {
	t.Parallel()
	suite.Test(t)
}

func TestConformance_Bare(t *testing.T) {
	t.Parallel()
	conformance.TestStore(t, func(testing.TB) limiter.Store { return memorystore.New() })
}

func FuzzExchange(f *testing.F) { suite.Fuzz(f) }

func BenchmarkExchange(b *testing.B) {
	bare := suite
	bare.New = func(testing.TB) limiter.Store { return memorystore.New() }
	bare.Benchmark(b)
}
