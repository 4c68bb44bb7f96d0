package resolve

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/network/resolve/element"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/override"
)

// runtimeConfig is what the plugins of n are told by capability: the runtime's
// for the default network only, the element's own for its network only. What
// is asked of a network that cannot do it is an error.
func (r *resolution) runtimeConfig(n *network) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	if n.first {
		for k, v := range r.conf.RuntimeConfig {
			out[k] = v
		}
		// Nothing else would tell the user that a hostPort does not work.
		if v := string(out["portMappings"]); v != "" && v != "null" && v != "[]" && !n.can("portMappings") {
			return nil, core.Errorf(core.CodeConfig, "runtimeConfig.portMappings: network %s has no plugin with capability portMappings", n.label)
		}
	}
	if err := r.bounded(&n.elem); err != nil {
		return nil, err
	}
	asked := n.elem.RuntimeConfig()
	for _, capability := range slices.Sorted(maps.Keys(asked)) {
		raw, err := json.Marshal(asked[capability])
		if err != nil {
			return nil, core.Errorf(core.CodeValue, "%s.%s: %w", n.elem.Field, element.FieldOf(capability), err)
		}
		if !n.can(capability) {
			return nil, annotation.Refused(core.CodeValue, n.elem.Field+"."+element.FieldOf(capability), string(raw),
				"asks network %s for capability %s, which none of its plugins has", n.label, capability)
		}
		out[capability] = raw
	}
	return out, nil
}

// can tells whether a plugin of the network has a capability. Our own NIC sets
// addresses, MAC and rates whatever its entry declares, and opens ports of the
// node where it declares that.
func (n *network) can(capability string) bool {
	if n.own != nil && slices.Contains([]string{"ips", "mac", "bandwidth"}, capability) {
		return true
	}
	if capability == capPorts && n.opensPorts() {
		return true
	}
	if capability == capBandwidth && n.gives(override.SRIOV) {
		return true // the card has been told, or a plugin behind is
	}
	if capability == "ips" && n.lends() {
		return true // by CNI_ARGS, where the plugin does not declare it
	}
	return n.anyPlugin(func(p core.Plugin) bool { return p.Capabilities[capability] || legacy(capability, p) })
}

// hostLocal is the IPAM plugin of a node's own ranges.
const hostLocal = "host-local"

// readers are the plugins that take a capability's value from CNI_ARGS also
// where they do not declare it (containernetworking/plugins v1.9.1): IP= the
// IPAM plugins, MAC= the others.
var readers = map[string][]string{
	"ips": {"static", hostLocal},
	"mac": {"macvlan", "bridge", "tap", "tuning"},
}

// legacy tells whether p gets to know a capability's value by CNI_ARGS.
func legacy(capability string, p core.Plugin) bool {
	by := p.Type
	if capability == "ips" {
		by = ipamType(p)
	}
	return slices.Contains(readers[capability], by)
}

// args is CNI_ARGS for n: the runtime's bytes, and the legacy MAC and IP for
// plugins that know no capability (multinet.md, rule 2). IgnoreUnknown keeps
// the other plugins of the chain from refusing them.
func (r *resolution) args(n *network) string {
	raw := r.in.Request.RawArgs
	more := ""
	if n.elem.MAC != "" {
		more += ";MAC=" + n.elem.MAC
	}
	if len(n.elem.IPs) > 0 && !n.severalOfHostLocal() {
		more += ";IP=" + strings.Join(n.elem.IPs, ",")
	}
	switch {
	case more == "":
		return raw
	case raw == "":
		return "IgnoreUnknown=1" + more
	case r.in.Request.Args["IgnoreUnknown"] == "":
		return raw + ";IgnoreUnknown=1" + more
	}
	return raw + more
}

// severalOfHostLocal tells that the element asks host-local for several addresses, of which it
// reads one in CNI_ARGS, and refuses a list (containernetworking/plugins v1.9.1).
func (n *network) severalOfHostLocal() bool {
	return len(n.elem.IPs) > 1 && n.anyPlugin(func(p core.Plugin) bool { return ipamType(p) == hostLocal })
}

// cniArgs is args.cni for a plugin: the element's, and the addresses of which it hears nothing
// otherwise.
func (n *network) cniArgs(p core.Plugin) (map[string]json.RawMessage, error) {
	if p.Capabilities["ips"] || ipamType(p) != hostLocal || !n.severalOfHostLocal() {
		return n.elem.CNIArgs, nil
	}
	out := map[string]json.RawMessage{}
	maps.Copy(out, n.elem.CNIArgs)
	ips := slices.Sorted(slices.Values(slices.Concat(n.elem.ArgIPs, n.elem.IPs)))
	var err error
	out["ips"], err = json.Marshal(slices.Compact(ips))
	return out, err
}

// exec is one call of a foreign plugin.
func (r *resolution) exec(n *network, c call, rc map[string]json.RawMessage) (*core.Exec, error) {
	info := r.devInfo(n)
	args, err := n.cniArgs(c.plugin)
	if err != nil {
		return nil, core.WithCode(core.CodeConfig, n.field(), err)
	}
	inject := cniconf.Inject{RuntimeConfig: withDevice(rc, n.elem.DeviceID, info), CNIArgs: args, DeviceID: n.elem.DeviceID}
	conf, err := cniconf.PluginConf(*c.chain, c.plugin, inject)
	var plain json.RawMessage
	if err == nil && c.first && len(n.configured) > 0 {
		c.plugin.Raw = n.written
		plain, err = cniconf.PluginConf(*c.chain, c.plugin, inject)
	}
	if err != nil {
		return nil, core.WithCode(core.CodeConfig, n.field(), err)
	}
	x := &core.Exec{
		Type: c.plugin.Type, CNIVersion: c.chain.CNIVersion, Conf: conf, Network: c.chain.Name,
		Path: slices.Clone(r.in.Request.Path), DisableGC: c.chain.DisableGC, NoCheck: c.chain.DisableCheck,
		DevInfo: info, Plain: plain,
	}
	if r.conf.BinDir != "" {
		x.Path = slices.Insert(x.Path, 0, r.conf.BinDir)
	}
	return x, nil
}
