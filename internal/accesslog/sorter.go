package accesslog

import (
	"container/heap"
	"time"
)

// maxHeld bounds the records that a Sorter holds, and so its memory to some tens
// of megabytes.
const maxHeld = 1 << 18

// Sorter returns the records of a [Reader] in the order of their times, and
// those of equal times in the order of their lines. Servers write a line when
// the request is done, so lines are often somewhat out of order.
//
// It holds a record back until it has seen one that is later by the slack, or
// holds 262,144 others. A record that is earlier than one it has already returned
// is marked Late and takes that one's time, so times never go backwards.
//
// It is not safe for concurrent use.
type Sorter struct {
	src    *Reader
	slack  time.Duration
	held   recordHeap
	newest time.Time
	last   time.Time // of the record returned last
	err    error     // why src has ended
}

// NewSorter returns a Sorter of src for lines that are out of order by no more
// than slack, which is at least 0.
func NewSorter(src *Reader, slack time.Duration) *Sorter {
	return &Sorter{src: src, slack: slack}
}

// Next returns the next record. Errors are those of [Reader.Read]; a
// [*ParseError] is returned at once, the others after the last record.
func (s *Sorter) Next() (Record, error) {
	for s.err == nil && !s.ready() {
		rec, err := s.src.Read()
		if _, ok := err.(*ParseError); ok {
			return Record{}, err
		}
		if err != nil {
			s.err = err
			break
		}
		if rec.Time.After(s.newest) {
			s.newest = rec.Time
		}
		heap.Push(&s.held, rec)
	}
	if len(s.held) == 0 {
		return Record{}, s.err
	}
	rec := heap.Pop(&s.held).(Record)
	if rec.Time.Before(s.last) {
		rec.Time, rec.Late = s.last, true
	}
	s.last = rec.Time
	return rec, nil
}

// ready tells whether the earliest record need not be held back any longer.
func (s *Sorter) ready() bool {
	return len(s.held) > maxHeld ||
		len(s.held) > 0 && s.newest.Sub(s.held[0].Time) >= s.slack
}

type recordHeap []Record

func (h recordHeap) Len() int { return len(h) }

func (h recordHeap) Less(i, j int) bool {
	if !h[i].Time.Equal(h[j].Time) {
		return h[i].Time.Before(h[j].Time)
	}
	return h[i].Line < h[j].Line
}

func (h recordHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *recordHeap) Push(x any) { *h = append(*h, x.(Record)) }

func (h *recordHeap) Pop() any {
	last := len(*h) - 1
	rec := (*h)[last]
	(*h)[last] = Record{} // let go of the key
	*h = (*h)[:last]
	return rec
}
