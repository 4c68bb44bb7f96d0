package resolve

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// node are the files of a machine with a default network of somebody else's.
func node() map[string]string {
	return map[string]string{
		"etc/cni/net.d/00-multus.conf":          `{"name":"multus-cni-network","type":"multus","clusterNetwork":"/etc/cni/net.d"}`,
		"etc/cni/net.d/10-kindnet.conflist":     `{"cniVersion":"0.3.1","name":"kindnet","plugins":[{"type":"ptp"},{"type":"portmap","capabilities":{"portMappings":true}}]}`,
		"etc/cni/net.d/20-later.conf":           `{"name":"later","type":"bridge"}`,
		"etc/cni/net.d/kindnet/sysctl.conf":     `{"name":"sysctltwiddle","type":"tuning"}`,
		"etc/cni/net.d/chain/b.conf":            `{"type":"second"}`,
		"etc/cni/net.d/chain/a.conf":            `{"type":"first"}`,
		"etc/cni/multus/net.d/10-flannel.conf":  `{"cniVersion":"0.3.1","name":"flannel","type":"flannel"}`,
		"etc/cni/multus/net.d/20-side.conflist": `{"cniVersion":"1.0.0","name":"side_car","plugins":[{"type":"sidecar"}]}`,
		"etc/cni/multus/net.d/30-broken.conf":   `{`,
		"etc/cni/multus/net.d/aux/a.conf":       `{"type":"auxiliary"}`,
		"etc/cni/multus/net.d/brokenaux/a.conf": `{"type":7}`,
		"etc/cni/multus/net.d/ownaux/a.conf":    `{"type":"fairlead"}`,
		"srv/broken/10-a.conf":                  `{`,
		"srv/broken/20-b.conf":                  `{"name":"b","type":"b"}`,
		"srv/ours/00-fairlead.conflist":         `{"name":"k8s","plugins":[{"type":"fairlead","delegates":[{"name":"x","type":"x"}]}]}`,
		"srv/empty/README":                      `nothing`,
		"srv/list.conflist":                     `{"cniVersion":"1.0.0","name":"folderonly"}`,
		"srv/folderonly/one.conf":               `{"type":"one"}`,
		"srv/nothing.conflist":                  `{"cniVersion":"1.0.0","name":"nothing"}`,
		"srv/badfolder.conflist":                `{"cniVersion":"1.0.0","name":"bad","plugins":[{"type":"x"}]}`,
		"srv/bad/a.conf":                        `{"type":"a/b"}`,
	}
}

func meta(change func(*core.Conf)) Input {
	req := request()
	req.Conf.Type, req.Conf.Name, req.Conf.ConfDir = "multus", "multus-cni-network", ""
	change(&req.Conf)
	return Input{Request: req, Files: tree("", node()), ConfDir: "/etc/cni/net.d"}
}

