package exec

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
)

const (
	killLimit = 5 * time.Second
	killPause = 2 * time.Millisecond
	// execTime is how long a process may show no environment: in the middle of
	// execve(2) it has none.
	execTime = time.Second
)

// Kill implements driver.Killer: it ends a plugin that a former agent left
// running, its children included, and returns when none of them can act any more.
// A process group that is not the one of p is never touched.
//
// The kernel gives a number out again only when no process and no group has it
// (pid_namespaces(7)). So a leader with another start time proves that the
// group of p is gone, and one with the same that the group is p's. A group
// without a leader may be the rest of p's or of a later one: there only
// processes are killed that are not older than p and carry the environment of
// a CNI call.
func (d *Driver) Kill(p core.Proc) error {
	if p.PGID <= 1 {
		return fmt.Errorf("kill process group %d: not a plugin's", p.PGID)
	}
	begun := time.Now()
	for end := begun.Add(killLimit); ; time.Sleep(killPause) {
		left, err := killOnce(p, time.Since(begun) < execTime)
		if err != nil {
			return fmt.Errorf("kill process group %d: %w", p.PGID, err)
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("kill process group %d: %d processes still live after %s", p.PGID, left, killLimit)
		}
	}
}

// killOnce signals the group's processes that live and counts them. With patient
// it counts also those of which cannot be told yet whether they live.
func killOnce(p core.Proc, patient bool) (int, error) {
	leader, err := readStat(p.PGID)
	switch {
	case err == nil && leader.start != p.StartTime:
		return 0, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	led := err == nil // the leader is there, be it as a zombie
	members, err := group(p)
	if err != nil {
		return 0, err
	}
	if led && len(members) > 0 {
		return len(members), signal(p.PGID, func(st stat) bool { return st.start == p.StartTime }, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	}
	return killLeaderless(p, members, patient)
}

// killLeaderless is killOnce for a group that may be another's by now.
func killLeaderless(p core.Proc, members []int, patient bool) (left int, err error) {
	for _, pid := range members {
		yes, known, err := calledByCNI(pid)
		if yes {
			err = signal(pid, func(st stat) bool { return st.memberOf(p) }, 0)
		}
		if err != nil {
			return 0, err
		}
		if yes || (patient && !known) {
			left++
		}
	}
	return left, nil
}

// signal kills pid, or with PIDFD_SIGNAL_PROCESS_GROUP its whole group at once,
// if ours says so: a pidfd holds on to the process that was looked at.
func signal(pid int, ours func(stat) bool, flags int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer func() { _ = unix.Close(fd) }()
	st, err := readStat(pid)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !ours(st) {
		return nil // gone in the meantime
	}
	if err != nil {
		return err
	}
	err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, flags)
	if errors.Is(err, unix.EINVAL) && flags != 0 { // groups need Linux >= 6.9
		err = unix.Kill(-pid, unix.SIGKILL)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	return nil
}

// group lists the members that can still act; a zombie cannot.
func group(p core.Proc) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		st, err := readStat(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if st.memberOf(p) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// calledByCNI tells whether a process has the environment of a CNI call; known
// is false while it has none at all. One that is gone has not.
func calledByCNI(pid int) (yes, known bool, err error) {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return false, true, nil
	}
	if err != nil {
		return false, false, err
	}
	return bytes.Contains(append([]byte{0}, env...), []byte("\x00CNI_COMMAND=")), len(env) > 0, nil
}

// stat is what we need of /proc/PID/stat (proc_pid_stat(5)).
type stat struct {
	dead  bool
	pgrp  int
	start uint64 // clock ticks since boot
}

// memberOf: alive, in p's group, and not older than its leader.
func (st stat) memberOf(p core.Proc) bool {
	return !st.dead && st.pgrp == p.PGID && st.start >= p.StartTime
}

// readStat reads a process; fs.ErrNotExist when there is none.
func readStat(pid int) (stat, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, unix.ESRCH) {
		err = fs.ErrNotExist // it ended while it was read
	}
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(raw))
}

// parseStat: the name in field 2 may hold anything, so the fields are counted
// from its closing bracket.
func parseStat(raw string) (stat, error) {
	f := strings.Fields(raw[strings.LastIndexByte(raw, ')')+1:])
	if len(f) < 20 {
		return stat{}, fmt.Errorf("stat has %d fields after the name", len(f))
	}
	pgrp, err1 := strconv.Atoi(f[2])
	start, err2 := strconv.ParseUint(f[19], 10, 64)
	return stat{dead: f[0] == "Z" || f[0] == "X", pgrp: pgrp, start: start}, errors.Join(err1, err2)
}
