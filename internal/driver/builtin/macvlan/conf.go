package macvlan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// conf is a configuration of any kind.
type conf struct {
	inproc.Conf
	Master          string `json:"master"`
	MTU             int    `json:"mtu"`
	LinkInContainer bool   `json:"linkInContainer"`

	// macvlan's and ipvlan's
	Mode string `json:"mode"`

	// macvlan's
	MAC        string `json:"mac"`
	BCQueueLen uint32 `json:"bcqueuelen"`

	// vlan's
	VLAN int `json:"vlanId"`

	Declared cniconf.Settings `json:"net.fairlead.io/settings"` // of which each kind knows its own
}

// common are the keys of all kinds.
var common = inproc.Keys("master", "mtu", "linkInContainer", cniconf.SettingsKey)

// Accepts refuses keys that v1.9.1 does not know, and a master in the pod but for a VLAN.
func (p *Plugin) Accepts(raw json.RawMessage) error {
	keys, err := cniconf.Keys(raw)
	if err == nil {
		err = cniconf.OnlyKeys(keys, append(p.kind.keys, common...)...)
	}
	if err == nil {
		keys, err = cniconf.Keys(raw, cniconf.SettingsKey)
	}
	if err == nil {
		err = cniconf.OnlyKeys(keys, p.kind.settings...)
	}
	if err != nil {
		return err
	}
	c, err := read(raw)
	if err == nil && c.LinkInContainer && !p.kind.inPod {
		err = errors.New("key \"linkInContainer\": a master in the pod is left to the program")
	}
	return err
}

func read(raw json.RawMessage) (c conf, err error) {
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, core.Errorf(core.CodeConfig, "failed to load netconf: %w", err)
	}
	return c, nil
}

// mode gives the kernel's number of a mode; the first of a kind is meant by "".
func (k kind) mode(name string) (uint32, error) {
	if name == "" {
		return k.modes[0].number, nil
	}
	for _, m := range k.modes {
		if m.name == name {
			return m.number, nil
		}
	}
	return 0, core.Errorf(core.CodeConfig, "key \"mode\": unknown %s mode: %q", k.link, name)
}

func (k kind) modeName(number uint32) string {
	for _, m := range k.modes {
		if m.number == number {
			return m.name
		}
	}
	return fmt.Sprint(number)
}

// upper is the link that a configuration asks for, as far as it says.
func (p *Plugin) upper(c conf, call driver.PluginCall) (u rtnl.Upper, err error) {
	u = rtnl.Upper{Kind: p.kind.link, Name: call.Key.IfName, MTU: max(c.MTU, 0), BCQueueLen: c.BCQueueLen, VLAN: c.VLAN}
	if p.kind.link == rtnl.KindVLAN {
		u.MAC, err = inproc.ParseMAC(c.Declared.MAC)
		return u, errors.Join(err, c.soundVLAN())
	}
	if why := core.TagFault(c.Declared.VLAN, 0, ""); why != "" {
		return u, core.Reasoned(core.CodeValue, core.ReasonInvalidVLAN, "key %q: %s", cniconf.SettingsKey, why)
	}
	if u.Mode, err = p.kind.mode(c.Mode); err != nil || p.kind.link != rtnl.KindMacvlan {
		return u, err
	}
	mac, err := inproc.ArgsMAC(call.Args)
	if err != nil {
		return u, err
	}
	u.MAC, err = inproc.ParseMAC(cmp.Or(c.RuntimeConfig.MAC, mac, c.MAC))
	return u, err
}

// soundVLAN refuses what upstream's vlan refuses.
func (c conf) soundVLAN() error {
	if c.Master == "" {
		return core.Errorf(core.CodeConfig, "key \"master\": it says on which device of the machine the VLAN is")
	}
	if why := core.TagFault(c.VLAN, 0, ""); why != "" {
		return core.Errorf(core.CodeConfig, "key \"vlanId\": %s", why)
	}
	return nil
}

// Prove implements driver.PluginProver: the master is looked for when it is needed.
func (p *Plugin) Prove(call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err == nil {
		_, err = p.upper(c, call)
	}
	if err == nil && c.MTU < 0 && p.kind.link != rtnl.KindIpvlan {
		err = core.Errorf(core.CodeConfig, "key \"mtu\": %d is negative", c.MTU)
	}
	return err
}

// lower finds the device below: the one that is named, that of a chain's
// earlier plugin (ipvlan), or that of the default route.
func (p *Plugin) lower(host *rtnl.Conn, c conf) (rtnl.Link, error) {
	name := c.Master
	if name == "" && p.kind.chained && len(c.PrevResult) > 0 {
		prev, err := inproc.Parse(c.PrevResult, c.CNIVersion)
		if err != nil {
			return rtnl.Link{}, err
		}
		if len(prev.Interfaces) != 1 || prev.Interfaces[0].Name == "" {
			return rtnl.Link{}, core.Errorf(inproc.CodeOther, "chained master failure. PrevResult lacks a single named interface")
		}
		name = prev.Interfaces[0].Name
	}
	if name == "" {
		l, err := defaultLink(host)
		return l, inproc.Fail("master of the default route", err)
	}
	l, err := host.LinkByName(name)
	return l, inproc.Fail(fmt.Sprintf("failed to lookup master %q", name), err)
}

// defaultLink is the interface of the first default route, IPv4 before IPv6.
func defaultLink(host *rtnl.Conn) (rtnl.Link, error) {
	routes, err := host.Routes(0)
	if err != nil {
		return rtnl.Link{}, err
	}
	for _, r := range routes {
		if r.Dst.Bits() == 0 {
			return host.LinkByIndex(r.Index)
		}
	}
	return rtnl.Link{}, errors.New("no default route interface found")
}

// soundMTU: a macvlan and a VLAN have at most what the device below has. An ipvlan's is the
// kernel's to judge.
func (p *Plugin) soundMTU(c conf, lower rtnl.Link) error {
	if p.kind.link != rtnl.KindIpvlan && (c.MTU < 0 || c.MTU > lower.MTU) {
		return core.Errorf(core.CodeConfig, "key \"mtu\": invalid MTU %d, must be [0, master MTU(%d)]", c.MTU, lower.MTU)
	}
	return nil
}
