package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valkey-io/valkey-go"

	"github.com/fleetlimit/fleetlimit/limiter"
	"github.com/fleetlimit/fleetlimit/store"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
	redisstore "github.com/fleetlimit/fleetlimit/store/redis"
	valkeystore "github.com/fleetlimit/fleetlimit/store/valkey"
)

// dialTimeout is how long a server may take to be reached.
const dialTimeout = 3 * time.Second

// backend opens a node's own way to a store, and returns what closes it.
type backend func() (s limiter.Store, closeStore func() error, err error)

// parseStore returns what is behind a URL, or false if that is not known.
func parseStore(url string) (backend, bool) {
	scheme, rest, _ := strings.Cut(url, "://")
	switch scheme {
	case "memory":
		return memoryBackend(), rest == ""
	case "redis":
		opts, err := redis.ParseURL(url)
		return redisBackend(opts), err == nil
	case "valkey":
		opts, err := valkey.ParseURL(url)
		return valkeyBackend(opts), err == nil
	default:
		return nil, false
	}
}

// memoryBackend is one store for all nodes.
func memoryBackend() backend {
	shared := memorystore.New()
	return func() (limiter.Store, func() error, error) {
		return shared, func() error { return nil }, nil
	}
}

func redisBackend(opts *redis.Options) backend {
	return func() (limiter.Store, func() error, error) {
		opts.ContextTimeoutEnabled = true
		client := redis.NewClient(opts)
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		defer cancel()
		if err := client.Ping(ctx).Err(); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("redis at %s: %w", opts.Addr, err), client.Close())
		}
		s, err := redisstore.New(client, redisstore.Config{})
		if err != nil {
			return nil, nil, errors.Join(err, client.Close())
		}
		return s, client.Close, nil
	}
}

func valkeyBackend(opts valkey.ClientOption) backend {
	return func() (limiter.Store, func() error, error) {
		opts.Dialer.Timeout = dialTimeout
		client, err := valkey.NewClient(opts)
		if err != nil {
			return nil, nil, fmt.Errorf("valkey at %s: %w", opts.InitAddress[0], err)
		}
		s, err := valkeystore.New(client, valkeystore.Config{})
		if err != nil {
			client.Close()
			return nil, nil, err
		}
		return s, func() error { client.Close(); return nil }, nil
	}
}

// openStores opens a node's way to all stores, as one.
func openStores(backends []backend) (s limiter.Partitioned, closeStores func() error, err error) {
	var parts []limiter.Part
	var closers []func() error
	closeStores = func() error {
		var errs []error
		for _, c := range closers {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}
	for i, open := range backends {
		part, closePart, err := open()
		if err != nil {
			return nil, nil, errors.Join(err, closeStores())
		}
		closers = append(closers, closePart)
		parts = append(parts, limiter.Part{Name: "store-" + strconv.Itoa(i+1), Store: part})
	}
	s, err = store.Partition(parts...)
	if err != nil {
		return nil, nil, errors.Join(err, closeStores())
	}
	return s, closeStores, nil
}

// keysFor returns a key for each part of s.
func keysFor(s limiter.Partitioned) []string {
	keys := make([]string, len(s.Parts()))
	for missing, team := len(keys), 1; missing > 0; team++ {
		key := "team_" + strconv.Itoa(team)
		if part := s.PartOf(key); keys[part] == "" {
			keys[part] = key
			missing--
		}
	}
	return keys
}
