package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// cgroupRoot is where systems mount cgroups.
const cgroupRoot = "/sys/fs/cgroup"

// hierarchies of v1 that account a process: what kubelet reads of a runtime.
var hierarchies = []string{"cpu", "cpuacct", "memory", "pids", "systemd"}

// JoinCgroup moves this process into the cgroup at path, so that what the runtime
// itself uses is accounted and limited apart from pods. The path starts with / and
// is made if need be, in the one hierarchy of v2 or in those of v1 that are there.
func JoinCgroup(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) == "/" {
		return fmt.Errorf("join cgroup %q: not a path below /", path)
	}
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return enterCgroup(filepath.Join(cgroupRoot, path))
	}
	var errs []error
	for _, h := range hierarchies {
		if _, err := os.Stat(filepath.Join(cgroupRoot, h, "cgroup.procs")); err == nil {
			errs = append(errs, enterCgroup(filepath.Join(cgroupRoot, h, path)))
		}
	}
	if len(errs) == 0 {
		return fmt.Errorf("join cgroup %s: no cgroups below %s", path, cgroupRoot)
	}
	return errors.Join(errs...)
}

func enterCgroup(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("join cgroup: %w", err)
	}
	// The kernel reads the number in one write.
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return fmt.Errorf("join cgroup: %w", err)
	}
	return nil
}
