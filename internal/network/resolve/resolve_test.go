package resolve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// world is a Source of the test's own objects.
type world struct {
	pods    map[string]*Pod
	nads    map[string]*NAD
	subnets []core.Subnet
	down    error // every question fails
	podDown error // questions about pods fail
}

func (w *world) Pod(_ context.Context, want core.Pod) (*Pod, error) {
	ns, name := want.Namespace, want.Name
	if w.podDown != nil {
		return nil, w.podDown
	}
	return find(w, w.pods, ns+"/"+name)
}

func (w *world) NAD(_ context.Context, ns, name string) (*NAD, error) {
	return find(w, w.nads, ns+"/"+name)
}

func find[T any](w *world, m map[string]*T, key string) (*T, error) {
	if v, ok := m[key]; ok && w.down == nil {
		return v, nil
	}
	if w.down != nil {
		return nil, w.down
	}
	return nil, fmt.Errorf("%s: %w", key, core.ErrNotFound)
}

func (w *world) Subnets(context.Context) ([]core.Subnet, error) { return w.subnets, w.down }

func pool(name, provider, cidr string) core.Subnet {
	s := core.Subnet{Name: name, Provider: provider}
	for _, c := range strings.Split(cidr, ",") {
		p := netip.MustParsePrefix(c)
		s.CIDRs, s.Gateways = append(s.CIDRs, p), append(s.Gateways, p.Addr().Next())
	}
	return s
}

// standard is a world with a pod default/p, subnets for it and some NADs.
func standard() *world {
	w := &world{pods: map[string]*Pod{}, nads: map[string]*NAD{}}
	w.subnets = []core.Subnet{
		pool("backend", "ovn", "10.100.0.0/24"),
		pool("nsnet", "ovn", "10.50.0.0/24"),
		pool("ovn-default", "ovn", "10.16.0.0/16,fd00:10:16::/112"),
		pool("second", "second.default.ovn", "10.20.0.0/24"),
	}
	w.subnets[0].VLAN, w.subnets[1].Namespaces, w.subnets[2].Default = 100, []string{"team"}, true
	w.nad("default/second", `{"cniVersion":"1.0.0","type":"kube-ovn","provider":"second.default.ovn"}`)
	w.nad("default/foreign", `{"cniVersion":"0.4.0","plugins":[{"type":"macvlan","capabilities":{"ips":true,"mac":true}},{"type":"tuning"},{"type":"portmap","capabilities":{"portMappings":true}}]}`)
	w.nad("default/plain", `{"cniVersion":"0.4.0","type":"macvlan"}`)
	w.nad("default/late", `{"cniVersion":"0.4.0","plugins":[{"type":"tuning"},{"type":"kube-ovn"}]}`)
	w.nad("default/borrowed", `{"cniVersion":"0.4.0","type":"macvlan","ipam":{"type":"kube-ovn","provider":"nobody"}}`)
	w.nad("default/empty", "")
	w.nad("default/junk", "{")
	w.nad("default/nosubnet", `{"cniVersion":"1.0.0","type":"fairlead"}`)
	w.nad("other/shared", `{"cniVersion":"0.4.0","type":"macvlan"}`)
	w.nad("kube-system/main", `{"cniVersion":"0.4.0","type":"bridge"}`)
	w.pods["default/p"] = &Pod{Pod: core.Pod{Namespace: "default", Name: "p", UID: "u1"}, Annotations: map[string]string{}}
	return w
}

func (w *world) nad(key, config string) {
	ns, name, _ := strings.Cut(key, "/")
	w.nads[key] = &NAD{Namespace: ns, Name: name, Config: config}
}

// note sets annotations of pod default/p, key and value in turn.
func (w *world) note(kv ...string) {
	for i := 0; i < len(kv); i += 2 {
		w.pods["default/p"].Annotations[kv[i]] = kv[i+1]
	}
}

func request() core.Request {
	return core.Request{
		Op: core.Add, Key: core.Key{Container: "0123456789abcdef", IfName: "eth0"},
		Netns: "/run/netns/x", Path: []string{"/opt/cni/bin"}, Pod: core.Pod{Namespace: "default", Name: "p"},
		Args: map[string]string{"K8S_POD_NAME": "p", "IgnoreUnknown": "1"}, RawArgs: "IgnoreUnknown=1;K8S_POD_NAME=p",
		Conf: core.Conf{CNIVersion: "1.1.0", Name: "fairlead", Type: "fairlead", Raw: json.RawMessage(`{}`)},
	}
}

