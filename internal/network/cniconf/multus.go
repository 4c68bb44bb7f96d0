package cniconf

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
)

// MultusDelegate is one network of a pod that Multus attached: an element of
// the list in <cniDir>/<container id> (read from Multus v3.9 to v4.3).
type MultusDelegate struct {
	Network  string     // "namespace/name" of the NAD, else the configuration's name
	IfName   string     // in the pod
	Default  bool       // the pod's default network, which is the first
	Chain    core.Chain // what was run, with cni-args and device merged in
	Gateways []netip.Addr
	// Device and Resource are what kubelet's device plugin gave, "" without.
	Device, Resource string
	// asked are the runtimeConfig values of the pod's annotation, as far as
	// Multus keeps them: its list has neither ports nor rates.
	asked map[string]json.RawMessage
}

// ParseMultusCache reads <cniDir>/<container id>. ifName is the runtime's
// CNI_IFNAME, which Multus does not keep: its first network has it. A file
// that a power loss has torn is code 6.
func ParseMultusCache(data []byte, ifName string) ([]MultusDelegate, error) {
	if err := Strict(data); err != nil {
		return nil, core.WithCode(core.CodeDecode, "Multus' record", err)
	}
	if k := kind(data); k != "an array" {
		return nil, core.Errorf(core.CodeDecode, "Multus' record: want an array, got %s", k)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, core.Errorf(core.CodeDecode, "Multus' record: %w", err)
	}
	var out []MultusDelegate
	for i, raw := range list {
		d, err := multusDelegate(raw, i, ifName)
		if err != nil {
			return nil, core.WithCode(core.CodeDecode, fmt.Sprintf("Multus' record: delegate %d", i), err)
		}
		out = append(out, d)
	}
	return out, nil
}

// multusDelegate reads element at of the list. Multus names interfaces by the
// position in it unless the pod asked for a name.
func multusDelegate(raw json.RawMessage, at int, ifName string) (MultusDelegate, error) {
	r := newReader(raw)
	d := MultusDelegate{
		Network: r.text("Name"), IfName: r.text("ifnameRequest"), Default: at == 0,
		Device: r.text("deviceID"), Resource: r.text("resourceName"),
	}
	switch {
	case d.IfName != "":
	case d.Default:
		d.IfName = ifName
	default:
		d.IfName = fmt.Sprintf("net%d", at)
	}
	for _, s := range r.texts("default-route") {
		gw, err := netip.ParseAddr(s)
		if err != nil {
			r.refuse("default-route", "%q is not an address", s)
		}
		d.Gateways = append(d.Gateways, gw.Unmap())
	}
	d.asked = multusAsked(r)
	if *r.err != nil {
		return d, *r.err
	}
	var err error
	d.Chain, err = multusChain(r)
	if d.Network == "" {
		d.Network = d.Chain.Name
	}
	return d, err
}

// multusAsked collects what the pod's annotation asked for, by capability.
func multusAsked(r *reader) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for key, capability := range map[string]string{
		"macRequest": "mac", "infinibandGUIDRequest": "infinibandGUID", "ipRequest": "ips", "deviceID": "deviceID",
	} {
		if v := string(r.keys[key]); v != "" && v != "null" && v != `""` && v != "[]" {
			out[capability] = r.keys[key]
		}
	}
	return out
}

// multusChain finds the configuration. A list that was loaded from disk stands
// whole only in CNINetworkConfigList: Bytes holds it without the keys that
// Multus does not know. What a pod's NAD gave stands only in Bytes.
func multusChain(r *reader) (core.Chain, error) {
	var loaded struct {
		Name, CNIVersion        string
		DisableCheck, DisableGC bool
		Plugins                 []struct{ Bytes []byte }
	}
	if r.has("CNINetworkConfigList") {
		if err := json.Unmarshal(r.keys["CNINetworkConfigList"], &loaded); err != nil {
			return core.Chain{}, fmt.Errorf("CNINetworkConfigList: %w", err)
		}
	}
	if len(loaded.Plugins) == 0 {
		conf := get[[]byte](r, "Bytes", "base64")
		if *r.err != nil {
			return core.Chain{}, *r.err
		}
		return ParseChain(conf, "")
	}
	list := map[string]any{
		"name": loaded.Name, "cniVersion": loaded.CNIVersion,
		"disableCheck": loaded.DisableCheck, "disableGC": loaded.DisableGC,
	}
	var plugins []json.RawMessage
	for _, p := range loaded.Plugins {
		plugins = append(plugins, p.Bytes)
	}
	list["plugins"] = plugins
	raw, err := json.Marshal(list)
	if err != nil {
		return core.Chain{}, fmt.Errorf("CNINetworkConfigList: %w", err)
	}
	return ParseChain(raw, "")
}

