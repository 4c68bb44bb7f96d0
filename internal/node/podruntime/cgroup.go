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

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/node/cgroups"
	"github.com/fairlead/fairlead/internal/node/demand"
)

// cgroupRoot is where the hierarchies are mounted, v1 or v2.
const cgroupRoot = "/sys/fs/cgroup"

// Cgroups of pods by their class, below ours; guaranteed ones stand there directly
// (kubelet's pkg/kubelet/cm).
var classGroups = map[v1.PodQOSClass]string{v1.PodQOSGuaranteed: "", v1.PodQOSBurstable: "burstable", v1.PodQOSBestEffort: "besteffort"}

// cgroup is the parent of a pod's containers, in each hierarchy.
func (r *Runtime) cgroup(pod *v1.Pod) string {
	return path.Join("/", r.conf.CgroupParent, classGroups[Class(pod)], "pod"+string(pod.UID))
}

// cgroupDirs finds the folders of a pod, of whatever class, or what a pattern says
// below them.
func (r *Runtime) cgroupDirs(uid, below string) ([]string, error) {
	var out []string
	for _, root := range []string{cgroupRoot, cgroupRoot + "/*"} { // of v2 there is one hierarchy, of v1 one below each name
		for _, class := range classGroups {
			dirs, err := filepath.Glob(root + path.Join("/", r.conf.CgroupParent, class, "pod"+uid, below))
			if err != nil {
				return nil, err
			}
			out = append(out, dirs...)
		}
	}
	return out, nil
}

// makeCgroup makes a pod's cgroup before the runtime puts containers below it. It
// bounds the pod as a whole, sandbox included, and weighs it among the others: a
// container's own share counts within its pod alone.
func (r *Runtime) makeCgroup(pod *v1.Pod) error {
	if r.conf.CgroupParent == "" {
		return nil
	}
	at := r.cgroup(pod)
	limits, want := demand.Limits(pod), demand.Requests(pod)
	err := cgroups.Make(at, cgroups.Limits{
		Shares: shares(want.Cpu().MilliValue()), CPU: limits.Cpu().MilliValue(), Memory: limits.Memory().Value(),
	})
	if err != nil {
		return err
	}
	switch Class(pod) {
	case v1.PodQOSBestEffort: // they get what the others leave
		return cgroups.Make(path.Dir(at), cgroups.Limits{Shares: cgroups.LeastShares})
	case v1.PodQOSBurstable:
		return cgroups.Weigh(path.Dir(at))
	}
	return nil
}

// shares are those of cpu.shares for a request in thousandths of a processor.
func shares(milli int64) int64 { return max(cgroups.LeastShares, milli*1024/1000) }

// removeCgroup removes the folders that the runtime made for the pod. A process
// that is still there is killed: the runtime has forgotten the pod, so it is one
// of a container whose making was interrupted. It is an error until it is gone.
func (r *Runtime) removeCgroup(uid types.UID) error {
	if r.conf.CgroupParent == "" {
		return nil
	}
	dirs, err := r.cgroupDirs(string(uid), "")
	if err != nil {
		return fmt.Errorf("remove cgroup of %s: %w", uid, err)
	}
	var errs []error
	for _, d := range dirs {
		errs = append(errs, removeTree(d))
	}
	if len(dirs) > 0 {
		errs = append(errs, cgroups.Weigh(path.Join("/", r.conf.CgroupParent, classGroups[v1.PodQOSBurstable])))
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
		dirs, err := r.cgroupDirs("*", id)
		if err != nil {
			return // an id that is no name; the runtime has said what is wrong
		}
		for _, d := range dirs {
			killAll(d)
		}
	}
}