func resolved(t *testing.T, w *world, change func(*core.Request)) []core.Want {
	t.Helper()
	req := request()
	if change != nil {
		change(&req)
	}
	wants, err := Resolve(t.Context(), w, Input{Request: req})
	require.NoError(t, err)
	return wants
}

const networks = "k8s.v1.cni.cncf.io/networks"

func TestDefaultNetwork(t *testing.T) {
	w := standard()
	wants := resolved(t, w, nil)
	require.Len(t, wants, 1)
	require.Equal(t, core.Want{
		Network: "fairlead", IfName: "eth0", Default: true, Args: "IgnoreUnknown=1;K8S_POD_NAME=p",
		Steps: []core.Step{{NIC: &core.NIC{
			Driver: core.DriverOVS, Provider: "ovn", Subnet: w.subnets[2], Type: "veth-pair", IfaceID: "p.default", DefaultRoute: true,
		}}},
	}, wants[0])
}

func TestPodThatIsUnknownOrNone(t *testing.T) {
	w := standard()
	w.note("ovn.kubernetes.io/logical_switch", "backend")
	unknown := resolved(t, w, func(r *core.Request) { r.Pod.Name = "q" })[0].Steps[0].NIC
	require.Equal(t, "ovn-default", unknown.Subnet.Name)
	require.Equal(t, "q.default", unknown.IfaceID)
	bare := resolved(t, w, func(r *core.Request) { r.Pod = core.Pod{} })[0].Steps[0].NIC
	require.Equal(t, "ovn-default", bare.Subnet.Name)
	require.Equal(t, "0123456789abcdef", bare.IfaceID)
}

func TestAnnotationsOfTheDefaultNIC(t *testing.T) {
	w := standard()
	w.note("ovn.kubernetes.io/logical_switch", "backend", "ovn.kubernetes.io/ip_address", "10.100.0.7",
		"ovn.kubernetes.io/mac_address", "02:00:00:00:00:07", "ovn.kubernetes.io/vlan_id", "0",
		"ovn.kubernetes.io/ingress_rate", "3", "ovn.kubernetes.io/ingress_burst", "2", "ovn.kubernetes.io/egress_rate", "1",
		"ovn.kubernetes.io/egress_burst", "4", "ovn.kubernetes.io/latency", "10", "ovn.kubernetes.io/jitter", "2",
		"ovn.kubernetes.io/limit", "1000", "ovn.kubernetes.io/loss", "5", "ovn.kubernetes.io/mirror", "true",
		"ovn.kubernetes.io/pod_nic_type", "internal-port", "ovn.kubernetes.io/default_route", "false",
		"ovn.kubernetes.io/routes", `[{"dst":"192.168.0.0/16","gw":"10.100.0.9"},{"dst":"172.16.0.0/12"}]`,
		"ovn.kubernetes.io/cidr", "10.100.0.0/25", "ovn.kubernetes.io/gateway", "10.100.0.1",
		"ovn.kubernetes.io/allocated", "true", "ovn.kubernetes.io/routed", "true", "ovn.kubernetes.io/somebody_elses", "\x00")
	n := resolved(t, w, func(r *core.Request) {
		r.Conf.Routes = []core.Route{{Dst: netip.MustParsePrefix("10.0.0.0/8")}}
		r.Conf.DNS = core.DNS{Domain: "x"}
	})[0].Steps[0].NIC
	mac, _ := annotation.ParseMAC("02:00:00:00:00:07")
	require.Equal(t, &core.NIC{
		Driver: core.DriverOVS, Provider: "ovn", Subnet: w.subnets[0], IPs: []netip.Addr{netip.MustParseAddr("10.100.0.7")}, Given: true,
		Type: "internal-port", IfaceID: "p.default",
		Settings: core.Settings{ // no VLAN
			Tuning: core.Tuning{
				Mirror: true,
				QoS:    core.QoS{IngressMbps: 3, IngressBurstMbit: 2, EgressMbps: 1, EgressBurstMbit: 4, LatencyMs: 10, JitterMs: 2, LimitPackets: 1000, LossPercent: 5},
			},
			PodSide: core.PodSide{
				MAC: mac, DNS: core.DNS{Domain: "x"},
				Routes: []core.Route{
					{Dst: netip.MustParsePrefix("10.0.0.0/8")},
					{Dst: netip.MustParsePrefix("192.168.0.0/16"), GW: netip.MustParseAddr("10.100.0.9")},
					{Dst: netip.MustParsePrefix("172.16.0.0/12")},
				},
			},
		},
	}, n)
}

