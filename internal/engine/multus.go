package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/exec"
	"github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/plan"
)

// multusDir is where Multus keeps its records unless its configuration says
// otherwise.
const multusDir = "/var/lib/cni/multus"

// left is what Multus knew of a container that it attached: the journal does
// not know it, and Multus is not there any more.
type left struct {
	specs []core.Spec // calls of foreign plugins, in order
	own   []core.Spec // interfaces of plugins whose place we take
	netns string      // "" where it is not known
	files []string    // that hold all this
	lost  []string    // networks whose result is lost
}

// leftOf reads Multus' record of a container; nil without one. req gives what
// Multus does not keep: the interface of its first network, and CNI_ARGS where
// libcni's cache is lost.
func (e *Engine) leftOf(req core.Request) (*left, error) {
	id := req.Key.Container
	if id == "" || id != filepath.Base(id) {
		return nil, nil
	}
	dir := e.conf(req).CNIDir
	file := filepath.Join(dir, id)
	if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
		return nil, nil //nolint:nilerr // nothing that Multus wrote
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, core.WithCode(core.CodeIO, "Multus' record", err)
	}
	list, err := cniconf.ParseMultusCache(data, req.Key.IfName)
	if err != nil {
		return nil, core.WithCode(core.CodeDecode, file, err)
	}
	l := &left{files: []string{file}}
	for _, d := range list {
		if err := e.leftNetwork(l, req, d, filepath.Join(dir, "results")); err != nil {
			return nil, core.WithCode(core.CodeDecode, file, err)
		}
	}
	return l, nil
}

// leftNetwork adds one network. Without libcni's cache of it the calls lack the
// result and what Multus' own record leaves out; they are made all the same.
func (e *Engine) leftNetwork(l *left, req core.Request, d cniconf.MultusDelegate, results string) error {
	key := core.Key{Container: req.Key.Container, IfName: d.IfName}
	file := filepath.Join(results, cniconf.LibcniCacheName(d.Chain.Name, key))
	var cached cniconf.LibcniCache
	data, err := os.ReadFile(file)
	if err == nil {
		l.files = append(l.files, file)
		cached, err = cniconf.ParseLibcniCache(data)
	}
	if err != nil || len(cached.Result) == 0 {
		l.lost = append(l.lost, d.Network)
	}
	if cached.Netns != "" {
		l.netns = cached.Netns
	}
	base := core.Spec{Key: key, Network: d.Network, Default: d.Default, Pod: req.Pod}
	for _, p := range d.Chain.Plugins {
		if p.Own() {
			s := base
			s.Driver, s.HostIf = ovs.Name, plan.HostIf(key)
			// Of the interface itself only the result can be compared.
			s.Exec = &core.Exec{Type: p.Type, CNIVersion: d.Chain.CNIVersion, Prev: cached.Result, NoCheck: true, Network: d.Chain.Name}
			l.own = append(l.own, s)
		}
	}
	calls, err := d.Execs(cached, req.RawArgs)
	for _, call := range calls {
		s := base
		call.Path = e.binPath(req)
		s.Driver, s.Exec = exec.Name, &call
		l.specs = append(l.specs, s)
	}
	return err
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
		Created: time.Now().UTC(), Specs: l.specs, Begun: len(l.specs), Leftovers: l.files,
	}
	for i := range rec.Specs {
		rec.Specs[i].Netns = rec.Netns
	}
	for _, s := range l.own {
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
func (e *Engine) checkLeft(ctx context.Context, req core.Request, l *left) error {
	netns, err := e.identify(req.Netns)
	if err != nil {
		return err
	}
	var errs []error
	for _, network := range l.lost {
		errs = append(errs, core.Difference("network "+network+": the result that libcni kept is lost"))
	}
	ctx, end := e.inviteNobody(ctx, req.Key)
	defer end()
	for _, s := range append(l.own, l.specs...) {
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
func (e *Engine) leftovers(req core.Request) map[string]*left {
	entries, err := os.ReadDir(e.conf(req).CNIDir)
	if err != nil {
		return nil // Multus never was here
	}
	out := map[string]*left{}
	for _, entry := range entries {
		req.Key = core.Key{Container: entry.Name(), IfName: defaultIfName}
		if !entry.Type().IsRegular() || len(e.Journal.Container(entry.Name())) > 0 {
			continue
		}
		l, err := e.leftOf(req)
		if err != nil {
			e.Log.Warn("Multus' record of a container cannot be used", "container", entry.Name(), "err", err)
		}
		if l != nil {
			out[entry.Name()] = l
		}
	}
	return out
}

// defaultIfName is what runtimes call the first interface.
const defaultIfName = "eth0"

// collectLeft removes those of Multus' attachments that the runtime does not
// list and whose namespace is gone, and returns the others: plugins must not
// free what they hold. A runtime that began with us may list only its own.
func (e *Engine) collectLeft(ctx context.Context, req core.Request) (map[string]*left, error) {
	all := e.leftovers(req)
	valid := map[string]bool{}
	for _, k := range req.Conf.Valid {
		valid[k.Container] = true
	}
	var errs []error
	for id, l := range all {
		if _, err := os.Stat(l.netns); valid[id] || l.netns != "" && err == nil {
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
