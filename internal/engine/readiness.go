package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/fairlead/fairlead/internal/core"
)

// indicated is nil when the readiness indicator that the conf names is there.
// Whoever cannot be asked counts as not ready.
func indicated(conf core.Conf) error {
	if conf.ReadinessFile == "" {
		return nil
	}
	_, err := os.Stat(conf.ReadinessFile)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("readinessindicatorfile %s does not exist: the default network is not ready", conf.ReadinessFile)
	}
	if err != nil {
		return fmt.Errorf("readinessindicatorfile: %w", err)
	}
	return nil
}

// indicators are the readiness files that are awaited. All who wait for one
// file share one watch: a node has few of them to give.
type indicators struct {
	mu    sync.Mutex
	files map[string]*indicator
}

// indicator is one file under watch. done is closed when it is there, or when
// err says why that cannot be seen.
type indicator struct {
	done    chan struct{}
	err     error
	waiting int
	stop    context.CancelFunc
}

// await returns once the conf's readiness indicator is there, or with code 11
// when ctx ends first.
func (i *indicators) await(ctx context.Context, conf core.Conf) error {
	if indicated(conf) == nil {
		return nil
	}
	file := i.enter(ctx, filepath.Clean(conf.ReadinessFile))
	defer i.leave(filepath.Clean(conf.ReadinessFile), file)
	select {
	case <-file.done:
		return core.WithCode(core.CodeTryAgain, "readinessindicatorfile", file.err)
	case <-ctx.Done():
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("wait for readinessindicatorfile: %w", ctx.Err())
	}
	return core.WithCode(core.CodeTryAgain, "waited in vain", indicated(conf))
}

// enter joins the watch of a file, or begins it.
func (i *indicators) enter(first context.Context, path string) *indicator {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.files == nil {
		i.files = map[string]*indicator{}
	}
	file := i.files[path]
	if file == nil {
		ctx, stop := context.WithCancel(context.WithoutCancel(first)) // of all who wait
		file = &indicator{done: make(chan struct{}), stop: stop}
		i.files[path] = file
		go func() {
			err := appear(ctx, path)
			i.mu.Lock()
			defer i.mu.Unlock()
			if i.files[path] == file { // whoever comes later looks anew
				delete(i.files, path)
			}
			file.err = err
			close(file.done)
		}()
	}
	file.waiting++
	return file
}

// leave gives up waiting; the last one ends the watch.
func (i *indicators) leave(path string, file *indicator) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if file.waiting--; file.waiting > 0 {
		return
	}
	file.stop()
	if i.files[path] == file {
		delete(i.files, path)
	}
}

// appear returns when path is there. It looks only when the kernel says that
// something has changed in the nearest folder that exists.
func appear(ctx context.Context, path string) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	defer func() { _ = w.Close() }()
	for at := ""; ; {
		if at, err = aim(w, at, nearest(path)); err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		if nearest(path) != at {
			continue // what came between the two looks makes no event
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.Events:
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch %s: %w", path, err)
			}
		}
	}
}

// aim moves the watch from one folder to another, and renews it where a folder
// of the same name has taken the old one's place. A folder that has gone this
// moment is "".
func aim(w *fsnotify.Watcher, from, to string) (string, error) {
	if from != "" && from != to {
		_ = w.Remove(from) // its watch may have gone with it
	}
	err := w.Add(to)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return to, err
}

// nearest is the innermost folder above path that exists.
func nearest(path string) string {
	for {
		parent := filepath.Dir(path)
		if info, err := os.Stat(parent); parent == path || err == nil && info.IsDir() {
			return parent
		}
		path = parent
	}
}
