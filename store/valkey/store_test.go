package valkeystore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/fleetlimit/fleetlimit/limiter"
	valkeystore "github.com/fleetlimit/fleetlimit/store/valkey"
)

const nobody = "127.0.0.1:1"

// unconnected returns a client of a server that does not exist. ForceSingleClient
// has NewClient return one with its error.
func unconnected(t *testing.T) valkey.Client {
	t.Helper()
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{nobody}, ForceSingleClient: true})
	if client == nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestNewRefusesNoClient(t *testing.T) {
	t.Parallel()
	if _, err := valkeystore.New(nil, valkeystore.Config{}); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Errorf("error = %v, want one that wraps ErrInvalidConfig", err)
	}
}

func TestAServerThatIsNotThereIsADialError(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		cfg  valkeystore.Config
		want string
	}{
		{valkeystore.Config{}, nobody},
		{valkeystore.Config{Server: "counters-1"}, "counters-1"},
	} {
		s, err := valkeystore.New(unconnected(t), tc.cfg)
		if err != nil {
			t.Fatal(err)
		}
		b := &limiter.Batch{ChunkTimeout: time.Second, Adds: []limiter.Add{{Delta: 1}}}
		if err := s.Exchange(context.Background(), b); err == nil {
			t.Fatal("no error, although nobody listens")
		}
		if r := b.Servers[0]; b.Adds[0].Outcome != limiter.NotApplied || r.ErrorKind != "dial" || r.Server != tc.want {
			t.Errorf("outcome %v and report %+v, want not applied, dial and %s", b.Adds[0].Outcome, r, tc.want)
		}
	}
}

func TestAClosedClientIsAnError(t *testing.T) {
	t.Parallel()
	client := unconnected(t)
	s, err := valkeystore.New(client, valkeystore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	b := &limiter.Batch{ChunkTimeout: time.Second, Adds: []limiter.Add{{Delta: 1}}}
	err = s.Exchange(context.Background(), b)
	if err == nil || b.Adds[0].Outcome != limiter.NotApplied {
		t.Errorf("error %v and outcome %v, want an error and not applied", err, b.Adds[0].Outcome)
	}
}
