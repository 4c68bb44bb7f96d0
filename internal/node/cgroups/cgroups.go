// Package cgroups makes a control group in each hierarchy of the machine, v1 or v2,
// with limits (kernel: admin-guide/cgroup-v1, cgroup-v2). It knows no pod.
package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// LeastShares is the least weight of v1.
const LeastShares = 2

const (
	root   = "/sys/fs/cgroup"
	period = 100_000 // microseconds of which CPU is a part
)

// Limits of a group; what is 0 is left as it is.
type Limits struct {
	Shares int64 // weight among its neighbours, as cpu.shares of v1: 1024 for one processor
	CPU    int64 // thousandths of a processor
	Memory int64 // bytes
}

// Make makes the group of a path ("/pods/podX") with its limits, in the hierarchies
// that have any: the runtime makes it in the others. It may be called again at any
// time.
func Make(path string, l Limits) error {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return makeUnified(path, l)
	}
	for _, hierarchy := range []string{"cpu", "memory"} {
		if err := makeSplit(filepath.Join(root, hierarchy), path, l); err != nil {
			return fmt.Errorf("cgroup %s: %w", path, err)
		}
	}
	return nil
}

// makeSplit makes the group in one hierarchy of v1. It sets what the hierarchy has.
func makeSplit(hierarchy, path string, l Limits) error {
	dir := hierarchy
	for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// A new group of cpuset admits nobody before it has these.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := inherit(dir, file); err != nil {
				return err
			}
		}
	}
	values := map[string]int64{"cpu.shares": l.Shares, "memory.limit_in_bytes": l.Memory}
	if l.CPU > 0 {
		values["cpu.cfs_period_us"], values["cpu.cfs_quota_us"] = period, quota(l.CPU)
	}
	for file, value := range values {
		if value > 0 {
			if err := set(dir, file, strconv.FormatInt(value, 10)); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeUnified makes the group of v2, whose controllers have to be handed down by
// each group above it.
func makeUnified(path string, l Limits) error {
	dir := root
	for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
		if err := set(dir, "cgroup.subtree_control", "+cpu +memory"); err != nil {
			return fmt.Errorf("cgroup %s: %w", path, err)
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("cgroup %s: %w", path, err)
		}
	}
	values := map[string]string{}
	if l.Shares > 0 {
		values["cpu.weight"] = strconv.FormatInt(weight(l.Shares), 10)
	}
	if l.CPU > 0 {
		values["cpu.max"] = fmt.Sprintf("%d %d", quota(l.CPU), period)
	}
	if l.Memory > 0 {
		values["memory.max"] = strconv.FormatInt(l.Memory, 10)
	}
	for file, value := range values {
		if err := set(dir, file, value); err != nil {
			return fmt.Errorf("cgroup %s: %w", path, err)
		}
	}
	return nil
}

// Weigh gives a group the weight of the groups in it together, so that these are
// weighed against its neighbours too. A group that is not there is left out.
func Weigh(path string) error {
	for _, file := range []string{"cpu/" + path + "/*/cpu.shares", path + "/*/cpu.weight"} {
		found, err := filepath.Glob(filepath.Join(root, file))
		if err != nil || len(found) == 0 {
			continue
		}
		sum := int64(0)
		for _, f := range found {
			text, err := os.ReadFile(f)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
				continue // removed meanwhile
			}
			n, perr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err := errors.Join(err, perr); err != nil {
				return fmt.Errorf("weigh cgroup %s: %w", path, err)
			}
			sum += n
		}
		most := int64(262_144) // of cpu.shares
		if filepath.Base(file) == "cpu.weight" {
			most = 10_000
		}
		if err := set(filepath.Dir(filepath.Dir(found[0])), filepath.Base(file), strconv.FormatInt(min(max(sum, LeastShares), most), 10)); err != nil {
			return fmt.Errorf("weigh cgroup %s: %w", path, err)
		}
	}
	return nil
}

// quota is of a period; the kernel takes no less than a millisecond.
func quota(milli int64) int64 { return max(1000, milli*period/1000) }

// weight turns shares of v1 (2 to 262144) into a weight of v2 (1 to 10000), as
// runtimes and kubelet do.
func weight(shares int64) int64 {
	return 1 + (min(max(shares, LeastShares), 262144)-LeastShares)*9999/262142
}

// inherit gives an empty file of a group what the group above it has.
func inherit(dir, file string) error {
	has, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(has)) != "" {
		return nil
	}
	above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
	if err != nil {
		return err
	}
	return set(dir, file, strings.TrimSpace(string(above)))
}

// set writes a file of a group, if the group has it: another hierarchy does not.
func set(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("set %s to %s: %w", file, value, err)
	}
	return nil
}
