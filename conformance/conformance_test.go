package conformance

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// recorder notes what is reported to a test.
type recorder struct {
	testing.TB
	errors, skips []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skips = append(r.skips, fmt.Sprintf(format, args...))
}

func TestConclude(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		err           error
		strict        bool
		errors, skips []string
	}{
		{"success", nil, true, nil, nil},
		{"failure", differ("get of a counter", 3, 5), false, []string{
			"get of a counter:\n    got  3\n    want 5\nrule S2: " + rules["S2"] + " (docs/invariants.md)",
		}, nil},
		{"not checked", skip("there is no peer"), false, nil, []string{"S2 not checked: there is no peer"}},
		{"not checked by a strict suite", skip("there is no peer"), true, []string{"S2 not checked, and the suite is strict: there is no peer"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got recorder
			conclude(&got, "S2", tc.err, tc.strict)
			if diff := cmp.Diff(tc.errors, got.errors); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.skips, got.skips); diff != "" {
				t.Errorf("skips (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	failure := errors.New("a failure")
	for _, tc := range []struct {
		name string
		f    func() error
		want string
	}{
		{"success", func() error { return nil }, ""},
		{"failure", func() error { return failure }, "a failure"},
		{"panic", func() error { panic("oh no") }, "panic: oh no"},
		{"goroutine ended", func() error { runtime.Goexit(); return nil }, "a hook has ended the case"},
		{"hanging", func() error { time.Sleep(time.Hour); return nil }, "still running after 30s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				err := guard(watchdog, tc.f)
				if got := fmt.Sprint(err); err != nil && !strings.HasPrefix(got, tc.want) || (err == nil) != (tc.want == "") {
					t.Errorf("got %v, want %q", err, tc.want)
				}
				if strings.HasPrefix(tc.want, "still") && !strings.Contains(err.Error(), "TestGuard") {
					t.Errorf("got %v, want the stack of the hanging function", err)
				}
				time.Sleep(2 * time.Hour) // until what hangs has ended
			})
		})
	}
}

func TestEachRuleHasTextAndACase(t *testing.T) {
	t.Parallel()
	checked := make(map[string]bool)
	note := func(id, name string) {
		checked[id] = true
		if rules[id] == "" {
			t.Errorf("case %s is for rule %q, which has no text", name, id)
		}
	}
	for _, c := range storeCases {
		note(c.id, c.name)
	}
	for _, c := range cacheCases {
		note(c.id, c.name)
	}
	for _, c := range tierCases {
		note(c.id, c.name)
	}
	for id := range rules {
		if !checked[id] {
			t.Errorf("rule %s has no case", id)
		}
	}
}

// Not parallel: it must not be disturbed by others.
func TestAllocations(t *testing.T) {
	var sink []byte
	for _, want := range []uint64{0, 1, 3} {
		got := allocations(func() {
			for range want {
				sink = make([]byte, 100)
			}
		})
		if got != want {
			t.Errorf("got %d allocations, want %d", got, want)
		}
	}
	_ = sink
}
