package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/exec"
	"github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/leftover"
	"github.com/fairlead/fairlead/internal/plan"
)

// multusDir is where Multus keeps its records unless its configuration says
// otherwise.
const multusDir = "/var/lib/cni/multus"

// leftOf is what Multus left of a container; nil for nothing.
func (e *Engine) leftOf(req core.Request) (*leftover.Left, error) {
	l, err := e.multus(req).Of(req)
	if l == nil || err != nil {
		return nil, err
	}
	for i := range l.Own {
		l.Own[i].Driver, l.Own[i].HostIf = ovs.Name, plan.HostIf(l.Own[i].Key)
	}
	for i := range l.Specs {
		l.Specs[i].Driver = exec.Name
	}
	return l, nil
}

func (e *Engine) multus(req core.Request) leftover.Folder {
	return leftover.Folder{Dir: e.conf(req).CNIDir, BinPath: e.binPath(req)}
}

// inherit makes a record of what Multus left of a container, to be undone: from
// then on nothing but the journal is needed. Its files go with the record. What
// cannot be read is as good as nothing.
func (e *Engine) inherit(ctx context.Context, req core.Request) (core.Record, bool, error) {
	l, err := e.leftOf(req)
	if err != nil {
		e.Log.Warn("Multus' record of a container cannot be used", "container", req.Key.Container, "err", err)
		if core.CodeOf(err) != core.CodeIO {
			e.dropLeftovers(core.Record{Leftovers: []string{filepath.Join(e.conf(req).CNIDir, req.Key.Container)}})
		}
	}
	if l == nil {
		return core.Record{}, false, nil
	}
	rec := core.Record{
		Key: req.Key, Network: req.Conf.Name, Pod: req.Pod, Netns: e.unknownNetns(req), Phase: core.Deleting,
		Created: time.Now().UTC(), Specs: l.Specs, Begun: len(l.Specs), Leftovers: l.Files,
	}
	for i := range rec.Specs {
		rec.Specs[i].Netns = rec.Netns
	}
	for _, s := range l.Own {
		s.Exec, s.Netns = nil, rec.Netns
		if err := e.Drivers[s.Driver].Detach(ctx, s); err != nil {
			return rec, false, err
		}
	}
	if err := e.Journal.Begin(ctx, rec); err != nil {
		return rec, false, fmt.Errorf("take over from Multus: %w", err)
	}
	e.Log.Info("attachment taken over from Multus", "container", req.Key.Container, "networks", len(rec.Specs))
	return rec, true, nil
}

// dropLeftovers removes the files that went with a record. One that stays is
// read again by the next GC.
func (e *Engine) dropLeftovers(rec core.Record) {
	for _, file := range rec.Leftovers {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.Log.Warn("file of Multus not removed", "file", file, "err", err)
		}
	}
}

// checkLeft is CHECK of a container that Multus attached: each plugin's own
// CHECK, and interfaces, addresses and routes as its result has them.
func (e *Engine) checkLeft(ctx context.Context, req core.Request, l *leftover.Left) error {
	netns, err := e.identify(req.Netns)
	if err != nil {
		return err
	}
	var errs []error
	for _, network := range l.Lost {
		errs = append(errs, core.Difference("network "+network+": the result that libcni kept is lost"))
	}
	ctx, end := e.inviteNobody(ctx, req.Key)
	defer end()
	for _, s := range append(l.Own, l.Specs...) {
		if len(s.Exec.Prev) == 0 {
			continue
		}
		s.Driver, s.Netns = exec.Name, netns
		errs = append(errs, about(s.Key.IfName, e.Drivers[exec.Name].Check(ctx, s, core.Link{IfName: s.Key.IfName})))
	}
	return errors.Join(errs...)
}

// leftovers are the containers that Multus attached and the journal does not
// know, by container.
func (e *Engine) leftovers(req core.Request) map[string]*leftover.Left {
	out := map[string]*leftover.Left{}
	for _, id := range e.multus(req).Containers() {
		req.Key = core.Key{Container: id, IfName: defaultIfName}
		if len(e.Journal.Container(id)) > 0 {
			continue
		}
		l, err := e.leftOf(req)
		if err != nil {
			e.Log.Warn("Multus' record of a container cannot be used", "container", id, "err", err)
		}
		if l != nil {
			out[id] = l
		}
	}
	return out
}

// defaultIfName is what runtimes call the first interface.
const defaultIfName = "eth0"

// collectLeft removes those of Multus' attachments that the runtime does not
// list and whose namespace is gone, and returns the others: plugins must not
// free what they hold. A runtime that began with us may list only its own.
func (e *Engine) collectLeft(ctx context.Context, req core.Request) (map[string]*leftover.Left, error) {
	all := e.leftovers(req)
	valid := map[string]bool{}
	for _, k := range req.Conf.Valid {
		valid[k.Container] = true
	}
	var errs []error
	for id, l := range all {
		if _, err := os.Stat(l.Netns); valid[id] || l.Netns != "" && err == nil {
			continue
		}
		unlock, ok := e.queue.TryLock(id)
		if !ok {
			continue
		}
		gone := req
		gone.Key, gone.Netns, gone.Pod = core.Key{Container: id, IfName: defaultIfName}, "", core.Pod{}
		rec, ok, err := e.inherit(ctx, gone)
		if ok {
			err = e.undo(ctx, &rec)
		}
		unlock()
		if err == nil {
			delete(all, id)
			continue
		}
		errs = append(errs, fmt.Errorf("gc %s: %w", gone.Key, err))
	}
	return all, errors.Join(errs...)
}
