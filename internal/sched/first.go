package sched

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// nice is that of ovs-vswitchd, as ovs-ctl starts it. Every pod that starts
// waits for both; the plugins that ask, one for each of them, can wait.
const nice = -10

// First has the process's threads run before others where processors are
// scarce (nice -10), and the processes that it starts. It counts among what
// shares a cgroup of processors, or without those a session; between cgroups
// their weights do. A nice value other than 0, which somebody has chosen, stays.
// Without the right to (CAP_SYS_NICE) it is an error.
func First() error {
	for again := true; again; {
		again = false
		tids, err := threads()
		if err != nil {
			return err
		}
		for _, tid := range tids {
			have, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
			const none = 20 // the call gives 20 - nice
			if err == nil && have == none {
				err = unix.Setpriority(unix.PRIO_PROCESS, tid, nice)
				again = true // one that was not may have started others meanwhile
			}
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("nice %d: %w", nice, os.NewSyscallError("setpriority", err))
			}
		}
	}
	return nil
}

// threads are the process's, in the order in which they were started.
func threads() (tids []int, err error) {
	dir, err := os.Open(tasks)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil {
			return nil, err
		}
		tids = append(tids, tid)
	}
	return tids, nil
}
