// Package reap ends orphans: processes whose parent died before them become
// children of the container's first process, and stay as zombies until that
// waits for them. It never takes the exit status of a process that this one has
// started itself, and knows no purpose of any.
package reap

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Orphans reaps until ctx ends, if this process is one that orphans come to: the
// first of its PID namespace. Elsewhere it returns at once.
//
// A process that package os has started is known by the pidfd that it holds until
// it has waited (Linux >= 5.4); a kernel without leaves no way to tell, and then
// nothing is reaped.
func Orphans(ctx context.Context) error {
	if os.Getpid() != 1 {
		return nil
	}
	self, err := os.FindProcess(1)
	if err == nil {
		err = self.WithHandle(func(uintptr) {})
	}
	if err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	for {
		if err := pass(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
		}
	}
}

// pass reaps the orphans that have ended by now. The zombies are listed first: one
// that is ours has had its pidfd since before it ran, and loses it only when it is
// waited for.
func pass() error {
	dead, err := zombies()
	if err != nil || len(dead) == 0 {
		return err
	}
	ours, err := started()
	if err != nil {
		return err
	}
	for _, pid := range dead {
		if ours[pid] {
			continue
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); err != nil && !errors.Is(err, unix.ECHILD) {
			return os.NewSyscallError("wait4", err)
		}
	}
	return nil
}

// zombies are the children of this process that have ended and are not waited for.
func zombies() (out []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	me := strconv.Itoa(os.Getpid())
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has gone meanwhile
		}
		// proc_pid_stat(5): the name, in brackets, may have anything in it.
		text := string(raw)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if len(fields) > 1 && fields[0] == "Z" && fields[1] == me {
			out = append(out, pid)
		}
	}
	return out, nil
}

// started are the processes that this one holds a pidfd of.
func started() (map[int]bool, error) {
	entries, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		return nil, err
	}
	out := map[int]bool{}
	for _, e := range entries {
		raw, err := os.ReadFile("/proc/self/fdinfo/" + e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed meanwhile: it was waited for
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(raw)) {
			if text, ok := strings.CutPrefix(line, "Pid:"); ok {
				if pid, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && pid > 0 {
					out[pid] = true
				}
			}
		}
	}
	return out, nil
}
