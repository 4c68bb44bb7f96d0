// Package filewatch does something whenever a folder, or a file, may have
// changed, whoever reads it. It knows no content.
package filewatch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long the files must be still before they are read: editors
	// and `cp` write in several steps.
	quiet = 50 * time.Millisecond
	// patience bounds the wait when they never are still.
	patience = 500 * time.Millisecond
)

// Config says what is followed.
type Config struct {
	Path string
	// Period finds what inotify cannot tell: targets of symbolic links, network
	// file systems, a folder above that was replaced.
	Period time.Duration
	Log    *slog.Logger
}

// Follow calls do at once, after each change and every period, until it fails
// or ctx ends; the error is that. Without inotify (a limit is reached) only the
// period is left, which is said once.
func Follow(ctx context.Context, cfg Config, do func() error) error {
	w := newWatch(cfg)
	defer w.close()
	audit := time.NewTicker(cfg.Period)
	defer audit.Stop()
	soon := time.NewTimer(0)
	defer soon.Stop()
	var first time.Time // of the events not yet acted upon
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-audit.C:
			soon.Reset(0)
		case err := <-w.errors():
			w.log.Warn("events of files were lost, they are read anew", "path", w.path, "err", err)
			soon.Reset(0)
		case ev := <-w.events():
			if ev.Name != w.path && filepath.Dir(ev.Name) != w.path {
				continue // beside the path
			}
			if first.IsZero() {
				first = time.Now()
			}
			soon.Reset(min(quiet, max(0, patience-time.Since(first))))
		case <-soon.C:
			first = time.Time{}
			w.aim()
			if err := do(); err != nil {
				return err
			}
		}
	}
}

// watch watches the path and its name in the parent folder: what is replaced
// (renamed over, or a symbolic link that is switched) sends no events of its own.
type watch struct {
	path   string
	log    *slog.Logger
	notify *fsnotify.Watcher // nil where there is no inotify
	at     os.FileInfo       // what is being watched
	said   string
}

func newWatch(cfg Config) *watch {
	w := &watch{path: filepath.Clean(cfg.Path), log: cfg.Log}
	var err error
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		w.notify = nil
		w.log.Warn("files are not watched, changes are seen late", "path", w.path, "every", cfg.Period, "err", err)
	}
	return w
}

func (w *watch) close() {
	if w.notify != nil {
		_ = w.notify.Close() // nothing was written
	}
}

func (w *watch) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

func (w *watch) errors() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

// aim puts the watches on what now bears the name. It comes before the files
// are read: what is written in between makes an event. A path that is not there
// is waited for in the folder above it, or else until the next period.
func (w *watch) aim() {
	if w.notify == nil {
		return
	}
	info, err := os.Stat(w.path)
	if err == nil && w.at != nil && os.SameFile(info, w.at) {
		return
	}
	w.at = nil
	_ = w.notify.Remove(w.path) // not watched is what is wanted
	failed := w.notify.Add(filepath.Dir(w.path))
	if err == nil {
		if failed = w.notify.Add(w.path); failed == nil {
			w.at, w.said = info, ""
		}
	}
	if failed != nil && failed.Error() != w.said {
		w.said = failed.Error()
		w.log.Warn("files cannot be watched, changes are seen late", "path", w.path, "err", failed)
	}
}
