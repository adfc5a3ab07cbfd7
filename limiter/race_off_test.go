//go:build !race

package limiter_test

// race says whether the race detector is on.
const race = false
