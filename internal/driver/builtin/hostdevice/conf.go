package hostdevice

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// conf is a configuration. Of the four keys that name a device the first that is set
// counts, in this order; a device that kubelet gave stands in the place of pciBusID.
type conf struct {
	inproc.Conf
	Device        string `json:"device"`
	HWAddr        string `json:"hwaddr"`
	KernelPath    string `json:"kernelpath"` // below /sys/devices/
	PCI           string `json:"pciBusID"`
	RuntimeConfig struct {
		DeviceID string `json:"deviceID"` // of the PCI or the auxiliary bus
	} `json:"runtimeConfig"`

	Declared cniconf.Settings `json:"net.fairlead.io/settings"` // of which a device takes a MAC
}

var keys = inproc.Keys("device", "hwaddr", "kernelpath", cniconf.SettingsKey)

// Accepts refuses keys that v1.9.1 does not know.
func (p *Plugin) Accepts(raw json.RawMessage) error {
	have, err := cniconf.Keys(raw)
	if err == nil {
		err = cniconf.OnlyKeys(have, keys...)
	}
	if err == nil {
		have, err = cniconf.Keys(raw, cniconf.SettingsKey)
	}
	if err == nil {
		err = cniconf.OnlyKeys(have, "mac")
	}
	if err == nil {
		_, err = read(raw)
	}
	return err
}

func read(raw json.RawMessage) (c conf, err error) {
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, core.Errorf(core.CodeConfig, "failed to load netconf: %w", err)
	}
	return c, nil
}

// Prove implements driver.PluginProver: a configuration that names no device, or names
// it as nothing can be called.
func (p *Plugin) Prove(call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err == nil {
		err = c.refuse()
	}
	return err
}

func (c conf) refuse() error {
	if c.Device+c.HWAddr+c.KernelPath+c.PCI+c.RuntimeConfig.DeviceID == "" {
		return core.Errorf(core.CodeConfig, `specify either "device", "hwaddr", "kernelpath" or "pciBusID"`)
	}
	if _, err := net.ParseMAC(c.HWAddr); err != nil && c.HWAddr != "" && c.Device == "" {
		return core.Errorf(core.CodeConfig, "key \"hwaddr\": %w", err)
	}
	if path := c.KernelPath; path != "" && (!strings.HasPrefix(path, devices) || filepath.Clean(path) != strings.TrimRight(path, "/")) {
		return core.Errorf(core.CodeConfig, "key \"kernelpath\": %q is no path below %s", path, devices)
	}
	for key, id := range map[string]string{"pciBusID": c.PCI, "runtimeConfig.deviceID": c.RuntimeConfig.DeviceID} {
		if strings.ContainsAny(id, "/\x00") || id == "." || id == ".." {
			return core.Errorf(core.CodeConfig, "key %q: %q is no device of a bus", key, id)
		}
	}
	_, err := inproc.ParseMAC(c.Declared.MAC)
	return err
}

// Where sysfs has devices, below its root.
const (
	devices   = "/sys/devices/"
	pci       = "/bus/pci/devices/"
	auxiliary = "/bus/auxiliary/devices/"
)

// userspace are the drivers of devices that have no network device: a program in the pod
// drives them.
var userspace = []string{"vfio-pci", "uio_pci_generic", "igb_uio"}

// bus resolves the device that kubelet gave: to a PCI address in c, or to the folder of
// an auxiliary device.
func (p *Plugin) bus(c *conf) (auxiliaryDir string, err error) {
	id := c.RuntimeConfig.DeviceID
	if id == "" {
		return "", nil
	}
	for _, of := range []string{pci, auxiliary} {
		_, err := os.Stat(p.sys + of + id)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", err
		case of == pci:
			c.PCI = id
			return "", nil
		}
		c.PCI = ""
		return p.sys + of + id, nil
	}
	return "", core.Errorf(inproc.CodeOther, "runtime config DeviceID %s not found or unsupported", id)
}

// userspaceDriven tells that the device has no network device, by its driver.
func (p *Plugin) userspaceDriven(address string) (bool, error) {
	if address == "" {
		return false, nil
	}
	to, err := os.Readlink(p.sys + pci + address + "/driver")
	if err != nil {
		return false, core.Errorf(inproc.CodeOther, "error with host device: %w", err)
	}
	return slices.Contains(userspace, filepath.Base(to)), nil
}

// find gives the link that the configuration means. core.ErrNotFound: the machine has it not.
func (p *Plugin) find(host *rtnl.Conn, c conf, auxiliaryDir string) (rtnl.Link, error) {
	switch {
	case c.Device != "":
		return host.LinkByName(c.Device)
	case c.HWAddr != "":
		return byMAC(host, c.HWAddr)
	case c.KernelPath != "":
		return byFolder(host, filepath.Join(p.sys, strings.TrimPrefix(c.KernelPath, "/sys"), "net"))
	case c.PCI != "":
		dir := p.sys + pci + c.PCI
		if at, err := filepath.Glob(filepath.Join(dir, "virtio*", "net")); err == nil && len(at) > 0 {
			return byFolder(host, at[0])
		}
		return byFolder(host, filepath.Join(dir, "net"))
	}
	return byFolder(host, filepath.Join(auxiliaryDir, "net"))
}

func byMAC(host *rtnl.Conn, text string) (rtnl.Link, error) {
	mac, err := net.ParseMAC(text)
	if err != nil {
		return rtnl.Link{}, err
	}
	all, err := host.Links()
	if err != nil {
		return rtnl.Link{}, err
	}
	at := slices.IndexFunc(all, func(l rtnl.Link) bool { return bytes.Equal(l.MAC, mac) })
	if at < 0 {
		return rtnl.Link{}, fmt.Errorf("link with MAC %s: %w", mac, core.ErrNotFound)
	}
	return all[at], nil
}

// byFolder is the first network device that a folder of sysfs has.
func byFolder(host *rtnl.Conn, dir string) (rtnl.Link, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return rtnl.Link{}, err
	}
	if len(entries) == 0 {
		return rtnl.Link{}, fmt.Errorf("network device in %s: %w", dir, core.ErrNotFound)
	}
	return host.LinkByName(entries[0].Name())
}
