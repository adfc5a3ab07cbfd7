package store

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/fleetlimit/fleetlimit/limiter"
)

func nameOf(prefix string, c limiter.Counter) string {
	return string(AppendName(nil, prefix, c))
}

// TestS10_NamesArePinned holds the names, which all nodes and versions of a fleet
// must agree on.
func TestS10_NamesArePinned(t *testing.T) {
	t.Parallel()
	const prefix = "fleetlimit/api/1m0s"
	for _, tc := range []struct {
		name    string
		counter limiter.Counter
		want    string
	}{
		{"admitted", limiter.Counter{Key: "team_42", Epoch: 29733333}, prefix + ":team_42:29733333"},
		{"denied", limiter.Counter{Key: "team_42", Epoch: 29733333, Series: limiter.SeriesDenied}, prefix + ":team_42:29733333d"},
		{"nodes", limiter.Counter{Epoch: 29733333, Series: limiter.SeriesNodes}, prefix + "::29733333n"},
		{"another series", limiter.Counter{Key: "k", Epoch: 7, Series: 17}, prefix + ":k:7s17"},
		{"negative epoch", limiter.Counter{Key: "k", Epoch: -3}, prefix + ":k:-3"},
		{"separators", limiter.Counter{Key: "a:b:", Epoch: 1}, prefix + ":a:b::1"},
		{"not UTF-8", limiter.Counter{Key: "\x00\xff", Epoch: 1}, prefix + ":\x00\xff:1"},
		{"256 bytes", limiter.Counter{Key: strings.Repeat("x", 256), Epoch: 1}, prefix + ":" + strings.Repeat("x", 256) + ":1"},
		{"257 bytes", limiter.Counter{Key: strings.Repeat("x", 257), Epoch: 1}, prefix + ":15eb95a462ee20bd91a415ae2d4aed34:1h"},
		{"257 bytes, denied", limiter.Counter{Key: strings.Repeat("x", 257), Epoch: 1, Series: limiter.SeriesDenied}, prefix + ":15eb95a462ee20bd91a415ae2d4aed34:1dh"},
		{"a million bytes", limiter.Counter{Key: strings.Repeat("a", 1000000), Epoch: 1}, prefix + ":cdc76e5c9914fb9281a1c7e284d73e67:1h"},
	} {
		if got := nameOf(prefix, tc.counter); got != tc.want {
			t.Errorf("%s: name = %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestS10_AShortKeyCannotPassForADigest(t *testing.T) {
	t.Parallel()
	long := limiter.Counter{Key: strings.Repeat("x", 300), Epoch: 1}
	name := nameOf("p", long)
	digest := strings.Split(name, ":")[1]
	for _, key := range []string{digest, digest + ":1h", digest + "h"} {
		for series := range limiter.Series(20) {
			short := limiter.Counter{Key: key, Epoch: 1, Series: series}
			if got := nameOf("p", short); got == name {
				t.Errorf("%+v has the name of a long key, %q", short, got)
			}
		}
	}
}

func TestAppendNameAppends(t *testing.T) {
	t.Parallel()
	got := string(AppendName([]byte("before "), "p", limiter.Counter{Key: "k", Epoch: 1}))
	if want := "before p:k:1"; got != want {
		t.Errorf("AppendName = %q, want %q", got, want)
	}
}

func TestAppendNameDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 100)
	c := limiter.Counter{Key: "team_42", Epoch: 29733333, Series: limiter.SeriesDenied}
	if n := testing.AllocsPerRun(100, func() { buf = AppendName(buf[:0], "fleetlimit/api/1m0s", c) }); n != 0 {
		t.Errorf("AppendName makes %v allocations, want 0", n)
	}
}

// FuzzAppendName reads a name back: what can be told from it cannot collide (rule
// S10).
func FuzzAppendName(f *testing.F) {
	f.Add("p", "k", int64(1), uint8(0))
	f.Add("p", "", int64(-1), uint8(1))
	f.Add("", ":1n", int64(1), uint8(2))
	f.Add("p", "k:1", int64(math.MinInt64), uint8(0))
	f.Add("p", "15eb95a462ee20bd91a415ae2d4aed34:1h", int64(math.MaxInt64), uint8(255))
	f.Add("p", strings.Repeat("x", 256), int64(1), uint8(104))
	f.Add("p", strings.Repeat("x", 257), int64(1), uint8(0))
	f.Fuzz(func(t *testing.T, prefix, key string, epoch int64, series uint8) {
		if strings.Contains(prefix, ":") {
			t.Skip("a prefix holds no ':'")
		}
		name := nameOf(prefix, limiter.Counter{Key: key, Epoch: epoch, Series: limiter.Series(series)})
		first, last := strings.Index(name, ":"), strings.LastIndex(name, ":")
		gotKey, end := name[first+1:last], name[last+1:]
		end, digested := strings.CutSuffix(end, "h")
		digits := end[:strings.IndexAny(end+"s", "dns")]
		if digits != strconv.FormatInt(epoch, 10) {
			t.Errorf("epoch of %q = %q, want %d", name, digits, epoch)
		}
		wantSeries := map[uint8]string{0: "", 1: "d", 2: "n"}
		want, ok := wantSeries[series]
		if !ok {
			want = fmt.Sprintf("s%d", series)
		}
		if got := end[len(digits):]; got != want {
			t.Errorf("series of %q = %q, want %q", name, got, want)
		}
		if name[:first] != prefix {
			t.Errorf("prefix of %q = %q, want %q", name, name[:first], prefix)
		}
		if digested != (len(key) > 256) || digested != (gotKey != key) || len(gotKey) > 256 {
			t.Errorf("key of %q = %q, digested %t, want %q", name, gotKey, digested, key)
		}
	})
}
