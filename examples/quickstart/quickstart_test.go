package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fleetlimit/fleetlimit/limiter"
)

type result struct {
	status         int
	stdout, stderr string
}

func runWith(args ...string) result {
	var stdout, stderr strings.Builder
	status := run(args, &stdout, &stderr)
	return result{status, stdout.String(), stderr.String()}
}

// parsed is what a report says.
type parsed struct {
	lines                               [][]int64 // second, offered, admitted, refused, level, percent, commands
	offered, admitted, refused          int64
	peaks                               []int64
	commands, trips, failed, failedLine int64
}

var (
	lineForm   = regexp.MustCompile(`(?m)^ *(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) % +(\d+)(?:   (\d+) exchanges failed)?$`)
	totalForm  = regexp.MustCompile(`(?m)^Of (\d+) requests, (\d+) were admitted and (\d+) refused\.$`)
	peakForm   = regexp.MustCompile(`(?m)^Fullest .* of team_\d+, counted exactly: (\d+) admitted, .* of \d+\.$`)
	storeForm  = regexp.MustCompile(`(?m)^The nodes sent the store (\d+) commands in (\d+) round trips: `)
	failedForm = regexp.MustCompile(`(?m)^(\d+) of the round trips failed, the last one with: `)
)

func parse(r result) parsed {
	number := func(s string) int64 {
		n, _ := strconv.ParseInt(s, 10, 64) // 0 for what is left out
		return n
	}
	var p parsed
	for _, m := range lineForm.FindAllStringSubmatch(r.stdout, -1) {
		var line []int64
		for _, s := range m[1:8] {
			line = append(line, number(s))
		}
		p.lines = append(p.lines, line)
		p.failedLine += number(m[8])
	}
	if m := totalForm.FindStringSubmatch(r.stdout); m != nil {
		p.offered, p.admitted, p.refused = number(m[1]), number(m[2]), number(m[3])
	}
	for _, m := range peakForm.FindAllStringSubmatch(r.stdout, -1) {
		p.peaks = append(p.peaks, number(m[1]))
	}
	if m := storeForm.FindStringSubmatch(r.stdout); m != nil {
		p.commands, p.trips = number(m[1]), number(m[2])
	}
	if m := failedForm.FindStringSubmatch(r.stdout); m != nil {
		p.failed = number(m[1])
	}
	return p
}

// checkSums checks that the lines of a report add up to what its summary says.
func checkSums(t *testing.T, p parsed, seconds, offeredPerSecond int64) {
	t.Helper()
	if got := int64(len(p.lines)); got != seconds {
		t.Errorf("%d lines, want %d", got, seconds)
	}
	var sum parsed
	for i, line := range p.lines {
		if line[0] != int64(i+1) || line[1] != offeredPerSecond || line[2]+line[3] != line[1] {
			t.Errorf("line %v, want second %d, with %d offered, the sum of admitted and refused", line, i+1, offeredPerSecond)
		}
		sum.offered += line[1]
		sum.admitted += line[2]
		sum.refused += line[3]
		sum.commands += line[6]
	}
	if p.offered != sum.offered || p.admitted != sum.admitted || p.refused != sum.refused {
		t.Errorf("summary says %d = %d + %d, the lines add up to %d = %d + %d",
			p.offered, p.admitted, p.refused, sum.offered, sum.admitted, sum.refused)
	}
	if p.commands < sum.commands || p.trips < 1 || p.trips > p.commands {
		t.Errorf("summary says %d commands in %d round trips, the lines add up to %d", p.commands, p.trips, sum.commands)
	}
}

func TestRun_AFleetIsHeldToItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := runWith("-seconds", "12", "-limit", "1000", "-rate", "400")
		if r.status != exitOK || r.stderr != "" {
			t.Fatalf("status %d, standard error %q", r.status, r.stderr)
		}
		p := parse(r)
		checkSums(t, p, 12, 400)
		// 4 nodes that did not share would admit everything.
		if p.refused < 1000 {
			t.Errorf("%d of %d refused, want at least 1000:\n%s", p.refused, p.offered, r.stdout)
		}
		if len(p.peaks) != 1 || p.peaks[0] < 950 || p.peaks[0] > 1050 {
			t.Errorf("peaks %v, want one from 950 to 1050:\n%s", p.peaks, r.stdout)
		}
	})
}

func TestRun_WhatFitsIsAdmitted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := runWith("-seconds", "3", "-window", "1s", "-limit", "100", "-rate", "40", "-nodes", "3", "-epochs", "4")
		p := parse(r)
		checkSums(t, p, 3, 40)
		if r.status != exitOK || p.refused != 0 {
			t.Errorf("status %d, %d refused, want 0 and 0:\n%s", r.status, p.refused, r.stdout)
		}
		if want := "% under the limit of 100.\n"; !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in:\n%s", want, r.stdout)
		}
	})
}

func TestRun_KeysAreSpreadOverStores(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := runWith("-seconds", "2", "-rate", "50", "-store", "memory://", "-store", "memory://", "-store", "memory://")
		if r.status != exitOK {
			t.Fatalf("status %d, standard error %q", r.status, r.stderr)
		}
		p := parse(r)
		checkSums(t, p, 2, 150)
		if len(p.peaks) != 3 {
			t.Errorf("peaks of %d keys, want 3:\n%s", len(p.peaks), r.stdout)
		}
	})
}

// brokenStore fails every exchange.
type brokenStore struct{}

var errBroken = errors.New("the store is broken")

func (brokenStore) Exchange(_ context.Context, b *limiter.Batch) error {
	for i := range b.Adds {
		b.Adds[i].Outcome = limiter.NotApplied
	}
	return errBroken
}

