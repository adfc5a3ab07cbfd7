package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
)

const usage = `Usage: replay -limit N [options] [FILE...]

Plays the requests of access logs through a fleet of rate limiters, at the
logs' own time, and reports what the limit would have done.

  -limit N        at most N requests of a key may pass in any window (required)
  -window D       length of the sliding window (default 1m)
  -nodes N        number of nodes that share the limit (default 4)
  -spread HOW     which node gets a request (default random):
                    random  any, as behind a load balancer
                    round   each in turn
                    key     always the same one for a key
  -seed N         seed of all random choices; the same seed and logs give the
                  same report (default 1)
  -reorder D      put lines in order that are out of order by up to D (default 2m)
  -top N          list the N most limited keys (default 10)
  -json           print the report as JSON

Logs are read from the files, or from the standard input if there is none or
for the name "-". Several are merged by time, in whatever order they are given.
Each may be compressed with gzip. A line is one of

  192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 2326 ...
      Common or combined log format. The key is the client address. What
      follows the beginning of the request does not matter.
  2015-05-17T10:05:03Z customer-7 3
      Timestamp, key and count, parted by blanks. The timestamp is RFC 3339 or
      Unix time in seconds, or in milliseconds if it has 12 digits or more,
      with or without a fraction. The count is the number of requests, 1 if it
      is left out; they are admitted or denied together.

Lines that cannot be read (also those longer than 64 KiB) are counted, and the
first of them are shown with the reason. A line that is earlier than what was
already replayed of its log, because it is out of order by more than -reorder,
is replayed at the time reached by then and counted as late.

A report in JSON is one object. Times are RFC 3339 in UTC.

  limit, window_seconds, nodes, spread, seed     the settings
  files[]           name, lines = replayed + unreadable, late (of the replayed),
                    error (if it could not be read to the end)
  lines             the sums: read = replayed + unreadable, late
  unreadable[]      the first of them: file, line, reason
  from, to          times of the first and the last request
  requests          = admitted + denied
  admitted, denied
  keys, keys_limited                             distinct keys, and those ever denied
  most_limited[]    key, requests = admitted + denied, denied_share (0 to 1),
                    first_limited, last_limited, limited_seconds (the time
                    between denials less than a window apart, added up)
  worst_over        the fullest window by an exact log of what was admitted, if
                    it was over the limit, else null: key, window_end, admitted,
                    percent (over the limit)
  store             exchanges (round trips of all nodes), commands (for keys),
                    commands_per_request, census_commands (by which the nodes
                    count each other: a few per node and window, whatever the
                    requests; quiet times are not replayed), unsent (admitted
                    requests that the store was not told of; never any)

Exit status: 0 if all went well, 1 if nothing could be read or a file not to its
end, 2 for wrong usage.
`

// The ways to spread requests over the nodes.
const (
	spreadRandom = "random"
	spreadRound  = "round"
	spreadKey    = "key"
)

// stdinName is the file name that stands for the standard input.
const stdinName = "-"

const (
	minWindow = time.Millisecond
	maxWindow = 366 * 24 * time.Hour
	maxNodes  = 1000
)

type options struct {
	limit   int64
	window  time.Duration
	nodes   int
	spread  string
	seed    uint64
	reorder time.Duration
	top     int
	json    bool
	files   []string // at least one
}

// parseArgs returns the options, [flag.ErrHelp], or an error that names all that
// is wrong with them.
func parseArgs(args []string) (options, error) {
	o := options{window: time.Minute, nodes: 4, spread: spreadRandom, seed: 1, reorder: 2 * time.Minute, top: 10}
	var problems []string

	fs := flag.NewFlagSet("replay", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	// A wrong value must not end the parsing, as the flag package would have it:
	// there may be more to complain of.
	define := func(name, want string, set func(value string) (ok bool)) {
		fs.Func(name, "", func(value string) error {
			if !set(value) {
				problems = append(problems, fmt.Sprintf("-%s is %q, want %s", name, value, want))
			}
			return nil
		})
	}
	limitGiven := false
	define("limit", "a whole number of at least 1", func(s string) bool {
		limitGiven = true
		var err error
		o.limit, err = strconv.ParseInt(s, 10, 64)
		return err == nil && o.limit >= 1 && o.limit < limiter.Unlimited
	})
	define("window", "a duration like 1m, from 1ms to 8784h", func(s string) bool {
		var err error
		o.window, err = time.ParseDuration(s)
		return err == nil && o.window >= minWindow && o.window <= maxWindow
	})
	define("nodes", fmt.Sprintf("a whole number from 1 to %d", maxNodes), func(s string) bool {
		var err error
		o.nodes, err = strconv.Atoi(s)
		return err == nil && o.nodes >= 1 && o.nodes <= maxNodes
	})
	define("spread", "random, round or key", func(s string) bool {
		o.spread = s
		return slices.Contains([]string{spreadRandom, spreadRound, spreadKey}, s)
	})
	define("seed", "a whole number of at least 0", func(s string) bool {
		var err error
		o.seed, err = strconv.ParseUint(s, 10, 64)
		return err == nil
	})
	define("reorder", "a duration like 2m, at least 0", func(s string) bool {
		var err error
		o.reorder, err = time.ParseDuration(s)
		return err == nil && o.reorder >= 0
	})
	define("top", "a whole number of at least 0", func(s string) bool {
		var err error
		o.top, err = strconv.Atoi(s)
		return err == nil && o.top >= 0
	})
	fs.BoolVar(&o.json, "json", false, "")

	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return options{}, err
	} else if err != nil {
		problems = append(problems, err.Error())
	} else if !limitGiven {
		problems = append(problems, "-limit is required")
	}
	o.files = fs.Args()
	if len(o.files) == 0 {
		o.files = []string{stdinName}
	}
	if i := slices.Index(o.files, stdinName); i >= 0 && slices.Contains(o.files[i+1:], stdinName) {
		problems = append(problems, `"-" (the standard input) is given more than once`)
	}
	if len(problems) > 0 {
		return options{}, errors.New(strings.Join(problems, "; "))
	}
	return o, nil
}
