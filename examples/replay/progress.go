package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress shows how far a replay has come, on a terminal only.
type progress struct {
	w     io.Writer // nil: show nothing
	shown time.Time
}

const progressEvery = 200 * time.Millisecond

// newProgress returns a progress that is shown on w, if that is a terminal.
func newProgress(w io.Writer) *progress {
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return &progress{w: w}
		}
	}
	return &progress{}
}

// update tells of the number of lines replayed and the time reached in the log.
func (p *progress) update(lines int64, at time.Time) {
	if p.w == nil || time.Since(p.shown) < progressEvery {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(p.w, "\r\x1b[K%s lines replayed, at %s UTC", thousands(lines), showTime(at))
}

// done clears the line.
func (p *progress) done() {
	if p.w != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
