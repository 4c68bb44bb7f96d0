package cni

import (
	"cmp"
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Run looks at the folder when something changes there, and each SyncPeriod: a
// folder that was not there cannot be watched, nor can what a valid file still
// lacks. Whatever is chosen is known, and logged, before a pod asks for it.
func (p *Plugin) Run(ctx context.Context) {
	w := p.watch()
	defer w.close()
	tick := time.NewTicker(cmp.Or(p.conf.SyncPeriod, SyncPeriod))
	defer tick.Stop()
	for {
		_, _ = p.current(ctx) // told in the log and by Status
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.renew(p.conf.ConfDir)
		case <-w.events():
		case err := <-w.failures(): // an event may be lost: the folder is looked at
			p.conf.Log.Debug("watch of network configurations", "err", err)
		}
	}
}

// watch is a folder under watch; the zero value sees nothing.
type watch struct{ notify *fsnotify.Watcher }

func (p *Plugin) watch() watch {
	n, err := fsnotify.NewWatcher()
	if err != nil { // the node has no inotify to give
		p.conf.Log.Warn("network configurations not watched", "err", err)
		return watch{}
	}
	w := watch{n}
	w.renew(p.conf.ConfDir)
	return w
}

// renew watches the folder that has the name now.
func (w watch) renew(dir string) {
	if w.notify != nil {
		_ = w.notify.Add(dir) // one that is not there yet is for the next time
	}
}

func (w watch) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

func (w watch) failures() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

func (w watch) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}
