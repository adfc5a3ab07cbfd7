package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the CPU time that the calling thread has used. It stands
// still while something else runs in the thread's place.
func threadTime() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

// processTime returns the CPU time that the process has used.
func processTime() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
