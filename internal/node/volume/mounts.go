package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/sysfs"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// within tells that a path is the folder or lies below it.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// mountsBelow lists the mount points at and below a folder, the outermost first. Of
// several on one another each is named, the uppermost first.
func mountsBelow(folder string) ([]string, error) {
	// Mount points are told by their real paths.
	real, err := filepath.EvalSymlinks(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	points, err := sysfs.MountPoints()
	if err != nil {
		return nil, err
	}
	slices.Reverse(points)
	slices.SortStableFunc(points, strings.Compare)
	return slices.DeleteFunc(points, func(p string) bool { return !within(p, real) }), nil
}

// unmountBelow unmounts all that is mounted below a folder. Afterwards nothing
// is, or there is an error.
func unmountBelow(folder string) error {
	const most = 10 // looks; containers have ended, so that nothing new comes
	for range most {
		points, err := mountsBelow(folder)
		if err != nil || len(points) == 0 {
			return err
		}
		for _, p := range points {
			if err := unmount(p); err != nil {
				return err
			}
			fail.Here("volume.unmounted")
		}
	}
	return fmt.Errorf("%s is mounted anew again and again", folder)
}

// unmount detaches a mount with all that is mounted in it, so that a process that
// still looks at it holds nobody up. It tells the mount's peers nothing of that: a
// part of a hostPath is one of the machine's own mount, where the machine has since
// mounted disks that are seen below it (mount_namespaces(7)).
func unmount(point string) error {
	err := enslave(point)
	if err == nil {
		err = unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // gone with another
		return fmt.Errorf("unmount %s: %w", point, err)
	}
	return nil
}

// enslave has a mount, and all in it, hear of their peers and tell them nothing. The
// error is EINVAL where nothing is mounted.
func enslave(point string) error {
	fd, err := unix.Open(point, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = unix.Mount("", fmt.Sprintf("/proc/self/fd/%d", fd), "", unix.MS_SLAVE|unix.MS_REC, "")
	return errors.Join(err, unix.Close(fd))
}

// isMount tells that something is mounted on a folder or file.
func isMount(path string) (bool, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &st); err != nil {
		return false, fmt.Errorf("statx %s: %w", path, err)
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, errors.New("telling mounts needs kernel >= 5.8")
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// removeEmpty removes a folder of mount points. These are empty folders and
// files: one that is not would be what is mounted there, and stays.
func removeEmpty(folder string) error {
	var all []string
	err := filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		all = append(all, name)
		return err
	})
	slices.Reverse(all)
	for _, name := range all {
		if rm := os.Remove(name); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			return errors.Join(err, rm)
		}
	}
	return err
}
