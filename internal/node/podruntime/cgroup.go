package podruntime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

// cgroupRoot is where the hierarchies are mounted, v1 or v2.
const cgroupRoot = "/sys/fs/cgroup"

// cgroup is the parent of a pod's containers, in each hierarchy.
func (r *Runtime) cgroup(uid types.UID) string {
	return path.Join("/", r.conf.CgroupParent, "pod"+string(uid))
}

// removeCgroup removes the folders that the runtime made for the pod. A process
// that is still there is killed: the runtime has forgotten the pod, so it is one
// of a container whose making was interrupted. It is an error until it is gone.
func (r *Runtime) removeCgroup(uid types.UID) error {
	if r.conf.CgroupParent == "" {
		return nil
	}
	var errs []error
	for _, pattern := range []string{cgroupRoot, cgroupRoot + "/*"} {
		// Of v2 there is one hierarchy, of v1 one below each name.
		dirs, err := filepath.Glob(pattern + r.cgroup(uid))
		if err != nil {
			return fmt.Errorf("remove cgroup of %s: %w", uid, err)
		}
		for _, d := range dirs {
			errs = append(errs, removeTree(d))
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup and those below it; their files go with them.
func removeTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.IsDir() {
			dirs = append(dirs, name)
		}
		return err
	})
	slices.Reverse(dirs)
	for _, d := range dirs {
		killAll(d)
		if rm := os.Remove(d); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			err = errors.Join(err, rm)
		}
	}
	return err
}

// killAll kills the processes of one cgroup. Whether that was enough shows when
// the folder is removed.
func killAll(dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return // gone, or not a cgroup
	}
	for _, word := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	// Of v1: one that is frozen dies only when it is thawed.
	_ = os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0o600)
}

// killStrays kills what runs in the cgroups of containers that the runtime calls
// ended and yet cannot remove: a start that was interrupted leaves a process of
// which only the kernel knows. With a cgroup of the runtime's choice nothing is
// known of it.
func (r *Runtime) killStrays(ids ...string) {
	if r.conf.CgroupParent == "" {
		return
	}
	for _, id := range ids {
		for _, pattern := range []string{cgroupRoot, cgroupRoot + "/*"} {
			dirs, err := filepath.Glob(pattern + path.Join("/", r.conf.CgroupParent, "pod*", id))
			if err != nil {
				return // an id that is no name; the runtime has said what is wrong
			}
			for _, d := range dirs {
				killAll(d)
			}
		}
	}
}
