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

// conf is a configuration of either kind.
type conf struct {
	inproc.Conf
	Master          string `json:"master"`
	Mode            string `json:"mode"`
	MTU             int    `json:"mtu"`
	LinkInContainer bool   `json:"linkInContainer"`

	// macvlan's
	MAC        string `json:"mac"`
	BCQueueLen uint32 `json:"bcqueuelen"`
}

// common are the keys of both kinds.
var common = inproc.Keys("master", "mode", "mtu", "linkInContainer")

// Accepts refuses keys that v1.9.1 does not know, and a master in the pod.
func (p *Plugin) Accepts(raw json.RawMessage) error {
	keys, err := cniconf.Keys(raw)
	if err == nil {
		err = cniconf.OnlyKeys(keys, append(p.kind.keys, common...)...)
	}
	if err != nil {
		return err
	}
	c, err := read(raw)
	if err == nil && c.LinkInContainer {
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
	u = rtnl.Upper{Kind: p.kind.link, Name: call.Key.IfName, MTU: max(c.MTU, 0), BCQueueLen: c.BCQueueLen}
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

// Prove implements driver.PluginProver: the master is looked for when it is needed.
func (p *Plugin) Prove(call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err == nil {
		_, err = p.upper(c, call)
	}
	if err == nil && c.MTU < 0 && p.kind.link == rtnl.KindMacvlan {
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

// soundMTU: a macvlan has at most what the device below has. An ipvlan's is the
// kernel's to judge.
func (p *Plugin) soundMTU(c conf, lower rtnl.Link) error {
	if p.kind.link == rtnl.KindMacvlan && (c.MTU < 0 || c.MTU > lower.MTU) {
		return core.Errorf(core.CodeConfig, "key \"mtu\": invalid MTU %d, must be [0, master MTU(%d)]", c.MTU, lower.MTU)
	}
	return nil
}
