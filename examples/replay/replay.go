package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// Exit statuses.
const (
	exitOK = iota
	exitError
	exitUsage
)

// run is the program. It returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parseArgs(args)
	if errors.Is(err, flag.ErrHelp) {
		io.WriteString(stdout, usage)
		return exitOK
	}
	if err != nil {
		complain(stderr, err)
		fmt.Fprintln(stderr, "replay -h describes the options.")
		return exitUsage
	}

	in, err := openInput(o, stdin)
	if err != nil {
		complain(stderr, err)
		return exitError
	}
	defer in.close()

	rep, err := replay(context.Background(), o, in, newProgress(stderr))
	if rep != nil {
		// The report is good for as far as the reading came.
		err = errors.Join(err, in.err(), rep.write(stdout, o.json))
	}
	if err != nil {
		complain(stderr, err)
		return exitError
	}
	return exitOK
}

// complain prints an error, which may be several joined ones.
func complain(w io.Writer, err error) {
	fmt.Fprintln(w, "replay: "+strings.ReplaceAll(err.Error(), "\n", "\nreplay: "))
}

// replay plays all of in through a fleet. If it returns both a report and an
// error, the report holds nevertheless.
func replay(ctx context.Context, o options, in *input, p *progress) (*report, error) {
	defer p.done()
	var f *fleet
	t := newTally(o.window)
	for lines := int64(1); ; lines++ {
		rec, ok := in.read()
		if !ok {
			break
		}
		if f == nil {
			var err error
			if f, err = newFleet(o, rec.Time); err != nil {
				return nil, err
			}
		}
		d := limiter.Decision{Allowed: true}
		if rec.Count > 0 {
			var err error
			if d, err = f.check(ctx, rec.Time, rec.Key, rec.Count); err != nil {
				return nil, err
			}
		}
		t.add(rec.Time, rec.Key, rec.Count, d.Allowed)
		p.update(lines, rec.Time)
	}
	if f == nil {
		return nil, nothingRead(in)
	}

	acknowledged, err := f.shutdown(ctx)
	unsent := t.admitted - acknowledged
	if unsent != 0 {
		err = errors.Join(err, fmt.Errorf("the nodes admitted %d requests, the store was told of %d", t.admitted, acknowledged))
	}
	return newReport(o, in, t, f.store, unsent), err
}

// nothingRead says why there was nothing to replay.
func nothingRead(in *input) error {
	var lines int64
	for _, s := range in.sources {
		lines += s.unreadable
	}
	errs := []error{in.err(), fmt.Errorf("nothing to replay: 0 of %s lines are readable", thousands(lines))}
	for _, b := range in.unreadable {
		errs = append(errs, fmt.Errorf("%s:%d: %s", b.File, b.Line, b.Reason))
	}
	return errors.Join(errs...)
}