func TestSubnetChoice(t *testing.T) {
	for _, c := range []struct {
		name, want string
		set        func(*world, *core.Request)
	}{
		{"nothing said: the default", "ovn-default", func(*world, *core.Request) {}},
		{"no default: ovn-default", "ovn-default", func(w *world, _ *core.Request) { w.subnets[2].Default = false }},
		{"another default", "backend", func(w *world, _ *core.Request) { w.subnets[2].Default, w.subnets[0].Default = false, true }},
		{"the namespace's", "nsnet", func(_ *world, r *core.Request) { r.Pod.Namespace = "team" }},
		{"logical_switch", "backend", func(w *world, _ *core.Request) { w.note("ovn.kubernetes.io/logical_switch", "backend") }},
		{"called for another provider", "second", func(_ *world, r *core.Request) { r.Conf.Provider = "second.default.ovn" }},
		{"that provider's annotation", "backend", func(w *world, r *core.Request) {
			r.Conf.Provider = "second.default.ovn"
			w.note("second.default.ovn.kubernetes.io/logical_switch", "backend")
		}},
		{"the same without .ovn", "backend", func(w *world, r *core.Request) {
			r.Conf.Provider = "second.default.ovn"
			w.note("second.default.kubernetes.io/logical_switch", "backend")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := standard()
			wants := resolved(t, w, func(r *core.Request) { c.set(w, r) })
			require.Equal(t, c.want, wants[0].Steps[0].NIC.Subnet.Name)
		})
	}
}

func TestSeedPodVlanQoS(t *testing.T) {
	var pod struct {
		Metadata struct {
			Name, Namespace string
			Annotations     map[string]string
		}
	}
	raw, err := os.ReadFile("testdata/pod-vlan-qos.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, &pod))
	m := pod.Metadata
	w := standard()
	w.pods[m.Namespace+"/"+m.Name] = &Pod{Pod: core.Pod{Namespace: m.Namespace, Name: m.Name}, Annotations: m.Annotations}
	require.Empty(t, CheckAnnotations(m.Namespace, m.Annotations))
	wants := resolved(t, w, func(r *core.Request) {
		r.Pod = core.Pod{Namespace: m.Namespace, Name: m.Name}
		r.Conf = seedConf(t, "01-kube-ovn.conflist")
	})
	n := wants[0].Steps[0].NIC
	require.Equal(t, core.Subnet{
		Name: "subnet1", Provider: "ovn", Implied: true,
		CIDRs: []netip.Prefix{netip.MustParsePrefix("100.100.0.0/16")}, Gateways: []netip.Addr{netip.MustParseAddr("100.100.0.1")},
	}, n.Subnet)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("100.100.0.3")}, n.IPs)
	require.Equal(t, "00:00:00:b8:58:ab", n.MAC.String())
	require.Equal(t, 1000, n.VLAN)
	require.Equal(t, core.QoS{IngressMbps: 3, EgressMbps: 1}, n.QoS)
	require.Equal(t, "starter-backend-69459d76f5-ktrwn.ns1", n.IfaceID)
	require.True(t, n.DefaultRoute)
}

// seedConf is what a runtime sends for the first plugin of a configuration.
func seedConf(t *testing.T, file string) core.Conf {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	if strings.HasSuffix(file, ".conflist") {
		c, err := cniconf.ParseChain(raw, "")
		require.NoError(t, err)
		raw, err = cniconf.PluginConf(c, c.Plugins[0], cniconf.Inject{})
		require.NoError(t, err)
	}
	conf, err := cniconf.Parse(raw)
	require.NoError(t, err)
	return conf
}

