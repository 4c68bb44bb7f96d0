package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

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
		errs = append(errs, cgroup.Clear(cgroupOf(n)))
	}
	errs = append(errs, until(ctx, "the end of what runs in "+dir, func() error { return killMounted(dir) }))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// cgroupOf names the cgroups of the node with a folder.
func cgroupOf(dir string) string { return "flk-" + filepath.Base(dir) }

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
