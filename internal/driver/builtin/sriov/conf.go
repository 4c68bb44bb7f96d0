package sriov

import (
	"cmp"
	"encoding/json"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// conf is a configuration with the usual keys of SR-IOV plugins.
type conf struct {
	inproc.Conf
	DeviceID  string `json:"deviceID"` // PCI address of the VF
	MAC       string `json:"mac"`
	VLAN      int    `json:"vlan"`
	VLANQoS   int    `json:"vlanQoS"`
	VLANProto string `json:"vlanProto"`
	MinMbps   int    `json:"min_tx_rate"` // Mbit/s
	MaxMbps   int    `json:"max_tx_rate"`
	SpoofChk  string `json:"spoofchk"` // on, off; "" is on
	Trust     string `json:"trust"`    // on, off; "" is off
	LinkState string `json:"link_state"`
}

// baseline is what a VF has of which nobody asks anything.
var baseline = sriov.Attrs{SpoofChk: true}

var keys = inproc.Keys("mac", "vlan", "vlanQoS", "vlanProto", "min_tx_rate", "max_tx_rate", "spoofchk", "trust", "link_state", "logLevel", "logFile")

// Accepts refuses keys that nobody knows; those about a log of its own mean nothing.
func (p *Plugin) Accepts(raw json.RawMessage) error {
	have, err := cniconf.Keys(raw)
	if err == nil {
		err = cniconf.OnlyKeys(have, keys...)
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

// Prove implements driver.PluginProver: values that no VF can have, and a pod without a
// device.
func (p *Plugin) Prove(call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err != nil {
		return err
	}
	if c.DeviceID == "" {
		return core.Reasoned(core.CodeDevice, core.ReasonNoDeviceRequested,
			"no device was given to the pod: let it request the resource that the network's %s names, or name the device (deviceID)", "k8s.v1.cni.cncf.io/resourceName")
	}
	_, err = c.attrs(call)
	return err
}

// attrs is all that the VF is to have: what is not said is as in baseline.
func (c conf) attrs(call driver.PluginCall) (a sriov.Attrs, err error) {
	text, err := inproc.ArgsMAC(call.Args)
	if err != nil {
		return a, err
	}
	a = baseline
	a.VLAN, a.QoS, a.MinMbps, a.MaxMbps = c.VLAN, c.VLANQoS, c.MinMbps, c.MaxMbps
	if a.MAC, err = inproc.ParseMAC(cmp.Or(c.RuntimeConfig.MAC, text, c.MAC)); err != nil {
		return a, err
	}
	if len(a.MAC) > 0 && (a.MAC[0]&1 != 0 || a.MAC.String() == "00:00:00:00:00:00") {
		return a, core.Reasoned(core.CodeValue, core.ReasonInvalidMAC, "key \"mac\": %s is no unicast address", a.MAC)
	}
	if err := c.tag(&a); err != nil {
		return a, err
	}
	switch {
	case min(c.MinMbps, c.MaxMbps) < 0:
		return a, core.Reasoned(core.CodeValue, core.ReasonRateInvalid, "keys \"min_tx_rate\" and \"max_tx_rate\": %d and %d are not both 0 or more", c.MinMbps, c.MaxMbps)
	case c.MaxMbps > 0 && c.MinMbps > c.MaxMbps:
		return a, core.Reasoned(core.CodeValue, core.ReasonRateInvalid, "key \"min_tx_rate\": %d is more than max_tx_rate %d", c.MinMbps, c.MaxMbps)
	}
	err = c.switches(&a)
	return a, err
}

func (c conf) tag(a *sriov.Attrs) error {
	switch c.VLANProto {
	case "", "802.1q", "802.1Q":
	case "802.1ad", "802.1AD":
		a.Proto = sriov.Proto8021AD
	default:
		return core.Reasoned(core.CodeValue, core.ReasonInvalidVLAN, "key \"vlanProto\": %q is neither 802.1q nor 802.1ad", c.VLANProto)
	}
	switch {
	case c.VLAN < 0 || c.VLAN > 4094:
		return core.Reasoned(core.CodeValue, core.ReasonInvalidVLAN, "key \"vlan\": %d is not 0 to 4094", c.VLAN)
	case c.VLANQoS < 0 || c.VLANQoS > 7:
		return core.Reasoned(core.CodeValue, core.ReasonInvalidVLAN, "key \"vlanQoS\": %d is not 0 to 7", c.VLANQoS)
	case c.VLAN == 0 && (c.VLANQoS != 0 || a.Proto != 0):
		return core.Reasoned(core.CodeValue, core.ReasonInvalidVLAN, "keys \"vlanQoS\" and \"vlanProto\" are of a tag: they need a vlan")
	}
	return nil
}

func (c conf) switches(a *sriov.Attrs) error {
	for _, one := range []struct {
		key, text string
		to        *bool
	}{{"spoofchk", c.SpoofChk, &a.SpoofChk}, {"trust", c.Trust, &a.Trust}} {
		switch one.text {
		case "":
		case "on", "off":
			*one.to = one.text == "on"
		default:
			return core.Errorf(core.CodeConfig, "key %q: %q is neither on nor off", one.key, one.text)
		}
	}
	state, ok := map[string]int{"": sriov.LinkAuto, "auto": sriov.LinkAuto, "enable": sriov.LinkEnable, "disable": sriov.LinkDisable}[c.LinkState]
	if !ok {
		return core.Errorf(core.CodeConfig, "key \"link_state\": %q is none of auto, enable, disable", c.LinkState)
	}
	a.LinkState = state
	return nil
}
