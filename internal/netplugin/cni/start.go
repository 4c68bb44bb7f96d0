package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

// busyTries bounds the starts of a program that is being written, busyPause is what is waited
// between two.
const (
	busyTries = 5
	busyPause = time.Second
)

// lastWords is how long the pipes of a plugin that has ended are read on, which somebody that
// it started may hold open.
const lastWords = time.Second

// starter starts plugins for libcni. One whose time is over ends with all that it started and
// that stayed in its process group: libcni's own ends the plugin alone, and waits for those
// that hold its pipes. One that is just being installed is started again: libcni means to, but
// starts an exec.Cmd for the second time, which Go refuses.
type starter struct{ *invoke.DefaultExec }

func newStarter() starter {
	return starter{&invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}}}
}

// ExecPlugin implements invoke.Exec.
func (starter) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	for try := 1; ; try++ {
		out, err := execute(ctx, path, stdin, env)
		if try == busyTries || !errors.Is(err, unix.ETXTBSY) {
			return out, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(busyPause):
		}
	}
}

func execute(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, path)
	c.Env, c.Stdin, c.Stdout, c.Stderr = env, bytes.NewReader(stdin), &stdout, &stderr
	c.SysProcAttr, c.WaitDelay = &syscall.SysProcAttr{Setpgid: true}, lastWords
	c.Cancel = func() error { return unix.Kill(-c.Process.Pid, unix.SIGKILL) }
	err := c.Run()
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	if errors.Is(err, exec.ErrWaitDelay) && c.ProcessState.Success() {
		err = nil // it has said what it had to, and left somebody behind
	}
	if err != nil {
		return nil, said(err, stdout.Bytes(), stderr.Bytes())
	}
	_, _ = stderr.WriteTo(os.Stderr) // of somebody who speaks beside the answer
	return stdout.Bytes(), nil
}

// said is the error that a plugin printed, else why it failed and what it said on its standard
// error.
func said(err error, stdout, stderr []byte) error {
	e := types.Error{}
	if len(stdout) > 0 && json.Unmarshal(stdout, &e) == nil && (e.Code != 0 || e.Msg != "") {
		return &e
	}
	if words := bytes.TrimSpace(stderr); len(words) > 0 {
		err = fmt.Errorf("%w: %s", err, words)
	}
	return fmt.Errorf("plugin failed: %w", err)
}
