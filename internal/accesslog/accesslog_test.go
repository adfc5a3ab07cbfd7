package accesslog_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetlimit/fleetlimit/internal/accesslog"
)

// result is what one line gave: a record, or the reason why not.
type result struct {
	Record accesslog.Record
	Reason string
}

// readAll reads to the end and checks that every line gave one result.
func readAll(t testing.TB, next func() (accesslog.Record, error)) ([]result, error) {
	t.Helper()
	var out []result
	for {
		rec, err := next()
		var bad *accesslog.ParseError
		switch {
		case errors.As(err, &bad):
			out = append(out, result{accesslog.Record{Line: bad.Line}, bad.Reason})
		case err == io.EOF:
			return out, nil
		case err != nil:
			return out, err
		default:
			out = append(out, result{Record: rec})
		}
	}
}

func read(t testing.TB, log []byte) []result {
	t.Helper()
	out, err := readAll(t, accesslog.NewReader(bytes.NewReader(log)).Read)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func zip(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReader_Lines(t *testing.T) {
	t.Parallel()
	may17 := time.Date(2015, time.May, 17, 10, 5, 3, 0, time.UTC)
	rec := func(at time.Time, key string, count int64) result {
		return result{Record: accesslog.Record{Line: 1, Time: at, Key: key, Count: count}}
	}
	bad := func(reason string) result {
		return result{accesslog.Record{Line: 1}, reason}
	}
	const (
		form       = "time is not of the form 02/Jan/2006:15:04:05 -0700"
		fields     = "not three fields before the time: client address, identity and user"
		neither    = "neither an access log line nor a timestamp, a key and a count"
		outOfRange = "time is not between the years 1970 and 2199"
	)
	for _, test := range []struct {
		name, line string
		want       result
	}{
		{"common", `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 2326`, rec(may17, "192.0.2.7", 1)},
		{"combined", `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a?b=[1] HTTP/1.1" 200 2326 "http://example.com/" "Mozilla/5.0 (X11; \"q\")"`, rec(may17, "192.0.2.7", 1)},
		{"with a user", `192.0.2.7 - frank [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 -`, rec(may17, "192.0.2.7", 1)},
		{"another zone", `192.0.2.7 - - [17/May/2015:03:05:03 -0700] "GET / HTTP/1.0" 200 1`, rec(may17, "192.0.2.7", 1)},
		{"IPv6", `2001:db8::7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, rec(may17, "2001:db8::7", 1)},
		{"host name", `client.example.net - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, rec(may17, "client.example.net", 1)},
		{"not an HTTP request", `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "\x16\x03\x01" 400 226`, rec(may17, "192.0.2.7", 1)},
		{"cut short after the time", `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a`, rec(may17, "192.0.2.7", 1)},
		{"byte order mark", "\uFEFF" + `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, rec(may17, "192.0.2.7", 1)},
		{"cut short in the time", `192.0.2.7 - - [17/May/2015:10:0`, bad("time has no closing bracket")},
		{"no request", `192.0.2.7 - - [17/May/2015:10:05:03 +0000]`, bad("no request after the time")},
		{"no such day", `192.0.2.7 - - [31/Feb/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, bad(form)},
		{"no zone", `192.0.2.7 - - [17/May/2015:10:05:03] "GET / HTTP/1.0" 200 1`, bad(form)},
		{"too old", `192.0.2.7 - - [17/May/1915:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, bad(outOfRange)},
		{"no address", `- - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, bad("no client address")},
		{"virtual host first", `www.example.com:80 192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, bad(fields)},
		{"too few fields", `192.0.2.7 - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, bad(fields)},
		{"error log", `[Sun May 17 10:05:03 2015] [error] [client 192.0.2.7] File does not exist`, bad(fields)},

		{"RFC 3339", "2015-05-17T10:05:03Z customer-7", rec(may17, "customer-7", 1)},
		{"RFC 3339 with zone and fraction", "2015-05-17T12:05:03.25+02:00 customer-7 4", rec(may17.Add(250*time.Millisecond), "customer-7", 4)},
		{"seconds", "1431857103 customer-7", rec(may17, "customer-7", 1)},
		{"seconds with fraction", "1431857103.000000001 customer-7", rec(may17.Add(1), "customer-7", 1)},
		{"seconds with a long fraction", "1431857103.1234567899 customer-7", rec(may17.Add(123456789), "customer-7", 1)},
		{"milliseconds", "1431857103250 customer-7", rec(may17.Add(250*time.Millisecond), "customer-7", 1)},
		{"milliseconds with fraction", "1431857103250.5 customer-7", rec(may17.Add(250*time.Millisecond+500*time.Microsecond), "customer-7", 1)},
		{"the first second", "0 customer-7", rec(time.Unix(0, 0).UTC(), "customer-7", 1)},
		{"tabs and blanks", "  1431857103\tcustomer-7 \t 4  ", rec(may17, "customer-7", 4)},
		{"key with brackets", "1431857103 [2001:db8::7] 4", rec(may17, "[2001:db8::7]", 4)},
		{"key that is no UTF-8", "1431857103 \xff\x00", rec(may17, "\xff\x00", 1)},
		{"count of zero", "1431857103 customer-7 0", rec(may17, "customer-7", 0)},
		{"largest count", "1431857103 customer-7 1000000000", rec(may17, "customer-7", 1e9)},
		{"count too large", "1431857103 customer-7 1000000001", bad("count is more than 1000000000")},
		{"count beyond an int64", "1431857103 customer-7 9223372036854775808", bad("count is more than 1000000000")},
		{"negative count", "1431857103 customer-7 -1", bad("count is negative")},
		{"count below an int64", "1431857103 customer-7 -9223372036854775809", bad("count is negative")},
		{"count with fraction", "1431857103 customer-7 1.5", bad("count is not a whole number")},
		{"four fields", "1431857103 customer-7 1 x", bad("more than a timestamp, a key and a count")},
		{"no key", "1431857103", bad("no key after the timestamp")},
		{"beyond the range", "2200-01-01T00:00:00Z customer-7", bad(outOfRange)},
		{"before the range", "1969-12-31T23:59:59.9Z customer-7", bad(outOfRange)},
		{"microseconds", "1431857103000000 customer-7", bad(outOfRange)},
		{"beyond an int64", "99999999999999999999 customer-7", bad(outOfRange)},
		{"negative time", "-5 customer-7", bad(neither)},
		{"two points", "1431857103.1.2 customer-7", bad(neither)},
		{"exponent", "1.4e9 customer-7", bad(neither)},
		{"local time", "2015-05-17T10:05:03 customer-7", bad(neither)},
		{"prose", "hello world", bad(neither)},
		{"blanks", " \t ", bad("empty line")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff([]result{test.want}, read(t, []byte(test.line+"\n"))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// mixed holds good lines of all kinds, junk, and all line ends.
const mixed = "1431857103 a\r\n" +
	"\r\n" +
	"192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1\n" +
	"\x00\xff junk\n" +
	"2015-05-17T10:05:03Z b 2"

func TestReader_EveryLineGivesOneResult(t *testing.T) {
	t.Parallel()
	var lines []int64
	var keys []string
	for _, r := range read(t, []byte(mixed)) {
		lines = append(lines, r.Record.Line)
		keys = append(keys, r.Record.Key)
	}
	if diff := cmp.Diff([]int64{1, 2, 3, 4, 5}, lines); diff != "" {
		t.Errorf("line numbers, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "", "192.0.2.7", "", "b"}, keys); diff != "" {
		t.Errorf("keys, -want +got:\n%s", diff)
	}
}

func TestReader_EmptyLogEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, log := range [][]byte{nil, zip(t, "")} {
		if got := read(t, log); len(got) != 0 {
			t.Errorf("got %v, want nothing", got)
		}
	}
}

func TestReader_GzipReadsAsItsText(t *testing.T) {
	t.Parallel()
	want := read(t, []byte(mixed))
	if diff := cmp.Diff(want, read(t, zip(t, mixed))); diff != "" {
		t.Errorf("one member, -want +got:\n%s", diff)
	}
	// A line may go over from one member to the next.
	var members []byte
	for part := range strings.SplitSeq(mixed, " ") {
		members = append(members, zip(t, part+" ")...)
	}
	members = append(members, zip(t, "\n")...)
	if diff := cmp.Diff(want, read(t, members)); diff != "" {
		t.Errorf("many members, -want +got:\n%s", diff)
	}
}

func TestReader_SkipsLinesThatAreTooLong(t *testing.T) {
	t.Parallel()
	line := func(length int) string {
		const start = "1431857103 "
		return start + strings.Repeat("k", length-len(start)-1) + "\n"
	}
	log := line(accesslog.MaxLine) + line(accesslog.MaxLine+1) + line(3*accesslog.MaxLine) + "1431857103 a\n" +
		strings.TrimSuffix(line(2*accesslog.MaxLine), "\n")
	var reasons []string
	for _, r := range read(t, []byte(log)) {
		reasons = append(reasons, r.Reason)
	}
	const long = "longer than 65536 bytes"
	if diff := cmp.Diff([]string{"", long, long, "", long}, reasons); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReader_ErrorsStayAndSayHowFarItCame(t *testing.T) {
	t.Parallel()
	whole := zip(t, mixed)
	broken := errors.New("broken")
	for _, test := range []struct {
		name string
		log  io.Reader
		want error
		text string
	}{
		{"source", io.MultiReader(strings.NewReader("1431857103 a\n1431857"), iotest.ErrReader(broken)), broken, "accesslog: after line 1: "},
		{"source in a long line", io.MultiReader(strings.NewReader(strings.Repeat("k", 2*accesslog.MaxLine)), iotest.ErrReader(broken)), broken, "accesslog: after line 0: "},
		{"gzip header", bytes.NewReader(whole[:5]), io.ErrUnexpectedEOF, "accesslog: after line 0: "},
		{"gzip cut short", bytes.NewReader(whole[:len(whole)-4]), io.ErrUnexpectedEOF, "accesslog: after line 4: "},
		{"junk after gzip", io.MultiReader(bytes.NewReader(zip(t, "1431857103 a\n")), strings.NewReader("1431857104 b, in plain text")), gzip.ErrHeader, "accesslog: after line 1: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := accesslog.NewReader(test.log)
			_, err := readAll(t, r.Read)
			if !errors.Is(err, test.want) || !strings.HasPrefix(err.Error(), test.text) {
				t.Errorf("error %v, want %q and %v", err, test.text, test.want)
			}
			if _, again := r.Read(); again != err {
				t.Errorf("then %v, want the same error again", again)
			}
		})
	}
}

func TestParseError_NamesPackageAndLine(t *testing.T) {
	t.Parallel()
	got := (&accesslog.ParseError{Line: 7, Reason: "empty line"}).Error()
	if want := "accesslog: line 7: empty line"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzReader checks that every line of any input gives one record or one reason,
// whether it comes at once, in small pieces or compressed.
func FuzzReader(f *testing.F) {
	f.Add([]byte(mixed))
	f.Fuzz(func(t *testing.T, log []byte) {
		if len(log) > 1 && log[0] == 0x1f && log[1] == 0x8b {
			// Compressed, and perhaps not validly: only that it ends.
			readAll(t, accesslog.NewReader(bytes.NewReader(log)).Read)
			return
		}
		got := read(t, log)
		lines := bytes.Count(log, []byte("\n"))
		if len(log) > 0 && log[len(log)-1] != '\n' {
			lines++
		}
		if len(got) != lines {
			t.Errorf("%d results for %d lines", len(got), lines)
		}
		for i, r := range got {
			rec := r.Record
			if rec.Line != int64(i+1) {
				t.Errorf("result %d is of line %d", i+1, rec.Line)
			}
			if r.Reason != "" {
				continue
			}
			if rec.Key == "" || strings.ContainsAny(rec.Key, " \t\n") {
				t.Errorf("line %d: key %q", rec.Line, rec.Key)
			}
			if rec.Count < 0 || rec.Count > accesslog.MaxCount {
				t.Errorf("line %d: count %d", rec.Line, rec.Count)
			}
			if year := rec.Time.Year(); year < 1970 || year > 2199 {
				t.Errorf("line %d: time %v", rec.Line, rec.Time)
			}
		}

		inPieces, err := readAll(t, accesslog.NewReader(iotest.OneByteReader(bytes.NewReader(log))).Read)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, inPieces); diff != "" {
			t.Errorf("in pieces, -at once +in pieces:\n%s", diff)
		}
		if diff := cmp.Diff(got, read(t, zip(t, string(log)))); diff != "" {
			t.Errorf("compressed, -plain +compressed:\n%s", diff)
		}
	})
}
