// Package limiter is a rate limiter that holds across a fleet.
package limiter

import (
	"github.com/fleetlimit/fleetlimit/cache"
	"context"
	"time"
)

// Entry is what a node knows of one key. It is opaque.
type Entry struct{ link cache.Link }

// Limiter is a placeholder.
type Limiter struct{}

func New(store Store, cfg Config) (*Limiter, error)               { panic("not yet") }
func (l *Limiter) Check(key string, n int64) Decision             { panic("not yet") }
func (l *Limiter) Allow(key string) bool                          { panic("not yet") }
func (l *Limiter) AllowN(key string, n int64) bool                { panic("not yet") }
func (l *Limiter) Peek(key string) Decision                       { panic("not yet") }
func (l *Limiter) NextTick() time.Time                            { panic("not yet") }
func (l *Limiter) Tick(ctx context.Context) error                 { panic("not yet") }
func (l *Limiter) Flush(ctx context.Context) error                { panic("not yet") }
func (l *Limiter) Shutdown(ctx context.Context) error             { panic("not yet") }
func (l *Limiter) Close() error                                   { panic("not yet") }
func (l *Limiter) SetOverrides(overrides map[string]int64) error  { panic("not yet") }
func (l *Limiter) Totals() Totals                                 { panic("not yet") }
