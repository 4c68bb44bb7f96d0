package up

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// shimComm is how the kernel calls containerd's shims: a name ends after 15 bytes.
const shimComm = "containerd-shim"

// EndStrayShims ends the shims that containerd, at this socket, has forgotten. It
// stops to look after one that it is just starting when its client goes, and
// removes the folder in which that one works; at its own next start it does not
// find it either. One below which something runs is left alone, and so is one of
// which this cannot be told.
func EndStrayShims(socket string) (ended int, err error) {
	mine, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return 0, fmt.Errorf("look for shims: %w", err)
	}
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return 0, fmt.Errorf("look for shims: %w", err)
	}
	var errs []error
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(comm)) != shimComm {
			continue // or it has ended
		}
		dir := filepath.Dir(name)
		if ns, err := os.Readlink(filepath.Join(dir, "ns", "mnt")); err != nil || ns != mine {
			continue // of another machine, as far as we see
		}
		did, err := endStray(dir, socket)
		if did {
			ended++
		}
		errs = append(errs, err)
	}
	return ended, errors.Join(errs...)
}

// endStray ends the shim of a folder of /proc if containerd has forgotten it. The
// process is held from before the look to the end: its number is nobody else's.
func endStray(dir, socket string) (bool, error) {
	pid, err := strconv.Atoi(filepath.Base(dir))
	if err != nil {
		return false, fmt.Errorf("look for shims: %w", err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false, nil // it has ended
	}
	defer func() { _ = unix.Close(fd) }()
	if !forgotten(dir, socket) || !childless(dir) {
		return false, nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return false, fmt.Errorf("end the shim %d, which containerd has forgotten: %w", pid, err)
	}
	return true, nil
}

// forgotten tells that a shim serves a pod of this containerd, and that the
// folder in which it works, named like its pod, was removed: containerd first
// renames it by a dot, so that it goes at once.
func forgotten(dir, socket string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return false
	}
	args := strings.Split(string(text), "\x00")
	flag := func(name string) string {
		if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	cwd, err := os.Readlink(filepath.Join(dir, "cwd"))
	folder, deleted := strings.CutSuffix(filepath.Base(cwd), " (deleted)")
	if err != nil || !deleted || flag("-namespace") != "k8s.io" || flag("-address") != socket {
		return false
	}
	id := flag("-id")
	return id != "" && (folder == id || folder == "."+id)
}

// childless tells that nothing runs below a process.
func childless(dir string) bool {
	lists, err := filepath.Glob(filepath.Join(dir, "task", "*", "children"))
	if err != nil || len(lists) == 0 {
		return false
	}
	for _, l := range lists {
		if text, err := os.ReadFile(l); err != nil || strings.TrimSpace(string(text)) != "" {
			return false
		}
	}
	return true
}
