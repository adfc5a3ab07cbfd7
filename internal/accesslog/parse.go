package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// clfTime is the time of the common log format.
const clfTime = "02/Jan/2006:15:04:05 -0700"

// maxTime leaves room to reckon with windows after it in nanoseconds.
var maxTime = time.Date(2200, time.January, 1, 0, 0, 0, 0, time.UTC)

const (
	notATime   = "neither an access log line nor a timestamp, a key and a count"
	outOfRange = "time is not between the years 1970 and 2199"
)

// parse reads one line without its line end. A line that cannot be read gives
// the reason, which quotes nothing of it.
func parse(text []byte) (rec Record, reason string) {
	if len(text) == 0 {
		return Record{}, "empty line"
	}
	first, rest := cutField(text)
	at, reason := parseTime(first)
	switch {
	case reason == "":
		return parsePlain(at, rest)
	case reason == notATime && bytes.IndexByte(text, '[') >= 0:
		return parseCLF(text)
	}
	return Record{}, reason
}

// parsePlain reads what follows the timestamp in "timestamp key [count]".
func parsePlain(at time.Time, text []byte) (Record, string) {
	key, text := cutField(text)
	if len(key) == 0 {
		return Record{}, "no key after the timestamp"
	}
	rec := Record{Time: at, Key: string(key), Count: 1}
	count, text := cutField(text)
	if len(count) == 0 {
		return rec, ""
	}
	if len(text) > 0 {
		return Record{}, "more than a timestamp, a key and a count"
	}
	n, err := strconv.ParseInt(string(count), 10, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return Record{}, "count is not a whole number"
	case n < 0:
		return Record{}, "count is negative"
	case n > MaxCount:
		return Record{}, fmt.Sprintf("count is more than %d", MaxCount)
	}
	rec.Count = n
	return rec, ""
}

// parseCLF reads a line in the common or the combined log format, up to where
// the request begins. The rest does not matter here, and servers cut long lines
// short.
func parseCLF(text []byte) (Record, string) {
	// More fields than three would be another format, perhaps with the address
	// in another place, so they are not guessed at.
	host, rest := cutField(text)
	_, rest = cutField(rest)
	_, rest = cutField(rest)
	if len(rest) == 0 || rest[0] != '[' {
		return Record{}, "not three fields before the time: client address, identity and user"
	}
	if string(host) == "-" {
		return Record{}, "no client address"
	}
	stamp, rest, found := bytes.Cut(rest[1:], []byte("]"))
	if !found {
		return Record{}, "time has no closing bracket"
	}
	at, err := time.Parse(clfTime, string(stamp))
	if err != nil {
		return Record{}, "time is not of the form " + clfTime
	}
	if !inRange(at) {
		return Record{}, outOfRange
	}
	if !bytes.HasPrefix(rest, []byte(` "`)) {
		return Record{}, "no request after the time"
	}
	return Record{Time: at.UTC(), Key: string(host), Count: 1}, ""
}

// parseTime reads the timestamp of a plain line.
func parseTime(s []byte) (at time.Time, reason string) {
	whole, fraction, isFraction := bytes.Cut(s, []byte("."))
	if isDigits(whole) && (!isFraction || isDigits(fraction)) {
		at, reason = unixTime(whole, fraction)
	} else if t, err := time.Parse(time.RFC3339, string(s)); err == nil {
		at = t.UTC()
	} else {
		return time.Time{}, notATime
	}
	if reason == "" && !inRange(at) {
		reason = outOfRange
	}
	return at, reason
}

// unixTime reads Unix time from its digits before and after the point. It does
// so in integers, as a float64 cannot hold today's nanoseconds.
func unixTime(whole, fraction []byte) (time.Time, string) {
	n, err := strconv.ParseInt(string(whole), 10, 64)
	if err != nil {
		return time.Time{}, outOfRange
	}
	const digits = 9
	var billionths int64
	for i := range digits {
		billionths *= 10
		if i < len(fraction) {
			billionths += int64(fraction[i] - '0')
		}
	}
	if len(whole) >= 12 {
		return time.UnixMilli(n).Add(time.Duration(billionths / 1000)).UTC(), ""
	}
	return time.Unix(n, billionths).UTC(), ""
}

func inRange(t time.Time) bool {
	return t.Unix() >= 0 && t.Before(maxTime)
}

func isDigits(s []byte) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(s) > 0
}

// cutField returns the first field of s and what follows it from the next field
// on. Fields are parted by blanks and tabs; s begins with one unless it is empty.
func cutField(s []byte) (field, rest []byte) {
	end := bytes.IndexAny(s, " \t")
	if end < 0 {
		return s, nil
	}
	return s[:end], bytes.TrimLeft(s[end:], " \t")
}
