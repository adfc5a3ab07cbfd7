package bench

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
	memorystore "github.com/fleetlimit/fleetlimit/store/memory"
)

// store is a memory store that behaves as told once it is told so.
type store struct {
	limiter.Store
	before atomic.Pointer[func(ctx context.Context) error] // called before each exchange
}

func (s *store) Exchange(ctx context.Context, b *limiter.Batch) error {
	if before := s.before.Load(); before != nil {
		if err := (*before)(ctx); err != nil {
			return err // and all outcomes are unknown
		}
	}
	return s.Store.Exchange(ctx, b)
}

// BenchmarkStore is the time that decisions take, as their callers see it, while the
// loop is at work with a store that answers, is slow, or is dead. Times are those of
// a few decisions in a row, divided by their number.
func BenchmarkStore(b *testing.B) {
	slow := func(context.Context) error { time.Sleep(5 * time.Millisecond); return nil }
	dead := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	refusing := func(context.Context) error { return errors.New("refused") }
	w := newWorkload("zipf")
	for _, c := range []struct {
		name   string
		before func(context.Context) error
		outage bool
	}{
		{"answers", nil, false},
		{"5 ms slow", slow, false},
		{"dead", dead, false},
		{"dead for long", refusing, true}, // the outage policy is in force
	} {
		b.Run("store="+c.name, func(b *testing.B) {
			cfg := limiter.Config{Limit: plenty, TickEvery: 100 * time.Millisecond}
			if c.outage {
				cfg.OutageAfter, cfg.Outage = cfg.TickEvery, limiter.OutageAllow
			}
			s := &store{Store: memorystore.New()}
			l := w.warm(b, s, cfg)
			defer stop(l)
			if c.before != nil {
				s.before.Store(&c.before)
			}
			for c.outage && l.Check(w.keys[0], 1).Reason != limiter.ReasonOutageAllowed {
				time.Sleep(time.Millisecond)
			}
			const few = 64
			var times []float64
			asked := 0
			for b.Loop() {
				asks := w.asks[asked%len(w.asks):][:few]
				start := time.Now()
				for _, key := range asks {
					if !l.Allow(key) {
						b.Fatal("denied")
					}
				}
				times = append(times, float64(time.Since(start).Nanoseconds())/few)
				asked += few
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(quantile(times, 0.5), "ns/op,p50")
			b.ReportMetric(quantile(times, 0.9), "ns/op,p90")
			b.ReportMetric(quantile(times, 0.99), "ns/op,p99")
			if l.Totals().Exchanges < 2 {
				b.Error("the loop was not at work")
			}
		})
	}
}