func TestSeedMultus(t *testing.T) {
	var nad struct {
		Metadata struct{ Name string }
		Spec     struct{ Config string }
	}
	raw, err := os.ReadFile("testdata/nad-ipvlan-net2.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, &nad))
	w := standard()
	w.nad("default/"+nad.Metadata.Name, nad.Spec.Config)
	w.note(networks, nad.Metadata.Name)
	wants := resolved(t, w, func(r *core.Request) {
		r.Conf = seedConf(t, "00-multus.conf")
		r.Conf.RuntimeConfig = map[string]json.RawMessage{"portMappings": json.RawMessage(`[{"hostPort":80,"containerPort":80,"protocol":"tcp"}]`)}
	})
	require.Len(t, wants, 2)
	require.Equal(t, "kube-ovn", wants[0].Network)
	require.Equal(t, "0.3.1", wants[0].CNIVersion)
	require.True(t, wants[0].Default)
	require.True(t, wants[0].Steps[0].NIC.DefaultRoute)
	require.Equal(t, "p.default", wants[0].Steps[0].NIC.IfaceID)
	require.Equal(t, "portmap", wants[0].Steps[1].Exec.Type)
	require.JSONEq(t, `{"cniVersion":"0.3.1","name":"kube-ovn","type":"portmap","capabilities":{"portMappings":true},
		"runtimeConfig":{"portMappings":[{"hostPort":80,"containerPort":80,"protocol":"tcp"}]}}`, string(wants[0].Steps[1].Exec.Conf))
	require.Equal(t, "default/ipvlan-net2", wants[1].Network)
	require.Equal(t, "net1", wants[1].IfName)
	require.False(t, wants[1].Default)
	require.Equal(t, []string{"ipvlan", "sbr"}, []string{wants[1].Steps[0].Exec.Type, wants[1].Steps[1].Exec.Type})
	x := wants[1].Steps[0].Exec
	require.Equal(t, "ipvlan-network", x.Network)
	require.Equal(t, []string{"/opt/cni/bin"}, x.Path)
	require.Equal(t, "IgnoreUnknown=1;K8S_POD_NAME=p", x.Args)
	require.NotContains(t, string(x.Conf), "runtimeConfig")
}

func TestFurtherNetworksInBothForms(t *testing.T) {
	for _, form := range []string{
		"second,other/shared@x0 , plain",
		`[{"name":"second"},{"name":"shared","namespace":"other","interface":"x0"},{"name":"plain","unknown-key":1}]`,
	} {
		w := standard()
		w.note(networks, form)
		wants := resolved(t, w, nil)
		require.Len(t, wants, 4)
		got := ""
		for _, n := range wants {
			got += n.Network + "@" + n.IfName + " "
		}
		require.Equal(t, "fairlead@eth0 default/second@net1 other/shared@x0 default/plain@net2 ", got)
		n := wants[1].Steps[0].NIC
		require.Equal(t, "second.default.ovn", n.Provider)
		require.Equal(t, "p.default.second.default.ovn", n.IfaceID)
		require.False(t, n.DefaultRoute)
		require.Equal(t, "1.0.0", wants[1].CNIVersion)
		require.Equal(t, "plain", wants[3].Steps[0].Exec.Network, "a configuration without a name takes the NAD's")
	}
}

func TestOnlyTheMetaPluginReadsNetworks(t *testing.T) {
	w := standard()
	w.note(networks, "second")
	require.Len(t, resolved(t, w, func(r *core.Request) { r.Conf.Type = "kube-ovn" }), 1)
	require.Len(t, resolved(t, w, func(r *core.Request) { r.Conf.Provider = "second.default.ovn" }), 1)
	require.Len(t, resolved(t, w, func(r *core.Request) { r.Conf.Provider = "ovn" }), 2)
}

func TestSecondaryCallHasNoDefaultRoute(t *testing.T) {
	w := standard()
	n := resolved(t, w, func(r *core.Request) { r.Conf.Provider, r.Key.IfName = "second.default.ovn", "net1" })[0].Steps[0].NIC
	require.False(t, n.DefaultRoute)
	w.note("second.default.ovn.kubernetes.io/default_route", "true")
	n = resolved(t, w, func(r *core.Request) { r.Conf.Provider, r.Key.IfName = "second.default.ovn", "net1" })[0].Steps[0].NIC
	require.True(t, n.DefaultRoute)
}

func TestDelegates(t *testing.T) {
	w := standard()
	chain := func(name, raw string) core.Chain {
		c, err := cniconf.ParseChain([]byte(raw), name)
		require.NoError(t, err)
		return c
	}
	wants := resolved(t, w, func(r *core.Request) {
		r.Conf.Type = "multus"
		r.Conf.BinDir = "/usr/lib/cni"
		r.Conf.RuntimeConfig = map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:01"`)}
		r.Conf.Delegates = []core.Chain{
			chain("one", `{"cniVersion":"0.4.0","disableCheck":true,"plugins":[{"type":"bridge","capabilities":{"mac":true}},{"type":"tuning"}]}`),
			chain("two", `{"cniVersion":"0.3.1","type":"fairlead","routes":[{"dst":"10.9.0.0/16"}],"dns":{"domain":"d"}}`),
			chain("three", `{"cniVersion":"1.1.0","disableGC":true,"plugins":[{"type":"macvlan","capabilities":{"mac":true}}]}`),
		}
	})
	require.Len(t, wants, 3)
	require.JSONEq(t, `{"cniVersion":"0.4.0","name":"one","type":"bridge","capabilities":{"mac":true},"runtimeConfig":{"mac":"02:00:00:00:00:01"}}`, string(wants[0].Steps[0].Exec.Conf))
	require.True(t, wants[0].Steps[1].Exec.NoCheck)
	require.Equal(t, []string{"/usr/lib/cni", "/opt/cni/bin"}, wants[0].Steps[0].Exec.Path)
	require.Equal(t, "net1", wants[1].IfName)
	n := wants[1].Steps[0].NIC
	require.Equal(t, "p.default", n.IfaceID, "the only NIC of its provider")
	require.Equal(t, core.DNS{Domain: "d"}, n.DNS)
	require.Len(t, n.Routes, 1)
	require.False(t, n.DefaultRoute)
	require.NotContains(t, string(wants[2].Steps[0].Exec.Conf), "runtimeConfig", "the runtime's is the default network's")
	require.True(t, wants[2].Steps[0].Exec.DisableGC)
}

func TestSameNADTwice(t *testing.T) {
	w := standard()
	w.note(networks, "second,second", "second.default.ovn.net1.kubernetes.io/ip_address", "10.20.0.11", "second.default.kubernetes.io/ip_address.net2", "10.20.0.12")
	wants := resolved(t, w, nil)
	a, b := wants[1].Steps[0].NIC, wants[2].Steps[0].NIC
	require.Equal(t, []string{"p.default.second.default.ovn.net1", "p.default.second.default.ovn.net2"}, []string{a.IfaceID, b.IfaceID})
	require.Equal(t, "[10.20.0.11] [10.20.0.12]", fmt.Sprint(a.IPs, b.IPs))
}

func TestElementReachesItsOwnNetworkOnly(t *testing.T) {
	w := standard()
	w.note(networks, `[
	 {"name":"foreign","ips":["192.168.1.5/24"],"mac":"02:00:00:00:00:05","portMappings":[{"hostPort":1,"containerPort":2,"protocol":"UDP"}],"cni-args":{"a":1},"deviceID":"0000:03:02.0"},
	 {"name":"second","ips":["10.20.0.9/24"],"mac":"02:00:00:00:00:06","bandwidth":{"ingressRate":1500000,"ingressBurst":2147483647,"egressRate":1000000,"egressBurst":1000000}}]`)
	wants := resolved(t, w, nil)
	require.Empty(t, wants[0].Steps[0].NIC.IPs)
	x := wants[1].Steps
	require.JSONEq(t, `{"name":"foreign","cniVersion":"0.4.0","type":"macvlan","capabilities":{"ips":true,"mac":true},"args":{"cni":{"a":1}},
		"deviceID":"0000:03:02.0","pciBusID":"0000:03:02.0","runtimeConfig":{"ips":["192.168.1.5/24"],"mac":"02:00:00:00:00:05"}}`, string(x[0].Exec.Conf))
	require.JSONEq(t, `{"name":"foreign","cniVersion":"0.4.0","type":"tuning","args":{"cni":{"a":1}},"deviceID":"0000:03:02.0","pciBusID":"0000:03:02.0"}`, string(x[1].Exec.Conf))
	require.Contains(t, string(x[2].Exec.Conf), `"runtimeConfig":{"portMappings":[{"hostPort":1,"containerPort":2,"protocol":"udp"}]}`)
	require.Equal(t, "IgnoreUnknown=1;K8S_POD_NAME=p;MAC=02:00:00:00:00:05;IP=192.168.1.5/24", x[0].Exec.Args)
	n := wants[2].Steps[0].NIC
	require.Equal(t, "[10.20.0.9] 02:00:00:00:00:06", fmt.Sprint(n.IPs, " ", n.MAC))
	require.Equal(t, core.QoS{IngressMbps: 2, EgressMbps: 1, EgressBurstMbit: 1}, n.QoS)
}

func TestLegacyArgs(t *testing.T) {
	w := standard()
	n := resolved(t, w, func(r *core.Request) { r.Args = map[string]string{"IP": "10.16.0.8", "MAC": "02:00:00:00:00:08"} })[0].Steps[0].NIC
	require.Equal(t, "[10.16.0.8] 02:00:00:00:00:08", fmt.Sprint(n.IPs, " ", n.MAC))
	w.note(networks, `[{"name":"foreign","mac":"02:00:00:00:00:05"}]`)
	for raw, want := range map[string]string{"": "IgnoreUnknown=1;MAC=02:00:00:00:00:05", "A=b": "A=b;IgnoreUnknown=1;MAC=02:00:00:00:00:05"} {
		wants := resolved(t, w, func(r *core.Request) { r.RawArgs, r.Args = raw, nil })
		require.Equal(t, want, wants[1].Steps[0].Exec.Args)
	}
}

func TestBandwidth(t *testing.T) {
	kube := []string{"kubernetes.io/ingress-bandwidth", "10M", "kubernetes.io/egress-bandwidth", "100k"}
	declared := func(r *core.Request) { r.Conf.Capabilities = map[string]bool{"bandwidth": true} }
	sent := func(r *core.Request) {
		r.Conf.RuntimeConfig = map[string]json.RawMessage{"bandwidth": json.RawMessage(`{"ingressRate":5000000,"ingressBurst":2147483647}`)}
	}
	for _, c := range []struct {
		name  string
		notes []string
		set   func(*core.Request)
		want  core.QoS
	}{
		{"annotation of Kubernetes where the capability is declared", kube, declared, core.QoS{IngressMbps: 10, EgressMbps: 1}},
		{"not where it is not: a bandwidth plugin may follow", kube, nil, core.QoS{}},
		{"runtimeConfig", nil, sent, core.QoS{IngressMbps: 5}},
		{"our own annotation wins", append([]string{"ovn.kubernetes.io/egress_rate", "7"}, kube...), sent, core.QoS{EgressMbps: 7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := standard()
			w.note(c.notes...)
			require.Equal(t, c.want, resolved(t, w, c.set)[0].Steps[0].NIC.QoS)
		})
	}
	t.Run("a bandwidth plugin in the chain shapes, we do not", func(t *testing.T) {
		w := standard()
		chain, err := cniconf.ParseChain([]byte(`{"cniVersion":"1.0.0","plugins":[{"type":"fairlead"},{"type":"bandwidth","capabilities":{"bandwidth":true}}]}`), "n")
		require.NoError(t, err)
		wants := resolved(t, w, func(r *core.Request) { sent(r); r.Conf.Delegates = []core.Chain{chain} })
		require.Equal(t, core.QoS{}, wants[0].Steps[0].NIC.QoS)
		require.Contains(t, string(wants[0].Steps[1].Exec.Conf), `"ingressRate":5000000`)
	})
}

func TestDefaultRoute(t *testing.T) {
	gws := func(w core.Want) string { return fmt.Sprint(w.Gateways) }
	t.Run("default-route of an element", func(t *testing.T) {
		w := standard()
		w.note(networks, `[{"name":"second","default-route":["10.20.0.254"]},{"name":"plain"}]`)
		wants := resolved(t, w, nil)
		require.Equal(t, "[] [10.20.0.254] []", gws(wants[0])+" "+gws(wants[1])+" "+gws(wants[2]))
		require.True(t, wants[0].Steps[0].NIC.DefaultRoute, "for the family that nobody else claims")
	})
	t.Run("annotation default_route of a further network takes its own gateway", func(t *testing.T) {
		w := standard()
		w.note(networks, "second", "second.default.ovn.kubernetes.io/default_route", "true")
		wants := resolved(t, w, nil)
		require.Equal(t, "[] [10.20.0.1]", gws(wants[0])+" "+gws(wants[1]))
	})
	t.Run("two families, two networks", func(t *testing.T) {
		w := standard()
		w.note(networks, `[{"name":"second","default-route":["10.20.0.254"]},{"name":"plain","default-route":["fd00::1"]}]`)
		require.Len(t, resolved(t, w, nil), 3)
	})
	t.Run("several gateways of one family", func(t *testing.T) {
		w := standard()
		w.note(networks, `[{"name":"second","default-route":["10.20.0.254","10.20.0.253"]}]`)
		require.Len(t, resolved(t, w, nil)[1].Gateways, 2)
	})
}

func TestDefaultNetworkAnnotation(t *testing.T) {
	w := standard()
	w.note("v1.multus-cni.io/default-network", "main")
	wants := resolved(t, w, func(r *core.Request) { r.Conf.Type = "multus" })
	require.Len(t, wants, 1)
	require.Equal(t, "kube-system/main eth0 bridge", wants[0].Network+" "+wants[0].IfName+" "+wants[0].Steps[0].Exec.Type)
	require.True(t, wants[0].Default)
	w.nad("nets/main", `{"cniVersion":"0.4.0","type":"ptp"}`)
	wants = resolved(t, w, func(r *core.Request) { r.Conf.MultusNamespace = "nets" })
	require.Equal(t, "nets/main", wants[0].Network)
}

func TestIsolation(t *testing.T) {
	w := standard()
	w.nad("default/mine", `{"cniVersion":"0.4.0","type":"macvlan"}`)
	w.pods["team/p"] = &Pod{Pod: core.Pod{Namespace: "team", Name: "p"}, Annotations: map[string]string{networks: "default/mine"}}
	team := func(globals []string) func(*core.Request) {
		return func(r *core.Request) {
			r.Pod.Namespace, r.Conf.NamespaceIsolation, r.Conf.GlobalNamespaces = "team", true, globals
		}
	}
	require.Len(t, resolved(t, w, team(nil)), 2, "default is global when no list is given")
	require.Len(t, resolved(t, w, team([]string{"x", "default"})), 2)
	req := request()
	team([]string{"x"})(&req)
	_, err := Resolve(t.Context(), w, Input{Request: req})
	require.Equal(t, core.CodeDenied, core.CodeOf(err))
}

// TestIsolationOfProviders: a NAD of the pod's own namespace reaches no Subnet
// of another one's NAD.
func TestIsolationOfProviders(t *testing.T) {
	for config, refused := range map[string]bool{
		`{"type":"fairlead"}`:                                                                                           false,
		`{"type":"fairlead","provider":"mine.team.ovn"}`:                                                                false,
		`{"type":"fairlead","provider":"other.team.ovn"}`:                                                               false,
		`{"type":"fairlead","provider":"ovn"}`:                                                                          false,
		`{"type":"fairlead","provider":"backbone"}`:                                                                     false,
		`{"type":"fairlead","provider":"shared.default.ovn"}`:                                                           false,
		`{"type":"fairlead","provider":"storage.prod.ovn"}`:                                                             true,
		`{"type":"kube-ovn","provider":"a.storage.prod"}`:                                                               true,
		`{"type":"macvlan","ipam":{"type":"kube-ovn","provider":"storage.prod"}}`:                                       true,
		`{"plugins":[{"type":"macvlan","ipam":{"type":"host-local","Type":"fairlead","provider":"storage.prod.ovn"}}]}`: true,
	} {
		w := standard()
		for _, p := range []string{"mine.team.ovn", "other.team.ovn", "backbone", "shared.default.ovn", "storage.prod.ovn", "a.storage.prod", "storage.prod"} {
			w.subnets = append(w.subnets, pool("of-"+p, p, "10.30.0.0/24"))
		}
		w.nad("team/mine", `{"cniVersion":"1.0.0",`+config[1:])
		w.pods["team/p"] = &Pod{Pod: core.Pod{Namespace: "team", Name: "p"}, Annotations: map[string]string{networks: "mine"}}
		req := request()
		req.Pod.Namespace, req.Conf.NamespaceIsolation = "team", true
		_, err := Resolve(t.Context(), w, Input{Request: req})
		if !refused {
			require.NoError(t, err, config)
			continue
		}
		require.Equal(t, core.CodeDenied, core.CodeOf(err), config)
		require.ErrorContains(t, err, "a network of namespace prod")
		req.Conf.NamespaceIsolation = false
		_, err = Resolve(t.Context(), w, Input{Request: req})
		require.NotEqual(t, core.CodeDenied, core.CodeOf(err), config)
	}
}

func TestConfigFiles(t *testing.T) {
	w := standard()
	w.note(networks, "empty")
	single, list := `{"cniVersion":"0.4.0","name":"empty","type":"single"}`, `{"cniVersion":"0.4.0","name":"empty","plugins":[{"type":"listed"}]}`
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"the one of that name", map[string]string{"a.conf": `{"name":"x","type":"x"}`, "b.conf": single}, "single"},
		{"a list beats an earlier single", map[string]string{"a.conf": single, "b.conflist": list}, "listed"},
		{"and a later one", map[string]string{"a.conflist": list, "b.conf": single}, "listed"},
		{"broken files are skipped", map[string]string{"a.conf": "{", "b.conf": "", "b.txt": single, "c.json": single}, "single"},
		{"so is the one that calls", map[string]string{"a.conf": `{"name":"empty","type":"multus","clusterNetwork":"x"}`, "b.conf": single}, "single"},
		{"a list goes on in its folder", map[string]string{"a.conflist": list, "empty/a.conf": `{"type":"tuning"}`, "empty/b.conflist": "{"}, "listed,tuning"},
		{"which may hold it all", map[string]string{"a.conflist": `{"name":"empty"}`, "empty/b.conf": `{"type":"two"}`, "empty/a.conf": `{"type":"one"}`}, "one,two"},
		{"unless it says that it is complete", map[string]string{"a.conflist": `{"name":"empty","loadOnlyInlinedPlugins":true,"plugins":[{"type":"one"}]}`, "empty/b.conf": `{"type":"two"}`}, "one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := request()
			req.Conf.ConfDir = "/conf"
			wants, err := Resolve(t.Context(), w, Input{Request: req, Files: tree("conf", c.files)})
			require.NoError(t, err)
			require.Equal(t, c.want, types(wants[1]))
		})
	}
}

