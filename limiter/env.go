package limiter

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// defaultEnvLimit is the reference design's default limit. [Config] has none.
const defaultEnvLimit = 1_000_000

// ConfigFromEnv returns a Config made of the environment variables that the
// reference design knows, under a prefix of the caller's choice such as
// "GLOBAL_RATE_LIMIT". The caller adds the Name, and whatever else it likes.
//
//	<prefix>_THRESHOLD                Limit         1000000
//	<prefix>_WINDOW_INTERVAL_SECS     Window        60
//	<prefix>_SYNC_INTERVAL_SECS       SyncEvery     15
//	<prefix>_TICK_INTERVAL_MS         TickEvery     1000
//	<prefix>_LOCAL_CACHE_MAX_ENTRIES  CacheEntries  300000
//	<prefix>_OVERRIDES_CSV            Overrides     (none)
//
// A variable that is unset or blank means the default in the last column. The
// two intervals are then left to [New], which makes them shorter if the window
// is. Numbers are whole.
//
// Overrides are written as key=limit,key=limit. A limit is at least 0, where 0
// denies all. An element is split at its last '=', spaces around key and limit
// do not count, and elements with nothing in them are skipped. A key that holds
// a comma or is empty can only be set with [Limiter.SetOverrides].
//
// An error wraps [ErrInvalidConfig] and names every variable that is wrong. Bad
// overrides are named by their place in the list, never by their key.
func ConfigFromEnv(prefix string) (Config, error) {
	return configFromEnv(prefix, os.Getenv)
}

func configFromEnv(prefix string, getenv func(string) string) (Config, error) {
	env := environment{prefix: prefix, getenv: getenv}
	const maxSeconds = int64(maxWindow / time.Second)
	limit := env.number("THRESHOLD", defaultEnvLimit, 1, math.MaxInt64, "a whole number of at least 1")
	window := env.number("WINDOW_INTERVAL_SECS", int64(defaultWindow/time.Second), 1, maxSeconds,
		fmt.Sprintf("whole seconds, 1 to %d", maxSeconds))
	cfg := Config{
		Limit:  limit,
		Window: time.Duration(window) * time.Second,
	}

	quarter := cfg.Window / 4
	want := fmt.Sprintf("1 or more and at most a quarter of the window, %v", quarter)
	if window == 0 { // which has been complained of, and bounds nothing
		quarter, want = maxWindow, "1 or more"
	}
	cfg.SyncEvery = time.Second * time.Duration(
		env.number("SYNC_INTERVAL_SECS", 0, 1, int64(quarter/time.Second), "whole seconds, "+want))
	cfg.TickEvery = time.Millisecond * time.Duration(
		env.number("TICK_INTERVAL_MS", 0, 1, quarter.Milliseconds(), "whole milliseconds, "+want))
	cfg.CacheEntries = int(
		env.number("LOCAL_CACHE_MAX_ENTRIES", defaultCacheEntries, 1, math.MaxInt, "a whole number of at least 1"))
	cfg.Overrides = env.overrides("OVERRIDES_CSV")

	if err := configError(env.problems); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

// environment reads variables and collects what is wrong with them.
type environment struct {
	prefix   string
	getenv   func(string) string
	problems []string
}

func (env *environment) bad(name, format string, args ...any) {
	env.problems = append(env.problems, env.prefix+"_"+name+" "+fmt.Sprintf(format, args...))
}

// number returns the value of a variable, def if it is blank, or 0 if it is not a
// number from least to most.
func (env *environment) number(name string, def, least, most int64, want string) int64 {
	text := strings.TrimSpace(env.getenv(env.prefix + "_" + name))
	if text == "" {
		return def
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		env.bad(name, "is not a number, want %s", want) // unquoted: it may be meant for another variable
		return 0
	}
	if n < least || n > most {
		env.bad(name, "is %d, want %s", n, want)
		return 0
	}
	return n
}

// overrides returns the limits that a variable sets, or nil if there are none.
// What it complains of never quotes an element: even what stands where the limit
// should be may be a part of somebody's key.
func (env *environment) overrides(name string) map[string]int64 {
	var limits map[string]int64
	places := make(map[string]int)
	place := 0
	for element := range strings.SplitSeq(env.getenv(env.prefix+"_"+name), ",") {
		place++
		element = strings.TrimSpace(element)
		if element == "" {
			continue
		}
		i := strings.LastIndexByte(element, '=')
		if i < 0 {
			env.bad(name, "element %d has no '=', want key=limit", place)
			continue
		}
		key := strings.TrimSpace(element[:i])
		if key == "" {
			env.bad(name, "element %d has no key, want key=limit", place)
			continue
		}
		if earlier, ok := places[key]; ok {
			env.bad(name, "element %d has the key of element %d, want each key once", place, earlier)
			continue
		}
		places[key] = place
		limit, err := strconv.ParseInt(strings.TrimSpace(element[i+1:]), 10, 64)
		if err != nil || limit < 0 {
			env.bad(name, "element %d has a bad limit, want a whole number of at least 0", place)
			continue
		}
		if limits == nil {
			limits = make(map[string]int64)
		}
		limits[key] = limit
	}
	return limits
}
