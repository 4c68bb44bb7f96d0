// Package logs writes containers' output in CRI's form to the files that kubelet
// and its friends read. It follows Docker's own log of each container, so the
// container never waits for our disk and loses nothing while we are away. It
// must not know pods; which file belongs to a container, a label of it says.
package logs

import (
	"context"
	"log/slog"
	"sync"

	"github.com/moby/moby/api/types/container"
	docker "github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/internal/cri/fault"
)

// Writers has a writer for each container that runs. It is safe for concurrent
// use.
type Writers struct {
	cli   *docker.Client
	label string
	log   *slog.Logger

	ctx  context.Context // of the writers, which outlive the requests that begin them
	stop context.CancelFunc
	all  sync.WaitGroup

	mu   sync.Mutex
	byID map[string]*writer
}

// New makes the writers of one engine, none of which runs yet; they end with ctx
// or Close. The path of a container's log is the value of its label pathLabel.
func New(ctx context.Context, cli *docker.Client, pathLabel string, log *slog.Logger) *Writers {
	ctx, stop := context.WithCancel(ctx)
	return &Writers{cli: cli, label: pathLabel, log: log, ctx: ctx, stop: stop, byID: map[string]*writer{}}
}

// Close ends all writers and waits for them. What they did not write yet is
// written after the next Follow.
func (w *Writers) Close() {
	w.stop()
	w.all.Wait()
}

// Config is the engine's own log of a container whose output goes to path: what
// a container may write while nobody follows it. "" wants no log at all.
//
// The driver is "local": json-file replaces what is no UTF-8, which a character
// becomes that is cut in two at 16 KiB. The engine follows its own log across one
// rotation, not two, so lines are lost where a container is more than 128 to 256
// MB ahead of us: two large files are better than many small ones.
func (w *Writers) Config(path string) container.LogConfig {
	if path == "" {
		return container.LogConfig{Type: "none"}
	}
	return container.LogConfig{Type: "local", Config: map[string]string{
		"max-size": "128m", "max-file": "2", "compress": "false",
	}}
}

// Follow begins to write the output of a container, at the place where an
// earlier writer, of this process or of one before, ended. It is harmless to
// repeat. A container without a label of a path is none of ours. Errors:
// NotFound, and what the engine says; what is wrong with the file is logged and
// tried again, because the container runs all the same.
func (w *Writers) Follow(ctx context.Context, id string) error {
	res, err := w.cli.ContainerInspect(ctx, id, docker.ContainerInspectOptions{})
	if err != nil {
		return fault.Of(err, "follow the log of container %s", id)
	}
	path := res.Container.Config.Labels[w.label]
	if path == "" {
		return nil
	}
	w.begin(res.Container.ID, path, res.Container.Config.Tty)
	return nil
}

func (w *Writers) begin(id, path string, tty bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.byID[id]; (old != nil && !old.ended()) || w.ctx.Err() != nil {
		return
	}
	n := newWriter(w, id, path, tty)
	w.byID[id] = n
	// At once, so that who sees the container run also finds its log.
	if err := n.file.open(); err != nil {
		n.log.Error("container log not opened: it is tried again", "err", err)
	}
	w.all.Go(n.run)
}

func (w *Writers) find(id string) *writer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[id]
}

// Settle returns when all output of a container that has ended is in its file.
// It does not wait for a disk that takes nothing or an engine that gives nothing,
// nor longer than ctx. The first call for a container that nobody follows begins
// to.
func (w *Writers) Settle(ctx context.Context, id string) {
	n := w.find(id)
	if n == nil {
		if err := w.Follow(ctx, id); err != nil {
			w.log.Warn("container log may lack the last lines of a container that ended", "container", id, "err", err)
			return
		}
		if n = w.find(id); n == nil {
			return // it has no log
		}
	}
	select {
	case <-n.done:
	case <-n.stuck():
	case <-ctx.Done():
	}
}

// Reopen goes on in a new file at the container's log path: kubelet has renamed
// the one so far. Errors: FailedPrecondition for a container that does not run,
// of which no file is made (CRI's word), and Internal when the new file cannot
// be made; the old one then stays in use.
func (w *Writers) Reopen(_ context.Context, id string) error {
	n := w.find(id)
	if n == nil || n.ended() {
		return status.Errorf(codes.FailedPrecondition, "reopen the log of container %s: the container does not run, or has no log", id)
	}
	return fault.Of(n.file.reopen(), "reopen the log of container %s", id)
}

// Forget ends the writer of a container that is removed. Its file is kubelet's
// to remove.
func (w *Writers) Forget(id string) {
	w.mu.Lock()
	n := w.byID[id]
	delete(w.byID, id)
	w.mu.Unlock()
	if n != nil {
		n.stop()
		<-n.done
	}
}
