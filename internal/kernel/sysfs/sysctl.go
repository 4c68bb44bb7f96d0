package sysfs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const procSys = "/proc/sys"

// OpenSysctls makes /proc/sys writable in a container that is not privileged,
// where it is mounted read-only. The mount namespace is the container's own, so
// nobody else notices. We need it for pods' sysctls and for forwarding on the
// node, and foreign plugins (bridge, tuning) do too.
func OpenSysctls() error {
	var st unix.Statfs_t
	if err := unix.Statfs(procSys, &st); err != nil {
		return fmt.Errorf("look at %s: %w", procSys, err)
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	// The other restrictions of the mount stay.
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("", procSys, "", flags, ""); err != nil {
		return fmt.Errorf("make %s writable: %w", procSys, err)
	}
	return nil
}
