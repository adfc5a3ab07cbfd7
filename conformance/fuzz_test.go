package conformance

import (
	"strings"
	"testing"

	"github.com/fleetlimit/fleetlimit/limiter"
)

func TestFuzz_PrintsTheShortestScriptThatFails(t *testing.T) {
	t.Parallel()
	script := decode([]byte{
		opGet, 0, 0,
		opAdd, 1, 3, // 1 + 3<<3
		opEnd, 0, 0,
		opAdd, 1, 0, // 1
		opAdd, 2, 1, // 1 + 1<<1
		opExpire, 1, 0,
		opAdd, 1, 2, // 1 + 2<<2
		opGet, 1, 0,
		opAdd, 1, 0,
	})
	got := brokenSuite(asking(mergeDuplicates)).subject(t).replayShortest(script)
	want := `
    get key "", epoch +0, series 0
    add 25 to key "k", epoch +0, series 0
    -- next batch
    add 1 to key "k", epoch +0, series 0
    add 3 to key "k:", epoch +0, series 0
    expire key "k", epoch +0, series 0
    add 9 to key "k", epoch +0, series 0
`
	if got == nil || !strings.HasSuffix(got.Error(), want) {
		t.Errorf("got %v, want a failure that ends in%s", got, want)
	}
}

func TestFuzz_ComparesAllResults(t *testing.T) {
	t.Parallel()
	c := limiter.Counter{Key: "k"}
	add := limiter.Add{Counter: c, Delta: 3, Total: 5, Outcome: limiter.Applied}
	get := limiter.Get{Counter: c, Total: 5, OK: true}
	expire := limiter.Expire{Counter: c, Outcome: limiter.Applied}
	for _, tc := range []struct {
		name  string
		spoil func(*limiter.Add, *limiter.Expire, *limiter.Get)
		ok    bool
	}{
		{"all right", func(*limiter.Add, *limiter.Expire, *limiter.Get) {}, true},
		{"total of an add", func(a *limiter.Add, _ *limiter.Expire, _ *limiter.Get) { a.Total++ }, false},
		{"outcome of an add", func(a *limiter.Add, _ *limiter.Expire, _ *limiter.Get) { a.Outcome = limiter.Unknown }, false},
		{"outcome of an expiry", func(_ *limiter.Add, e *limiter.Expire, _ *limiter.Get) { e.Outcome = limiter.NotApplied }, false},
		{"total of a get", func(_ *limiter.Add, _ *limiter.Expire, g *limiter.Get) { g.Total-- }, false},
		{"ok of a get", func(_ *limiter.Add, _ *limiter.Expire, g *limiter.Get) { g.OK = false }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a, e, g := add, expire, get
			tc.spoil(&a, &e, &g)
			err := model{c: 2}.check(&limiter.Batch{Adds: []limiter.Add{a}, Expires: []limiter.Expire{e}, Gets: []limiter.Get{g}})
			if got := err == nil; got != tc.ok {
				t.Errorf("got %v, want success: %t", err, tc.ok)
			}
		})
	}
}