// TestClusterNetworkInItsFourForms: NAD before name before directory or file.
func TestClusterNetworkInItsFourForms(t *testing.T) {
	for _, c := range []struct {
		value, network, plugins string
		code                    uint
		says                    string
	}{
		{value: "main", network: "kube-system/main", plugins: "bridge"},
		{value: "flannel", network: "flannel", plugins: "flannel"},
		{value: "side_car", network: "side_car", plugins: "sidecar"},
		{value: "later", network: "later", plugins: "bridge"}, // not in Multus' directory
		{value: "/etc/cni/net.d", network: "kindnet", plugins: "ptp,portmap,tuning"},
		{value: "/etc/cni/net.d/", network: "kindnet", plugins: "ptp,portmap,tuning"},
		{value: "/etc/cni/net.d/10-kindnet.conflist", network: "kindnet", plugins: "ptp,portmap,tuning"},
		{value: "/etc/cni/net.d/20-later.conf", network: "later", plugins: "bridge"},
		{value: "/srv/list.conflist", network: "folderonly", plugins: "one"},
		{value: "/host/etc/cni/net.d/20-later.conf", network: "later", plugins: "bridge"}, // as Multus' daemon sees it
		{value: "/hostroot/etc/cni/net.d/20-later.conf", network: "later", plugins: "bridge"},

		{value: "nobody", code: 11, says: "kube-system/nobody"},
		{value: "junk", code: 7, says: "spec.config"},
		{value: "/etc/cni/net.d/99-none.conf", code: 11, says: "/etc/cni/net.d/99-none.conf"},
		{value: "/srv/none", code: 11, says: "/srv/none"},
		{value: "/srv/empty", code: 11, says: "/srv/empty"},
		{value: "/srv/ours", code: 11, says: "/srv/ours"},
		{value: "/srv/ours/00-fairlead.conflist", code: 7, says: "delegates of its own"},
		{value: "/host/srv/ours/00-fairlead.conflist", code: 7, says: "delegates of its own"},
		{value: "/host/srv/none", code: 11, says: "/host/srv/none"},
		{value: "/srv/broken", code: 6, says: "/srv/broken/10-a.conf"},
		{value: "/srv/nothing.conflist", code: 7, says: "/srv/nothing"},
		{value: "/srv/badfolder.conflist", code: 7, says: "/srv/bad/a.conf"},
	} {
		t.Run(c.value, func(t *testing.T) {
			w := standard()
			w.nad("kube-system/junk", "{}")
			in := meta(func(conf *core.Conf) { conf.ClusterNetwork = c.value })
			wants, err := Resolve(t.Context(), w, in)
			if c.code != 0 {
				require.Equal(t, c.code, core.CodeOf(err), "%v", err)
				require.ErrorContains(t, err, c.says)
				require.ErrorContains(t, err, "clusterNetwork")
				return
			}
			require.NoError(t, err)
			require.Len(t, wants, 1)
			require.True(t, wants[0].Default)
			require.Equal(t, c.network+" eth0 "+c.plugins, wants[0].Network+" "+wants[0].IfName+" "+types(wants[0]))
			chains, drivers, err := Chains(t.Context(), w, in)
			require.NoError(t, err)
			require.Len(t, chains, 1)
			require.Empty(t, drivers)
		})
	}
}

// TestDefaultNetworks: every pod gets them behind its default network, but for
// pods of system namespaces; the pod's own networks come after.
func TestDefaultNetworks(t *testing.T) {
	w := standard()
	w.note(networks, "foreign")
	resolve := func(namespace string, system []string) string {
		w.pods[namespace+"/p"] = &Pod{Pod: core.Pod{Namespace: namespace, Name: "p"}, Annotations: map[string]string{networks: "default/foreign"}}
		in := meta(func(c *core.Conf) {
			c.ClusterNetwork, c.DefaultNetworks, c.SystemNamespaces = "flannel", []string{"main", "side_car"}, system
		})
		in.Request.Pod.Namespace = namespace
		wants, err := Resolve(t.Context(), w, in)
		require.NoError(t, err)
		var out []string
		for _, want := range wants {
			out = append(out, want.IfName+"="+want.Network)
		}
		return strings.Join(out, " ")
	}
	require.Equal(t, "eth0=flannel net1=kube-system/main net2=side_car net3=default/foreign", resolve("default", nil))
	require.Equal(t, "eth0=flannel net1=default/foreign", resolve("kube-system", nil))
	require.Equal(t, "eth0=flannel net1=kube-system/main net2=side_car net3=default/foreign", resolve("kube-system", []string{}))
	require.Equal(t, "eth0=flannel net1=default/foreign", resolve("admin", []string{"kube-system", "admin"}))

	own := meta(func(c *core.Conf) { c.DefaultNetworks = []string{"main"} })
	wants, err := Resolve(t.Context(), w, own)
	require.NoError(t, err)
	require.Equal(t, "own", types(wants[0]), "without clusterNetwork the default network is our own")
	require.Equal(t, "kube-system/main", wants[1].Network)
	chains, drivers, err := Chains(t.Context(), w, own)
	require.NoError(t, err)
	require.Equal(t, []string{core.DriverOVS}, drivers)
	require.Len(t, chains, 1)

	chains, _, err = Chains(t.Context(), w, meta(func(c *core.Conf) { c.ClusterNetwork, c.DefaultNetworks = "nobody", []string{"main"} }))
	require.Error(t, err)
	require.Len(t, chains, 1, "what can be told is told")
}

// TestEveryMetaTypeServesAllNetworks: under whichever type a configuration calls
// us, the thick Multus' too; as Kube-OVN's plugin we are asked for one.
func TestEveryMetaTypeServesAllNetworks(t *testing.T) {
	w := standard()
	w.note(networks, "foreign")
	for kind, networks := range map[string]int{"fairlead": 3, "multus": 3, "multus-shim": 3, "kube-ovn": 1} {
		in := meta(func(c *core.Conf) { c.Type, c.ClusterNetwork, c.DefaultNetworks = kind, "flannel", []string{"main"} })
		wants, err := Resolve(t.Context(), w, in)
		require.NoError(t, err)
		require.Len(t, wants, networks, kind)
		require.Equal(t, kind == "kube-ovn", types(wants[0]) == "own")
	}
}

