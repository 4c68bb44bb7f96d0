package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/multus/records"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// multusDir is where Multus keeps its records unless its configuration differs.
const multusDir = "/var/lib/cni/multus"

// leftOf is what Multus left of a container; nil for nothing. Whoever calls us
// as a delegate, be it Multus, sees to the others itself.
func (e *Engine) leftOf(req core.Request) (*records.Left, error) {
	if !resolve.Serves(req.Conf) {
		return nil, nil
	}
	l, err := e.Multus(req).Of(req)
	if l == nil || err != nil || l.Delegates(req.Conf.Name) {
		return nil, err
	}
	return l, nil
}

// Multus is where a request's Multus keeps its records.
func (e *Engine) Multus(req core.Request) records.Folder {
	return records.Folder{Dir: e.conf(req).CNIDir, BinPath: e.binPath(req)}
}

// inherit makes a record of what Multus left of a container, to be undone: from
// then on nothing but the journal is needed. Its files go with the record. What
// nobody can make anything of is as good as nothing. Where Multus had us as a delegate, there
// is a record of our own interface already (known): the others join it.
func (e *Engine) inherit(ctx context.Context, t driver.Timer, req core.Request, rec core.Record, known bool) (core.Record, bool, error) {
	l, err := e.leftOf(req)
	if err != nil {
		if core.CodeOf(err) == core.CodeIO {
			return rec, false, err
		}
		e.Log.Warn("Multus' record of a container cannot be read: it counts as none", "container", req.Key.Container, "err", err)
		e.dropFormerFiles([]string{filepath.Join(e.conf(req).CNIDir, req.Key.Container)})
	}
	if l == nil || len(rec.FormerFiles) > 0 {
		return rec, known, nil
	}
	write := e.Journal.Save
	if !known {
		ns, err := e.unknownNetns(req)
		if err != nil {
			return rec, false, err
		}
		write = e.Journal.Begin
		rec = core.Record{Key: req.Key, Network: req.Conf.Name, Pod: req.Pod, Netns: ns, Created: time.Now().UTC()}
		for _, s := range l.Own {
			for _, guess := range e.Drivers.Guess(s.Key, rec.Netns) {
				if err := e.detachOne(ctx, driver.Run{Time: t}, guess); err != nil {
					return rec, false, err
				}
			}
		}
	}
	for _, s := range l.Specs {
		s.Netns = rec.Netns
		rec.Specs = append(rec.Specs, s)
	}
	rec.Phase, rec.Begun, rec.FormerFiles = core.Deleting, len(rec.Specs), l.Files
	if err := write(ctx, rec); err != nil {
		return rec, false, fmt.Errorf("take over from Multus: %w", err)
	}
	e.Log.Info("attachment taken over from Multus", "container", req.Key.Container, "networks", len(l.Specs))
	return rec, true, nil
}

// dropFormerFiles removes the files that went with a record. One that stays is
// read again by the next GC.
func (e *Engine) dropFormerFiles(files []string) {
	if err := records.Remove(files); err != nil {
		e.Log.Warn("files of Multus not removed: the next GC finds them again", "err", err)
	}
}

// checkLeft is CHECK of a container that Multus attached: each plugin's own
// CHECK, and interfaces, addresses and routes as its result has them.
func (e *Engine) checkLeft(ctx context.Context, req core.Request, l *records.Left, p patience) error {
	netns, err := e.identify(req.Netns)
	if err != nil {
		return err
	}
	var errs []error
	for _, network := range l.Lost {
		errs = append(errs, core.Difference("network "+network+": the result that libcni kept is lost"))
	}
	run, end := e.inviteNobody(nil, req.Key)
	defer end()
	specs := slices.Concat(l.Own, l.Specs)
	for i, s := range specs {
		if len(s.Exec.Prev) == 0 {
			continue
		}
		s.Netns = netns
		errs = append(errs, e.checkSpec(ctx, run, s, core.Link{IfName: s.Key.IfName}, p.share(len(specs)-i)))
	}
	return errors.Join(errs...)
}

// former are the containers that Multus attached, but for those in the journal.
// The error says that they cannot all be told.
func (e *Engine) former(req core.Request) (map[string]*records.Left, error) {
	out := map[string]*records.Left{}
	ids, err := e.Multus(req).Containers()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		req.Key = core.Key{Container: id, IfName: defaultIfName}
		l, err := e.leftOf(req)
		if err != nil && core.CodeOf(err) == core.CodeIO {
			return nil, err
		}
		if err != nil {
			e.Log.Warn("Multus' record of a container cannot be read: it counts as none", "container", id, "err", err)
		}
		if l != nil && !slices.ContainsFunc(e.Journal.Container(id), records.Inherited) {
			out[id] = l
		}
	}
	return out, nil
}

// defaultIfName is what runtimes call the first interface.
const defaultIfName = "eth0"

// collectLeft removes those of Multus' attachments that the runtime does not
// list and whose namespace is gone, and returns the others: plugins must not
// free what they hold. A runtime that began with us may list only its own.
// Records of ours that stand beside Multus' go with it: what Multus called them
// by is no network of the runtime's, so that no other GC would find them. nil
// says that the others are not known.
func (e *Engine) collectLeft(ctx context.Context, req core.Request) (map[string]*records.Left, error) {
	all, err := e.former(req)
	if err != nil {
		return nil, err
	}
	valid := map[string]bool{}
	for _, k := range req.Conf.Valid {
		valid[k.Container] = true
	}
	var errs []error
	for id, l := range all {
		if valid[id] {
			continue
		}
		if isGone, err := gone(core.Netns{Path: l.Netns}); !isGone {
			if err != nil {
				errs = append(errs, fmt.Errorf("gc %s: %w", id, err))
			}
			continue
		}
		unlock, ok := e.queue.TryLock(id)
		if !ok {
			continue
		}
		removed, err := e.collectLeftOf(ctx, req, id)
		unlock()
		if err != nil {
			errs = append(errs, fmt.Errorf("gc %s: %w", id, err))
		} else if removed {
			delete(all, id)
		}
	}
	return all, errors.Join(errs...)
}

// collectLeftOf removes one container's attachments, Multus' and ours. The caller
// has its turn. One of which an attachment lives, or may live, is left alone.
func (e *Engine) collectLeftOf(ctx context.Context, req core.Request, id string) (removed bool, err error) {
	records := e.Journal.Container(id)
	for _, r := range records {
		if isGone, err := gone(r.Netns); !isGone {
			return false, err
		}
	}
	var rec core.Record
	known := len(records) > 0
	if known {
		rec, records = records[0], records[1:]
	}
	req.Key, req.Netns, req.Pod = core.Key{Container: id, IfName: defaultIfName}, "", core.Pod{}
	rec, ok, err := e.inherit(ctx, nil, req, rec, known)
	if ok && err == nil {
		err = e.answerDel(ctx, &rec, e.undo(ctx, nil, &rec))
	}
	errs := []error{err}
	for i := range records {
		errs = append(errs, e.answerDel(ctx, &records[i], e.undo(ctx, nil, &records[i])))
	}
	err = errors.Join(errs...)
	return err == nil, err
}
