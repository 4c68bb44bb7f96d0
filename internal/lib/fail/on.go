//go:build failpoint

package fail

import (
	"os"
	"path/filepath"
	"syscall"
)

// dir is read once: the crash tests set it before the process starts.
var dir = os.Getenv("FAIRLEAD_FAIL_DIR")

// Here appends name to <dir>/trace and, when <dir>/crash holds that name,
// removes the order and kills this process at once (SIGKILL, nothing runs
// any more).
func Here(name string) {
	if dir == "" {
		return
	}
	if f, err := os.OpenFile(filepath.Join(dir, "trace"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		_, _ = f.WriteString(name + "\n")
		_ = f.Close()
	}
	order := filepath.Join(dir, "crash")
	if b, err := os.ReadFile(order); err != nil || string(b) != name {
		return
	}
	_ = os.Remove(order)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
