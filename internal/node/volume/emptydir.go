package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/lib/fail"
)

// Bits of folders that belong to all of a pod; with a group of its own, what is
// made there is the group's too (kubelet's pkg/volume SetVolumeOwnership).
const (
	open     = 0o777
	setgid   = 0o2000
	newMark  = ".new-" // no name of a volume begins so
	noMemory = int64(0)
)

// fsGroup is the group that a pod's volumes belong to; -1 is none.
func fsGroup(pod *v1.Pod) int {
	if s := pod.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		return int(*s.FSGroup)
	}
	return -1
}

// emptyDir is a folder of the pod, or a tmpfs when it is to be in memory.
func (f *Folder) emptyDir(pod *v1.Pod, v *v1.Volume) (Mount, error) {
	dir, group := f.dir(pod.UID, kindEmptyDir, v.Name), fsGroup(pod)
	switch m := v.EmptyDir.Medium; m {
	case v1.StorageMediumDefault:
		return Mount{Path: dir}, prepare(dir, group, false)
	case v1.StorageMediumMemory:
		return Mount{Path: dir}, memory(dir, group, sizeOf(pod, v.EmptyDir))
	default:
		return Mount{}, fmt.Errorf("medium %q is not supported", m)
	}
}

// sizeOf bounds what an emptyDir may take of the memory, in bytes: its own
// limit, or the pod's if that is less. 0 is the kernel's bound, half of all.
func sizeOf(pod *v1.Pod, e *v1.EmptyDirVolumeSource) int64 {
	out := noMemory
	for i := range pod.Spec.Containers {
		limit := pod.Spec.Containers[i].Resources.Limits.Memory().Value()
		if limit == 0 {
			out = noMemory
			break
		}
		out += limit
	}
	if s := e.SizeLimit; s != nil && s.Value() > 0 && (out == 0 || s.Value() < out) {
		out = s.Value()
	}
	return out
}

// prepare makes a volume's folder as any user of the pod wants it. One that is
// there is left as it is: containers may have given it another mode.
func prepare(dir string, group int, inMemory bool) error {
	if inMemory {
		return memory(dir, group, 0)
	}
	if _, err := os.Lstat(dir); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Made beside its place, so that what has the name is complete.
	fresh := filepath.Join(filepath.Dir(dir), newMark+filepath.Base(dir))
	if err := os.MkdirAll(fresh, 0o750); err != nil {
		return err
	}
	fail.Here("volume.made")
	if err := own(fresh, open, group); err != nil {
		return err
	}
	return os.Rename(fresh, dir)
}

// own gives a file or folder its mode, whatever our umask, and its group.
func own(path string, mode os.FileMode, group int) error {
	if group >= 0 {
		if err := os.Lchown(path, -1, group); err != nil {
			return err
		}
	}
	bits := uint32(mode.Perm())
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if group >= 0 && st.IsDir() {
		bits |= setgid | 0o110
	}
	if err := unix.Fchmodat(unix.AT_FDCWD, path, bits, 0); err != nil {
		return fmt.Errorf("chmod %s: %w", path, err)
	}
	return nil
}

// memory mounts a tmpfs, unless there is one. Its mode and owner come with the
// mount: there is no moment without them.
func memory(dir string, group int, size int64) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	fail.Here("volume.memory")
	if mounted, err := isMount(dir); err != nil || mounted {
		return err
	}
	options := "mode=0777"
	if group >= 0 {
		options = fmt.Sprintf("mode=2777,gid=%d", group)
	}
	if size > 0 {
		options += fmt.Sprintf(",size=%d", size)
	}
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, options+",noswap")
	if errors.Is(err, unix.EINVAL) { // before kernel 6.4, or in a user namespace
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, options)
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	fail.Here("volume.mounted")
	return nil
}
