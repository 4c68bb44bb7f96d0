package uplink

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"syscall"

	"github.com/fairlead/fairlead/internal/kernel/sysfs"
)

// settings gives the bridge's device, which is about to come up, the NIC's sysctls that are
// not those of any link: how it answers ARP, what it drops. The NIC keeps its own, which
// count again after the return.
func (m *mover) settings(nic, bridge string) error {
	err := m.cfg.Host.Do(func() error {
		for _, family := range []string{"net/ipv4/conf", "net/ipv6/conf"} {
			if err := settings(family, nic, bridge); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("have %s set as %s is: %w", bridge, nic, err)
	}
	return nil
}

// apart are sysctls of a link that do not go to another: which address the kernel makes of
// its MAC, of which the bridge's device has none made, and its MTU, which goes as that.
var apart = []string{"addr_gen_mode", "stable_secret", "mtu"}

func settings(family, from, to string) error {
	names, err := sysfs.WritableSysctls(path.Join(family, from))
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.Contains(apart, name) {
			continue
		}
		value, err := differing(family, from, name)
		if err == nil && value != "" {
			err = sysfs.WriteSysctl(path.Join(family, to, name), value)
		}
		if err != nil && !sysfs.SysctlMissing(err) {
			return err
		}
	}
	return nil
}

// differing is a link's value of a sysctl, "" where it is what any link has, or none.
func differing(family, link, name string) (string, error) {
	value, err := sysfs.ReadSysctl(path.Join(family, link, name))
	if errors.Is(err, syscall.EIO) { // it was never set
		return "", nil
	}
	if err != nil {
		return "", err
	}
	usual, err := sysfs.ReadSysctl(path.Join(family, "default", name))
	if usual == value {
		value = ""
	}
	return value, err
}
