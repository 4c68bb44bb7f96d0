package podruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/logs"
)

// Grace is what a pod gives its containers to end by themselves; at least 2 s.
func Grace(pod *v1.Pod) time.Duration {
	out := defaultGrace
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		out = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		out = time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	return max(out, leastGrace)
}

// OwnGrace is Grace of a pod that only the runtime knows.
func (s *Status) OwnGrace() time.Duration {
	out := leastGrace
	for i := range s.Containers {
		out = max(out, s.Containers[i].grace)
	}
	return out
}

// Kill ends all that runs of a pod: its containers at once, then its sidecars
// in the reverse of their order, then the sandboxes with their networks. It may
// be called again at any time; what has ended stays known to the runtime.
func (r *Runtime) Kill(ctx context.Context, st *Status, grace time.Duration) error {
	end := r.conf.Now().Add(max(grace, leastGrace))
	if err := r.killContainers(ctx, st, end); err != nil {
		return fmt.Errorf("kill %s: %w", st.UID, err)
	}
	var errs []error
	for _, b := range st.Sandboxes {
		// Also of one that is not ready: its network may not be gone yet.
		_, err := r.conf.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: b.ID})
		if err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("stop sandbox %s: %w", b.ID, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Runtime) killContainers(ctx context.Context, st *Status, end time.Time) error {
	var plain, sidecars []*Container
	for i := range st.Containers {
		switch c := &st.Containers[i]; {
		case !c.alive():
		case c.sidecar > 0:
			sidecars = append(sidecars, c)
		default:
			plain = append(plain, c)
		}
	}
	errs := make([]error, len(plain))
	var all sync.WaitGroup
	for i, c := range plain {
		all.Go(func() { errs[i] = r.stopContainer(ctx, c, r.reach(st), end.Sub(r.conf.Now())) })
	}
	all.Wait()
	slices.SortFunc(sidecars, func(a, b *Container) int { return cmp.Compare(b.sidecar, a.sidecar) })
	for _, c := range sidecars {
		errs = append(errs, r.stopContainer(ctx, c, r.reach(st), end.Sub(r.conf.Now())))
	}
	return errors.Join(errs...)
}

// stopContainer runs the preStop hook and stops the container; both share the
// grace period, but the container gets 2 s after the longest hook.
func (r *Runtime) stopContainer(ctx context.Context, c *Container, ips []string, grace time.Duration) error {
	end := r.conf.Now().Add(max(grace, leastGrace))
	if c.preStop != nil && c.Running() {
		hook, cancel := context.WithTimeout(ctx, end.Sub(r.conf.Now()))
		err := r.hook(hook, c.preStop, c.ID, ips)
		cancel()
		if err != nil { // the container ends all the same
			r.conf.Log.Warn("preStop hook failed: the container is stopped all the same", "container", c.Name, "id", c.ID, "err", err)
		}
	}
	left := max(end.Sub(r.conf.Now()), leastGrace)
	_, err := r.conf.Runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.ID, Timeout: int64(left.Round(time.Second).Seconds())})
	if err != nil && !gone(err) {
		return fmt.Errorf("stop container %s: %w", c.Name, err)
	}
	return nil
}

// removeSandbox removes a sandbox with all containers that are in it.
func (r *Runtime) removeSandbox(ctx context.Context, st *Status, id string) error {
	// Stop first: only then it is certain that the network is gone.
	_, err := r.conf.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	if err == nil || gone(err) {
		_, err = r.conf.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	}
	if err != nil && !gone(err) {
		for i := range st.Containers {
			if c := &st.Containers[i]; c.Sandbox == id && !c.alive() {
				r.killStrays(c.ID)
			}
		}
		return fmt.Errorf("remove sandbox %s: %w", id, err)
	}
	return nil
}

// Remove makes the runtime forget a pod that Kill has ended, and removes its
// cgroup, logs and folder.
func (r *Runtime) Remove(ctx context.Context, st *Status) error {
	if st.UID == "" {
		return errors.New("remove a pod: it has no UID")
	}
	var errs []error
	for i := range st.Containers {
		errs = append(errs, r.removeContainer(ctx, st.Containers[i].ID))
	}
	for _, b := range st.Sandboxes {
		errs = append(errs, r.removeSandbox(ctx, st, b.ID))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove %s: %w", st.UID, err)
	}
	r.Forget(st.UID)
	if err := errors.Join(r.removeCgroup(st.UID), r.removeLogs(st.UID)); err != nil {
		return fmt.Errorf("remove %s: %w", st.UID, err)
	}
	// Last: it is by this folder that a later process finds what is left.
	return os.RemoveAll(filepath.Join(r.conf.PodDir, string(st.UID)))
}

// removeLogs removes a pod's log folders.
func (r *Runtime) removeLogs(uid types.UID) error {
	return r.logDirs(func(path, _ string, of types.UID) error {
		if of != uid {
			return nil
		}
		return os.RemoveAll(path)
	})
}

// SweepLogs removes empty log folders of this node's static pods that are not
// known. A process leaves one that ends before the runtime has heard of the pod,
// on a machine that then loses the pod's own folder. Others may keep logs there
// too: theirs are never empty for long, and made again before they are needed.
func (r *Runtime) SweepLogs(known func(types.UID) bool) error {
	return r.logDirs(func(path, name string, uid types.UID) error {
		if !strings.HasSuffix(name, "-"+strings.ToLower(r.conf.NodeName)) || known(uid) {
			return nil
		}
		if err := unix.Rmdir(path); err != nil && err != unix.ENOTEMPTY && err != unix.ENOENT {
			return fmt.Errorf("remove %s: %w", path, err)
		}
		return nil
	})
}

// logDirs visits all folders <namespace>_<name>_<uid> of logs; neither of the
// first two has an underscore.
func (r *Runtime) logDirs(visit func(path, name string, uid types.UID) error) error {
	dirs, err := os.ReadDir(r.conf.LogDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var errs []error
	for _, d := range dirs {
		if part := strings.SplitN(d.Name(), "_", 3); len(part) == 3 && d.IsDir() {
			errs = append(errs, visit(filepath.Join(r.conf.LogDir, d.Name()), part[1], types.UID(part[2])))
		}
	}
	return errors.Join(errs...)
}

// Forget drops the delays of a pod.
func (r *Runtime) Forget(uid types.UID) {
	r.delay.forget(func(key string) bool { return strings.HasPrefix(key, string(uid)+" ") })
}

// dropLog removes a dead instance's log and last words.
func (r *Runtime) dropLog(pod *v1.Pod, c *Container) error {
	number := strconv.FormatUint(uint64(c.Attempt), 10)
	errs := []error{logs.Remove(filepath.Join(r.logDir(pod), c.Name, number+".log"))}
	for _, f := range []string{
		filepath.Join(r.conf.PodDir, string(pod.UID), "containers", c.Name, number),
		r.endNote(pod.UID, c),
	} {
		if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
