package testbed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// binaries are the programs that nodes run.
type binaries struct {
	fairlead string // the agent and the operator's commands, with crash points
	cnitool  string // upstream's client
	err      error
}

// build makes them once per test process. The Makefile knows how; with
// FAIRLEAD_BIN set (make test) it has done so already.
var build = sync.OnceValue(func() binaries {
	root, err := Repository()
	if err != nil {
		return binaries{err: err}
	}
	dir := os.Getenv("FAIRLEAD_BIN")
	if dir == "" {
		dir = filepath.Join(root, ".cache/failpoint")
		if err := makeTestbin(root); err != nil {
			return binaries{err: err}
		}
	}
	b := binaries{fairlead: filepath.Join(dir, "fairlead"), cnitool: filepath.Join(root, ".cache/bin/cnitool")}
	// go test's cache sees what is looked at here: a new binary is a new run.
	for _, name := range []string{b.fairlead, b.cnitool, filepath.Join(root, ".cache/cni/fairlead")} {
		_, err := os.Stat(name)
		b.err = errors.Join(b.err, err)
	}
	return b
})

func programs(t testing.TB) binaries {
	t.Helper()
	b := build()
	require.NoError(t, b.err, "build the programs (make testbin)")
	return b
}

// Program is the path of `fairlead`, with crash points.
func Program(t testing.TB) string {
	t.Helper()
	return programs(t).fairlead
}

// Controller is the path of `fairlead-controller`, which is built beside it.
func Controller(t testing.TB) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(Program(t)), "fairlead-controller")
	require.FileExists(t, path, "build the programs (make testbin)")
	return path
}

// makeTestbin runs make under a lock: packages are tested beside each other.
func makeTestbin(root string) error {
	if err := os.MkdirAll(filepath.Join(root, ".cache"), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(root, ".cache/testbin.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	out, err := exec.Command("make", "-s", "-C", root, "testbin").CombinedOutput()
	if err != nil {
		return fmt.Errorf("make testbin: %w: %s", err, out)
	}
	return nil
}

// Repository finds the checkout above the test's working directory.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "arch_test.go")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("the test does not run inside the repository")
		}
		dir = up
	}
}

// pluginDir is the folder that nodes see as /opt/cni/bin. It exists from the
// start and is filled by make, so that nodes which run no plugin need no build.
func pluginDir(t testing.TB) string {
	t.Helper()
	root, err := Repository()
	require.NoError(t, err)
	dir := filepath.Join(root, ".cache/cni")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return dir
}
