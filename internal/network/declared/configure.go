package declared

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
)

// Types of plugins whose configuration has a place for what is declared.
const (
	sriov   = "sriov"
	macvlan = "macvlan"
)

// keyed are the fields for which the configuration of an SR-IOV plugin has keys.
var keyed = []string{MAC, VLAN, MinMbps, MaxMbps, SpoofChk, Trust, LinkState}

// Configure writes into the configuration of somebody's plugin, of that type, what it
// has keys for, in the place of what stands there: the declaration counts more than the
// network. Where it names no IPAM plugin, declared addresses become those of plugin
// static. done are the fields that it has written.
//
// 102: an address without the prefix length that nothing else tells.
func (s *Settings) Configure(kind string, raw json.RawMessage) (out json.RawMessage, done []string, err error) {
	var conf map[string]json.RawMessage
	if err := json.Unmarshal(raw, &conf); err != nil {
		return nil, nil, core.Errorf(core.CodeConfig, "configuration of plugin %s: %w", kind, err)
	}
	set := map[string]any{}
	if kind == sriov {
		done = s.attributes(set)
	}
	if (kind == sriov || kind == macvlan) && s.From[IPs] != "" && noIPAM(conf["ipam"]) {
		if set["ipam"], err = s.static(); err != nil {
			return nil, nil, err
		}
		done = append(done, IPs, Gateway)
	}
	if len(done) == 0 {
		return raw, nil, nil
	}
	for key, value := range set {
		if conf[key], err = json.Marshal(value); err != nil {
			return nil, nil, err
		}
	}
	out, err = json.Marshal(conf)
	return out, done, err
}

// Live are the fields of which plugins of that type take another value while the pod
// runs (Reconfigure).
func Live(kind string) []string {
	if kind != sriov {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(keyed), func(field string) bool { return field == MAC })
}

// Reconfigure is Configure for a pod that runs: of its configuration raw what is Live
// becomes as it is declared now, else as it is in plain, the one without declarations.
// Nothing is declared where s is nil.
func (s *Settings) Reconfigure(kind string, raw, plain json.RawMessage) (json.RawMessage, error) {
	var now, was map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(raw, &now), json.Unmarshal(plain, &was)); err != nil {
		return nil, core.Errorf(core.CodeConfig, "configuration of plugin %s: %w", kind, err)
	}
	set := map[string]any{}
	if s != nil {
		s.attributes(set)
	}
	for _, key := range liveKeys {
		delete(now, key)
		if v, ok := was[key]; ok {
			now[key] = v
		}
		if v, ok := set[key]; ok {
			text, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			now[key] = text
		}
	}
	return json.Marshal(now)
}

// liveKeys are those of Live's fields in a configuration.
var liveKeys = []string{"vlan", "vlanQoS", "vlanProto", "min_tx_rate", "max_tx_rate", "spoofchk", "trust", "link_state"}

// attributes are those of a VF, under the usual keys.
func (s *Settings) attributes(set map[string]any) (done []string) {
	onOff := func(on bool) string { return map[bool]string{true: "on", false: "off"}[on] }
	for field, put := range map[string]func(){
		MAC: func() { set["mac"] = s.MAC },
		VLAN: func() {
			set["vlan"], set["vlanQoS"], set["vlanProto"] = s.VLAN.ID, s.VLAN.QoS, "802.1q"
			if s.VLAN.Proto != "" {
				set["vlanProto"] = s.VLAN.Proto
			}
		},
		MinMbps:   func() { set["min_tx_rate"] = *s.Bandwidth.MinMbps },
		MaxMbps:   func() { set["max_tx_rate"] = *s.Bandwidth.MaxMbps },
		SpoofChk:  func() { set["spoofchk"] = onOff(*s.SRIOV.SpoofChk) },
		Trust:     func() { set["trust"] = onOff(*s.SRIOV.Trust) },
		LinkState: func() { set["link_state"] = s.SRIOV.LinkState },
	} {
		if s.From[field] != "" {
			put()
			done = append(done, field)
		}
	}
	slices.SortFunc(done, func(a, b string) int { return slices.Index(keyed, a) - slices.Index(keyed, b) })
	return done
}

// static is the configuration of the IPAM plugin static.
func (s *Settings) static() (any, error) {
	type address struct {
		Address string `json:"address"`
		Gateway string `json:"gateway,omitempty"`
	}
	var all []address
	for _, ip := range s.IPs {
		if !strings.Contains(ip, "/") {
			return nil, core.Reasoned(core.CodeAddress, core.ReasonAddressOutsideSubnet,
				"%s declares address %s of interface %s without a prefix length, and its network has no Subnet that tells it", s.From[IPs], ip, s.Name)
		}
		a := address{Address: ip}
		for _, gw := range s.Gateways {
			if strings.Contains(gw, ":") == strings.Contains(ip, ":") {
				a.Gateway = gw
			}
		}
		all = append(all, a)
	}
	return map[string]any{"type": "static", "addresses": all}, nil
}

// noIPAM tells that a configuration's ipam names no plugin.
func noIPAM(raw json.RawMessage) bool {
	var ipam struct {
		Type string `json:"type"`
	}
	return len(raw) == 0 || json.Unmarshal(raw, &ipam) == nil && ipam.Type == ""
}
