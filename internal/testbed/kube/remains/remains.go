// Package remains removes what a process that was killed has left of clusters
// and nodes. It knows them by their folders alone.
package remains

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/internal/testbed/kube/cgroup"
)

// Clear removes a folder in which a process that was killed had clusters and
// nodes: their processes, cgroups and files. The folder was that process's
// TMPDIR. Nearly all of it ends with the process; what does not, or not yet, is
// found by the mounts of the nodes' namespaces.
func Clear(ctx context.Context, dir string) error {
	nodes, err := filepath.Glob(filepath.Join(dir, "fl*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range nodes {
		errs = append(errs, cgroup.Clear(cgroup.Of(n)))
	}
	if err := errors.Join(append(errs, end(ctx, dir))...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// end kills what runs in a folder until nothing does: a process may fork while
// it is hunted.
func end(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := killMounted(dir)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("still runs in %s: %w", dir, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// killMounted kills the processes whose mounts lie in a folder, by pid; an error
// tells that there were some.
func killMounted(dir string) error {
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range all {
		mounts, err := os.ReadFile(filepath.Join(p, "mountinfo"))
		pid, notPid := strconv.Atoi(filepath.Base(p))
		if err != nil || notPid != nil || pid == os.Getpid() || !bytes.Contains(mounts, []byte(dir+"/")) {
			continue // gone meanwhile, or another's
		}
		errs = append(errs, fmt.Errorf("process %d: %w", pid, errors.Join(os.ErrExist, syscall.Kill(pid, syscall.SIGKILL))))
	}
	return errors.Join(errs...)
}
