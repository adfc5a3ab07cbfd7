package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

const usage = `Usage: quickstart [options]

Runs several nodes in one process that share a limit, offers them requests, and
prints what passes.

  -seconds N   how long to run (default 10)
  -nodes N     number of nodes (default 4)
  -limit N     at most N requests of a key may pass in any window (default 1000)
  -window D    length of the sliding window (default 5s)
  -epochs N    epochs that make up a window: more of them help where keys move
               between nodes, and cost more commands (default 1)
  -rate N      requests per second of each key, over all nodes (default 400)
  -store URL   where the nodes share their counts (default memory://):
                 memory://            in this process
                 redis://host:port    a Redis server, through go-redis
                 valkey://host:port   a Valkey server, through valkey-go
               User, password and database may be part of the URL. Given more
               than once, keys are spread over the stores.

There is one key, or one on each store if there are several.

Exit status: 0 if all went well, 1 if a store cannot be reached or was not told
of everything, 2 for wrong usage.
`

type options struct {
	seconds int64
	nodes   int64
	limit   int64
	window  time.Duration
	epochs  int64
	rate    int64
	stores  []backend // at least one
}

// parseArgs returns the options, [flag.ErrHelp], or an error that names all that
// is wrong with them.
func parseArgs(args []string) (options, error) {
	o := options{seconds: 10, nodes: 4, limit: 1000, window: 5 * time.Second, epochs: 1, rate: 400}
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }

	fs := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	// Values are judged here and not by the flag package, which would stop at the
	// first that is wrong.
	number := func(name string, to *int64, most int64) {
		fs.Func(name, "", func(value string) error {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 1 || n > most {
				bad("-%s is %q, want a whole number from 1 to %d", name, value, most)
			}
			*to = n
			return nil
		})
	}
	number("seconds", &o.seconds, 3600)
	number("nodes", &o.nodes, 100)
	number("limit", &o.limit, math.MaxInt32)
	number("epochs", &o.epochs, 60)
	number("rate", &o.rate, 100_000)
	fs.Func("window", "", func(value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < 100*time.Millisecond || d > time.Hour {
			bad("-window is %q, want a duration like 5s, from 100ms to 1h", value)
		}
		o.window = d
		return nil
	})
	given := 0
	fs.Func("store", "", func(value string) error {
		given++
		b, ok := parseStore(value)
		if !ok { // the value is not shown, because it may hold a password
			bad("-store number %d is not a store, want memory://, redis://host:port or valkey://host:port", given)
		}
		o.stores = append(o.stores, b)
		return nil
	})

	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return options{}, err
	} else if err != nil {
		problems = append(problems, err.Error())
	} else if fs.NArg() > 0 {
		problems = append(problems, "there is something after the options, want nothing")
	}
	if len(problems) > 0 {
		return options{}, errors.New(strings.Join(problems, "; "))
	}
	if given == 0 {
		o.stores = []backend{memoryBackend()}
	}
	return o, nil
}