// TestDefaultNetworkOverridesClusterNetwork: the pod's annotation replaces it,
// so that it does not even have to be there.
func TestDefaultNetworkOverridesClusterNetwork(t *testing.T) {
	w := standard()
	w.note("v1.multus-cni.io/default-network", "main")
	wants, err := Resolve(t.Context(), w, meta(func(c *core.Conf) { c.ClusterNetwork, c.DefaultNetworks = "nobody", []string{"flannel"} }))
	require.NoError(t, err)
	require.Equal(t, "kube-system/main", wants[0].Network)
	require.Equal(t, "flannel", wants[1].Network)
}

// TestAuxiliaryChain: its plugins go on where the default network ends, with
// their chain's name, whatever the default network is.
func TestAuxiliaryChain(t *testing.T) {
	last := func(w core.Want) *core.Exec { return w.Steps[len(w.Steps)-1].Exec }
	w := standard()
	for _, c := range []struct{ cluster, aux, plugins string }{
		{"/etc/cni/net.d/10-kindnet.conflist", "chain", "ptp,portmap,tuning,first,second"},
		{"/etc/cni/net.d", "chain", "ptp,portmap,tuning,first,second"},
		{"flannel", "aux", "flannel,auxiliary"},
		{"", "aux", "own,auxiliary"},
		{"", "chain", "own,first,second"}, // not in Multus' directory
		{"flannel", "none", "flannel"},
	} {
		in := meta(func(conf *core.Conf) { conf.ClusterNetwork, conf.AuxChain = c.cluster, c.aux })
		wants, err := Resolve(t.Context(), w, in)
		require.NoError(t, err)
		require.Len(t, wants, 1)
		require.Equal(t, c.plugins, types(wants[0]))
		chains, _, err := Chains(t.Context(), w, in)
		require.NoError(t, err)
		if c.aux != "none" {
			x := last(wants[0])
			require.Equal(t, c.aux+" 1.1.0", x.Network+" "+x.CNIVersion)
			require.Contains(t, string(x.Conf), `"name":"`+c.aux+`"`)
			require.Equal(t, c.aux, chains[len(chains)-1].Name, "STATUS and GC ask them too")
		}
	}
	w.note("v1.multus-cni.io/default-network", "main")
	wants, err := Resolve(t.Context(), w, meta(func(c *core.Conf) { c.AuxChain = "aux" }))
	require.NoError(t, err)
	require.Equal(t, "bridge,auxiliary", types(wants[0]))
	for aux, says := range map[string]string{"brokenaux": "brokenaux/a.conf", "ownaux": `"fairlead"`} {
		_, err := Resolve(t.Context(), w, meta(func(c *core.Conf) { c.AuxChain = aux }))
		require.Equal(t, core.CodeConfig, core.CodeOf(err))
		require.ErrorContains(t, err, says)
	}
}

// prompt is a world that knows objects at once and waits for others.
type prompt struct {
	*world
	waited  int // for NADs
	awaited int // for pods
}

func (p *prompt) KnownPod(ctx context.Context, pod core.Pod) (*Pod, error) {
	return p.world.Pod(ctx, pod)
}

func (p *prompt) Pod(ctx context.Context, pod core.Pod) (*Pod, error) {
	p.awaited++
	return p.world.Pod(ctx, pod)
}

func (p *prompt) KnownNAD(ns, name string) (*NAD, error) {
	return p.world.NAD(context.Background(), ns, name)
}

func (p *prompt) NAD(ctx context.Context, ns, name string) (*NAD, error) {
	p.waited++
	return p.world.NAD(ctx, ns, name)
}

// TestNobodyWaitsForANADThatIsAFile: a default network that a file describes
// costs no ADD the patience for a NAD that never comes.
func TestNobodyWaitsForANADThatIsAFile(t *testing.T) {
	src := &prompt{world: standard()}
	for value, waited := range map[string]int{"main": 0, "flannel": 0, "nobody": 1} {
		src.waited = 0
		_, err := Resolve(t.Context(), src, meta(func(c *core.Conf) { c.ClusterNetwork = value }))
		require.Equal(t, value == "nobody", err != nil)
		require.Equal(t, waited, src.waited, value)
	}
}
