package sriov

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
)

// Mark is what is kept of a VF while a pod has it, or is to have it.
type Mark struct {
	Owner  core.Key   `json:"owner"`
	Netns  core.Netns `json:"netns,omitzero"`
	Name   string     `json:"name,omitempty"`   // of the device, on the machine
	MAC    core.MAC   `json:"mac,omitempty"`    // that it had there
	Given  core.MAC   `json:"given,omitempty"`  // that was asked for the pod
	Driver string     `json:"driver,omitempty"` // "" in marks of former agents
	// Former are files of a plugin that ran before, which go with the mark (sriov import).
	Former []string `json:"former,omitempty"`
}

// marks are a folder of them, by PCI address.
type marks struct {
	dir string
	mu  sync.Mutex // one at a time gives a MAC
}

const suffix = ".json"

func (s *marks) file(pci string) string { return filepath.Join(s.dir, filepath.Base(pci)+suffix) }

// load reads a VF's mark; ok is false where it has none.
func (s *marks) load(pci string) (m Mark, ok bool, err error) {
	ok, err = recordfile.Load(s.file(pci), &m)
	return m, ok, err
}

func (s *marks) save(pci string, m Mark) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return recordfile.Save(s.file(pci), m)
}

// remove takes a mark away, after the files that go with it.
func (s *marks) remove(pci string, m Mark) error {
	for _, f := range m.Former {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return recordfile.Remove(s.file(pci))
}

// all are those of the folder, by PCI address.
func (s *marks) all() (map[string]Mark, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := map[string]Mark{}
	for _, e := range entries {
		pci, is := strings.CutSuffix(e.Name(), suffix)
		if !is || strings.HasPrefix(pci, ".") { // it is being written
			continue
		}
		m, ok, err := s.load(pci)
		if err != nil {
			return nil, err
		}
		if ok {
			out[pci] = m
		}
	}
	return out, nil
}

// take marks the VF for the pod, which is to have the MAC (nil: the VF's own). A VF whose
// driver hands it to programs has no device: l is none.
func (p *Plugin) take(host *rtnl.Conn, v sriov.VF, mac core.MAC, g grant) (l rtnl.Link, err error) {
	m, err := p.left(host, v, g.call.Key)
	if err != nil {
		return l, err
	}
	name, err := p.sys.Netdev(v.PCI)
	if err != nil {
		return l, inproc.Fail("find device "+v.PCI, err)
	}
	own := m.Owner == g.call.Key
	if m.Owner.Container != "" && !own || name == "" && !v.Userspace() {
		return l, absent(v, g, m)
	}
	if name != "" {
		if l, err = host.LinkByName(name); err != nil {
			return l, inproc.Fail("mark device "+v.PCI, err)
		}
	}
	if !own {
		m = Mark{Name: l.Name, MAC: l.MAC}
	}
	m.Owner, m.Netns, m.Given, m.Driver = g.call.Key, g.call.Netns, mac, v.Driver
	return l, p.claim(host, v, m)
}

// left is the VF's mark, the zero value where it has none. A VF that an agent which died
// left marked for another pod than key's, which has it no more, is cleaned.
func (p *Plugin) left(host *rtnl.Conn, v sriov.VF, key core.Key) (Mark, error) {
	m, ok, err := p.marks.load(v.PCI)
	if err != nil || !ok || m.Owner == key {
		return m, inproc.Fail("find device "+v.PCI, err)
	}
	free, err := p.free(v, m)
	if err != nil || !free {
		return m, inproc.Fail("find device "+v.PCI, err)
	}
	if err := p.clean(nil, host, v, m); err != nil {
		return m, core.Reasoned(core.CodeDevice, core.ReasonVFDirty, "virtual function %d of %s (%s), which %s had, cannot be cleaned: %w", v.Index, v.PF, v.PCI, m.Owner, err)
	}
	return Mark{}, nil
}

// free tells that the pod of a mark has its VF no more.
func (p *Plugin) free(v sriov.VF, m Mark) (bool, error) {
	if v.Driver == "" {
		return true, nil
	}
	if v.Userspace() { // nothing of it is in the pod: only its end tells
		if m.Netns.Path == "" {
			return len(m.Former) == 0, nil // a program's word of the namespace is lost
		}
		pod, err := netns.Verify(m.Netns)
		if errors.Is(err, core.ErrNetnsGone) {
			return true, nil
		}
		if err == nil {
			err = pod.Close()
		}
		return false, err
	}
	name, err := p.sys.Netdev(v.PCI)
	return name != "", err
}

// absent says why the pod cannot have the VF.
func absent(v sriov.VF, g grant, m Mark) error {
	own := m.Owner == g.call.Key
	if own {
		_, err := inPod(g.pod, v.PCI)
		switch {
		case err == nil:
			return fmt.Errorf("%s has it already: %w", g.call.Key, core.ErrExists)
		case !errors.Is(err, core.ErrNotFound):
			return inproc.Fail("find device "+v.PCI, err)
		}
	}
	why := fmt.Sprintf("has no network device on this machine: its driver is %q, or somebody took it away", v.Driver)
	if !own && m.Owner.Container != "" {
		why = fmt.Sprintf("is that of %s", m.Owner)
	}
	return core.Reasoned(core.CodeDevice, core.ReasonNoVFMatches, "virtual function %d of %s (%s) %s", v.Index, v.PF, v.PCI, why)
}

// claim writes the mark, unless another VF of the same physical function has the MAC that
// it says: cards take one for two.
func (p *Plugin) claim(host *rtnl.Conn, v sriov.VF, m Mark) error {
	p.marks.mu.Lock()
	defer p.marks.mu.Unlock()
	if len(m.Given) > 0 {
		if err := p.unused(host, v, m.Given); err != nil {
			return err
		}
	}
	return inproc.Fail("mark device "+v.PCI, p.marks.save(v.PCI, m))
}

func (p *Plugin) unused(host *rtnl.Conn, v sriov.VF, mac core.MAC) error {
	all, err := p.marks.all()
	if err != nil {
		return inproc.Fail("find device "+v.PCI, err)
	}
	for pci, m := range all {
		if pci == v.PCI || !bytes.Equal(m.Given, mac) {
			continue
		}
		has, err := p.has(host, pci, v.PF, m)
		if err != nil {
			return inproc.Fail("find device "+pci, err)
		}
		if has {
			return core.Reasoned(core.CodeAddress, core.ReasonMACInUse, "MAC %s is that of %s, on virtual function %s of %s", mac, m.Owner, pci, v.PF)
		}
	}
	return nil
}

// has tells that a VF of the physical function is still a pod's. One that is no more is
// cleaned, unless somebody works on it.
func (p *Plugin) has(host *rtnl.Conn, pci, pf string, m Mark) (bool, error) {
	v, err := p.sys.VF(pci)
	if errors.Is(err, core.ErrNotFound) {
		return false, nil
	}
	if err != nil || v.PF != pf {
		return false, err
	}
	unlock, ok := p.locks.TryLock(pci)
	if !ok {
		return true, nil
	}
	defer unlock()
	free, err := p.free(v, m)
	if err != nil || !free {
		return !free, err
	}
	return false, p.clean(nil, host, v, m)
}
