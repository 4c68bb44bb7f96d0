// Package volume makes the folders that a pod's volumes are. It knows no
// runtime and no source: it is told a pod, and gives back where each volume
// lies on this machine.
package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Mount is where a volume lies on this machine.
type Mount struct {
	Path     string
	ReadOnly bool
}

// Folder makes volumes below one folder: <root>/<uid>/volumes/<kind>/<name>.
type Folder struct{ root string }

// New keeps what pods need below root.
func New(root string) *Folder { return &Folder{root: root} }

// kindEmptyDir is the folder of emptyDirs in a pod's own.
const kindEmptyDir = "empty-dir"

func (f *Folder) dir(uid types.UID, kind string) string {
	return filepath.Join(f.root, string(uid), "volumes", kind)
}

// SetUp makes every volume of the pod and may be called again at any time: what
// is there stays as it is. The error says which volume failed.
func (f *Folder) SetUp(_ context.Context, pod *v1.Pod) (map[string]Mount, error) {
	out := make(map[string]Mount, len(pod.Spec.Volumes))
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		m, err := f.one(pod.UID, v)
		if err != nil {
			return nil, fmt.Errorf("set up volume %s: %w", v.Name, err)
		}
		out[v.Name] = m
	}
	return out, nil
}

func (f *Folder) one(uid types.UID, v *v1.Volume) (Mount, error) {
	switch {
	case v.EmptyDir != nil:
		return f.emptyDir(uid, v)
	case v.HostPath != nil:
		return hostPath(v.HostPath)
	}
	return Mount{}, errors.New("this kind of volume is not supported on a node without a cluster")
}

// emptyDir is a folder of the pod, or a tmpfs when it is to be in memory.
func (f *Folder) emptyDir(uid types.UID, v *v1.Volume) (Mount, error) {
	dir := filepath.Join(f.dir(uid, kindEmptyDir), v.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return Mount{}, err
	}
	// Any user of the pod may write there; the mode is not the umask's to cut.
	if err := os.Chmod(dir, 0o777); err != nil {
		return Mount{}, err
	}
	if v.EmptyDir.Medium != v1.StorageMediumMemory {
		return Mount{Path: dir}, nil
	}
	mounted, err := isMount(dir)
	if err != nil || mounted {
		return Mount{Path: dir}, err
	}
	options := "mode=0777"
	if s := v.EmptyDir.SizeLimit; s != nil && s.Value() > 0 {
		options += fmt.Sprintf(",size=%d", s.Value())
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		return Mount{}, fmt.Errorf("mount tmpfs: %w", err)
	}
	return Mount{Path: dir}, nil
}

// isMount tells that a folder lies on another file system than its parent.
func isMount(dir string) (bool, error) {
	var here, above syscall.Stat_t
	if err := syscall.Stat(dir, &here); err != nil {
		return false, fmt.Errorf("stat %s: %w", dir, err)
	}
	if err := syscall.Stat(filepath.Dir(dir), &above); err != nil {
		return false, fmt.Errorf("stat %s: %w", filepath.Dir(dir), err)
	}
	return here.Dev != above.Dev, nil
}

// TearDown removes all volumes of a pod that were made here. What is gone
// already is success; a hostPath is not ours to remove.
func (f *Folder) TearDown(uid types.UID) error {
	if uid == "" {
		return nil
	}
	dirs, err := os.ReadDir(f.dir(uid, kindEmptyDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("tear down volumes of %s: %w", uid, err)
	}
	for _, d := range dirs {
		dir := filepath.Join(f.dir(uid, kindEmptyDir), d.Name())
		// Detached, so that a process that still looks at it holds nobody up.
		err := syscall.Unmount(dir, syscall.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(f.root, string(uid), "volumes")); err != nil {
		return fmt.Errorf("tear down volumes of %s: %w", uid, err)
	}
	return nil
}
