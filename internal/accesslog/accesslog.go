// Package accesslog reads who asked when from logs of requests.
//
// A [Reader] turns lines into records, one for one. Each line may be
//
//   - in the common or combined log format, of which the client's address and
//     the time are used: 192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / ...
//   - or a timestamp, a key and, if it is not 1, a count, parted by blanks:
//     2015-05-17T10:05:03Z customer-7 3
//
// A timestamp is RFC 3339 or Unix time in seconds, or in milliseconds if it has
// twelve digits or more; both may have a fraction. A [Sorter] puts the records
// of a Reader in order.
package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"time"
)

// MaxLine is the length in bytes of the longest line that can be read, its line
// end included. A longer one is skipped and gives a [ParseError].
const MaxLine = 64 << 10

// MaxCount is the largest count of one record.
const MaxCount = 1_000_000_000

// Record is one line of a log.
type Record struct {
	// Line is the number of the line in its log, from 1.
	Line int64
	// Time is when the request came, between the years 1970 and 2199.
	Time time.Time
	// Key is who asked. It is not empty and holds no blank or tab.
	Key string
	// Count is how many events the request counts for, 0 to [MaxCount].
	Count int64
	// Late is set by a [Sorter].
	Late bool
}

// ParseError says that one line could not be read. The lines after it can.
type ParseError struct {
	// Line is the number of the line in its log, from 1.
	Line int64
	// Reason says what is wrong with it, without quoting it.
	Reason string
}

// Error implements error.
func (e *ParseError) Error() string {
	return fmt.Sprintf("accesslog: line %d: %s", e.Line, e.Reason)
}

// Reader reads records from a log. It is not safe for concurrent use.
type Reader struct {
	src   *bufio.Reader
	lines *bufio.Reader // src, or what its gzip data expands to; nil before the first Read
	line  int64
	err   error
}

// NewReader returns a Reader of r, which may be plain text or gzip data of any
// number of members. It reads ahead.
func NewReader(r io.Reader) *Reader {
	return &Reader{src: bufio.NewReaderSize(r, MaxLine)}
}

// Read returns the next record. A line that is none gives a [*ParseError], after
// which reading can go on; io.EOF means that all lines were read, and any other
// error, which is from the underlying reader or the decompression, that the rest
// cannot be. Both of these stay.
func (r *Reader) Read() (Record, error) {
	if r.err != nil {
		return Record{}, r.err
	}
	if r.lines == nil {
		if err := r.open(); err != nil {
			return Record{}, r.fail(err)
		}
	}

	text, err := r.lines.ReadSlice('\n')
	switch {
	case err == bufio.ErrBufferFull:
		for err == bufio.ErrBufferFull {
			_, err = r.lines.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return Record{}, r.fail(err)
		}
		r.line++
		return Record{}, &ParseError{r.line, fmt.Sprintf("longer than %d bytes", MaxLine)}
	case err == io.EOF && len(text) > 0:
		// The last line has no line end; the next Read meets io.EOF again.
	case err != nil:
		return Record{}, r.fail(err)
	}

	r.line++
	if r.line == 1 {
		text = bytes.TrimPrefix(text, []byte("\uFEFF")) // a byte order mark
	}
	rec, reason := parse(bytes.TrimSpace(text))
	if reason != "" {
		return Record{}, &ParseError{r.line, reason}
	}
	rec.Line = r.line
	return rec, nil
}

// open finds out whether the log is compressed. A source too short to tell is
// not.
func (r *Reader) open() error {
	magic, _ := r.src.Peek(2)
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		r.lines = r.src
		return nil
	}
	z, err := gzip.NewReader(r.src)
	if err != nil {
		return err
	}
	r.lines = bufio.NewReaderSize(z, MaxLine)
	return nil
}

// fail ends the reading.
func (r *Reader) fail(err error) error {
	r.err = err
	if err != io.EOF {
		r.err = fmt.Errorf("accesslog: after line %d: %w", r.line, err)
	}
	return r.err
}
