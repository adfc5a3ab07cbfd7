package limiter_test

import (
	"testing"

	"github.com/fleetlimit/fleetlimit/conformance"
	"github.com/fleetlimit/fleetlimit/limiter"
)

func TestConformance_DefaultCache(t *testing.T) {
	t.Parallel()
	conformance.TestLocalCache(t, limiter.NewDefaultCache)
}
