package central

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// endLimit is how long a child may take to end before it is killed; callLimit
// bounds a program that is asked something.
const (
	endLimit  = 10 * time.Second
	callLimit = 20 * time.Second
)

// child is a program that runs until it is told to end, and is started again when
// it ended by itself.
type child struct {
	name string
	argv []string
	env  []string
	log  *slog.Logger

	restarts atomic.Int64
	mu       sync.Mutex
	cmd      *exec.Cmd // nil while it does not run
}

// begin runs the child; the function that it gives ends it and returns when it is
// gone.
func (c *child) begin(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { c.run(ctx) })
	return func() { cancel(); running.Wait() }
}

func (c *child) run(ctx context.Context) {
	// The kernel ends a child with the thread that began it: when this program is
	// killed, but not before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		err := c.once(ctx)
		if ctx.Err() != nil {
			return
		}
		c.restarts.Add(1)
		c.log.Warn("a part of central ended: it is started again", "part", c.name, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

// once runs the child to its end.
func (c *child) once(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Env = append(cmd.Environ(), c.env...)
	cmd.Stderr = os.Stderr // its own lines are its log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endLimit
	c.mu.Lock()
	err := cmd.Start()
	if err == nil {
		c.cmd = cmd
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	err = cmd.Wait()
	c.mu.Lock()
	c.cmd = nil
	c.mu.Unlock()
	return err
}

// again ends the child, which starts it anew.
func (c *child) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd != nil {
		_ = c.cmd.Process.Signal(syscall.SIGTERM) // one that has ended is started again anyway
	}
}

// call runs a program to its end and gives what it said.
func (m *member) call(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", argv[0], err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
