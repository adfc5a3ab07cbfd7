package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/internal/faultstore"
	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

func TestNew_NamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := limiter.New(nil, limiter.Config{
		Limit: -1, Window: -time.Second, Epochs: 61, Overrides: map[string]int64{"secret": -7},
		TickEvery: -1, SyncEvery: -1, Tiers: limiter.PressureTiers{},
		CacheEntries: -1, CacheTTL: -1, CacheIdle: -1,
		Outage: 3, OutageAfter: -1, ColdShare: 1.5, Decay: 2, ChunkTimeout: -1, Prefix: "a:b",
	})
	if !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Fatalf("got %v, want ErrInvalidConfig", err)
	}
	for _, name := range []string{
		"store is nil", "Name is", "Limit is -1", "Epochs is 61", "Overrides has 1", "TickEvery is -1ns", "SyncEvery is -1ns",
		"Tiers has 0", "CacheEntries is -1", "CacheTTL is -1ns", "CacheIdle is -1ns", "Outage is 3", "OutageAfter is -1ns", "ColdShare is 1.5",
		"Decay is 2", "ChunkTimeout is -1ns", `Prefix is "a:b"`,
	} {
		if strings.Count(err.Error(), name) != 1 {
			t.Errorf("the error does not say %q once: %v", name, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error names a key: %v", err)
	}
}

// twoParts is a store of the parts given.
type twoParts struct {
	limiter.Store
	parts []limiter.Part
}

func (s twoParts) Parts() []limiter.Part { return s.parts }
func (twoParts) PartOf(string) int       { return 0 }

func TestNew_RefusesAndSaysWhy(t *testing.T) {
	t.Parallel()
	ok := memorystore.New()
	tier := limiter.PressureTier{Name: "a", MaxStale: time.Second}
	for _, tt := range []struct {
		store limiter.Store
		cfg   limiter.Config
		want  string // part of the error, empty if there is none
	}{
		{ok, limiter.Config{}, ""},
		{nil, limiter.Config{}, "store is nil"},
		{(*memorystore.Store)(nil), limiter.Config{}, "store is nil"},
		{(*faultstore.Store)(nil), limiter.Config{}, "store is nil"},
		{twoParts{}, limiter.Config{}, "no parts"},
		{twoParts{parts: []limiter.Part{{Name: "a", Store: ok}, {Name: "a", Store: ok}}}, limiter.Config{}, `part 1 is named "a"`},
		{twoParts{parts: []limiter.Part{{Store: ok}}}, limiter.Config{}, `part 0 is named ""`},
		{twoParts{parts: []limiter.Part{{Name: "a"}}}, limiter.Config{}, "part 0 is nil"},
		{twoParts{parts: []limiter.Part{{Name: "a", Store: (*memorystore.Store)(nil)}}}, limiter.Config{}, "part 0 is nil"},
		{ok, limiter.Config{Name: "a:b"}, "Name is"},
		{ok, limiter.Config{Name: "é"}, "Name is"},
		{ok, limiter.Config{Name: "a b"}, "Name is"},
		{ok, limiter.Config{Name: "A.b_c-9"}, ""},
		{ok, limiter.Config{Limit: math.MinInt64}, "Limit is"},
		{ok, limiter.Config{Limit: limiter.Unlimited}, ""},
		{ok, limiter.Config{Window: time.Millisecond - 1}, "Window is"},
		{ok, limiter.Config{Window: time.Microsecond}, "Window is"},
		{ok, limiter.Config{Window: time.Millisecond}, ""},
		{ok, limiter.Config{Window: 59 * time.Millisecond, Epochs: 60}, "Window is"},
		{ok, limiter.Config{Window: 60 * time.Millisecond, Epochs: 60}, ""},
		{ok, limiter.Config{Window: 1<<63 - 1}, "Window is"},
		{ok, limiter.Config{Window: 10 * 365 * 24 * time.Hour}, ""},
		{ok, limiter.Config{Epochs: -1}, "Epochs is"},
		{ok, limiter.Config{Overrides: map[string]int64{"k": 0, "l": limiter.Unlimited}}, ""},
		{ok, limiter.Config{Overrides: map[string]int64{"k": -1}}, "1 negative"},
		{ok, limiter.Config{TickEvery: 15*time.Second + 1}, "TickEvery is"},
		{ok, limiter.Config{TickEvery: 15 * time.Second}, ""},
		{ok, limiter.Config{TickEvery: time.Millisecond - 1}, "TickEvery is"},
		{ok, limiter.Config{SyncEvery: 15*time.Second + 1}, "SyncEvery is"},
		{ok, limiter.Config{SyncEvery: 15 * time.Second}, ""},
		{ok, limiter.Config{Tiers: limiter.PressureTiers{{Name: "a", From: 0.1, MaxStale: 1}}}, "Tiers[0].From is 0.1"},
		{ok, limiter.Config{Tiers: limiter.PressureTiers{{Name: "a", From: math.NaN(), MaxStale: 1}}}, "Tiers[0].From is NaN"},
		{ok, limiter.Config{Tiers: limiter.PressureTiers{tier, {Name: "b", From: math.NaN(), MaxStale: 1}}}, "Tiers[1].From is NaN"},
		{ok, limiter.Config{Tiers: limiter.PressureTiers{tier, {Name: "b", MaxStale: 1}}}, "Tiers[1].From is 0"},
		{ok, limiter.Config{Tiers: limiter.PressureTiers{tier, {Name: "a", From: 1, MaxStale: 1}}}, `Tiers[1].Name is "a"`},
		{ok, limiter.Config{Tiers: limiter.PressureTiers{{MaxStale: 1}}}, `Tiers[0].Name is ""`},
		{ok, limiter.Config{Tiers: limiter.PressureTiers{{Name: "a"}}}, "Tiers[0].MaxStale is 0"},
		{ok, limiter.Config{Tiers: limiter.PressureTiers{tier, {Name: "b", From: math.Inf(1), MaxStale: 1}}}, ""},
		{ok, limiter.Config{Tiers: manyTiers(64)}, ""},
		{ok, limiter.Config{Tiers: manyTiers(65)}, "Tiers has 65"},
		{ok, limiter.Config{CacheIdle: 2*time.Minute - 1}, "CacheIdle is"},
		{ok, limiter.Config{CacheIdle: 2 * time.Minute}, ""},
		{ok, limiter.Config{CacheIdle: 5 * time.Minute, CacheTTL: 5 * time.Minute}, "CacheTTL is"},
		{ok, limiter.Config{CacheIdle: 10 * time.Minute}, "CacheTTL is"},
		{ok, limiter.Config{Outage: limiter.OutageDeny + 1}, "Outage is"},
		{ok, limiter.Config{ColdShare: math.NaN()}, "ColdShare is"},
		{ok, limiter.Config{ColdShare: -0.5}, "ColdShare is"},
		{ok, limiter.Config{ColdShare: math.Nextafter(1, 2)}, "ColdShare is"},
		{ok, limiter.Config{ColdShare: limiter.FairShare}, ""},
		{ok, limiter.Config{Decay: limiter.DecayLeak + 1}, "Decay is"},
		{ok, limiter.Config{ChunkTimeout: time.Millisecond - 1}, "ChunkTimeout is"},
		{ok, limiter.Config{Prefix: ":"}, "Prefix is"},
		{ok, limiter.Config{Prefix: "a/{b}"}, ""},
	} {
		cfg := tt.cfg
		if cfg.Name == "" {
			cfg.Name = "n"
		}
		if cfg.Limit == 0 {
			cfg.Limit = 1
		}
		cfg.Clock, cfg.CacheEntries = newClock(), 10
		l, err := limiter.New(tt.store, cfg)
		switch {
		case err == nil && tt.want == "":
			l.Close()
		case err == nil:
			t.Errorf("%+v: no error, want %q", tt.cfg, tt.want)
		case tt.want == "" || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), ";") || !errors.Is(err, limiter.ErrInvalidConfig):
			t.Errorf("%+v: got %v, want the one problem %q", tt.cfg, err, tt.want)
		}
	}
}

