package redisstore_test

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	redisstore "github.com/fleetlimit/fleetlimit/store/redis"
)

func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer rdb.Close()

	counters, err := redisstore.New(rdb, redisstore.Config{})
	fmt.Println(counters != nil, err)
	// Output: true <nil>
}

// A client that could not keep the store's contract is refused.
func ExampleNew_refused() {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"localhost:6379"}, RouteRandomly: true})
	defer rdb.Close()

	_, err := redisstore.New(rdb, redisstore.Config{})
	fmt.Println(err)
	// Output: redisstore: limiter: invalid config: the client reads from replicas, want ReadOnly, RouteByLatency and RouteRandomly unset
}
