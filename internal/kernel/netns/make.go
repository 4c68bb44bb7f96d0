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
		// Never unlocked: the thread, which has left its namespace, dies here.
		runtime.LockOSThread()
		if err = os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNET)); err == nil {
			h, err = Current()
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
