// Quickstart shows a fleet at work: several nodes in this process share a limit
// through a store and are offered more requests than it allows. A line per second
// tells what passes; at the end an exact count says how well the limit held.
//
//	go run ./examples/quickstart
//
// The option -h describes the options.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	logging.Disable() // go-redis would write to the standard error what is reported anyway
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// Exit statuses.
const (
	exitOK = iota
	exitError
	exitUsage
)

// run is the program. It returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	o, err := parseArgs(args)
	if errors.Is(err, flag.ErrHelp) {
		io.WriteString(stdout, usage)
		return exitOK
	}
	if err != nil {
		complain(stderr, err)
		fmt.Fprintln(stderr, "quickstart -h describes the options.")
		return exitUsage
	}
	if err := show(stdout, o); err != nil {
		complain(stderr, err)
		return exitError
	}
	return exitOK
}

// complain prints an error, which may be several joined ones.
func complain(w io.Writer, err error) {
	fmt.Fprintln(w, "quickstart: "+strings.ReplaceAll(err.Error(), "\n", "\nquickstart: "))
}
