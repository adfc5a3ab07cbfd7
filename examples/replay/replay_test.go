package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const sample = "sample.log"

// outcome is what one run of the program gave.
type outcome struct {
	status         int
	stdout, stderr string
}

func runWith(stdin string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	status := run(args, strings.NewReader(stdin), &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

// mustReport runs the program with -json, wants it to succeed without a word on
// stderr, and returns its report after checking that it accounts for everything.
func mustReport(t *testing.T, stdin string, args ...string) report {
	t.Helper()
	got := runWith(stdin, append([]string{"-json"}, args...)...)
	if got.status != exitOK || got.stderr != "" {
		t.Fatalf("status %d and stderr %q, want success in silence", got.status, got.stderr)
	}
	return parseReport(t, got.stdout)
}

func parseReport(t *testing.T, text string) report {
	t.Helper()
	var r report
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if r.Lines.Read != r.Lines.Replayed+r.Lines.Unreadable {
		t.Errorf("%d lines read, but %d replayed and %d unreadable", r.Lines.Read, r.Lines.Replayed, r.Lines.Unreadable)
	}
	if r.Requests != r.Admitted+r.Denied {
		t.Errorf("%d requests, but %d admitted and %d denied", r.Requests, r.Admitted, r.Denied)
	}
	if r.Store.Unsent != 0 {
		t.Errorf("%d admitted requests never reached the store", r.Store.Unsent)
	}
	return r
}

// write makes a file of the test's own.
func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readSample(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func zip(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRun_Sample(t *testing.T) {
	t.Parallel()
	for _, spread := range []string{spreadRandom, spreadRound, spreadKey} {
		t.Run(spread, func(t *testing.T) {
			t.Parallel()
			r := mustReport(t, "", "-limit", "60", "-window", "1m", "-nodes", "4", "-spread", spread, sample)

			if diff := cmp.Diff(lineReport{Read: 766, Replayed: 765, Unreadable: 1}, r.Lines); diff != "" {
				t.Errorf("lines, -want +got:\n%s", diff)
			}
			if diff := cmp.Diff([]badLine{{sample, 501, "time has no closing bracket"}}, r.Unreadable); diff != "" {
				t.Errorf("unreadable, -want +got:\n%s", diff)
			}
			if r.Requests != 765 || r.Keys != 33 || r.KeysLimited != 2 {
				t.Errorf("%d requests of %d keys, %d of them limited, want 765, 33, 2", r.Requests, r.Keys, r.KeysLimited)
			}
			requests := make(map[string]int64)
			for _, k := range r.MostLimited {
				requests[k.Key] = k.Requests
				if k.FirstLimited.Before(r.From) || k.LastLimited.Before(k.FirstLimited) || r.To.Before(k.LastLimited) {
					t.Errorf("%s limited from %v to %v, in a log from %v to %v", k.Key, k.FirstLimited, k.LastLimited, r.From, r.To)
				}
			}
			// The scraper and the importer, which the sample is about.
			if diff := cmp.Diff(map[string]int64{"198.51.100.20": 389, "203.0.113.9": 180}, requests); diff != "" {
				t.Errorf("most limited, -want +got:\n%s", diff)
			}
		})
	}
}

func TestRun_SameSeedSameReport(t *testing.T) {
	t.Parallel()
	args := []string{"-limit", "20", "-nodes", "5", "-seed", "3", sample}
	first, second := runWith("", args...), runWith("", args...)
	if diff := cmp.Diff(first.stdout, second.stdout); diff != "" || first.status != exitOK {
		t.Errorf("status %d, -first +second:\n%s", first.status, diff)
	}
}

func TestRun_OneLimiterIsExactWhenKeysStickToTheirNode(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for i := range 100 {
		fmt.Fprintf(&log, "%d key-%d\n", 1000+i%10, i%7)
	}
	r := mustReport(t, log.String(), "-limit", "10", "-nodes", "3", "-spread", spreadKey)
	// 100 requests of 7 keys: two of 15 and five of 14, all in ten seconds.
	if r.Admitted != 70 || r.KeysLimited != 7 || r.WorstOver != nil {
		t.Errorf("%d admitted, %d keys limited, over the limit: %v; want 70, 7, never", r.Admitted, r.KeysLimited, r.WorstOver)
	}
}

func TestRun_ACountIsDecidedAsOne(t *testing.T) {
	t.Parallel()
	r := mustReport(t, "1000 a 6\n1001 a 6\n1002 a 4\n1003 a 0\n1004 b 1000000000\n", "-limit", "10", "-nodes", "1")
	if r.Lines.Replayed != 5 || r.Admitted != 10 || r.Denied != 6+1e9 || r.Keys != 2 {
		t.Errorf("%+v", r)
	}
}

func TestRun_LogsAreMergedWhateverTheirOrder(t *testing.T) {
	t.Parallel()
	text := readSample(t)
	lines := strings.SplitAfter(text, "\n")
	rotated := []string{
		write(t, "access.log", []byte(strings.Join(lines[600:], ""))),
		write(t, "access.log.1", []byte(strings.Join(lines[300:600], ""))),
		write(t, "access.log.2.gz", zip(t, strings.Join(lines[:300], ""))),
	}
	var even, odd strings.Builder
	for i, line := range lines {
		if i%2 == 0 {
			even.WriteString(line)
		} else {
			odd.WriteString(line)
		}
	}
	servers := []string{write(t, "web1.log", []byte(even.String())), write(t, "web2.log", []byte(odd.String()))}

	// Sticky keys, as which node a request gets depends on the order within a second.
	args := []string{"-limit", "30", "-spread", spreadKey}
	want := mustReport(t, text, args...)
	for name, files := range map[string][]string{"rotated": rotated, "servers": servers} {
		got := mustReport(t, "", append(args, files...)...)
		if len(got.Files) != len(files) {
			t.Errorf("%s: %d logs in the report, want %d", name, len(got.Files), len(files))
		}
		got.Files, got.Unreadable = want.Files, want.Unreadable
		// An early tick takes along what came before it in its second.
		got.Store.Exchanges = want.Store.Exchanges
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -one log +several:\n%s", name, diff)
		}
	}
}

func TestRun_ReadsTheStandardInput(t *testing.T) {
	t.Parallel()
	file := write(t, "b.log", []byte("1001 b\n"))
	for _, test := range []struct {
		name     string
		args     []string
		requests int64
	}{
		{"without a file", nil, 1},
		{"for a dash", []string{"-"}, 1},
		{"with other files", []string{file, "-"}, 2},
	} {
		if r := mustReport(t, "1000 a\n", append([]string{"-limit", "1"}, test.args...)...); r.Requests != test.requests {
			t.Errorf("%s: %d requests, want %d", test.name, r.Requests, test.requests)
		}
	}
}

func TestRun_LateLinesAreReplayedAndCounted(t *testing.T) {
	t.Parallel()
	// By line 4 line 2 has been replayed; line 5 is out of order by less than 10 s.
	r := mustReport(t, "1000 a\n1060 a\n1071 a\n1010 a\n1065 a\n", "-limit", "2", "-nodes", "1", "-reorder", "10s")
	if r.Lines.Replayed != 5 || r.Lines.Late != 1 {
		t.Errorf("lines %+v, want 5 replayed, 1 of them late", r.Lines)
	}
	if want := time.Unix(1071, 0).UTC(); !r.To.Equal(want) {
		t.Errorf("ends at %v, want %v", r.To, want)
	}
}

func TestRun_QuietYearsCostNothing(t *testing.T) {
	t.Parallel()
	r := mustReport(t, "1000000000 a\n2000000000 a\n", "-limit", "1", "-nodes", "2")
	if r.Admitted != 2 {
		t.Errorf("%d admitted, want 2", r.Admitted)
	}
	// Each node exchanges a few times around a request, not once in each window.
	if r.Store.Exchanges > 100 {
		t.Errorf("%d exchanges for two requests 32 years apart", r.Store.Exchanges)
	}
}

func TestRun_UnreadableLinesAreCountedAndTheFirstShown(t *testing.T) {
	t.Parallel()
	log := "1000 a\n" + strings.Repeat("secret junk\n", 7)
	r := mustReport(t, log, "-limit", "1")
	if r.Lines.Unreadable != 7 || len(r.Unreadable) != maxShown || r.Unreadable[0].Line != 2 {
		t.Errorf("%d unreadable, shown: %v", r.Lines.Unreadable, r.Unreadable)
	}
	if text := runWith(log, "-limit", "1").stdout; !strings.Contains(text, "(the first 5 of 7)\n  -:2: neither") {
		t.Errorf("the text does not show line 2:\n%s", text)
	}
}

func TestRun_NothingReadable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, log, want string }{
		{"empty", "", "replay: nothing to replay: 0 of 0 lines are readable\n"},
		{"junk", "a\n\n", "replay: nothing to replay: 0 of 2 lines are readable\n" +
			"replay: -:1: neither an access log line nor a timestamp, a key and a count\n" +
			"replay: -:2: empty line\n"},
	} {
		got := runWith(test.log, "-limit", "1")
		if diff := cmp.Diff(outcome{exitError, "", test.want}, got, cmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", test.name, diff)
		}
	}
}

func TestRun_MissingFilesAreNamedBeforeAnythingIsReplayed(t *testing.T) {
	t.Parallel()
	got := runWith("", "-limit", "1", "missing-1", sample, "missing-2")
	if got.status != exitError || got.stdout != "" {
		t.Errorf("status %d, stdout %q", got.status, got.stdout)
	}
	for _, name := range []string{"missing-1", "missing-2"} {
		if !strings.Contains(got.stderr, "replay: open "+name+": ") {
			t.Errorf("stderr %q does not name %s", got.stderr, name)
		}
	}
}

func TestRun_ABrokenFileIsReplayedAsFarAsItGoes(t *testing.T) {
	t.Parallel()
	whole := zip(t, "1000 a\n1001 a\n")
	broken := write(t, "broken.gz", whole[:len(whole)-1])
	got := runWith("", "-limit", "1", "-json", broken, sample)
	if got.status != exitError || !strings.Contains(got.stderr, broken+": accesslog: after line 2: unexpected EOF") {
		t.Errorf("status %d, stderr %q", got.status, got.stderr)
	}
	r := parseReport(t, got.stdout)
	if r.Requests != 767 || r.Files[0].Replayed != 2 || r.Files[0].Error == "" || r.Files[1].Error != "" {
		t.Errorf("%d requests, files %+v", r.Requests, r.Files)
	}
	if text := runWith("", "-limit", "1", broken).stdout; !strings.Contains(text, "\nNot read to its end: "+broken) {
		t.Errorf("the text does not say so:\n%s", text)
	}
}

func TestRun_Usage(t *testing.T) {
	t.Parallel()
	const hint = "replay -h describes the options.\n"
	for _, test := range []struct {
		name, args string
		want       outcome
	}{
		{"help", "-h", outcome{exitOK, usage, ""}},
		{"no limit", "", outcome{exitUsage, "", "replay: -limit is required\n" + hint}},
		{"all problems at once", "-limit 0 -window 1 -nodes 1001 -spread even -seed -1 -reorder -1s -top x - -", outcome{exitUsage, "",
			`replay: -limit is "0", want a whole number of at least 1; ` +
				`-window is "1", want a duration like 1m, from 1ms to 8784h; ` +
				`-nodes is "1001", want a whole number from 1 to 1000; ` +
				`-spread is "even", want random, round or key; ` +
				`-seed is "-1", want a whole number of at least 0; ` +
				`-reorder is "-1s", want a duration like 2m, at least 0; ` +
				`-top is "x", want a whole number of at least 0; ` +
				`"-" (the standard input) is given more than once` + "\n" + hint}},
		{"unknown option", "-nodes 0 -what", outcome{exitUsage, "",
			`replay: -nodes is "0", want a whole number from 1 to 1000; flag provided but not defined: -what` + "\n" + hint}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := runWith("", strings.Fields(test.args)...)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestRun_ReportsThatItCannotWrite(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	status := run([]string{"-limit", "1"}, strings.NewReader("1000 a\n"), brokenWriter{}, &stderr)
	if status != exitError || !strings.Contains(stderr.String(), "broken pipe") {
		t.Errorf("status %d, stderr %q", status, stderr.String())
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, fmt.Errorf("broken pipe") }
