package netns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// New makes an empty namespace, which is gone with its last user.
func New() (*Handle, error) {
	var (
		h    *Handle
		err  error
		made = make(chan struct{})
	)
	go func() {
		defer close(made)
		runtime.LockOSThread()
		if err = os.NewSyscallError("open own netns", errHome); err != nil {
			runtime.UnlockOSThread()
			return
		}
		if err = os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNET)); err == nil {
			h, err = Current()
		}
		// Home again, as after Do. A thread left behind locked would die with this goroutine, but for
		// the process's first one, which Go cannot end: the namespace would live as long as that.
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	<-made
	if err != nil {
		return nil, fmt.Errorf("make netns: %w", err)
	}
	return h, nil
}

// ProcPath is a path by which other processes can open h while this one has it.
func (h *Handle) ProcPath() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.Fd()) }
