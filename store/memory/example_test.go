package memorystore_test

import (
	"fmt"
	"log"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

func Example() {
	store := memorystore.New()
	lim, err := limiter.New(store, limiter.Config{Name: "api", Limit: 3, Window: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	for range 4 {
		fmt.Println(lim.Allow("team_42"))
	}
	// Close sends what was counted, so the next limiter on the store knows of it.
	if err := lim.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(store.Len() > 0)
	// Output:
	// true
	// true
	// true
	// false
	// true
}
