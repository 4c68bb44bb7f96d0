package docker

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/testbed"
)

// CRI is a `fairlead cri` that runs in the node over an engine.
type CRI struct {
	cri.RuntimeServiceClient
	Images cri.ImageServiceClient
	// Socket is the one served by default, at a path that is the same inside the
	// node and outside.
	Socket string
	// Root is its --root-dir.
	Root string

	t    testing.TB
	n    *testbed.Node
	args []string
	cmd  *exec.Cmd
	done chan struct{}
	log  bytes.Buffer
}

// StartCRI runs `fairlead cri` over the engine; args are its flags in addition.
// It obeys the node's Crash.
func (e *Engine) StartCRI(args ...string) *CRI {
	e.t.Helper()
	c := &CRI{t: e.t, n: e.n, Socket: filepath.Join(e.n.Dir, "run/fairlead/cri.sock"), Root: filepath.Join(e.dir, "cri")}
	c.args = append([]string{testbed.Program(e.t), "cri", "--docker-host=" + e.Host, "--root-dir=" + c.Root,
		"--sandbox-image=" + Pause}, args...)
	conn, err := grpc.NewClient("unix://"+c.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(e.t, err)
	c.RuntimeServiceClient, c.Images = cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)
	e.t.Cleanup(func() {
		c.Stop()
		_ = conn.Close()
		if e.t.Failed() {
			e.t.Logf("fairlead cri:\n%s", &c.log)
		}
	})
	c.Run()
	return c
}

// Run starts the process, for the first time or after Kill, and waits until it
// answers.
func (c *CRI) Run() {
	c.t.Helper()
	c.cmd, c.done = c.n.Cmd(context.Background(), c.args...), make(chan struct{})
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	c.cmd.Env = append(os.Environ(), "FAIRLEAD_FAIL_DIR="+filepath.Join(c.n.Dir, "fail"))
	require.NoError(c.t, c.cmd.Start())
	cmd, done := c.cmd, c.done
	go func() {
		_ = cmd.Wait() // ProcessState holds the outcome
		close(done)
	}()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	for {
		_, err := c.Version(ctx, &cri.VersionRequest{}, grpc.WaitForReady(false))
		if err == nil {
			return
		}
		select {
		case <-done:
			require.Failf(c.t, "fairlead cri ended", "%s", &c.log)
		case <-ctx.Done():
			require.NoError(c.t, err, "fairlead cri does not answer")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// PID is the process's.
func (c *CRI) PID() int { return c.cmd.Process.Pid }

// Log is what the process has said; it is complete after Kill or Stop.
func (c *CRI) Log() string { return c.log.String() }

// Done is closed when the process has ended.
func (c *CRI) Done() <-chan struct{} { return c.done }

// Kill ends the process by SIGKILL.
func (c *CRI) Kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// Stop ends the process in order.
func (c *CRI) Stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	<-c.done
}
