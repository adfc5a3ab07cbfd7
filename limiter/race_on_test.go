//go:build race

package limiter_test

const race = true
