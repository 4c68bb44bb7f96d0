// Package cgroup gives a test a folder in each cgroup hierarchy of the machine,
// v1 or v2, and removes it with all that runs there, even when the test process
// is killed.
package cgroup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	_ "embed"
)

//go:embed reaper.sh
var reaperScript string

const root = "/sys/fs/cgroup"

// Group is one folder in each hierarchy.
type Group struct {
	Name  string // "/name", as runtimes want it
	Paths []string

	reaper *exec.Cmd
	pipe   io.Closer
}

// Of is the name of the group of a node with a folder.
func Of(dir string) string { return "flk-" + filepath.Base(dir) }

// New makes the folders; kubelet wants them in every hierarchy.
func New(name string) (*Group, error) {
	c, err := named(name)
	if err != nil {
		return nil, err
	}
	if err := c.reap(); err != nil {
		return nil, err
	}
	for _, p := range c.Paths {
		if err := makeFolder(p); err != nil {
			return nil, errors.Join(err, c.Remove())
		}
	}
	return c, nil
}

// Clear ends and removes the group that a killed process has left, if any.
func Clear(name string) error {
	c, err := named(name)
	if err != nil {
		return err
	}
	if err := c.reap(); err != nil {
		return err
	}
	return c.Remove()
}

// named is a group whose folders may not be there.
func named(name string) (*Group, error) {
	c := &Group{Name: "/" + name}
	if _, err := os.Stat(root + "/cgroup.controllers"); err == nil {
		c.Paths = []string{filepath.Join(root, name)} // v2: one hierarchy
		return c, nil
	}
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		if e.IsDir() && e.Name() != "unified" { // the v2 hierarchy beside v1 has no controllers
			c.Paths = append(c.Paths, filepath.Join(root, e.Name(), name))
		}
	}
	return c, err
}

// makeFolder makes one folder. A new one of cpuset (v1) admits no process
// until it has processors and memory.
func makeFolder(dir string) error {
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
func (c *Group) reap() error {
	// Beside v1, runc makes folders in the v2 hierarchy too.
	hybrid := filepath.Join(root, "unified", c.Name)
	cmd := exec.Command("sh", slices.Concat([]string{"-c", reaperScript, "reaper"}, c.Paths, []string{hybrid})...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for it
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

// Residents are the processes in the cgroups.
func (c *Group) Residents() []string {
	var out []string
	for _, p := range c.Paths[:1] { // a process is in every hierarchy; one tells
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

// Remove ends all that runs in the cgroups and removes them.
func (c *Group) Remove() error {
	_ = c.pipe.Close()
	if err := c.reaper.Wait(); err != nil {
		return fmt.Errorf("remove cgroups %s: %w", c.Name, err)
	}
	return nil
}
