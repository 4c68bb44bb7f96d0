package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf is the processor time that a process has used so far, its threads and
// its reaped children (delegates) included. The kernel's per-process clock is
// exact to the nanosecond; the children's sum comes in ticks of 10 ms.
func cpuOf(pid int) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(processClock(pid), &ts); err != nil {
		return 0, fmt.Errorf("processor clock of process %d: %w", pid, err)
	}
	reaped, err := childrenCPU(pid)
	return time.Duration(ts.Nano()) + reaped, err
}

const tick = 10 * time.Millisecond // USER_HZ is 100 everywhere

// childrenCPU is cutime + cstime of /proc/PID/stat, fields 16 and 17.
func childrenCPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may hold spaces
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields behind the name", pid, len(fields))
	}
	var ticks time.Duration
	for _, f := range fields[13:15] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += time.Duration(n)
	}
	return ticks * tick, nil
}

// daemonsCPU is the bill of the node's living daemons so far.
func daemonsCPU(n *node) (b bill, err error) {
	for _, d := range n.living() {
		used, err := cpuOf(d.pid())
		if err != nil {
			return b, err
		}
		switch {
		case strings.HasPrefix(d.name, "ovs"), strings.HasPrefix(d.name, "ovn"):
			b.ovs += used
		case d.name == "etcd", d.name == "kube-apiserver", d.name == "fairlead-controller":
			b.api += used
		default:
			b.agent += used
		}
	}
	return b, nil
}

// processClock is clock_getcpuclockid(3): CPUCLOCK_SCHED of a process.
func processClock(pid int) int32 { return int32(^pid)<<3 | 2 }

// usage is the processor time of an ended child and of its own children.
func usage(s *os.ProcessState) time.Duration { return s.UserTime() + s.SystemTime() }
