package declared

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// Types of plugins whose configuration has a place for what is declared.
const (
	sriov      = "sriov"
	macvlan    = "macvlan"
	ipvlan     = "ipvlan"
	vlan       = "vlan"
	hostDevice = "host-device"
)

// fixable are those that take addresses from an IPAM plugin, whichever it is.
var fixable = []string{sriov, macvlan, ipvlan, vlan, hostDevice}

// keyed are the fields for which the configuration of an SR-IOV plugin has keys.
var keyed = []string{MAC, VLAN, MinMbps, MaxMbps, SpoofChk, Trust, LinkState}

// whys says why plugins of a type cannot do what is declared, where there is more to say.
var whys = map[string]map[string]string{
	macvlan: {
		VLAN:    "it has VLANs of 802.1q without a priority",
		MaxMbps: "packets between pods on one master pass no queue of the machine, and a pod that may change its MAC would be out of its class",
	},
	ipvlan: {
		MAC:     "it has its master's",
		VLAN:    "it has VLANs of 802.1q without a priority",
		MaxMbps: "packets between pods on one master pass no queue of the machine, and a pod that may add an address would be out of its class",
	},
	vlan: {
		VLAN:    "it has VLANs of 802.1q, 1 to 4094, without a priority",
		MaxMbps: "the device is in the pod, which could take a limit off",
	},
	hostDevice: {
		VLAN:    "a pod that has a device of the machine for itself tags what it likes",
		MaxMbps: "the device is in the pod, which could take a limit off",
	},
}

// Why says why plugins of a type cannot do a field, "" where nothing more is known.
func Why(kind, field string) string { return whys[kind][field] }

// Configure writes into the configuration of somebody's plugin, of that type, what it
// has keys for, in the place of what stands there: the declaration counts more than the
// network. Where it names no IPAM plugin, declared addresses become those of plugin
// static; where it names host-local, the ranges of this one. done are the fields that it
// has written.
//
// 103: an address without the prefix length that nothing else tells, or that no range's
// subnet has.
func (s *Settings) Configure(kind string, raw json.RawMessage) (out json.RawMessage, done []string, err error) {
	var conf map[string]json.RawMessage
	if err := json.Unmarshal(raw, &conf); err != nil {
		return nil, nil, core.Errorf(core.CodeConfig, "configuration of plugin %s: %w", kind, err)
	}
	set := map[string]any{}
	if kind == sriov {
		done = s.attributes(set)
	} else {
		done = s.ofLink(kind, set)
	}
	ipam, err := s.ipam(kind, conf["ipam"])
	if err != nil {
		return nil, nil, err
	}
	if ipam != nil {
		set["ipam"] = ipam
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

// ofLink are settings of a link, under a key of the plugin's own or of ours.
func (s *Settings) ofLink(kind string, set map[string]any) (done []string) {
	more := cniconf.Settings{}
	if s.From[MAC] != "" && (kind == vlan || kind == hostDevice) {
		more.MAC = strings.ToLower(s.MAC)
		done = append(done, MAC)
	}
	if v := s.VLAN; v != nil && v.QoS == 0 && (v.Proto == "" || v.Proto == "802.1q") {
		switch {
		case kind == macvlan, kind == ipvlan:
			more.VLAN = v.ID
			done = append(done, VLAN)
		case kind == vlan && v.ID != 0:
			set["vlanId"] = v.ID
			done = append(done, VLAN)
		}
	}
	if more != (cniconf.Settings{}) {
		set[cniconf.SettingsKey] = more
	}
	return done
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

// keys are those of fields, as attributes writes them.
var keys = map[string]string{MAC: "mac", VLAN: "vlan", MinMbps: "min_tx_rate", MaxMbps: "max_tx_rate", SpoofChk: "spoofchk", Trust: "trust", LinkState: "link_state"}

// Key is the field that a key in the configuration of an SR-IOV plugin is of, and the value
// that Configure gives it; ok is false where the field is not declared.
func (s *Settings) Key(key string) (field string, value any, ok bool) {
	set := map[string]any{}
	s.attributes(set)
	value, ok = set[key]
	field = VLAN // which has three keys
	for f, k := range keys {
		if k == key {
			field = f
		}
	}
	return field, value, ok
}

// Over adds to Lost what the configuration of somebody's plugin, of that type, says of
// fields that are declared otherwise. source is who wrote it.
func (s *Settings) Over(source, kind string, raw json.RawMessage) {
	var conf map[string]json.RawMessage
	if kind != sriov || json.Unmarshal(raw, &conf) != nil {
		return
	}
	set := map[string]any{}
	for _, field := range s.attributes(set) {
		now, err := json.Marshal(set[keys[field]])
		if was := conf[keys[field]]; err == nil && len(was) > 0 && string(was) != string(now) {
			s.Lost = append(s.Lost, Lost{field, strings.Trim(string(was), `"`), source})
		}
	}
}
