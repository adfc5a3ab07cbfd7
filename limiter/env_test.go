package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const envPrefix = "GLOBAL_RATE_LIMIT"

// envOf returns an environment in which names lack the prefix.
func envOf(vars map[string]string) func(string) string {
	return func(name string) string {
		name, ok := strings.CutPrefix(name, envPrefix+"_")
		if !ok {
			return "not ours"
		}
		return vars[name]
	}
}

// unusedStore stands where New wants a store.
type unusedStore struct{}

func (unusedStore) Exchange(context.Context, *Batch) error { return nil }

// usable returns what New would object to.
func usable(cfg Config) error {
	cfg.Name = "test"
	cfg = cfg.withDefaults()
	_, _, err := cfg.validate(unusedStore{})
	return err
}

func TestConfigFromEnv(t *testing.T) {
	t.Parallel()
	defaults := func(change func(*Config)) Config {
		cfg := Config{Limit: 1_000_000, Window: time.Minute, CacheEntries: 300_000}
		change(&cfg)
		return cfg
	}
	for name, tc := range map[string]struct {
		vars map[string]string
		want Config
	}{
		"nothing set": {nil, defaults(func(*Config) {})},
		"blanks": {
			map[string]string{"THRESHOLD": "", "WINDOW_INTERVAL_SECS": "  ", "OVERRIDES_CSV": " , ,"},
			defaults(func(*Config) {}),
		},
		"everything set": {
			map[string]string{
				"THRESHOLD": "5000", "WINDOW_INTERVAL_SECS": "120", "SYNC_INTERVAL_SECS": "30", "TICK_INTERVAL_MS": " 250\n",
				"LOCAL_CACHE_MAX_ENTRIES": "1000", "OVERRIDES_CSV": "team_42=10000,team_43=0",
			},
			Config{
				Limit: 5000, Window: 2 * time.Minute, SyncEvery: 30 * time.Second, TickEvery: 250 * time.Millisecond,
				CacheEntries: 1000, Overrides: map[string]int64{"team_42": 10000, "team_43": 0},
			},
		},
		"a window too short for the default intervals": {
			map[string]string{"WINDOW_INTERVAL_SECS": "1"},
			defaults(func(c *Config) { c.Window = time.Second }),
		},
		"the longest window": {
			map[string]string{"WINDOW_INTERVAL_SECS": "315360000", "SYNC_INTERVAL_SECS": "78840000", "TICK_INTERVAL_MS": "78840000000"},
			defaults(func(c *Config) { c.Window, c.SyncEvery, c.TickEvery = maxWindow, maxWindow/4, maxWindow/4 }),
		},
		"intervals of a quarter of the window": {
			map[string]string{"WINDOW_INTERVAL_SECS": "7", "SYNC_INTERVAL_SECS": "1", "TICK_INTERVAL_MS": "1750"},
			defaults(func(c *Config) {
				c.Window, c.SyncEvery, c.TickEvery = 7*time.Second, time.Second, 1750*time.Millisecond
			}),
		},
		"keys with spaces and equals signs": {
			map[string]string{"OVERRIDES_CSV": " a = 1 ,,b=c=2, =d=3,\te f=4,"},
			defaults(func(c *Config) { c.Overrides = map[string]int64{"a": 1, "b=c": 2, "=d": 3, "e f": 4} }),
		},
		"the largest limits": {
			map[string]string{"THRESHOLD": "9223372036854775807", "OVERRIDES_CSV": "a=9223372036854775807"},
			defaults(func(c *Config) { c.Limit, c.Overrides = Unlimited, map[string]int64{"a": Unlimited} }),
		},
	} {
		got, err := configFromEnv(envPrefix, envOf(tc.vars))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: config (-want +got):\n%s", name, diff)
		}
		if err := usable(got); err != nil {
			t.Errorf("%s: New would refuse it: %v", name, err)
		}
	}
}

