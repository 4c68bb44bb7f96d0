// Package records reads what Multus left of containers that it attached: its
// own records, and libcni's cache of results beside them (read from Multus v3.9
// to v4.3). Who takes the containers over decides what becomes of them.
package records

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// Left is what Multus knew of a container that it attached, and is not there any
// more to detach.
type Left struct {
	Specs []core.Spec // calls of foreign plugins, in order; of no driver yet
	Own   []core.Spec // interfaces of plugins whose place we take; likewise
	Netns string      // "" where it is not known
	Files []string    // that hold all this
	Lost  []string    // networks whose result is lost
}

// Folder is where Multus kept its records, and where its plugins are searched.
type Folder struct {
	Dir     string
	BinPath []string
}

// Of reads Multus' record of a container; nil without one. req gives what
// Multus does not keep: the interface of its first network, and CNI_ARGS where
// libcni's cache is lost.
func (f Folder) Of(req core.Request) (*Left, error) {
	id := req.Key.Container
	if id == "" || id != filepath.Base(id) {
		return nil, nil
	}
	file := filepath.Join(f.Dir, id)
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || err == nil && !info.Mode().IsRegular() {
		return nil, nil // nothing that Multus wrote
	}
	if err != nil {
		return nil, core.WithCode(core.CodeIO, "Multus' record", err)
	}
	data, err := hostfile.Read(file, hostfile.Limit)
	if err != nil {
		return nil, core.WithCode(core.CodeIO, "Multus' record", err)
	}
	list, err := cniconf.ParseMultusCache(data, req.Key.IfName)
	if err != nil {
		return nil, core.WithCode(core.CodeDecode, file, err)
	}
	l := &Left{Files: []string{file}}
	for _, d := range list {
		if err := f.network(l, req, d); err != nil {
			return nil, core.WithCode(core.CodeDecode, file, err)
		}
	}
	return l, nil
}

// network adds one network. Without libcni's cache of it the calls lack the
// result and what Multus' own record leaves out; they are made all the same.
func (f Folder) network(l *Left, req core.Request, d cniconf.MultusDelegate) error {
	key := core.Key{Container: req.Key.Container, IfName: d.IfName}
	file := filepath.Join(f.Dir, "results", cniconf.LibcniCacheName(d.Chain.Name, key))
	var cached cniconf.LibcniCache
	data, err := hostfile.Read(file, hostfile.Limit)
	if err == nil {
		l.Files = append(l.Files, file)
		cached, err = cniconf.ParseLibcniCache(data)
	}
	if err != nil || len(cached.Result) == 0 {
		l.Lost = append(l.Lost, d.Network)
	}
	if cached.Netns != "" {
		l.Netns = cached.Netns
	}
	base := core.Spec{Key: key, Driver: core.DriverExec, Network: d.Network, Default: d.Default, Pod: req.Pod}
	for _, p := range d.Chain.Plugins {
		if p.Own() {
			s := base
			// Of the interface itself only the result can be compared.
			s.Exec = &core.Exec{Type: p.Type, CNIVersion: d.Chain.CNIVersion, Prev: cached.Result, NoCheck: true, Network: d.Chain.Name}
			l.Own = append(l.Own, s)
		}
	}
	calls, err := d.Execs(cached, req.RawArgs)
	for _, call := range calls {
		s := base
		call.Path = f.BinPath
		s.Exec = &call
		l.Specs = append(l.Specs, s)
	}
	return err
}

// Delegates tells whether Multus had our plugin as a delegate in the network
// called name.
func (l *Left) Delegates(name string) bool {
	return slices.ContainsFunc(l.Own, func(s core.Spec) bool { return s.Exec.Network == name })
}

// Remove deletes files of Multus; gone is success.
func Remove(files []string) error {
	var errs []error
	for _, file := range files {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Containers are those of which there is a record.
func (f Folder) Containers() ([]string, error) {
	entries, err := os.ReadDir(f.Dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil // Multus never was here
	}
	if err != nil {
		return nil, core.WithCode(core.CodeIO, "records of Multus", err)
	}
	var out []string
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			out = append(out, entry.Name())
		}
	}
	return out, nil
}