func TestShow_TellsWhatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, err := parseArgs([]string{"-seconds", "2", "-nodes", "2"})
		if err != nil {
			t.Fatal(err)
		}
		closed := 0
		o.stores = []backend{func() (limiter.Store, func() error, error) {
			return brokenStore{}, func() error { closed++; return nil }, nil
		}}
		var stdout strings.Builder
		err = show(&stdout, o)
		if unsent, ok := errors.AsType[*limiter.UnsentError](err); !ok || unsent.Events == 0 || !errors.Is(err, errBroken) {
			t.Errorf("error is %v, want one of unsent events and the store's", err)
		}
		if closed != 2 {
			t.Errorf("%d stores closed, want 2", closed)
		}
		p := parse(result{stdout: stdout.String()})
		if p.failedLine == 0 || p.failed < p.failedLine || !strings.Contains(stdout.String(), "the last one with: "+errBroken.Error()) {
			t.Errorf("the failures are not told:\n%s", stdout.String())
		}
	})
}

func TestRun_EndsIfAStoreCannotBeReached(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"redis", "valkey"} {
		// Nothing listens on port 1.
		r := runWith("-seconds", "1", "-store", "memory://", "-store", scheme+"://user:secret@127.0.0.1:1")
		if r.status != exitError || r.stdout != "" {
			t.Errorf("%s: status %d, standard output %q, want %d and none", scheme, r.status, r.stdout, exitError)
		}
		if !strings.HasPrefix(r.stderr, "quickstart: node 1: "+scheme+" at 127.0.0.1:1: ") || strings.Contains(r.stderr, "secret") {
			t.Errorf("%s: standard error is %q", scheme, r.stderr)
		}
	}
}

func TestRun_ServersAsStores(t *testing.T) {
	t.Parallel()
	var args []string
	for _, name := range []string{"redis", "valkey"} {
		env := strings.ToUpper(name) + "_ADDR"
		addr := os.Getenv(env)
		if addr == "" && os.Getenv("CI") != "" {
			t.Fatalf("%s is not set", env)
		}
		if addr == "" {
			t.Skipf("%s is not set; scripts/servers.sh runs a command with servers", env)
		}
		args = append(args, "-store", name+"://"+addr)
	}
	r := runWith(append(args, "-seconds", "1", "-window", "4s", "-limit", "100", "-rate", "500")...)
	p := parse(r)
	checkSums(t, p, 1, 1000)
	if len(p.peaks) != 2 {
		t.Errorf("peaks of %d keys, want 2:\n%s", len(p.peaks), r.stdout)
	}
	// This runs in real time: on a busy machine, an exchange may not end in its time.
	late := p.failed > 0 && p.failed < p.trips && strings.Contains(r.stdout, ": timeout")
	if !late && (r.status != exitOK || p.failed > 0) {
		t.Errorf("status %d, %d of %d round trips failed, standard error %q:\n%s", r.status, p.failed, p.trips, r.stderr, r.stdout)
	}
}

func TestRun_NamesAllThatIsWrongWithTheArguments(t *testing.T) {
	t.Parallel()
	r := runWith("-seconds", "0", "-nodes", "101", "-limit", "x", "-window", "5", "-epochs", "61", "-rate", "100001",
		"-store", "memory://", "-store", "redis://user:secret@[", "-store", "http://secret", "argument")
	if r.status != exitUsage || r.stdout != "" {
		t.Errorf("status %d, standard output %q, want %d and none", r.status, r.stdout, exitUsage)
	}
	for _, want := range []string{
		`-seconds is "0", want a whole number from 1 to 3600`,
		`-nodes is "101", want a whole number from 1 to 100`,
		`-limit is "x", want a whole number from 1 to 2147483647`,
		`-window is "5", want a duration like 5s, from 100ms to 1h`,
		`-epochs is "61", want a whole number from 1 to 60`,
		`-rate is "100001", want a whole number from 1 to 100000`,
		"-store number 2 is not a store, want memory://, redis://host:port or valkey://host:port",
		"-store number 3 is not a store",
		"there is something after the options, want nothing",
	} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("standard error does not say %q:\n%s", want, r.stderr)
		}
	}
	if strings.Contains(r.stderr, "secret") || strings.Contains(r.stderr, "number 1") {
		t.Errorf("standard error says too much:\n%s", r.stderr)
	}
}

func TestRun_UnknownOption(t *testing.T) {
	t.Parallel()
	r := runWith("-keys", "5")
	if r.status != exitUsage || !strings.Contains(r.stderr, "-keys") {
		t.Errorf("status %d, standard error %q, want %d and the option's name", r.status, r.stderr, exitUsage)
	}
}

func TestRun_Help(t *testing.T) {
	t.Parallel()
	if r := runWith("-h"); r.status != exitOK || r.stdout != usage || r.stderr != "" {
		t.Errorf("status %d, standard error %q, standard output:\n%s", r.status, r.stderr, r.stdout)
	}
}

func TestUsage_StatesTheDefaults(t *testing.T) {
	t.Parallel()
	o, err := parseArgs(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]any{
		"seconds": o.seconds, "nodes": o.nodes, "limit": o.limit, "window": o.window, "epochs": o.epochs, "rate": o.rate,
	} {
		form := fmt.Sprintf(`(?s)\n  -%s [A-Z] [^-]*\(default %v\)`, name, value)
		if !regexp.MustCompile(form).MatchString(usage) {
			t.Errorf("the usage does not say that -%s is %v by default", name, value)
		}
	}
}

func TestComparison(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		1000: "exactly the limit", 1015: "1.5 % over the limit", 900: "10.0 % under the limit", 0: "100.0 % under the limit",
	} {
		if got := comparison(n, 1000); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
