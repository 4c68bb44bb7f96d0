// Package sriov is virtual functions of network cards: which there are and of which
// physical function, by PCI address, and what the physical function enforces of each.
// It knows no pods and keeps nothing.
package sriov

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/core"
)

// Sys is sysfs as the machine shows it to the calling process: of network devices it
// has those of the namespace in which it was mounted.
type Sys struct{ root string }

// At is Sys below a folder; "" is /sys.
func At(root string) Sys {
	if root == "" {
		root = "/sys"
	}
	return Sys{root}
}

// VF is one virtual function.
type VF struct {
	PCI    string // 0000:01:10.0
	PF     string // the network device of its physical function
	Index  int    // among those of the PF
	Driver string // "" for none
}

// Userspace tells that the VF's driver hands it to programs, as DPDK's or a virtual
// machine: it is no network device.
func (v VF) Userspace() bool {
	return strings.Contains(v.Driver, "vfio") || v.Driver == "uio_pci_generic" || v.Driver == "igb_uio"
}

var address = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

func (s Sys) device(pci string, more ...string) string {
	return filepath.Join(append([]string{s.root + "/bus/pci/devices", pci}, more...)...)
}

// VF finds a virtual function by its PCI address. core.ErrNotFound: there is no such
// device, or it is no virtual function.
func (s Sys) VF(pci string) (VF, error) {
	v := VF{PCI: pci, Index: -1}
	if !address.MatchString(pci) {
		return v, fmt.Errorf("PCI device %q: %w: it is no address of the form 0000:01:10.0", pci, core.ErrNotFound)
	}
	for _, of := range []struct{ file, why string }{{"", "there is none"}, {"physfn", "it is no virtual function"}} {
		_, err := os.Stat(s.device(pci, of.file))
		if errors.Is(err, fs.ErrNotExist) {
			return v, fmt.Errorf("PCI device %s: %w: %s", pci, core.ErrNotFound, of.why)
		}
		if err != nil {
			return v, fmt.Errorf("PCI device %s: %w", pci, err)
		}
	}
	names, err := s.names(s.device(pci, "physfn", "net"))
	if err == nil && len(names) == 0 {
		err = errors.New("it has no network device here")
	}
	if err != nil {
		return v, fmt.Errorf("physical function of PCI device %s: %w", pci, err)
	}
	v.PF = names[0]
	if v.Index, err = s.index(pci); err == nil {
		v.Driver, err = s.driver(pci)
	}
	if err != nil {
		return v, fmt.Errorf("PCI device %s, virtual function of %s: %w", pci, v.PF, err)
	}
	return v, nil
}

// PFOf is the network device of a virtual function's physical one. Errors are those of VF.
func (s Sys) PFOf(pci string) (string, error) {
	v, err := s.VF(pci)
	return v.PF, err
}

// driver is the name of a function's driver, "" for none.
func (s Sys) driver(pci string) (string, error) {
	to, err := os.Readlink(s.device(pci, "driver"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return filepath.Base(to), err
}

// index is a virtual function's number among those of its physical one. What cannot be
// looked at is no answer.
func (s Sys) index(pci string) (int, error) {
	names, err := s.names(s.device(pci, "physfn"))
	if err != nil {
		return -1, err
	}
	for _, name := range names {
		number, is := strings.CutPrefix(name, "virtfn")
		if !is {
			continue
		}
		to, err := os.Readlink(s.device(pci, "physfn", name))
		if err != nil {
			return -1, err
		}
		if filepath.Base(to) == pci {
			return strconv.Atoi(number)
		}
	}
	return -1, errors.New("it is none of those that this one has")
}

// Netdev is the name of a function's network device; "": it has none, or it is in
// another namespace.
func (s Sys) Netdev(pci string) (string, error) {
	names, err := s.names(s.device(pci, "net"))
	if err != nil || len(names) == 0 {
		return "", err
	}
	return names[0], nil
}

func (s Sys) names(dir string) (out []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, err
}

// Writable is nil where drivers can be taken from functions and given to them: a container
// has sysfs read-only unless somebody says otherwise.
func (s Sys) Writable() error {
	f, err := os.OpenFile(s.root+probe, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("drivers cannot be bound: %w", err)
	}
	return f.Close()
}

// probe has the kernel look for the driver of a device that has none.
const probe = "/bus/pci/drivers_probe"

// probeLimit bounds how long a driver may take to make a network device.
const probeLimit = 5 * time.Second

// Unbind takes a function away from its driver: its network device ends, wherever it is.
func (s Sys) Unbind(pci string) error {
	err := s.write(pci, s.device(pci, "driver/unbind"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has none
	}
	return err
}

// Bind has the kernel look for the function's driver, and gives the name of the network
// device that this makes in the namespace of the machine, with the MAC that the physical
// function says.
func (s Sys) Bind(pci string) (string, error) {
	if err := s.write(pci, s.root+probe); err != nil {
		return "", err
	}
	for deadline := time.Now().Add(probeLimit); ; time.Sleep(10 * time.Millisecond) {
		name, err := s.Netdev(pci)
		if err != nil || name != "" {
			return name, err
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("PCI device %s has no network device %s after its driver was bound", pci, probeLimit)
		}
	}
}

func (s Sys) write(text, file string) error {
	if err := os.WriteFile(file, []byte(text), 0); err != nil {
		return fmt.Errorf("PCI device %s: %w", text, err)
	}
	return nil
}
