package kube

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	_ "embed"
)

//go:embed assets/reaper.sh
var reaperScript string

const cgroupfs = "/sys/fs/cgroup"

// cgroups is a node's folder in each hierarchy, and the process that removes
// them with all that runs there.
type cgroups struct {
	name   string // "/fl-node-..."
	paths  []string
	reaper *exec.Cmd
	pipe   io.Closer
}

// newCgroups makes the folders; kubelet wants them in every hierarchy.
func newCgroups(name string) (*cgroups, error) {
	c := &cgroups{name: "/" + name}
	entries, err := os.ReadDir(cgroupfs)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(cgroupfs + "/cgroup.controllers"); err == nil {
		c.paths = []string{filepath.Join(cgroupfs, name)} // v2: one hierarchy
	} else {
		for _, e := range entries {
			if e.IsDir() && e.Name() != "unified" { // the v2 hierarchy beside v1 has no controllers
				c.paths = append(c.paths, filepath.Join(cgroupfs, e.Name(), name))
			}
		}
	}
	if err := c.reap(); err != nil {
		return nil, err
	}
	for _, p := range c.paths {
		if err := makeCgroup(p); err != nil {
			return nil, errors.Join(err, c.remove())
		}
	}
	return c, nil
}

// makeCgroup makes one folder. A new one of cpuset (v1) admits no process
// until it has processors and memory.
func makeCgroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		above, err := os.ReadFile(filepath.Join(dir, "..", f))
		if err != nil {
			continue // another controller, or v2, where the root has none
		}
		if err := os.WriteFile(filepath.Join(dir, f), above, 0o644); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	return nil
}

// reap starts the process that ends the cgroups when this one ends.
func (c *cgroups) reap() error {
	cmd := exec.Command("sh", append([]string{"-c", reaperScript, "reaper"}, c.paths...)...)
	cmd.SysProcAttr = ownGroup()
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the reaper: %w", err)
	}
	c.reaper, c.pipe = cmd, pipe
	return nil
}

// residents are the processes in the cgroups.
func (c *cgroups) residents() []string {
	var out []string
	for _, p := range c.paths[:1] { // a process is in every hierarchy; one tells
		_ = filepath.WalkDir(p, func(name string, _ os.DirEntry, err error) error {
			if err != nil || filepath.Base(name) != "cgroup.procs" {
				return nil //nolint:nilerr // what is gone meanwhile holds no process
			}
			b, _ := os.ReadFile(name)
			for _, pid := range strings.Fields(string(b)) {
				args, _ := os.ReadFile("/proc/" + pid + "/cmdline")
				out = append(out, fmt.Sprintf("pid %s: %s", pid, strings.ReplaceAll(string(args), "\x00", " ")))
			}
			return nil
		})
	}
	return out
}

// remove ends all that runs in the cgroups and removes them.
func (c *cgroups) remove() error {
	_ = c.pipe.Close()
	if err := c.reaper.Wait(); err != nil {
		return fmt.Errorf("remove cgroups %s: %w", c.name, err)
	}
	return nil
}