func TestConfigFromEnv_NamesEveryProblem(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		vars map[string]string
		want []string
	}{
		"numbers out of range": {
			map[string]string{
				"THRESHOLD": "0", "WINDOW_INTERVAL_SECS": "315360001", "SYNC_INTERVAL_SECS": "0", "TICK_INTERVAL_MS": "-1",
				"LOCAL_CACHE_MAX_ENTRIES": "0",
			},
			[]string{
				"_THRESHOLD is 0, want a whole number of at least 1",
				"_WINDOW_INTERVAL_SECS is 315360001, want whole seconds, 1 to 315360000",
				"_SYNC_INTERVAL_SECS is 0, want whole seconds, 1 or more",
				"_TICK_INTERVAL_MS is -1, want whole milliseconds, 1 or more",
				"_LOCAL_CACHE_MAX_ENTRIES is 0, want a whole number of at least 1",
			},
		},
		"no numbers": {
			map[string]string{
				"THRESHOLD": "many", "WINDOW_INTERVAL_SECS": "1m", "SYNC_INTERVAL_SECS": "1.5", "TICK_INTERVAL_MS": "1e3",
				"LOCAL_CACHE_MAX_ENTRIES": "99999999999999999999",
			},
			[]string{
				"_THRESHOLD is not a number, want a whole number of at least 1",
				"_WINDOW_INTERVAL_SECS is not a number, want whole seconds, 1 to 315360000",
				"_SYNC_INTERVAL_SECS is not a number, want whole seconds, 1 or more",
				"_TICK_INTERVAL_MS is not a number, want whole milliseconds, 1 or more",
				"_LOCAL_CACHE_MAX_ENTRIES is not a number, want a whole number of at least 1",
			},
		},
		"intervals longer than a quarter of the window": {
			map[string]string{"WINDOW_INTERVAL_SECS": "7", "SYNC_INTERVAL_SECS": "2", "TICK_INTERVAL_MS": "1751"},
			[]string{
				"_SYNC_INTERVAL_SECS is 2, want whole seconds, 1 or more and at most a quarter of the window, 1.75s",
				"_TICK_INTERVAL_MS is 1751, want whole milliseconds, 1 or more and at most a quarter of the window, 1.75s",
			},
		},
		"overrides": {
			map[string]string{"OVERRIDES_CSV": "secret, ,=1,a=secret,b=-1,c=1,c=2,d=, c = 3"},
			[]string{
				"_OVERRIDES_CSV element 1 has no '=', want key=limit",
				"_OVERRIDES_CSV element 3 has no key, want key=limit",
				"_OVERRIDES_CSV element 4 has a bad limit, want a whole number of at least 0",
				"_OVERRIDES_CSV element 5 has a bad limit, want a whole number of at least 0",
				"_OVERRIDES_CSV element 7 has the key of element 6, want each key once",
				"_OVERRIDES_CSV element 8 has a bad limit, want a whole number of at least 0",
				"_OVERRIDES_CSV element 9 has the key of element 6, want each key once",
			},
		},
	} {
		cfg, err := configFromEnv(envPrefix, envOf(tc.vars))
		if !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("%s: error is %v, want one that wraps ErrInvalidConfig", name, err)
			continue
		}
		if diff := cmp.Diff(Config{}, cfg); diff != "" {
			t.Errorf("%s: config beside an error (-want +got):\n%s", name, diff)
		}
		want := ErrInvalidConfig.Error() + ": " + envPrefix + strings.Join(tc.want, "; "+envPrefix)
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("%s: error (-want +got):\n%s", name, diff)
		}
	}
}

// Not parallel: it changes the process's environment.
func TestConfigFromEnv_ReadsTheEnvironment(t *testing.T) {
	t.Setenv("CAPTURE_THRESHOLD", "7")
	cfg, err := ConfigFromEnv("CAPTURE")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Limit != 7 {
		t.Errorf("limit is %d, want 7", cfg.Limit)
	}
}

// overridesProblem is all that may be said of an override.
var overridesProblem = regexp.MustCompile(`^P_X element [0-9]+ has (` +
	`no '=', want key=limit|no key, want key=limit|a bad limit, want a whole number of at least 0|` +
	`the key of element [0-9]+, want each key once)$`)

func FuzzOverridesCSV(f *testing.F) {
	f.Fuzz(func(t *testing.T, csv string) {
		read := func(csv string) (map[string]int64, []string) {
			env := environment{prefix: "P", getenv: func(string) string { return csv }}
			return env.overrides("X"), env.problems
		}
		limits, problems := read(csv)
		for _, p := range problems {
			if !overridesProblem.MatchString(p) {
				t.Errorf("problem %q may tell a key", p)
			}
		}
		if err := usable(Config{Limit: 1, Overrides: limits}); err != nil {
			t.Errorf("New would refuse the overrides: %v", err)
		}

		// Every element that is not blank is an override or a problem.
		elements := 0
		for element := range strings.SplitSeq(csv, ",") {
			if strings.TrimSpace(element) != "" {
				elements++
			}
		}
		if got := len(limits) + len(problems); got != elements {
			t.Errorf("%d overrides and %d problems, want %d in all", len(limits), len(problems), elements)
		}

		// What was read can be written and read again.
		var written []string
		for _, key := range slices.Sorted(maps.Keys(limits)) {
			written = append(written, fmt.Sprintf("%s=%d", key, limits[key]))
		}
		again, problems := read(strings.Join(written, ","))
		if diff := cmp.Diff(limits, again); diff != "" || problems != nil {
			t.Errorf("read again: problems %q, limits (-want +got):\n%s", problems, diff)
		}
	})
}

func FuzzConfigFromEnv(f *testing.F) {
	f.Fuzz(func(t *testing.T, threshold, window, sync, tick, entries, overrides string) {
		cfg, err := configFromEnv(envPrefix, envOf(map[string]string{
			"THRESHOLD": threshold, "WINDOW_INTERVAL_SECS": window, "SYNC_INTERVAL_SECS": sync, "TICK_INTERVAL_MS": tick,
			"LOCAL_CACHE_MAX_ENTRIES": entries, "OVERRIDES_CSV": overrides,
		}))
		switch {
		case err == nil:
			if err := usable(cfg); err != nil {
				t.Errorf("New would refuse %+v: %v", cfg, err)
			}
		case !errors.Is(err, ErrInvalidConfig):
			t.Errorf("error %v does not wrap ErrInvalidConfig", err)
		case !strings.Contains(err.Error(), envPrefix+"_"):
			t.Errorf("error %v names no variable", err)
		}
	})
}
