package store_test

import (
	"testing"

	"github.com/fleetlimit/fleetlimit/conformance"
	"github.com/fleetlimit/fleetlimit/internal/respproxy"
	"github.com/fleetlimit/fleetlimit/limiter"
	"github.com/fleetlimit/fleetlimit/store"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

// TestConformance runs the whole suite for each adapter on each server.
func TestConformance(t *testing.T) {
	t.Parallel()
	forEachPair(t, func(t *testing.T, a adapter, addr string) {
		proxy := startProxy(t, addr)
		conformance.StoreSuite{
			New:    func(tb testing.TB) limiter.Store { return a.open(tb, proxy.Addr()) },
			Peer:   func(tb testing.TB, _ limiter.Store) limiter.Store { return a.open(tb, addr) },
			Outage: func(tb testing.TB, _ limiter.Store, o conformance.Outage) func() { return outage(tb, proxy, o) },
			Strict: true,
		}.Test(t)
	})
}

// outage makes an outage of what is behind a proxy, and returns its end.
func outage(tb testing.TB, p *respproxy.Proxy, o conformance.Outage) (heal func()) {
	switch o {
	case conformance.Refused:
		p.Down()
		return func() {
			if err := p.Up(); err != nil {
				tb.Error(err)
			}
		}
	case conformance.Stalled:
		p.SetRule(respproxy.Always(respproxy.Freeze))
	case conformance.RepliesLost:
		p.SetRule(func(r respproxy.Request) respproxy.Action {
			switch r.Args[0] {
			case "SET", "INCRBY", "PEXPIRE":
				return respproxy.Mute
			case "GET": // which comes last
				return respproxy.CutAfter
			default:
				return respproxy.Pass
			}
		})
	default:
		return nil
	}
	return func() {
		p.SetRule(nil)
		p.CutAll()
	}
}

// TestPartitionConformance runs what needs no outage for a partitioned store.
func TestPartitionConformance(t *testing.T) {
	t.Parallel()
	conformance.TestStore(t, func(tb testing.TB) limiter.Store {
		p, err := store.Partition(
			limiter.Part{Name: "a", Store: memorystore.New()},
			limiter.Part{Name: "b", Store: memorystore.New()},
			limiter.Part{Name: "c", Store: memorystore.New()},
		)
		if err != nil {
			tb.Fatal(err)
		}
		return p
	})
}

func FuzzRedisExchange(f *testing.F)  { fuzzExchange(f, adapters[0], servers[0]) }
func FuzzValkeyExchange(f *testing.F) { fuzzExchange(f, adapters[1], servers[1]) }

// fuzzExchange compares an adapter with the suite's model.
func fuzzExchange(f *testing.F, a adapter, s server) {
	st := a.open(f, s.addr(f))
	conformance.StoreSuite{New: func(testing.TB) limiter.Store { return st }}.Fuzz(f)
}
