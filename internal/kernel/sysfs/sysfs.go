// Package sysfs reads and writes what the kernel offers beside netlink's
// routing family: sysctls under /proc/sys, mount points, ethtool's checksum offload, and
// which generic netlink families (kernel features) are there. Network sysctls
// and devices are those of the calling thread's namespace: call from inside
// netns.Handle.Do for another one. The package knows no pods and no drivers.
package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
)

const sysctlRoot = "/proc/sys"

// WritableSysctls are the names of those sysctls of a folder below /proc/sys that can be
// set; none of a folder that is not there.
func WritableSysctls(folder string) (names []string, err error) {
	path, err := sysctlPath(folder)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil && !SysctlMissing(err) {
		return nil, fmt.Errorf("list sysctls of %s: %w", folder, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Mode()&0o200 != 0 {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// ReadSysctl gives a sysctl's value without surrounding space. name is either
// dotted ("net.ipv4.ip_forward") or a path below /proc/sys
// ("net/ipv4/conf/eth0.100/arp_notify", for interfaces with a dot in the name).
func ReadSysctl(name string) (string, error) {
	path, err := sysctlPath(name)
	if err != nil {
		return "", err
	}
	b, err := readFile(path)
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// maxSysctl is what the kernel gives of a sysctl at most: a page.
const maxSysctl = 4 << 10

// readFile reads a sysctl with three system calls. Package os makes nine: it
// asks for the size and has its poller watch the file, as sysctls can be polled.
func readFile(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, maxSysctl)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return buf[:n], nil
}

// WriteSysctl sets a sysctl. It writes only on difference, so that a value
// that is right already is no error on a read-only /proc/sys.
func WriteSysctl(name, value string) error {
	have, err := ReadSysctl(name)
	if err != nil || have == value {
		return err
	}
	path, err := sysctlPath(name)
	if err != nil {
		return err
	}
	if err := writeFile(path, value); err != nil {
		return fmt.Errorf("set sysctl %s = %s: %w", name, value, err)
	}
	return nil
}

// SetSysctl is WriteSysctl for a value that is likely to differ: it writes at
// once, and looks what is there only where it may not.
func SetSysctl(name, value string) error {
	path, err := sysctlPath(name)
	if err != nil {
		return err
	}
	err = writeFile(path, value)
	if err == nil || SysctlMissing(err) {
		return err
	}
	if have, rerr := ReadSysctl(name); rerr == nil && have == value {
		return nil
	}
	return fmt.Errorf("set sysctl %s = %s: %w", name, value, err)
}

// writeFile is readFile's counterpart. A sysctl must not be created and need not
// be truncated.
func writeFile(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// SysctlMissing tells that a sysctl does not exist: the kernel lacks the
// feature (IPv6 disabled at boot, for one), or the interface is gone.
func SysctlMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func sysctlPath(name string) (string, error) {
	rel := name
	if !strings.Contains(name, "/") {
		rel = strings.ReplaceAll(name, ".", "/")
	}
	if !filepath.IsLocal(rel) || rel == "." {
		return "", fmt.Errorf("sysctl name %q: %w", name, fs.ErrInvalid)
	}
	return filepath.Join(sysctlRoot, rel), nil
}

// TxChecksumOff turns the transmit checksum offload of a device off, and with
// it TCP segmentation offload. A userspace datapath reads frames from a veth as
// they are: one whose checksum was left to hardware would arrive broken.
// core.ErrNotFound if there is no such device.
func TxChecksumOff(ifname string) error {
	if err := ethtool(ifname, unix.ETHTOOL_STXCSUM, 0); err != nil {
		return fmt.Errorf("turn off tx checksum of %s: %w", ifname, err)
	}
	return nil
}

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct{ cmd, data uint32 }

// ethtool does one SIOCETHTOOL. The library for it first asks for the device's
// whole list of features and their names, four calls instead of this one.
func ethtool(ifname string, cmd, data uint32) error {
	if len(ifname) >= unix.IFNAMSIZ {
		return fmt.Errorf("interface name of %d bytes: %w", len(ifname), unix.EINVAL)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	v := ethtoolValue{cmd: cmd, data: data}
	var req struct { // struct ifreq
		name  [unix.IFNAMSIZ]byte
		value *ethtoolValue
		_     [16]byte
	}
	copy(req.name[:], ifname)
	req.value = &v
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	switch errno {
	case 0:
		return nil
	case unix.ENODEV:
		return fmt.Errorf("%w (%w)", core.ErrNotFound, errno)
	}
	return os.NewSyscallError("ioctl SIOCETHTOOL", errno)
}

// GenlFamily tells whether the kernel has a generic netlink family. Asking
// makes the kernel load the module that provides it, if there is one.
func GenlFamily(name string) (bool, error) {
	_, err := netlink.GenlFamilyGet(name)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	}
	return false, fmt.Errorf("look for genetlink family %s: %w", name, err)
}

// HasOpenvswitch tells whether the kernel has Open vSwitch's datapath; without
// it a bridge must use the userspace one (datapath_type netdev).
func HasOpenvswitch() (bool, error) { return GenlFamily("ovs_datapath") }
