package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valkey-io/valkey-go"

	"github.com/fleetlimit/fleetlimit/limiter"
	"github.com/fleetlimit/fleetlimit/store"
)

// perExchange is how many operations of a kind an exchange of the benchmarks has.
const perExchange = 1000

// addsFor returns a batch as the limiter makes it in steady state: an add for each
// of perExchange keys. Totals are large enough not to be cached by the runtime.
func addsFor(tb testing.TB) *limiter.Batch {
	b := newBatch(tb)
	for i := range perExchange {
		c := limiter.Counter{Key: fmt.Sprintf("team_%d", i), Epoch: 29733333}
		b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: 1000})
	}
	return b
}

// forget lets the counters of a batch expire.
func forget(tb testing.TB, addr string, b *limiter.Batch) {
	b.Expires = nil
	for i := range b.Adds {
		b.Expires = append(b.Expires, limiter.Expire{Counter: b.Adds[i].Counter, Lifetime: time.Millisecond})
	}
	b.Adds, b.Gets = nil, nil
	exchange(tb, newRedisStore(tb, redis.NewClient(&redis.Options{Addr: addr})), b)
}

// bareClients have the adds of a batch performed by a client alone: by its own
// pipeline, with the names made for it, as any caller would have to.
var bareClients = []struct {
	name string
	open func(tb testing.TB, addr string) (perform func(*limiter.Batch) error)
}{
	{"go-redis", func(tb testing.TB, addr string) func(*limiter.Batch) error {
		client := direct(tb, addr)
		return func(b *limiter.Batch) error {
			pipe := client.Pipeline()
			var name []byte
			for i := range b.Adds {
				name = store.AppendName(name[:0], b.Prefix, b.Adds[i].Counter)
				pipe.IncrBy(context.Background(), string(name), b.Adds[i].Delta)
			}
			_, err := pipe.Exec(context.Background())
			return err
		}
	}},
	{"valkey-go", func(tb testing.TB, addr string) func(*limiter.Batch) error {
		client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{addr}})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(client.Close)
		return func(b *limiter.Batch) error {
			cmds := make([]valkey.Completed, 0, len(b.Adds))
			var name []byte
			for i := range b.Adds {
				name = store.AppendName(name[:0], b.Prefix, b.Adds[i].Counter)
				cmds = append(cmds, client.B().Incrby().Key(string(name)).Increment(b.Adds[i].Delta).Build())
			}
			for _, result := range client.DoMulti(context.Background(), cmds...) {
				if _, err := result.ToInt64(); err != nil {
					return err
				}
			}
			return nil
		}
	}},
}

// TestAdaptersAllocateNoMoreThanTheirClients compares each adapter with its client
// alone.
func TestAdaptersAllocateNoMoreThanTheirClients(t *testing.T) {
	for _, s := range servers {
		addr := s.addr(t)
		for i, a := range adapters {
			st, perform := a.open(t, addr), bareClients[i].open(t, addr)
			b := addsFor(t)
			through := testing.AllocsPerRun(20, func() {
				b.Servers = b.Servers[:0]
				exchange(t, st, b)
			})
			alone := testing.AllocsPerRun(20, func() {
				if err := perform(b); err != nil {
					t.Error(err)
				}
			})
			if through > alone {
				t.Errorf("%s on %s makes %v allocations in %d adds, %s alone %v", a.name, s.name, through, perExchange, bareClients[i].name, alone)
			}
			forget(t, addr, b)
		}
	}
}

// BenchmarkExchange has rounds of 1,000 adds through each adapter, and through its
// client alone.
func BenchmarkExchange(b *testing.B) {
	for _, s := range servers {
		for _, a := range adapters {
			b.Run(fmt.Sprintf("server=%s/through=%s", s.name, a.name), func(b *testing.B) {
				addr := s.addr(b)
				st := a.open(b, addr)
				batch := addsFor(b)
				b.ReportAllocs()
				for b.Loop() {
					batch.Servers = batch.Servers[:0]
					exchange(b, st, batch)
				}
				forget(b, addr, batch)
			})
		}
		for _, c := range bareClients {
			b.Run(fmt.Sprintf("server=%s/through=%s", s.name, c.name), func(b *testing.B) {
				addr := s.addr(b)
				perform := c.open(b, addr)
				batch := addsFor(b)
				b.ReportAllocs()
				for b.Loop() {
					if err := perform(batch); err != nil {
						b.Fatal(err)
					}
				}
				forget(b, addr, batch)
			})
		}
	}
}

// BenchmarkFirstExchange has the adds of a new epoch, which bring the expiries of
// their counters along.
func BenchmarkFirstExchange(b *testing.B) {
	for _, s := range servers {
		for _, a := range adapters {
			b.Run(fmt.Sprintf("server=%s/through=%s", s.name, a.name), func(b *testing.B) {
				st := a.open(b, s.addr(b))
				batch := addsFor(b)
				for i := range batch.Adds {
					batch.Expires = append(batch.Expires, limiter.Expire{Counter: batch.Adds[i].Counter, Lifetime: time.Second})
				}
				b.ReportAllocs()
				for b.Loop() {
					batch.Servers = batch.Servers[:0]
					for i := range batch.Adds {
						batch.Adds[i].Epoch++
						batch.Expires[i].Epoch++
					}
					exchange(b, st, batch)
				}
			})
		}
	}
}

// BenchmarkLargeExchange has 100 chunks in an exchange.
func BenchmarkLargeExchange(b *testing.B) {
	for _, s := range servers {
		for _, a := range adapters {
			b.Run(fmt.Sprintf("server=%s/through=%s", s.name, a.name), func(b *testing.B) {
				addr := s.addr(b)
				st := a.open(b, addr)
				batch := newBatch(b)
				for i := range 100 * perExchange {
					c := limiter.Counter{Key: fmt.Sprintf("team_%d", i), Epoch: 29733333}
					batch.Adds = append(batch.Adds, limiter.Add{Counter: c, Delta: 1000})
				}
				b.ReportAllocs()
				for b.Loop() {
					batch.Servers = batch.Servers[:0]
					exchange(b, st, batch)
				}
				forget(b, addr, batch)
			})
		}
	}
}

// BenchmarkPartOf measures the choice of a part.
func BenchmarkPartOf(b *testing.B) {
	for _, n := range []int{2, 16} {
		b.Run(fmt.Sprintf("parts=%d", n), func(b *testing.B) {
			var parts []limiter.Part
			for i := range n {
				parts = append(parts, limiter.Part{Name: fmt.Sprintf("redis-%d", i), Store: nowhere{}})
			}
			p, err := store.Partition(parts...)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				p.PartOf("organisation_17/team_42")
			}
		})
	}
}

// nowhere is a store that does nothing.
type nowhere struct{}

func (nowhere) Exchange(context.Context, *limiter.Batch) error { return nil }
