package main

import (
	"container/heap"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fleetlimit/fleetlimit/internal/accesslog"
)

// maxShown is how many unreadable lines are shown.
const maxShown = 5

// input merges logs by time, so that rotated logs may be given in any order, and
// those of several servers at once.
type input struct {
	sources    []*source
	pending    sourceHeap // the logs that have a next record
	unreadable []badLine
}

// source is one log and what became of its lines.
type source struct {
	name   string
	index  int // among the logs
	file   io.Closer
	sorter *accesslog.Sorter
	next   accesslog.Record

	replayed, late, unreadable int64
	err                        error
}

// badLine is a line that could not be read.
type badLine struct {
	File   string `json:"file"`
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
}

// openInput opens all logs, or none and says which could not be.
func openInput(o options, stdin io.Reader) (*input, error) {
	in := &input{}
	var errs []error
	for i, name := range o.files {
		var file io.ReadCloser
		if name == stdinName {
			file = io.NopCloser(stdin)
		} else if f, err := os.Open(name); err != nil {
			errs = append(errs, err)
			continue
		} else {
			file = f
		}
		in.sources = append(in.sources, &source{
			name:   name,
			index:  i,
			file:   file,
			sorter: accesslog.NewSorter(accesslog.NewReader(file), o.reorder),
		})
	}
	if len(errs) > 0 {
		in.close()
		return nil, errors.Join(errs...)
	}
	for _, l := range in.sources {
		if in.advance(l) {
			heap.Push(&in.pending, l)
		}
	}
	return in, nil
}

func (in *input) close() {
	for _, l := range in.sources {
		l.file.Close() // it was only read
	}
}

// read returns the next record of all logs. Times never go backwards.
func (in *input) read() (rec accesslog.Record, ok bool) {
	if len(in.pending) == 0 {
		return accesslog.Record{}, false
	}
	l := in.pending[0]
	rec = l.next
	l.replayed++
	if rec.Late {
		l.late++
	}
	if in.advance(l) {
		heap.Fix(&in.pending, 0)
	} else {
		heap.Pop(&in.pending)
	}
	return rec, true
}

// advance reads the next record of l, and reports whether there is one.
func (in *input) advance(l *source) bool {
	for {
		rec, err := l.sorter.Next()
		var bad *accesslog.ParseError
		switch {
		case err == nil:
			l.next = rec
			return true
		case errors.As(err, &bad):
			l.unreadable++
			if len(in.unreadable) < maxShown {
				in.unreadable = append(in.unreadable, badLine{l.name, bad.Line, bad.Reason})
			}
		case err == io.EOF:
			return false
		default:
			l.err = fmt.Errorf("%s: %w", l.name, err)
			return false
		}
	}
}

// err tells which logs could not be read to their end.
func (in *input) err() error {
	var errs []error
	for _, l := range in.sources {
		errs = append(errs, l.err)
	}
	return errors.Join(errs...)
}

type sourceHeap []*source

func (h sourceHeap) Len() int { return len(h) }

func (h sourceHeap) Less(i, j int) bool {
	if a, b := h[i].next.Time, h[j].next.Time; !a.Equal(b) {
		return a.Before(b)
	}
	return h[i].index < h[j].index
}

func (h sourceHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *sourceHeap) Push(x any) { *h = append(*h, x.(*source)) }

func (h *sourceHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	*h = (*h)[:last]
	return l
}
