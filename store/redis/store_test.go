package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetlimit/fleetlimit/limiter"
	redisstore "github.com/fleetlimit/fleetlimit/store/redis"
)

const (
	never   = -1 * time.Nanosecond // how go-redis spells it
	noTimer = -2 * time.Nanosecond
)

func TestNewRefusesClientsThatCannotKeepTheContract(t *testing.T) {
	t.Parallel()
	const waits, replicas = "the client can wait for ever", "the client reads from replicas"
	for _, tc := range []struct {
		name   string
		client redis.UniversalClient
		want   []string // what the error says; none if the client is fine
	}{
		{"nil", nil, []string{"the client is nil"}},
		{"defaults", redis.NewClient(&redis.Options{}), nil},
		{"context timeouts", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true}), nil},
		{"only context timeouts", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, ReadTimeout: never, WriteTimeout: never}), nil},
		{"no timeouts", redis.NewClient(&redis.Options{ReadTimeout: never}), []string{waits}},
		{"no read timeout", redis.NewClient(&redis.Options{ReadTimeout: never, WriteTimeout: time.Second}), []string{waits}},
		{"no write timeout", redis.NewClient(&redis.Options{WriteTimeout: never}), []string{waits}},
		{"no deadlines at all", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, ReadTimeout: noTimer}), []string{waits}},
		{"sentinel", redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}}), nil},
		{"sentinel, no timeouts", redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, ReadTimeout: never}), []string{waits}},
		{"cluster", redis.NewClusterClient(&redis.ClusterOptions{}), nil},
		{"cluster, no timeouts", redis.NewClusterClient(&redis.ClusterOptions{ReadTimeout: never}), []string{waits}},
		{"cluster, only context timeouts", redis.NewClusterClient(&redis.ClusterOptions{ReadTimeout: never, ContextTimeoutEnabled: true}), nil},
		{"cluster, read only", redis.NewClusterClient(&redis.ClusterOptions{ReadOnly: true}), []string{replicas}},
		{"cluster, by latency", redis.NewClusterClient(&redis.ClusterOptions{RouteByLatency: true}), []string{replicas}},
		{"cluster, randomly", redis.NewClusterClient(&redis.ClusterOptions{RouteRandomly: true, ReadTimeout: noTimer}), []string{replicas, waits}},
		{"ring", redis.NewRing(&redis.RingOptions{}), nil},
		{"ring, no timeouts", redis.NewRing(&redis.RingOptions{ReadTimeout: never}), []string{waits}},
		{"ring, no deadlines at all", redis.NewRing(&redis.RingOptions{WriteTimeout: noTimer, ContextTimeoutEnabled: true}), []string{waits}},
		{"ring, only context timeouts", redis.NewRing(&redis.RingOptions{ReadTimeout: never, WriteTimeout: never, ContextTimeoutEnabled: true}), nil},
		{"autopipeline", autoPipeliner(t), []string{"the client is an AutoPipeliner"}},
		{"of a type of its own", struct{ redis.UniversalClient }{redis.NewClient(&redis.Options{})}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.client != nil {
				t.Cleanup(func() { _ = tc.client.Close() })
			}
			s, err := redisstore.New(tc.client, redisstore.Config{})
			if len(tc.want) == 0 {
				if err != nil || s == nil {
					t.Errorf("New = %v, %v, want a store", s, err)
				}
				return
			}
			if !errors.Is(err, limiter.ErrInvalidConfig) {
				t.Fatalf("error = %v, want one that wraps ErrInvalidConfig", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func autoPipeliner(t *testing.T) redis.UniversalClient {
	client, err := redis.NewClient(&redis.Options{}).AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestReportsNameTheServer(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1"
	for _, tc := range []struct {
		name   string
		client redis.UniversalClient
		cfg    redisstore.Config
		want   string
	}{
		{"single", redis.NewClient(&redis.Options{Addr: nobody}), redisstore.Config{}, nobody},
		{"configured", redis.NewClient(&redis.Options{Addr: nobody}), redisstore.Config{Server: "counters-1"}, "counters-1"},
		{"cluster", redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nobody}}), redisstore.Config{}, "cluster"},
		{"ring", redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": nobody}}), redisstore.Config{}, "ring"},
		{"of a type of its own", struct{ redis.UniversalClient }{redis.NewClient(&redis.Options{Addr: nobody})}, redisstore.Config{}, "redis"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { _ = tc.client.Close() })
			s, err := redisstore.New(tc.client, tc.cfg)
			if err != nil {
				t.Fatal(err)
			}
			b := &limiter.Batch{ChunkTimeout: time.Second, Gets: []limiter.Get{{}}}
			if err := s.Exchange(context.Background(), b); err == nil {
				t.Fatal("no error, although nobody listens")
			}
			if got := b.Servers[0].Server; got != tc.want {
				t.Errorf("server = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAClosedClientIsAnError(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	s, err := redisstore.New(client, redisstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	b := &limiter.Batch{ChunkTimeout: time.Second, Adds: []limiter.Add{{Delta: 1}}}
	if err := s.Exchange(context.Background(), b); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("error = %v, want one that wraps ErrClosed", err)
	}
	if b.Adds[0].Outcome != limiter.NotApplied || b.Servers[0].ErrorKind != "closed" {
		t.Errorf("outcome %v and report %+v, want not applied and closed", b.Adds[0].Outcome, b.Servers)
	}
}
