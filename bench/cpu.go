package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf is the processor time that the processes have used so far, threads
// included, reaped children not. The kernel's per-process clock is exact to
// the nanosecond, where /proc/PID/stat counts ticks of 10 ms.
func cpuOf(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		var ts unix.Timespec
		if err := unix.ClockGettime(processClock(pid), &ts); err != nil {
			return 0, fmt.Errorf("processor clock of process %d: %w", pid, err)
		}
		sum += time.Duration(ts.Nano())
	}
	return sum, nil
}

// processClock is clock_getcpuclockid(3): CPUCLOCK_SCHED of a process.
func processClock(pid int) int32 { return int32(^pid)<<3 | 2 }

// usage is the processor time of an ended child and of its own children.
func usage(s *os.ProcessState) time.Duration { return s.UserTime() + s.SystemTime() }
