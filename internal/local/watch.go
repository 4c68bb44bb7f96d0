package local

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long the folder must be still before it is read: editors
	// and `kubectl ... >` write in several steps.
	quiet = 50 * time.Millisecond
	// patience bounds the wait when it never is still.
	patience = 500 * time.Millisecond
	// audit finds what inotify cannot tell: targets of symbolic links, network
	// file systems, an ancestor of the folder that was replaced. It costs one
	// stat per file.
	audit = 20 * time.Second
)

// Run follows the folder until ctx ends. Without inotify (a limit is reached)
// only the audit is left, which is said once.
func (s *Source) Run(ctx context.Context) {
	if s.dir == "" {
		<-ctx.Done()
		return
	}
	w := &watch{dir: s.dir}
	var err error
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		s.log.Warn("objects are not watched: changes are seen late", "dir", s.dir, "every", audit, "err", err)
	} else {
		defer func() { _ = w.notify.Close() }()
	}
	s.follow(ctx, w)
}

// follow turns events into reloads.
func (s *Source) follow(ctx context.Context, w *watch) {
	slow := time.NewTicker(audit)
	defer slow.Stop()
	soon := time.NewTimer(0) // what changed since Open
	defer soon.Stop()
	var first time.Time // of the events not yet acted upon
	for {
		select {
		case <-ctx.Done():
			return
		case <-slow.C:
			soon.Reset(0)
		case <-soon.C:
			first = time.Time{}
			if err := w.aim(); err != nil {
				s.log.Warn("objects cannot be watched: changes are seen late", "dir", s.dir, "every", audit, "err", err)
			}
			// A folder that cannot be read is among the Problems already.
			_ = s.reload()
		case err := <-w.errors():
			s.log.Warn("events of the objects folder were lost: it is read anew", "err", err)
			soon.Reset(0)
		case ev := <-w.events():
			if !w.matters(ev) {
				continue
			}
			if first.IsZero() {
				first = time.Now()
			}
			soon.Reset(min(quiet, max(0, patience-time.Since(first))))
		}
	}
}

// watch follows the folder and its name in the parent folder: a folder that is
// replaced (renamed over, or a symbolic link that is switched) sends no events
// of its own.
type watch struct {
	dir    string
	notify *fsnotify.Watcher // nil where there is no inotify
	at     stamp             // the folder that is being watched
	said   string
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

// matters leaves out what others do beside the folder.
func (w *watch) matters(ev fsnotify.Event) bool {
	return ev.Name == w.dir || filepath.Dir(ev.Name) == w.dir
}

// aim puts the watches on the folder that now bears the name. It must come
// before the folder is read: what is written in between makes an event. An
// error that stays the same is told once.
func (w *watch) aim() error {
	if w.notify == nil {
		return nil
	}
	st, _, err := stampOf(w.dir)
	if err == nil && st.dev == w.at.dev && st.inode == w.at.inode {
		return nil
	}
	w.at = stamp{}
	_ = w.notify.Remove(w.dir) // not watched is what is wanted
	if errParent := w.notify.Add(filepath.Dir(w.dir)); err == nil {
		err = errParent
	}
	if err == nil {
		err = w.notify.Add(w.dir)
	}
	if err == nil {
		w.at, w.said = st, ""
		return nil
	}
	if err.Error() == w.said {
		return nil
	}
	w.said = err.Error()
	return err
}