// LibcniCache is what libcni keeps of one network of a container, in
// <cniDir>/results/<network>-<container id>-<ifname> (libcni v1.3, api.go):
// what Multus' own list lacks.
type LibcniCache struct {
	Container, IfName, Network, Netns string
	Args                              string                     // CNI_ARGS
	RuntimeConfig                     map[string]json.RawMessage // by capability
	Result                            json.RawMessage            // of the chain, nil for none
}

// LibcniCacheName is the file's name in <cniDir>/results.
func LibcniCacheName(network string, key core.Key) string {
	return network + "-" + key.Container + "-" + key.IfName
}

// ParseLibcniCache reads such a file.
func ParseLibcniCache(data []byte) (LibcniCache, error) {
	if err := Strict(data); err != nil {
		return LibcniCache{}, core.WithCode(core.CodeDecode, "libcni's cache", err)
	}
	r := newReader(data)
	c := LibcniCache{
		Container: r.text("containerId"), IfName: r.text("ifName"), Network: r.text("networkName"), Netns: r.text("netns"),
		RuntimeConfig: r.object("capabilityArgs"),
	}
	if k := r.text("kind"); k != "cniCacheV1" {
		r.refuse("kind", "%q is not cniCacheV1", k)
	}
	var args []string
	for _, kv := range get[[][2]string](r, "cniArgs", "an array of pairs") {
		args = append(args, kv[0]+"="+kv[1])
	}
	c.Args = strings.Join(args, ";")
	if r.has("result") {
		c.Result = r.keys["result"]
		if _, err := decodeResult(c.Result, ""); err != nil {
			r.refuse("result", "%v", err)
		}
	}
	if *r.err != nil {
		return LibcniCache{}, core.WithCode(core.CodeDecode, "libcni's cache", *r.err)
	}
	return c, nil
}

// multusOwn are plugins that belong to Multus and do nothing: without Multus
// they may be gone.
var multusOwn = map[string]bool{"passthru": true}

// Execs are the calls of the delegate's foreign plugins, in order, for DEL and
// CHECK: with the standard input, arguments and result of the ADD. Plugins
// that we serve ourselves, and those of Multus that do nothing, are left out.
// cached may be zero where libcni's file is lost; then args stands in for its
// CNI_ARGS. The searched directories are the caller's to fill in.
func (d MultusDelegate) Execs(cached LibcniCache, args string) ([]core.Exec, error) {
	rc := map[string]json.RawMessage{}
	for _, from := range []map[string]json.RawMessage{d.asked, cached.RuntimeConfig} {
		for k, v := range from {
			rc[k] = v
		}
	}
	if cached.Args != "" {
		args = cached.Args
	}
	var prev json.RawMessage
	if len(cached.Result) > 0 {
		var err error
		if prev, err = Convert(cached.Result, d.Chain.CNIVersion); err != nil {
			return nil, fmt.Errorf("network %q: %w", d.Chain.Name, err)
		}
	}
	var out []core.Exec
	for _, p := range d.Chain.Plugins {
		if p.Own() || multusOwn[p.Type] {
			continue
		}
		conf, err := PluginConf(d.Chain, p, Inject{RuntimeConfig: rc, DeviceID: d.Device})
		if err != nil {
			return nil, err
		}
		out = append(out, core.Exec{
			Type: p.Type, CNIVersion: d.Chain.CNIVersion, Conf: conf, Args: args, Prev: prev,
			Network: d.Chain.Name, DisableGC: d.Chain.DisableGC, NoCheck: d.Chain.DisableCheck,
		})
	}
	return out, nil
}

// OnNode is the node's path for one that Multus' daemon writes as it sees it: its
// pod has the node's folders below /host or /hostroot. False for other paths.
func OnNode(path string) (string, bool) {
	for _, root := range []string{"/hostroot", "/host"} {
		if p, ok := strings.CutPrefix(path, root); ok && strings.HasPrefix(p, "/") {
			return p, true
		}
	}
	return "", false
}
