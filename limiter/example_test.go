package limiter_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

// stillClock is a clock that moves only when told to, which makes the output of
// the examples exact. Programs leave Config.Clock unset.
type stillClock struct{ now time.Time }

func (c *stillClock) Now() time.Time { return c.now }

func noon() *stillClock {
	return &stillClock{time.Date(2026, time.December, 1, 12, 0, 0, 0, time.UTC)}
}

// At most three requests of a key may pass in any minute.
func Example() {
	// Nodes of a fleet share a store such as redisstore; this one is for a single
	// process.
	lim, err := limiter.New(memorystore.New(), limiter.Config{Name: "api", Limit: 3, Window: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()

	for i := range 4 {
		if lim.Allow("team_42") {
			fmt.Println("request", i+1, "passes")
		} else {
			fmt.Println("request", i+1, "is refused")
		}
	}
	// Output:
	// request 1 passes
	// request 2 passes
	// request 3 passes
	// request 4 is refused
}

// New says everything that is wrong with a configuration at once.
func ExampleNew_problems() {
	_, err := limiter.New(memorystore.New(), limiter.Config{Name: "my api", Window: time.Hour, SyncEvery: 30 * time.Minute})
	fmt.Println(err)
	// Output:
	// limiter: invalid config: Name is "my api", want letters, digits, '.', '_' and '-', at least one; Limit is 0, want at least 1, or Unlimited; SyncEvery is 30m0s, want more than 0 and at most Window/4, 15m0s
}

// Check tells what to put into the headers of a response.
func ExampleLimiter_Check() {
	lim, err := limiter.New(memorystore.New(), limiter.Config{Name: "api", Limit: 3, Window: time.Minute, Clock: noon()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()

	for _, n := range []int64{2, 2, 1, 5} {
		d := lim.Check("team_42", n)
		fmt.Printf("%d events: allowed %t (%v), %d of %d left", n, d.Allowed, d.Reason, d.Remaining, d.Limit)
		switch {
		case d.RetryAfter == limiter.Never:
			fmt.Print(", more than will ever fit")
		case !d.Allowed:
			fmt.Printf(", retry after %v", d.RetryAfter)
		}
		fmt.Println()
	}
	// Output:
	// 2 events: allowed true (first seen), 1 of 3 left
	// 2 events: allowed false (over limit), 1 of 3 left, retry after 1m30s
	// 1 events: allowed true (first seen), 0 of 3 left
	// 5 events: allowed false (over limit), 0 of 3 left, more than will ever fit
}

// Peek counts nothing, however often it is asked.
func ExampleLimiter_Peek() {
	lim, err := limiter.New(memorystore.New(), limiter.Config{Name: "api", Limit: 3, Window: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()

	lim.Allow("team_42")
	for range 2 {
		d := lim.Peek("team_42")
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 2
	// true 2
}

// Keys follow a new limit at their next decision and keep their counts.
func ExampleLimiter_SetOverrides() {
	lim, err := limiter.New(memorystore.New(), limiter.Config{
		Name:      "api",
		Limit:     1000,
		Overrides: map[string]int64{"big_customer": 50_000, "banned": 0},
		Clock:     noon(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	lim.AllowN("big_customer", 30_000)

	show := func() {
		for _, key := range []string{"big_customer", "banned", "anybody"} {
			d := lim.Peek(key)
			fmt.Println(key, d.Remaining, "of", d.Limit)
		}
	}
	show()
	if err := lim.SetOverrides(map[string]int64{"big_customer": 80_000}); err != nil {
		fmt.Println(err)
	}
	fmt.Println("later:")
	show()
	// Output:
	// big_customer 20000 of 50000
	// banned 0 of 0
	// anybody 1000 of 1000
	// later:
	// big_customer 50000 of 80000
	// banned 1000 of 1000
	// anybody 1000 of 1000
}

// Two nodes share one limit. A node learns what the others have admitted when it
// exchanges: from time to time, or when told to.
func ExampleLimiter_Flush() {
	store := memorystore.New() // what the nodes have in common
	cfg := limiter.Config{Name: "api", Limit: 100, Window: time.Minute, Clock: noon()}
	var nodes [2]*limiter.Limiter
	for i := range nodes {
		lim, err := limiter.New(store, cfg)
		if err != nil {
			fmt.Println(err)
			return
		}
		nodes[i] = lim
	}
	check := func(node int, n int64) {
		nodes[node].AllowN("team_42", n)
		if err := nodes[node].Flush(context.Background()); err != nil {
			fmt.Println(err)
		}
		fmt.Println(nodes[0].Peek("team_42").Remaining, "left by node 0,", nodes[1].Peek("team_42").Remaining, "by node 1")
	}
	check(0, 60)
	check(1, 30)
	check(0, 1)
	// Output:
	// 40 left by node 0, 100 by node 1
	// 40 left by node 0, 10 by node 1
	// 9 left by node 0, 10 by node 1
}

// With a Clock the program runs the ticks itself, as simulations and tests do.
func ExampleLimiter_Tick() {
	clock := noon()
	lim, err := limiter.New(memorystore.New(), limiter.Config{Name: "api", Limit: 100, Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	ticks := 0
	for end := clock.now.Add(10 * time.Second); !lim.NextTick().After(end); ticks++ {
		clock.now = lim.NextTick()
		if err := lim.Tick(context.Background()); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(ticks, "ticks in ten seconds")
	// Output:
	// 10 ticks in ten seconds
}

// bySize is a TierPolicy that watches keys with a large limit more closely than
// others, whatever their pressure.
type bySize struct{}

func (bySize) Tiers() []limiter.Tier {
	return []limiter.Tier{
		{Name: "small", MaxStale: 15 * time.Second},
		{Name: "large", MaxStale: 2 * time.Second},
	}
}

func (bySize) Classify(s limiter.Signal) int {
	if s.Limit >= 10_000 {
		return 1
	}
	return 0
}

// A policy sorts keys into tiers, and each tier says how stale its keys may become.
func ExampleTierPolicy() {
	clock := noon()
	lim, err := limiter.New(memorystore.New(), limiter.Config{
		Name:      "api",
		Limit:     100,
		Overrides: map[string]int64{"big_customer": 50_000},
		Tiers:     bySize{},
		Clock:     clock,
		Observer: limiter.ObserverFunc(func(r *limiter.Report) {
			for _, tier := range r.Tiers {
				fmt.Println(tier.Name, tier.Keys)
			}
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range []string{"team_42", "team_43", "big_customer"} {
		lim.Allow(key)
	}
	clock.now = clock.now.Add(time.Second)
	if err := lim.Tick(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// small 2
	// large 1
}

// Most policies need no code: PressureTiers looks at how near a key is to its
// limit.
func ExamplePressureTiers() {
	tiers := limiter.PressureTiers{
		{Name: "calm", From: 0, MaxStale: 30 * time.Second},
		{Name: "busy", From: 0.5, MaxStale: 5 * time.Second},
		{Name: "full", From: 0.9, MaxStale: time.Second},
	}
	for _, pressure := range []float64{0, 0.49, 0.5, 3} {
		fmt.Println(pressure, tiers[tiers.Classify(limiter.Signal{Pressure: pressure})].Name)
	}
	// Output:
	// 0 calm
	// 0.49 calm
	// 0.5 busy
	// 3 full
}

// An Observer gets one report per tick.
func ExampleObserverFunc() {
	clock := noon()
	lim, err := limiter.New(memorystore.New(), limiter.Config{
		Name:  "api",
		Limit: 3,
		Clock: clock,
		Observer: limiter.ObserverFunc(func(r *limiter.Report) {
			fmt.Printf("%s: %d accepted, %d denied, %d confirmed by the store, %d keys cached\n",
				r.Limiter, r.Totals.Accepted, r.Totals.Denied, r.Totals.Acknowledged, r.CacheEntries)
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 5 {
		lim.Allow("team_42")
	}
	clock.now = clock.now.Add(time.Second)
	if err := lim.Tick(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// api: 3 accepted, 2 denied, 3 confirmed by the store, 1 keys cached
}

// A fleet that has the reference design's variables set can keep them.
func ExampleConfigFromEnv() {
	os.Setenv("GLOBAL_RATE_LIMIT_THRESHOLD", "5000")
	os.Setenv("GLOBAL_RATE_LIMIT_OVERRIDES_CSV", "team_42=20000, team_43=0")
	cfg, err := limiter.ConfigFromEnv("GLOBAL_RATE_LIMIT")
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg.Name = "capture"
	fmt.Println(cfg.Limit, "per", cfg.Window, cfg.Overrides)
	// Output:
	// 5000 per 1m0s map[team_42:20000 team_43:0]
}
