package cache_test

import (
	"fmt"
	"time"

	"github.com/fleetlimit/fleetlimit/cache"
)

// client is what a server keeps of each of its clients.
type client struct {
	cache.Link
	name string
}

func clientLink(c *client) *cache.Link { return &c.Link }

func Example() {
	clients := cache.New(cache.Config[client]{
		MaxEntries:  10_000,
		IdleTimeout: 5 * time.Minute,
		Link:        clientLink,
	})
	defer clients.Close()

	lookup := func(name string) *client {
		if c, ok := clients.Get(name); ok { // the fast path
			return c
		}
		c, added := clients.GetOrAdd(name, func() *client { return &client{name: name} })
		fmt.Println(name, "added:", added)
		return c
	}
	a, b := lookup("alice"), lookup("bob")
	fmt.Println("same:", a == lookup("alice"), b == lookup("bob"))

	// Output:
	// alice added: true
	// bob added: true
	// same: true true
}

// With a clock of the caller's, entries expire when Maintain is called.
func ExampleConfig_now() {
	now := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
	clients := cache.New(cache.Config[client]{
		MaxEntries:  10_000,
		IdleTimeout: 5 * time.Minute,
		TTL:         10 * time.Minute,
		Now:         func() time.Time { return now },
		Link:        clientLink,
		OnEvict: func(c *client, cause cache.Cause) {
			fmt.Println(now.Format(time.TimeOnly), c.name, cause)
		},
	})
	defer clients.Close()
	for _, name := range []string{"idle", "touched", "renewed"} {
		clients.GetOrAdd(name, func() *client { return &client{name: name} })
	}
	for range 12 {
		now = now.Add(time.Minute)
		clients.Touch("touched")
		clients.Renew("renewed")
		clients.Maintain()
	}
	fmt.Println("left:", clients.Len())

	// Output:
	// 12:05:00 idle expired
	// 12:10:00 touched expired
	// left: 1
}
