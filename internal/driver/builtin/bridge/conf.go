package bridge

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// defaultBridge is the bridge of a configuration that names none.
const defaultBridge = "cni0"

// conf is what the plugin reads of its standard input.
type conf struct {
	inproc.Conf
	Bridge           string `json:"bridge"`
	IsGateway        bool   `json:"isGateway"`
	IsDefaultGateway bool   `json:"isDefaultGateway"`
	ForceAddress     bool   `json:"forceAddress"`
	MTU              int    `json:"mtu"` // bytes, 0 = the kernel's default
	HairpinMode      bool   `json:"hairpinMode"`
	PromiscMode      bool   `json:"promiscMode"`
	EnableDAD        bool   `json:"enabledad"`
	NoPodInterface   bool   `json:"disableContainerInterface"`
	PortIsolation    bool   `json:"portIsolation"`

	// Left to the program when asked for.
	IPMasq              bool            `json:"ipMasq"`
	IPMasqBackend       *string         `json:"ipMasqBackend"`
	Vlan                int             `json:"vlan"`
	VlanTrunk           json.RawMessage `json:"vlanTrunk"`
	PreserveDefaultVlan bool            `json:"preserveDefaultVlan"` // of no effect without the two
	MACSpoofCheck       bool            `json:"macspoofchk"`

	Args struct {
		CNI struct {
			MAC string `json:"mac"`
		} `json:"cni"`
	} `json:"args"`

	mac core.MAC // that the pod's interface shall have, nil = the kernel's choice
}

// known are the keys that a configuration may have.
var known = inproc.Keys(
	"bridge", "isGateway", "isDefaultGateway", "forceAddress", "mtu", "hairpinMode", "promiscMode", "enabledad",
	"disableContainerInterface", "portIsolation", "ipMasq", "ipMasqBackend", "vlan", "vlanTrunk",
	"preserveDefaultVlan", "macspoofchk",
)

// Accepts implements driver.Plugin: not masquerading, VLANs and the MAC check,
// which need nftables, iptables and the bridge's VLAN tables.
func (p *Plugin) Accepts(raw json.RawMessage) error {
	keys, err := cniconf.Keys(raw)
	if err != nil {
		return core.WithCode(core.CodeDecode, "configuration", err)
	}
	if err := cniconf.OnlyKeys(keys, known...); err != nil {
		return core.WithCode(core.CodeField, "configuration", err)
	}
	c, err := read(raw)
	if err != nil {
		return err
	}
	return c.foreign()
}

// foreign names what only the program can do.
func (c conf) foreign() error {
	trunk := strings.TrimSpace(string(c.VlanTrunk))
	for _, k := range []struct {
		asked bool
		key   string
	}{
		{c.IPMasq, "ipMasq"},
		{c.Vlan != 0, "vlan"},
		{trunk != "" && trunk != "null", "vlanTrunk"},
		{c.MACSpoofCheck, "macspoofchk"},
	} {
		if k.asked {
			return core.Errorf(core.CodeField, "key %q is left to the program", k.key)
		}
	}
	if c.CNIVersion != "" && !slices.Contains(cniconf.Supported(), c.CNIVersion) {
		return core.Errorf(core.CodeVersion, "CNI version %q is not known", c.CNIVersion)
	}
	return nil
}

// read decodes a configuration.
func read(raw json.RawMessage) (conf, error) {
	c := conf{Bridge: defaultBridge}
	if err := json.Unmarshal(raw, &c); err != nil {
		return conf{}, core.Errorf(core.CodeDecode, "configuration: %w", err)
	}
	c.IsGateway = c.IsGateway || c.IsDefaultGateway
	return c, nil
}

// Prove implements driver.PluginProver.
func (p *Plugin) Prove(call driver.PluginCall) error {
	_, err := forAdd(call.Conf, call.Args)
	return err
}

// forAdd reads a configuration with the MAC of CNI_ARGS, of args or of
// runtimeConfig, the last of which counts, and refuses contradictions.
func forAdd(raw json.RawMessage, args string) (conf, error) {
	c, err := read(raw)
	if err != nil {
		return conf{}, err
	}
	if err := c.sound(); err != nil {
		return conf{}, inproc.Refused(err)
	}
	mac, err := inproc.ArgsMAC(args)
	if err != nil {
		return conf{}, err
	}
	c.mac, err = inproc.ParseMAC(cmp.Or(c.RuntimeConfig.MAC, c.Args.CNI.MAC, mac))
	return c, err
}

// layer3 tells that the pod's interface gets addresses.
func (c conf) layer3() bool { return c.IPAM.Type != "" }

func (c conf) sound() error {
	switch {
	case c.layer3() && c.NoPodInterface:
		return errors.New("keys \"disableContainerInterface\" and \"ipam\" exclude each other")
	case c.HairpinMode && c.PromiscMode:
		return errors.New("keys \"hairpinMode\" and \"promiscMode\" exclude each other")
	case c.MTU < 0:
		return fmt.Errorf("key \"mtu\": %d is negative", c.MTU)
	}
	return nil
}
