package sriov

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// PF is a physical function that can have virtual ones.
type PF struct {
	PCI      string
	Name     string // of its network device
	Driver   string // "" for none
	VFs      int    // that it has
	Most     int    // that it can have
	Up       bool   // it has carrier
	Mbps     int    // speed of the link, Mbit/s; 0 is not known
	LinkType string // ether or infiniband
}

// Function is a virtual function and what selectors ask of it.
type Function struct {
	VF

	PFAddress      string
	Vendor, Device string   // four hexadecimal digits
	NUMA           int      // -1: the machine does not tell
	RDMA           bool     // it has an RDMA device
	RDMANodes      []string // its device nodes, with the one that all share
	Netdev         string   // as Sys.Netdev
	IOMMUGroup     string   // "" for none
}

// Types of links (linux/if_arp.h), as selectors call them.
var linkTypes = map[string]string{"1": "ether", "32": "infiniband"}

// PFs lists the machine's physical functions that can have virtual ones and have a
// network device in this namespace, by their names.
func (s Sys) PFs() ([]PF, error) {
	devices, err := s.names(s.root + "/bus/pci/devices")
	if err != nil {
		return nil, err
	}
	var out []PF
	for _, pci := range devices {
		if _, err := os.Stat(s.device(pci, "sriov_totalvfs")); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		p, err := s.pf(pci)
		if err != nil {
			return nil, fmt.Errorf("physical function %s: %w", pci, err)
		}
		if p.Name != "" {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b PF) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

func (s Sys) pf(pci string) (p PF, err error) {
	p.PCI = pci
	if p.Name, err = s.Netdev(pci); err != nil {
		return p, err
	}
	if p.Driver, err = s.driver(pci); err != nil {
		return p, err
	}
	if p.VFs, err = s.number(s.device(pci, "sriov_numvfs")); err != nil {
		return p, err
	}
	if p.Most, err = s.number(s.device(pci, "sriov_totalvfs")); err != nil || p.Name == "" {
		return p, err
	}
	kind, err := s.text(s.device(pci, "net", p.Name, "type"))
	p.LinkType = linkTypes[kind]
	if err != nil {
		return p, err
	}
	carrier, err := s.ofLink(p, "carrier")
	if err != nil {
		return p, err
	}
	p.Up = carrier == 1
	p.Mbps, err = s.ofLink(p, "speed")
	return p, err
}

// ofLink is a number that a device has while it is up, else 0: reading it is an EINVAL then
// (Documentation/ABI/testing/sysfs-class-net).
func (s Sys) ofLink(p PF, file string) (int, error) {
	n, err := s.number(s.device(p.PCI, "net", p.Name, file))
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return max(0, n), err
}

// Functions lists the virtual functions of a physical one, by their numbers.
func (s Sys) Functions(p PF) ([]Function, error) {
	names, err := s.names(s.device(p.PCI))
	if err != nil {
		return nil, err
	}
	var out []Function
	for _, name := range names {
		number, is := strings.CutPrefix(name, "virtfn")
		if !is {
			continue
		}
		to, err := os.Readlink(s.device(p.PCI, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has gone this moment
		}
		f := Function{VF: VF{PCI: filepath.Base(to), PF: p.Name}, PFAddress: p.PCI}
		if err == nil {
			f.Index, err = strconv.Atoi(number)
		}
		if err == nil {
			err = s.describe(&f)
		}
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", name, p.Name, err)
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b Function) int { return cmp.Compare(a.Index, b.Index) })
	return out, nil
}

// describe fills in what the function's own folder tells.
func (s Sys) describe(f *Function) (err error) {
	if f.Driver, err = s.driver(f.PCI); err != nil {
		return err
	}
	for file, to := range map[string]*string{"vendor": &f.Vendor, "device": &f.Device} {
		text, err := s.text(s.device(f.PCI, file))
		if err != nil {
			return err
		}
		*to = strings.TrimPrefix(text, "0x")
	}
	f.NUMA = -1
	if node, err := s.number(s.device(f.PCI, "numa_node")); err == nil {
		f.NUMA = node
	} else if !errors.Is(err, fs.ErrNotExist) { // a kernel without NUMA
		return err
	}
	rdma, err := s.names(s.device(f.PCI, "infiniband"))
	if err != nil {
		return err
	}
	if f.RDMA = len(rdma) > 0; f.RDMA {
		if f.RDMANodes, err = s.rdmaNodes(f.PCI); err != nil {
			return err
		}
	}
	if to, err := os.Readlink(s.device(f.PCI, "iommu_group")); err == nil {
		f.IOMMUGroup = filepath.Base(to)
	}
	f.Netdev, err = s.Netdev(f.PCI)
	return err
}

// SetVFs makes a physical function have so many virtual ones. Those that it has end
// first, also in pods: the kernel takes no other number at once.
func (s Sys) SetVFs(p PF, count int) error {
	if count > p.Most {
		return fmt.Errorf("%s can have %d virtual functions, not %d", p.Name, p.Most, count)
	}
	file := s.device(p.PCI, "sriov_numvfs")
	steps := []int{count}
	if p.VFs > 0 && count > 0 && count != p.VFs {
		steps = []int{0, count}
	}
	for _, n := range steps {
		if err := os.WriteFile(file, []byte(strconv.Itoa(n)), 0); err != nil {
			return fmt.Errorf("%d virtual functions of %s: %w", n, p.Name, err)
		}
	}
	return nil
}

// DriverVFIO gives a function to a program of its own.
const DriverVFIO = "vfio-pci"

// Drive binds a function to a driver by its name; "" is the one that the kernel finds. The
// choice is kept for later probes of the function (driver_override).
func (s Sys) Drive(pci, driver string) error {
	if err := s.Unbind(pci); err != nil {
		return err
	}
	// A line feed takes the choice away (Documentation/ABI/testing/sysfs-bus-pci).
	if err := os.WriteFile(s.device(pci, "driver_override"), []byte(driver+"\n"), 0); err != nil {
		return fmt.Errorf("PCI device %s: %w", pci, err)
	}
	if err := s.write(pci, s.root+probe); err != nil {
		return err
	}
	now, err := s.driver(pci)
	if err == nil && (now == "" || driver != "" && now != driver) {
		err = fmt.Errorf("PCI device %s has driver %q after %q was asked for: is the module loaded, and for vfio-pci the IOMMU on?", pci, now, driver)
	}
	return err
}

func (s Sys) text(file string) (string, error) {
	raw, err := os.ReadFile(file)
	return strings.TrimSpace(string(raw)), err
}

func (s Sys) number(file string) (int, error) {
	text, err := s.text(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (s Sys) rdmaNodes(pci string) (out []string, err error) {
	for _, kind := range []string{"infiniband_verbs", "infiniband_mad"} {
		names, err := s.names(s.device(pci, kind))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			out = append(out, "/dev/infiniband/"+name)
		}
	}
	if len(out) > 0 {
		out = append(out, "/dev/infiniband/rdma_cm")
	}
	return out, nil
}
