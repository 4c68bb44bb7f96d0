package netns

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// New makes an empty namespace, which is gone with its last user.
func New() (h *Handle, err error) {
	err = visiting(func() error { return os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNET)) },
		func() (err error) { h, err = Current(); return err })
	if err != nil {
		return nil, fmt.Errorf("make netns: %w", err)
	}
	return h, nil
}

// ProcPath is a path by which other processes can open h while this one has it.
func (h *Handle) ProcPath() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.Fd()) }
