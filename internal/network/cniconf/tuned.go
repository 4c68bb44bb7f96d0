package cniconf

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/internal/core"
)

// TunedMTU is the MTU that `tuning` sets behind us in the runtime's own list, in
// bytes, 0 for none. Its result does not say it and CHECK shows us our own
// configuration only, so it is read where the runtime reads it: chains are those
// of its directory.
func TunedMTU(chains []core.Chain, conf core.Conf) (mtu int) {
	for _, chain := range chains {
		if chain.Name != conf.Name {
			continue
		}
		at := slices.IndexFunc(chain.Plugins, func(p core.Plugin) bool { return p.Type == conf.Type })
		for _, p := range chain.Plugins[at+1:] {
			mtu = cmp.Or(tuningMTU(p), mtu)
		}
		return mtu
	}
	return 0
}

// tuningMTU is the MTU of a plugin's configuration if that is `tuning`. What
// args.cni says is the last word, and 0 is none (containernetworking/plugins
// v1.9.1, parseConf).
func tuningMTU(p core.Plugin) int {
	var conf struct {
		MTU  int `json:"mtu"`
		Args struct {
			CNI struct {
				MTU *int `json:"mtu"`
			} `json:"cni"`
		} `json:"args"`
	}
	if p.Type != "tuning" || json.Unmarshal(p.Raw, &conf) != nil {
		return 0
	}
	if conf.Args.CNI.MTU != nil {
		return *conf.Args.CNI.MTU
	}
	return conf.MTU
}

// WithMAC gives a result in which the pod's interface ifName has another MAC; a
// result without that interface stays as it is.
func WithMAC(result json.RawMessage, ifName string, mac core.MAC) json.RawMessage {
	var keys map[string]json.RawMessage
	var interfaces []map[string]json.RawMessage
	if json.Unmarshal(result, &keys) != nil || json.Unmarshal(keys["interfaces"], &interfaces) != nil {
		return result
	}
	for _, i := range interfaces {
		var name, sandbox string
		if json.Unmarshal(i["name"], &name) == nil && json.Unmarshal(i["sandbox"], &sandbox) == nil && name == ifName && sandbox != "" {
			i["mac"] = json.RawMessage(strconv.Quote(mac.String()))
		}
	}
	raw, err := json.Marshal(interfaces)
	if err != nil {
		return result
	}
	keys["interfaces"] = raw
	out, err := json.Marshal(keys)
	if err != nil {
		return result
	}
	return out
}
