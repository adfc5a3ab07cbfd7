package store_test

import (
	"context"
	"crypto/rand"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valkey-io/valkey-go"

	"github.com/fleetlimit/fleetlimit/internal/respproxy"
	"github.com/fleetlimit/fleetlimit/limiter"
	redisstore "github.com/fleetlimit/fleetlimit/store/redis"
	valkeystore "github.com/fleetlimit/fleetlimit/store/valkey"
)

// server is a server that the tests of the adapters run against.
type server struct {
	name string
	env  string // the variable that holds its address
}

var servers = []server{
	{name: "redis", env: "REDIS_ADDR"},
	{name: "valkey", env: "VALKEY_ADDR"},
}

// addr returns the address of the server, or ends the test.
func (s server) addr(tb testing.TB) string {
	tb.Helper()
	addr := os.Getenv(s.env)
	if addr == "" {
		if os.Getenv("CI") != "" {
			tb.Fatalf("%s is not set", s.env)
		}
		tb.Skipf("%s is not set; scripts/servers.sh runs a command with servers", s.env)
	}
	return addr
}

// adapter is one of the two adapters, with a client as most will make it.
type adapter struct {
	name string
	open func(tb testing.TB, addr string) limiter.Store
}

var adapters = []adapter{
	{name: "redisstore", open: func(tb testing.TB, addr string) limiter.Store {
		return newRedisStore(tb, redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}))
	}},
	{name: "valkeystore", open: func(tb testing.TB, addr string) limiter.Store {
		return newValkeyStore(tb, valkey.ClientOption{InitAddress: []string{addr}})
	}},
}

func newRedisStore(tb testing.TB, client redis.UniversalClient) limiter.Store {
	tb.Helper()
	tb.Cleanup(func() { _ = client.Close() })
	s, err := redisstore.New(client, redisstore.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func newValkeyStore(tb testing.TB, opt valkey.ClientOption) limiter.Store {
	tb.Helper()
	client, err := valkey.NewClient(opt)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.Close)
	s, err := valkeystore.New(client, valkeystore.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// forEachPair runs a test with each adapter on each server.
func forEachPair(t *testing.T, test func(t *testing.T, a adapter, addr string)) {
	t.Helper()
	for _, a := range adapters {
		for _, s := range servers {
			t.Run(a.name+" on "+s.name, func(t *testing.T) {
				t.Parallel()
				test(t, a, s.addr(t))
			})
		}
	}
}

// startProxy starts a proxy in front of a server.
func startProxy(tb testing.TB, addr string) *respproxy.Proxy {
	tb.Helper()
	p, err := respproxy.Start(addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// direct returns a plain client of a server, to look at what the stores did.
func direct(tb testing.TB, addr string) *redis.Client {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

func exchange(tb testing.TB, s limiter.Store, b *limiter.Batch) {
	tb.Helper()
	if err := s.Exchange(context.Background(), b); err != nil {
		tb.Fatal(err)
	}
}

// newBatch returns an empty batch with a prefix of its own.
func newBatch(tb testing.TB) *limiter.Batch {
	tb.Helper()
	return &limiter.Batch{
		Prefix:       "test/" + rand.Text(),
		Epochs:       1,
		EpochLength:  time.Minute,
		Now:          time.Now(),
		ChunkTimeout: 10 * time.Second,
	}
}