func manyTiers(n int) (tiers limiter.PressureTiers) {
	for i := range n {
		tiers = append(tiers, limiter.PressureTier{Name: fmt.Sprint(i), From: float64(i), MaxStale: time.Second})
	}
	return tiers
}

// The defaults that the comments of Config state, as far as they can be seen from
// outside.
func TestNew_Defaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		window            time.Duration
		epochs            int
		prefix            string
		tick, idle, chunk time.Duration
		cacheIdle, ttl    time.Duration
	}{
		{0, 0, "fleetlimit/n/1m0s", time.Second, time.Minute, time.Second, 5 * time.Minute, 10 * time.Minute},
		{time.Hour, 4, "fleetlimit/n/1h0m0sx4", time.Second, time.Minute, time.Second, 5 * time.Hour, 10 * time.Hour},
		{10 * time.Second, 1, "fleetlimit/n/10s", time.Second / 6, 10 * time.Second, time.Second, 5 * time.Minute, 10 * time.Minute},
		{100 * time.Millisecond, 1, "fleetlimit/n/100ms", 10 * time.Millisecond, 100 * time.Millisecond, 25 * time.Millisecond, 5 * time.Minute, 10 * time.Minute},
		{20 * time.Millisecond, 2, "fleetlimit/n/20msx2", 5 * time.Millisecond, 20 * time.Millisecond, 5 * time.Millisecond, 5 * time.Minute, 10 * time.Minute},
		{time.Millisecond, 1, "fleetlimit/n/1ms", time.Millisecond, time.Millisecond, time.Millisecond, 5 * time.Minute, 10 * time.Minute},
	} {
		var cache limiter.CacheConfig
		c, s, w := newClock(), &spy{Store: memorystore.New()}, new(watcher)
		l, err := limiter.New(s, limiter.Config{
			Name: "n", Limit: 10, Window: tt.window, Epochs: tt.epochs, Clock: c, Observer: w,
			NewCache: func(cfg limiter.CacheConfig) limiter.LocalCache {
				cache = cfg
				return limiter.NewDefaultCache(cfg)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		first := l.NextTick()
		l.Allow("k")
		c.tick(l)
		if got := l.NextTick().Sub(first); got != tt.tick {
			t.Errorf("window %v: ticks every %v, want %v", tt.window, got, tt.tick)
		}
		b := s.take()[0]
		if b.Prefix != tt.prefix || b.ChunkTimeout != tt.chunk {
			t.Errorf("window %v: prefix %q and chunk timeout %v, want %q and %v", tt.window, b.Prefix, b.ChunkTimeout, tt.prefix, tt.chunk)
		}
		if cache.MaxEntries != 300_000 || cache.IdleTimeout != tt.cacheIdle || cache.TTL != tt.ttl {
			t.Errorf("window %v: cache %+v, want 300,000 entries, idle %v, TTL %v", tt.window, cache, tt.cacheIdle, tt.ttl)
		}
		if tiers := w.take()[0].Tiers; len(tiers) != 4 || tiers[0].Name != "idle" || tiers[3].Name != "hot" {
			t.Errorf("window %v: tiers %+v", tt.window, tiers)
		}
		l.Close()
	}
}

// New does no I/O.
func TestNew_DoesNotCallTheStore(t *testing.T) {
	t.Parallel()
	store := newStore()
	l := mustNew(t, store, limiter.Config{Limit: 1, Clock: newClock()})
	if got := store.Counts().Exchanges; got != 0 {
		t.Errorf("%d exchanges in New", got)
	}
	if err := l.Tick(context.Background()); err != nil || store.Counts().Exchanges != 0 {
		t.Errorf("a tick that is not due: %v after %d exchanges", err, store.Counts().Exchanges)
	}
}
