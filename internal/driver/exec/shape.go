package exec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
)

// shape says what the values of a configuration must be, by their place: keys
// joined by '.', '[]' for every element of a list, '*' for every key of an
// object. What it does not name may be anything.
type shape map[string]kind

// kind is what a value must be.
type kind struct {
	is   string // in a message: "is not ..."
	fits func(v any) bool
}

var (
	text  = kind{"a string", func(v any) bool { _, ok := v.(string); return ok }}
	flag  = kind{"true or false", func(v any) bool { _, ok := v.(bool); return ok }}
	whole = kind{"a whole number", func(v any) bool {
		n, ok := v.(json.Number)
		_, err := strconv.ParseInt(string(n), 10, 64)
		return ok && err == nil
	}}
	fields = kind{"an object", func(v any) bool { _, ok := v.(map[string]any); return ok }}
	cidr   = kind{"a network in CIDR form", written(func(s string) bool { _, _, err := net.ParseCIDR(s); return err == nil })}
	// address and addressOrCIDR may be empty, as for the programs.
	address       = kind{"an IP address", written(func(s string) bool { return s == "" || net.ParseIP(s) != nil })}
	addressOrCIDR = kind{"an IP address", written(func(s string) bool { return address.fits(s) || cidr.fits(s) })}
)

func written(is func(string) bool) func(any) bool {
	return func(v any) bool { s, ok := v.(string); return ok && is(s) }
}

// shapes are the keys of containernetworking/plugins v1.9.1, which read them
// with encoding/json: a value of another type fails ADD and DEL alike.
var shapes = map[string]shape{
	"bridge": {
		"ipam": fields, "bridge": text, "isGateway": flag, "isDefaultGateway": flag, "forceAddress": flag, "ipMasq": flag,
		"ipMasqBackend": text, "mtu": whole, "hairpinMode": flag, "promiscMode": flag, "vlan": whole,
		"vlanTrunk.[].minID": whole, "vlanTrunk.[].maxID": whole, "vlanTrunk.[].id": whole, "preserveDefaultVlan": flag,
		"macspoofchk": flag, "enabledad": flag, "disableContainerInterface": flag, "portIsolation": flag,
		"args.cni.mac": text, "runtimeConfig.mac": text,
	},
	"ptp": {"ipam": fields, "ipMasq": flag, "ipMasqBackend": text, "mtu": whole},
	"macvlan": {
		"ipam": fields, "master": text, "mode": text, "mtu": whole, "mac": text, "linkInContainer": flag, "bcqueuelen": whole,
		"runtimeConfig.mac": text,
	},
	"ipvlan": {"ipam": fields, "master": text, "mode": text, "mtu": whole, "linkInContainer": flag},
	"vlan":   {"ipam": fields, "master": text, "vlanId": whole, "mtu": whole, "linkInContainer": flag},
	"host-device": {
		"ipam": fields, "device": text, "hwaddr": text, "kernelpath": text, "pciBusID": text, "runtimeConfig.deviceID": text,
	},
	"tap": {
		"ipam": fields, "multiQueue": flag, "mtu": whole, "mac": text, "owner": whole, "group": whole, "selinuxContext": text,
		"bridge": text, "runtimeConfig.mac": text,
	},
	"dummy": {"ipam": fields},
	"tuning": {
		"dataDir": text, "sysctl.*": text, "mac": text, "promisc": flag, "mtu": whole, "txQLen": whole, "allmulti": flag,
		"runtimeConfig.mac": text, "args.cni.sysctl.*": text, "args.cni.mac": text, "args.cni.promisc": flag,
		"args.cni.mtu": whole, "args.cni.allmulti": flag, "args.cni.txQLen": whole,
	},
	"portmap": {
		"backend": text, "snat": flag, "conditionsV4.[]": text, "conditionsV6.[]": text, "masqAll": flag, "markMasqBit": whole,
		"externalSetMarkChain": text,
	},
	"bandwidth": {"ingressRate": whole, "ingressBurst": whole, "egressRate": whole, "egressBurst": whole},
	"firewall":  {"backend": text, "iptablesAdminChainName": text, "firewalldZone": text, "ingressPolicy": text},
	"sbr":       {"table": whole},
	"vrf":       {"vrfname": text, "table": whole},
	"host-local": {
		"ipam.dataDir": text, "ipam.resolvConf": text, "ipam.routes.[].dst": cidr, "ipam.routes.[].gw": address,
		"ipam.subnet": cidr, "ipam.rangeStart": address, "ipam.rangeEnd": address, "ipam.gateway": address,
		"ipam.ranges.[].[].subnet": cidr, "ipam.ranges.[].[].rangeStart": address, "ipam.ranges.[].[].rangeEnd": address,
		"ipam.ranges.[].[].gateway": address, "args.cni.ips.[]": addressOrCIDR, "runtimeConfig.ips.[]": addressOrCIDR,
		"runtimeConfig.ipRanges.[].[].subnet": cidr,
	},
	"static": {
		"ipam.routes.[].dst": cidr, "ipam.routes.[].gw": address, "ipam.addresses.[].address": cidr,
		"ipam.addresses.[].gateway": address, "args.cni.ips.[]": cidr, "runtimeConfig.ips.[]": cidr,
	},
	"dhcp": {"ipam.daemonSocketPath": text},
}

// refuse names the first value of conf that has not its shape, in the order of
// the places.
func (s shape) refuse(conf json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(conf))
	d.UseNumber()
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		return core.Errorf(core.CodeConfig, "configuration: %w", err)
	}
	first, why := "", error(nil)
	for place, k := range s {
		at, value := k.mismatch(all, "", strings.Split(place, "."))
		if at != "" && (first == "" || at < first) {
			first, why = at, core.Errorf(core.CodeConfig, "key %q: %s is not %s", at, shown(value), k.is)
		}
	}
	return why
}

// mismatch finds a value at the end of the path that k does not fit, or on the way
// there one that has nothing below it. Null is as absent.
func (k kind) mismatch(v any, at string, path []string) (place string, value any) {
	if v == nil {
		return "", nil
	}
	if len(path) == 0 {
		if k.fits(v) {
			return "", nil
		}
		return at, v
	}
	switch v := v.(type) {
	case map[string]any:
		for key, below := range v {
			if path[0] != "*" && !strings.EqualFold(path[0], key) { // as encoding/json matches them
				continue
			}
			if place, value = k.mismatch(below, strings.TrimPrefix(at+"."+key, "."), path[1:]); place != "" {
				break
			}
		}
		return place, value
	case []any:
		if path[0] == "[]" {
			return k.mismatchIn(v, at, path[1:])
		}
	}
	return at, v
}

// mismatchIn is mismatch for the elements of a list.
func (k kind) mismatchIn(list []any, at string, path []string) (place string, value any) {
	for i, below := range list {
		if place, value = k.mismatch(below, fmt.Sprintf("%s[%d]", at, i), path); place != "" {
			break
		}
	}
	return place, value
}

// maxShown is how much of a value stands in a message, in bytes.
const maxShown = 80

func shown(v any) string {
	raw, err := json.Marshal(v)
	if err != nil || len(raw) > maxShown {
		return string(raw[:min(len(raw), maxShown)]) + "..."
	}
	return string(raw)
}
