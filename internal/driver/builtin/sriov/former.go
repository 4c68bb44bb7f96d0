package sriov

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// FormerDir is where the program sriov keeps what it did (sriov-cni 2.x): a file
// CONTAINER-INTERFACE for each VF that it gave, and below pci one with the pod's namespace
// for each device.
const FormerDir = "/var/lib/cni/sriov"

// maxFormer bounds a file of it, in bytes.
const maxFormer = 256 << 10

// Import adopts what the program sriov has given to pods that run: marks are written by
// which a DEL by the agent makes each VF what it was, and which another pod respects. The
// program's files stay until then, so that Rollback is to forget the marks.
type Import struct {
	dir   string // the program's
	marks *marks
	sys   sriov.Sys
}

// NewImport makes one of the program's folder and that of the marks.
func NewImport(dir, marksDir string) *Import {
	return &Import{dir: dir, marks: &marks{dir: marksDir}, sys: sriov.At("")}
}

// States of a VF that the program has given.
const (
	StateFound   = "found"   // to be adopted
	StateAdopted = "adopted" // by a mark
	StateGone    = "gone"    // there is no such device any more: nothing is to be restored
	StateHeld    = "held"    // the agent has given it to another
	StateBroken  = "broken"  // the file cannot be understood
)

// Former is a VF that the program has given.
type Former struct {
	File      string `json:"file"`
	Device    string `json:"device,omitempty"`
	Container string `json:"container,omitempty"`
	Interface string `json:"interface,omitempty"`
	State     string `json:"state"`
	Why       string `json:"why,omitempty"`

	mark Mark
}

// InTheWay tells that the VF is left as it is.
func (f Former) InTheWay() bool { return f.State == StateHeld || f.State == StateBroken }

// kept is what is needed of a file of the program's.
type kept struct {
	DeviceID    string `json:"deviceID"`
	Interface   string `json:"ContIFNames"`
	MAC         string `json:"MAC"`
	OrigVfState struct {
		HostIFName   string
		EffectiveMAC string
	}
}

// Plan looks, and changes nothing. A machine without the folder has nothing. Files that name
// one device are broken, all of them: nothing tells which is of a pod that runs.
func (i *Import) Plan() (out []Former, err error) {
	entries, err := os.ReadDir(i.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			out = append(out, i.look(e.Name()))
		}
	}
	for device, same := range found(out) {
		for n, f := range same {
			if len(same) > 1 {
				f.State, f.Why = StateBroken, same[(n+1)%len(same)].File+" names device "+device+", too: remove the file of the pod that is gone"
			}
		}
	}
	return out, err
}

// found are those that are to be adopted, by device.
func found(all []Former) map[string][]*Former {
	out := map[string][]*Former{}
	for n := range all {
		if f := &all[n]; f.State == StateFound {
			out[f.Device] = append(out[f.Device], f)
		}
	}
	return out
}

// look judges one of the files.
func (i *Import) look(name string) Former {
	f := Former{File: filepath.Join(i.dir, name)}
	err := i.read(name, &f)
	if errors.Is(err, core.ErrNotFound) {
		f.State, f.Why = StateGone, err.Error()
		return f
	}
	if err == nil {
		var have Mark
		var marked bool
		have, marked, err = i.marks.load(f.Device)
		f.State = StateFound
		if marked && have.Owner == f.mark.Owner {
			f.State = StateAdopted
		} else if marked {
			f.State, f.Why = StateHeld, "it is that of "+have.Owner.String()
		}
	}
	if err != nil {
		f.State, f.Why = StateBroken, err.Error()
	}
	return f
}

// read understands a file. core.ErrNotFound: its device is no more.
func (i *Import) read(name string, f *Former) error {
	at, err := os.Stat(f.File)
	if err == nil && at.Size() > maxFormer {
		err = fmt.Errorf("%s has more than %d bytes", f.File, maxFormer)
	}
	if err != nil {
		return err
	}
	var k kept
	if _, err := recordfile.Load(f.File, &k); err != nil {
		return err
	}
	container, ifName, ok := strings.Cut(name, "-")
	if c, is := strings.CutSuffix(name, "-"+k.Interface); is && k.Interface != "" {
		container, ifName = c, k.Interface
	}
	if !ok || k.DeviceID == "" {
		return errors.New("it is not of the program sriov")
	}
	f.Device, f.Container, f.Interface = k.DeviceID, container, ifName
	v, err := i.sys.VF(k.DeviceID)
	if err != nil {
		return err
	}
	f.mark = Mark{Owner: core.Key{Container: container, IfName: ifName}, Name: k.OrigVfState.HostIFName, Driver: v.Driver}
	place := filepath.Join(i.dir, "pci", k.DeviceID)
	f.mark.Former = []string{f.File, place}
	if err := k.macs(&f.mark); err != nil {
		return err
	}
	f.mark.Netns, err = namespaceOf(place)
	return err
}

func (k *kept) macs(m *Mark) (err error) {
	for _, mac := range []struct {
		text string
		to   *core.MAC
	}{{k.OrigVfState.EffectiveMAC, &m.MAC}, {k.MAC, &m.Given}} {
		if mac.text == "" {
			continue
		}
		if *mac.to, err = annotation.ParseMAC(mac.text); err != nil {
			return fmt.Errorf("MAC %q %w", mac.text, err)
		}
	}
	return nil
}

// namespaceOf is the namespace that a file names, its path alone where it is no more; the
// zero value: there is no such file.
func namespaceOf(file string) (core.Netns, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return core.Netns{}, nil
	}
	if err != nil {
		return core.Netns{}, err
	}
	path := strings.TrimSpace(string(text))
	ns, err := netns.Identify(path)
	if errors.Is(err, core.ErrNetnsGone) {
		return core.Netns{Path: path}, nil
	}
	return ns, err
}

// Apply adopts what Plan finds; what is in the way stays as it is. It may be killed at any
// instant and run again.
func (i *Import) Apply() ([]Former, error) {
	all, err := i.Plan()
	if err != nil {
		return nil, err
	}
	for n := range all {
		if all[n].State != StateFound {
			continue
		}
		if err := i.marks.save(all[n].Device, all[n].mark); err != nil {
			return all, err
		}
		all[n].State = StateAdopted
	}
	return all, nil
}

// Rollback forgets the marks that Apply wrote: the program restores these VFs.
func (i *Import) Rollback() ([]Former, error) {
	all, err := i.Plan()
	if err != nil {
		return nil, err
	}
	for n := range all {
		if all[n].State != StateAdopted {
			continue
		}
		m, ok, err := i.marks.load(all[n].Device)
		if err == nil && ok && len(m.Former) > 0 {
			err = recordfile.Remove(i.marks.file(all[n].Device))
		}
		if err != nil {
			return all, err
		}
		all[n].State = StateFound
	}
	return all, nil
}

// owned is the device that key's pod has by the marks, "" for none: a DEL may come
// without its configuration's device.
func (s *marks) owned(key core.Key) (string, error) {
	all, err := s.all()
	for pci, m := range all {
		if m.Owner == key {
			return pci, err
		}
	}
	return "", err
}
