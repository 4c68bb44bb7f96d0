package reap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const asInit = "FAIRLEAD_TEST_REAP"

func TestMain(m *testing.M) {
	if os.Getenv(asInit) != "" {
		if err := first(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// first is the first process of its namespace. Its children leave orphans that
// end at about the same time as they do.
func first() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		if err := Orphans(ctx); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}()
	var wg sync.WaitGroup
	errs := make(chan error, 200)
	for i := range cap(errs) {
		wg.Go(func() {
			err := exec.Command("/bin/sh", "-c", fmt.Sprintf("(sleep 0.01 &) ; (true &) ; exit %d", i%100)).Run()
			code := 0
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				code, err = exit.ExitCode(), nil
			}
			if err == nil && code != i%100 {
				err = fmt.Errorf("exit status %d, not %d", code, i%100)
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		// A look that takes nothing: no children is what is wanted.
		if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); errors.Is(err, unix.ECHILD) {
			return nil
		}
	}
	return errors.New("orphans are not reaped")
}

// TestOrphans: the first process of a container reaps what is not its own, and
// never takes the exit status of what is.
func TestOrphans(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asInit+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	// Its own /proc, as in a container.
	cmd.Args = []string{"/bin/sh", "-c", "mount --make-rprivate / && mount -t proc proc /proc && exec " + self(t)}
	cmd.Path = "/bin/sh"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

// TestElsewhereNothingIsReaped: a process that is not the first has no orphans.
func TestElsewhereNothingIsReaped(t *testing.T) {
	require.NoError(t, Orphans(t.Context()))
}