// tree is a machine's root with files in one directory.
func tree(dir string, files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[path.Join(dir, name)] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

// types are the foreign plugins of a network; "own" stands for ours.
func types(w core.Want) string {
	var out []string
	for _, s := range w.Steps {
		if s.NIC != nil {
			out = append(out, "own")
		} else {
			out = append(out, s.Exec.Type)
		}
	}
	return strings.Join(out, ",")
}

func TestUIDMismatchAndSourceDown(t *testing.T) {
	w := standard()
	req := request()
	req.Pod.UID = "u2"
	_, err := Resolve(t.Context(), w, Input{Request: req})
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	require.ErrorContains(t, err, `"u2"`)
	require.ErrorContains(t, err, `"u1"`)
	w.down = fmt.Errorf("api: %w", core.ErrUnavailable)
	_, err = Resolve(t.Context(), w, Input{Request: request()})
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	require.ErrorIs(t, err, core.ErrUnavailable)
}

func TestErrorsCarryTheKey(t *testing.T) {
	w := standard()
	w.note("ovn.kubernetes.io/vlan_id", "5000")
	_, err := Resolve(t.Context(), w, Input{Request: request()})
	ae := (*AnnotationError)(nil)
	require.True(t, errors.As(err, &ae))
	require.Equal(t, "ovn.kubernetes.io/vlan_id", ae.Key)
	require.Equal(t, "5000", ae.Value)
}
