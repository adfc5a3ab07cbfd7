// Replay answers "what would this limit do to my traffic?": it plays an access
// log, at the log's own time, through a fleet of limiters that share a store,
// and reports who would have been limited, when and for how long, how far the
// fleet would have exceeded the limit, and what it would have cost the store.
//
// From the root of the repository, with the sample that comes with it:
//
//	go run ./examples/replay -limit 60 -window 1m -nodes 4 examples/replay/sample.log
//
// The option -h describes the options, the formats and the JSON report.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
