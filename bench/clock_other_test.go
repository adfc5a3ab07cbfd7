//go:build !linux

package bench

import "time"

var start = time.Now()

// Elsewhere the benchmarks go by the time that passes, so they need a machine that
// does nothing else.
func threadTime() time.Duration  { return time.Since(start) }
func processTime() time.Duration { return time.Since(start) }
