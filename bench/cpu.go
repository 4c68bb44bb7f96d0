package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf is the processor time that a process has used so far, threads
// included, reaped children not. The kernel's per-process clock is exact to
// the nanosecond, where /proc/PID/stat counts ticks of 10 ms.
func cpuOf(pid int) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(processClock(pid), &ts); err != nil {
		return 0, fmt.Errorf("processor clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// daemonsCPU is the bill of the node's living daemons so far.
func daemonsCPU(n *node) (b bill, err error) {
	for _, d := range n.living() {
		used, err := cpuOf(d.pid())
		if err != nil {
			return b, err
		}
		if strings.HasPrefix(d.name, "ovs") {
			b.ovs += used
		} else {
			b.agent += used
		}
	}
	return b, nil
}

// processClock is clock_getcpuclockid(3): CPUCLOCK_SCHED of a process.
func processClock(pid int) int32 { return int32(^pid)<<3 | 2 }

// usage is the processor time of an ended child and of its own children.
func usage(s *os.ProcessState) time.Duration { return s.UserTime() + s.SystemTime() }
