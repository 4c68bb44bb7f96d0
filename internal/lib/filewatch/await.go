package filewatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Awaited are files that somebody waits for, without looking more often than
// something changes around them. All who wait for one file share one
// watch: a node has few of them to give. The zero value is ready for use.
type Awaited struct {
	mu    sync.Mutex
	files map[string]*awaited
}

// awaited is one file under watch. done is closed when it is there, or when
// err says why that cannot be seen.
type awaited struct {
	done    chan struct{}
	err     error
	waiting int
	stop    context.CancelFunc
}

// Await returns once path is there. The error is ctx's when that ends first.
func (f *Awaited) Await(ctx context.Context, path string) error {
	path = filepath.Clean(path)
	w := f.enter(ctx, path)
	defer f.leave(path, w)
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter joins the watch of a file, or begins it.
func (f *Awaited) enter(first context.Context, path string) *awaited {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files == nil {
		f.files = map[string]*awaited{}
	}
	file := f.files[path]
	if file == nil {
		ctx, stop := context.WithCancel(context.WithoutCancel(first)) // of all who wait
		file = &awaited{done: make(chan struct{}), stop: stop}
		f.files[path] = file
		go func() {
			err := appear(ctx, path)
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.files[path] == file { // whoever comes later looks anew
				delete(f.files, path)
			}
			file.err = err
			close(file.done)
		}()
	}
	file.waiting++
	return file
}

// leave gives up waiting; the last one ends the watch.
func (f *Awaited) leave(path string, file *awaited) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if file.waiting--; file.waiting > 0 {
		return
	}
	file.stop()
	if f.files[path] == file {
		delete(f.files, path)
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
		if at, err = aimAbove(w, at, nearest(path)); err != nil {
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

// aimAbove moves the watch from one folder to another, and renews it where a folder
// of the same name has taken the old one's place. A folder that has gone this
// moment is "".
func aimAbove(w *fsnotify.Watcher, from, to string) (string, error) {
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
