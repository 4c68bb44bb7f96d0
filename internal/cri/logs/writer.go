package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	docker "github.com/moby/moby/client"
)

// retry is the pause after an error of the engine or of the disk.
const retry = 500 * time.Millisecond

// batch is how many bytes are collected, at most, before they are written.
const batch = 128 << 10

// writer is the goroutine of one container.
type writer struct {
	id   string
	tty  bool
	cli  *docker.Client
	log  *slog.Logger
	file file

	ctx  context.Context
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	blocked chan struct{} // closed while one of both holds
	failing bool          // the file takes nothing
	cut     bool          // the engine gives nothing
}

func newWriter(w *Writers, id, path string, tty bool) *writer {
	n := &writer{
		id: id, tty: tty, cli: w.cli, log: w.log.With("container", id, "path", path),
		file: file{path: path}, done: make(chan struct{}), blocked: make(chan struct{}),
	}
	n.ctx, n.stop = context.WithCancel(w.ctx)
	return n
}

func (n *writer) ended() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// stuck is closed while the file takes nothing or the engine gives nothing.
func (n *writer) stuck() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.blocked
}

// set keeps one of the two conditions and tells whether it changed, which is
// what is logged: trying again is not.
func (n *writer) set(condition *bool, holds bool) (changed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.failing || n.cut
	changed = *condition != holds
	*condition = holds
	switch is := n.failing || n.cut; {
	case is && !was:
		close(n.blocked)
	case was && !is:
		n.blocked = make(chan struct{})
	}
	return changed
}

// tell is about the file.
func (n *writer) tell(err error) {
	switch changed := n.set(&n.failing, err != nil); {
	case changed && err != nil:
		n.log.Error("container log not written, trying on", "err", err)
	case changed:
		n.log.Info("container log written again")
	}
}

// run passes over the engine's log until one pass began after the container's
// end: the engine has closed the log by then.
func (n *writer) run() {
	defer close(n.done)
	defer n.stop()
	defer n.file.close()
	for n.ctx.Err() == nil {
		ended, err := n.pass()
		switch {
		case errdefs.IsNotFound(err) || err == nil && ended:
			return
		case err != nil && n.ctx.Err() == nil:
			if n.set(&n.cut, true) {
				n.log.Warn("container log interrupted, trying on", "err", err)
			}
			n.pause()
		}
	}
}

func (n *writer) pause() {
	select {
	case <-time.After(retry):
	case <-n.ctx.Done():
	}
}

// pass writes what the engine has and the file has not, and goes on to follow
// while the container runs.
func (n *writer) pass() (ended bool, err error) {
	if err := n.insist(n.file.open); err != nil {
		return false, err
	}
	res, err := n.cli.ContainerInspect(n.ctx, n.id, docker.ContainerInspectOptions{})
	if err != nil {
		return false, fmt.Errorf("inspect: %w", err)
	}
	running := res.Container.State != nil && res.Container.State.Running
	had, err := resume(n.file.path)
	if err != nil {
		return false, fmt.Errorf("read back: %w", err)
	}
	log, err := n.cli.ContainerLogs(n.ctx, n.id, docker.ContainerLogsOptions{
		ShowStdout: true, ShowStderr: true, Timestamps: true, Follow: running, Since: unix(had.since()),
	})
	if err != nil {
		return false, fmt.Errorf("ask for the log: %w", err)
	}
	defer log.Close()
	n.set(&n.cut, false)
	return !running, n.copy(newDecoder(log, n.tty), had)
}

// copy writes entries until the log ends. It writes in batches while more is
// at hand, and at once when it would have to wait.
func (n *writer) copy(from *decoder, had *written) error {
	var lines []byte
	for {
		e, err := from.next()
		if err == nil && !had.has(e) {
			lines = e.appendTo(lines)
		}
		if len(lines) > 0 && (err != nil || len(lines) >= batch || !from.pending()) {
			if werr := n.insist(func() error { return n.file.add(lines) }); werr != nil {
				return werr
			}
			lines = lines[:0]
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// insist repeats what a full or missing disk refuses, until it succeeds or the
// writer is stopped. The engine keeps the rest meanwhile.
func (n *writer) insist(do func() error) error {
	for {
		err := do()
		n.tell(err)
		if err == nil {
			return nil
		}
		n.pause()
		if n.ctx.Err() != nil {
			return errors.Join(n.ctx.Err(), err)
		}
	}
}
