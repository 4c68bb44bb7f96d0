// Package filewatch does something whenever folders, or files, may have changed,
// whoever reads them, and waits for files that are not there yet. It knows no
// content, and is the one user of inotify.
package filewatch

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// usualQuiet is Config.Quiet where it is not given: editors and `cp` write in
	// several steps.
	usualQuiet = 50 * time.Millisecond
	// patience bounds the wait when files never are still.
	patience = 500 * time.Millisecond
	// blind is the longest period where nothing else tells of changes.
	blind = 10 * time.Second
)

// Config says what is followed.
type Config struct {
	// Paths are folders or files. They are asked for before each look.
	Paths func() []string
	// Quiet is how long the files must be still before they are read, 0 for what
	// those need that people write.
	Quiet time.Duration
	// Period finds what inotify cannot tell: targets of symbolic links, network
	// file systems, a folder above that was replaced.
	Period time.Duration
	Log    *slog.Logger
}

// Path is Config.Paths of one path.
func Path(path string) func() []string { return func() []string { return []string{path} } }

// Follow calls do at once, after each change and every period, until it fails
// or ctx ends; the error is that. Where inotify cannot tell (a limit is reached, or
// the folder above is missing) it looks every 10 s, if not more often, and says so
// once.
func Follow(ctx context.Context, cfg Config, do func() error) error {
	w := newWatch(cfg)
	defer w.close()
	quiet := cmp.Or(cfg.Quiet, usualQuiet)
	audit := time.NewTicker(w.period())
	defer audit.Stop()
	soon := time.NewTimer(0)
	defer soon.Stop()
	var first time.Time // of the events not yet acted upon
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-audit.C:
			if first.IsZero() { // else it is due, once the files are still
				soon.Reset(0)
			}
		case err := <-w.errors():
			w.log.Warn("events of files were lost, they are read anew", "paths", w.paths(), "err", err)
			soon.Reset(0)
		case ev := <-w.events():
			if !w.about(ev.Name) {
				continue // beside the paths
			}
			if first.IsZero() {
				first = time.Now()
			}
			soon.Reset(min(quiet, max(0, patience-time.Since(first))))
		case <-soon.C:
			first = time.Time{}
			w.aim()
			audit.Reset(w.period())
			if err := do(); err != nil {
				return err
			}
		}
	}
}

// watch watches paths and their names in the folders above: what is replaced
// (renamed over, or a symbolic link that is switched) sends no events of its own.
type watch struct {
	cfg    Config
	log    *slog.Logger
	notify *fsnotify.Watcher      // nil where there is no inotify
	at     map[string]os.FileInfo // what is being watched, by its path; nil: it is waited for
	said   map[string]string      // why a path cannot be watched
}

func newWatch(cfg Config) *watch {
	w := &watch{cfg: cfg, log: cfg.Log, at: map[string]os.FileInfo{}, said: map[string]string{}}
	var err error
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		w.notify = nil
		w.log.Warn("files are not watched, changes are seen late", "paths", cfg.Paths(), "every", w.period(), "err", err)
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

// period is how long nobody looks without an event.
func (w *watch) period() time.Duration {
	if w.notify == nil || len(w.said) > 0 {
		return min(w.cfg.Period, blind)
	}
	return w.cfg.Period
}

func (w *watch) paths() []string { return slices.Sorted(maps.Keys(w.at)) }

// about tells that an event's name is one of the paths, or lies in one.
func (w *watch) about(name string) bool {
	_, itself := w.at[name]
	_, inside := w.at[filepath.Dir(name)]
	return itself || inside
}

// aim puts the watches on what now bears the names. It comes before the files
// are read: what is written in between makes an event.
func (w *watch) aim() {
	if w.notify == nil {
		return
	}
	want := map[string]os.FileInfo{}
	for _, path := range w.cfg.Paths() {
		want[filepath.Clean(path)] = nil
	}
	for path := range w.at {
		if _, still := want[path]; !still {
			_ = w.notify.Remove(path)       // not watched is what is wanted
			w.at = map[string]os.FileInfo{} // it may be the folder above another: all are aimed at anew
		}
	}
	maps.DeleteFunc(w.said, func(path, _ string) bool { _, still := want[path]; return !still })
	for path := range want {
		want[path] = w.aimAt(path)
	}
	w.at = want
}

// aimAt watches one path, and gives what is watched. A path that is not there is
// waited for in the folder above it, or else until the next period.
func (w *watch) aimAt(path string) os.FileInfo {
	info, err := os.Stat(path)
	at := w.at[path]
	if err == nil && at != nil && os.SameFile(info, at) {
		return at
	}
	_ = w.notify.Remove(path) // not watched is what is wanted
	failed := w.notify.Add(filepath.Dir(path))
	if err == nil {
		failed = w.notify.Add(path)
	}
	switch {
	case failed == nil:
		delete(w.said, path)
		return info // nil where there is none
	case failed.Error() != w.said[path]:
		w.said[path] = failed.Error()
		w.log.Warn("files cannot be watched, changes are seen late", "path", path, "every", w.period(), "err", failed)
	}
	return nil
}
