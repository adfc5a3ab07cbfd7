package valkeystore_test

import (
	"log"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/fleetlimit/fleetlimit/limiter"
	valkeystore "github.com/fleetlimit/fleetlimit/store/valkey"
)

// The client connects when it is made, so this needs a server.
func ExampleNew() {
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	counters, err := valkeystore.New(client, valkeystore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	lim, err := limiter.New(counters, limiter.Config{Name: "api", Limit: 1000, Window: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer lim.Close()
	log.Println(lim.Allow("team_42"))
}
