package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/containernetworking/cni/libcni"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// network describes a list that a runtime takes.
func (e *explanation) network(ctx context.Context, f file, ifName string) Network {
	n := Network{IfName: ifName, Name: f.list.Name, File: f.name, CNIVersion: f.list.CNIVersion}
	for _, c := range f.list.Plugins {
		p := Plugin{Type: c.Network.Type, Path: e.plugins.Find(ctx, c.Network.Type).Path, Names: Named(c.Bytes)}
		for _, name := range slices.Sorted(maps.Keys(c.Network.Capabilities)) {
			if c.Network.Capabilities[name] {
				p.Capabilities = append(p.Capabilities, name)
			}
		}
		n.Plugins = append(n.Plugins, p)
		n.Ours = n.Ours || core.OwnType(p.Type)
	}
	n.Problems = e.problems(ctx, f.list)
	return n
}

// problems are what a runtime finds out with the first pod only.
func (e *explanation) problems(ctx context.Context, list *libcni.NetworkConfigList) (out []string) {
	if err := e.plugins.check(ctx, list); err != nil {
		out = append(out, err.Error())
	}
	if beyond(list.CNIVersion, e.s.CNI) {
		out = append(out, fmt.Sprintf("the runtime takes CNI %s at the most, and refuses the result of each ADD: write cniVersion %s, and newer ones into cniVersions", e.s.CNI, e.s.CNI))
	}
	// CRI-O names a network without a name after its file.
	if err := ValidName(list); err != nil && (list.Name != "" || e.Runtime != CRIO) {
		out = append(out, "libcni refuses each ADD: "+err.Error())
	}
	for _, c := range list.Plugins {
		kind := c.Network.Type
		if u := e.plugins.Find(ctx, kind).Untrusted; u != nil {
			out = append(out, "not asked for its versions: "+u.Error())
		}
		if core.OwnType(kind) {
			out = append(out, refusedByUs(list, c)...)
			continue
		}
		if ipam := c.Network.IPAM.Type; ipam != "" && !core.OwnType(ipam) {
			if err := e.plugins.Find(ctx, ipam).Err; err != nil {
				out = append(out, "addresses of "+kind+": "+err.Error())
			}
		}
	}
	return out
}

// refusedByUs is what the agent would answer to the plugin's configuration.
func refusedByUs(list *libcni.NetworkConfigList, c *libcni.PluginConfig) []string {
	full, err := libcni.InjectConf(c, map[string]any{"name": list.Name, "cniVersion": list.CNIVersion})
	if err == nil {
		_, err = cniconf.Parse(full.Bytes)
	}
	if err != nil {
		return []string{"Fairlead refuses each ADD: " + err.Error()}
	}
	return nil
}

// Named are the plugin types that a configuration names besides its own: its
// IPAM, and the delegates of a `multus`-style one.
func Named(conf []byte) (types []string) {
	type plugin struct {
		Type string `json:"type"`
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	var c struct {
		plugin
		Delegates []struct {
			plugin
			Plugins []plugin `json:"plugins"`
		} `json:"delegates"`
	}
	if json.Unmarshal(conf, &c) != nil {
		return nil // libcni has read it already; another shape names nothing that we know
	}
	add := func(p plugin) { types = append(types, p.Type, p.IPAM.Type) }
	types = append(types, c.IPAM.Type)
	for _, d := range c.Delegates {
		add(d.plugin)
		for _, p := range d.Plugins {
			add(p)
		}
	}
	return slices.DeleteFunc(types, func(t string) bool { return t == "" })
}
