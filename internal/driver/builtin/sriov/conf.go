package sriov

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
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
	if mac := cmp.Or(c.RuntimeConfig.MAC, text, c.MAC); mac != "" {
		if a.MAC, err = annotation.ParseMAC(mac); err != nil {
			return a, core.Reasoned(core.CodeValue, core.ReasonInvalidMAC, "key \"mac\": %q %w", annotation.Clip(mac), err)
		}
	}
	if err := c.tag(&a); err != nil {
		return a, err
	}
	if why := core.RateFault(c.MinMbps, c.MaxMbps); why != "" {
		return a, core.Reasoned(core.CodeValue, core.ReasonRateInvalid, "keys \"min_tx_rate\" and \"max_tx_rate\": %s", why)
	}
	err = c.switches(&a)
	return a, err
}

func (c conf) tag(a *sriov.Attrs) error {
	proto := strings.ToLower(c.VLANProto)
	if why := core.TagFault(c.VLAN, c.VLANQoS, proto); why != "" {
		return core.Reasoned(core.CodeValue, core.ReasonInvalidVLAN, "keys \"vlan\", \"vlanQoS\" and \"vlanProto\": %s", why)
	}
	if proto == "802.1ad" {
		a.Proto = sriov.Proto8021AD
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
