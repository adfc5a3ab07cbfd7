package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the CPU time that the calling thread has used, which stands
// still while something else runs in its place.
func threadTime() time.Duration { return clockTime(unix.CLOCK_THREAD_CPUTIME_ID) }

// processTime returns the CPU time that the process has used.
func processTime() time.Duration { return clockTime(unix.CLOCK_PROCESS_CPUTIME_ID) }

func clockTime(clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
