//go:build vm

package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// bed is where the VM finds what it runs.
type bed struct {
	root string // of the checkout
	dir  string // the VM writes here
}

// TestInVM runs the jobs in one VM; each is a subtest. A test that did not run,
// or was skipped, has failed: here is the kernel that has what it needs.
func TestInVM(t *testing.T) { inVM(t, jobs) }

// TestInVMWithIOMMU is the same in a VM whose cards programs can have. Its one
// processor is slower.
func TestInVMWithIOMMU(t *testing.T) { inVM(t, iommuJobs, "--iommu") }

func inVM(t *testing.T, jobs []job, options ...string) {
	if os.Getenv("FAIRLEAD_SOAK") == "" {
		jobs = slices.DeleteFunc(slices.Clone(jobs), func(j job) bool { return j.soak })
	}
	root, err := testbed.Repository()
	require.NoError(t, err)
	b := bed{root: root, dir: t.TempDir()}
	wanted := make([][]string, len(jobs))
	var lines strings.Builder
	for i, j := range jobs {
		wanted[i] = b.compile(t, i, j)
		fmt.Fprintln(&lines, name(i), filepath.Join(root, j.pkg), j.run)
	}
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "jobs"), []byte(lines.String()), 0o600))
	module := b.netdevsim(t)
	options = append(options, "--vfs", "3", "--share", b.dir, "--env", "FAIRLEAD_BIN", "--env", "FAIRLEAD_NETDEVSIM", "--env", "FAIRLEAD_SOAK",
		"--timeout", patience(t), "--", b.script("run_in_guest"), b.dir)
	cmd := b.vmrun(t.Context(), options...)
	cmd.Env = append(cmd.Env, "FAIRLEAD_NETDEVSIM="+module)
	said, vmErr := cmd.CombinedOutput()
	t.Logf("vmrun:\n%s", said)
	for i, j := range jobs {
		t.Run(name(i)+" "+strings.TrimPrefix(j.pkg, "./"), func(t *testing.T) { b.judge(t, name(i), j, wanted[i]) })
	}
	require.NoError(t, vmErr)
}

// patience is what is left of TEST_TIMEOUT, in seconds, but for the time in which
// to tell what the jobs did.
func patience(t *testing.T) string {
	t.Helper()
	end, bounded := t.Deadline()
	require.True(t, bounded, "go test has a -timeout")
	return strconv.Itoa(int(time.Until(end.Add(-time.Minute)).Seconds()))
}

// netdevsim builds the simulated card's module, for the kernel of the VM.
func (b bed) netdevsim(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), b.script("netdevsim"))
	cmd.Env = append(os.Environ(), "VMRUN_CACHE="+filepath.Join(b.root, ".cache/vm"))
	var said strings.Builder
	cmd.Stderr = &said
	path, err := cmd.Output()
	require.NoError(t, err, said.String())
	return strings.TrimSpace(string(path))
}

func name(i int) string { return "job" + strconv.Itoa(i) }

func (b bed) script(name string) string { return filepath.Join(b.root, "test/vm", name) }

// compile makes job i's program outside, where compilers are fast, and lists
// the tests that it will run.
func (b bed) compile(t *testing.T, i int, j job) []string {
	t.Helper()
	program := filepath.Join(b.dir, name(i)+".test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags", "vm,grpcnotrace", "-o", program, j.pkg)
	build.Dir, build.Env = b.root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	top, _, _ := strings.Cut(j.run, "/")
	list := exec.CommandContext(t.Context(), program, "-test.list", top)
	list.Dir = filepath.Join(b.root, j.pkg)
	out, err = list.Output()
	require.NoError(t, err)
	tests := slices.DeleteFunc(strings.Fields(string(out)), func(s string) bool { return !strings.HasPrefix(s, "Test") })
	require.NotEmpty(t, tests, "%s has no test %s", j.pkg, j.run)
	return tests
}

var skipped = regexp.MustCompile(`(?m)^\s*--- SKIP: .*`)

// judge reads what a job left.
func (b bed) judge(t *testing.T, name string, j job, wanted []string) {
	t.Log(j.why)
	log, err := os.ReadFile(filepath.Join(b.dir, name+".log"))
	require.NoError(t, err, "it never began")
	status, err := os.ReadFile(filepath.Join(b.dir, name+".status"))
	if err != nil || string(status) != "0\n" {
		require.FailNow(t, "it failed", "status %q\n%s", status, log)
	}
	for _, test := range wanted {
		require.Contains(t, string(log), "--- PASS: "+test+" (")
	}
	require.Empty(t, skipped.FindAllString(string(log), -1))
}

// vmrun prepares the script. It, and with it the VM, ends with this process,
// however that ends.
func (b bed) vmrun(ctx context.Context, args ...string) *exec.Cmd {
	// The signal comes with the end of the thread that started it.
	runtime.LockOSThread()
	cmd := exec.CommandContext(ctx, b.script("vmrun"), args...)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "VMRUN_CACHE="+filepath.Join(b.root, ".cache/vm"), "TMPDIR="+b.dir)
	if os.Getenv("FAIRLEAD_BIN") == "" {
		cmd.Env = append(cmd.Env, "FAIRLEAD_BIN="+filepath.Join(b.root, ".cache/failpoint"))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// TestNoVMIsLeft: whoever kills the script kills the VM, even if the script can
// do nothing more, from the first process that it starts for the VM on.
func TestNoVMIsLeft(t *testing.T) {
	root, err := testbed.Repository()
	require.NoError(t, err)
	for _, reached := range []string{"/out", "pdeathsig", "\x00--foreground\x00", "qemu-system-x86_64\x00-nodefaults"} {
		b := bed{root: root, dir: t.TempDir()}
		cmd := b.vmrun(t.Context(), "--vfs", "3", "--share", b.dir, "--", "sleep", "1000")
		require.NoError(t, cmd.Start())
		mine := func(word string) []string { return processes(t, b.dir, word) }
		require.Eventually(t, func() bool { return len(mine(reached)) > 0 }, time.Minute, time.Millisecond, "the script comes to %q", reached)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
		if !assert.Eventually(t, func() bool { return len(mine("")) == 0 }, time.Minute, 10*time.Millisecond, "killed at %q", reached) {
			t.Logf("left: %q", mine(""))
		}
	}
}

// processes lists the command lines with both words in them, by their files.
func processes(t *testing.T, word, other string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var found []string
	for _, f := range files {
		if line, err := os.ReadFile(f); err == nil && strings.Contains(string(line), word) && strings.Contains(string(line), other) {
			found = append(found, f+": "+string(line))
		}
	}
	return found
}
