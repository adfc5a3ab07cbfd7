package store_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// stoppedClock always tells the same time, so that no epoch ends during a test.
type stoppedClock struct{ now time.Time }

func (c stoppedClock) Now() time.Time { return c.now }

// TestLimitersOnBothClientsShareALimit has two nodes of a fleet, one on each
// adapter, spend one limit.
func TestLimitersOnBothClientsShareALimit(t *testing.T) {
	t.Parallel()
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			addr := s.addr(t)
			ctx := context.Background()
			cfg := limiter.Config{
				Name:   rand.Text(),
				Limit:  1000,
				Window: time.Minute,
				Clock:  stoppedClock{time.Now()},
			}
			var nodes []*limiter.Limiter
			for _, a := range adapters {
				l, err := limiter.New(a.open(t, addr), cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				nodes = append(nodes, l)
			}
			admitted := 0
			for range 20 {
				for _, l := range nodes {
					if l.AllowN("team_42", 60) {
						admitted += 60
					}
					if err := l.Flush(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
			// A node decides without what the other one has admitted since its own last
			// exchange.
			if admitted < 1000-60 || admitted > 1000+60 {
				t.Errorf("the nodes admitted %d events together, want 1000 ± 60", admitted)
			}
			for i, l := range nodes {
				if l.AllowN("team_42", 60) {
					t.Errorf("node %d admits 60 more after %d", i, admitted)
				}
			}
			totals := [2]limiter.Totals{nodes[0].Totals(), nodes[1].Totals()}
			if got := totals[0].Acknowledged + totals[1].Acknowledged; got != int64(admitted) {
				t.Errorf("the servers acknowledged %d events, want %d", got, admitted)
			}
		})
	}
}
