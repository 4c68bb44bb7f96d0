package local

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/folder"
)

var _ resolve.Source = (*Source)(nil)

// Pods lists the pods in force by namespace and name.
func (s *Source) Pods() []resolve.Pod {
	return list(s.current.Load(), func(p resolve.Pod) string { return p.Pod.String() })
}

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// testDir is an objects folder under test.
type testDir struct {
	t   *testing.T
	dir string
	*Source
}

// newFolder writes files (name, text, ...) and opens the folder.
func newFolder(t *testing.T, files ...string) *testDir {
	t.Helper()
	f := &testDir{t: t, dir: t.TempDir()}
	f.write(files...)
	var err error
	f.Source, err = Open(f.dir, quietLog())
	require.NoError(t, err)
	return f
}

func (f *testDir) write(files ...string) {
	f.t.Helper()
	for i := 0; i < len(files); i += 2 {
		require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, files[i]), []byte(files[i+1]), 0o600))
	}
}

// rewrite writes and reloads.
func (f *testDir) rewrite(files ...string) {
	f.t.Helper()
	f.write(files...)
	require.NoError(f.t, f.reload())
}

func (f *testDir) remove(name string) {
	f.t.Helper()
	require.NoError(f.t, os.Remove(filepath.Join(f.dir, name)))
	require.NoError(f.t, f.reload())
}

// subnets are the Subnets in force as "name cidr,cidr".
func (f *testDir) subnets() []string {
	f.t.Helper()
	all, err := f.Subnets(context.Background())
	require.NoError(f.t, err)
	var out []string
	for _, s := range all {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %v", s.Name, s.CIDRs)))
	}
	return out
}

func (f *testDir) subnet(name string) core.Subnet {
	f.t.Helper()
	all, err := f.Subnets(context.Background())
	require.NoError(f.t, err)
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	f.t.Fatalf("no subnet %s in %v", name, all)
	return core.Subnet{}
}

// problem wants exactly one Problem, with this line and text.
func (f *testDir) problem(file string, line int, text string) {
	f.t.Helper()
	ps := f.Problems()
	require.Len(f.t, ps, 1, "%v", ps)
	require.Equal(f.t, filepath.Join(f.dir, file), ps[0].File)
	require.Equal(f.t, line, ps[0].Line, "%v", ps)
	require.Contains(f.t, ps[0].Reason, text)
}

func subnetYAML(name, cidr string, more ...string) string {
	out := "apiVersion: kubeovn.io/v1\nkind: Subnet\nmetadata:\n  name: " + name + "\nspec:\n  cidrBlock: " + cidr + "\n"
	for _, m := range more {
		out += "  " + m + "\n"
	}
	return out
}

func podYAML(name string, annotations ...string) string {
	out := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\n  annotations:\n"
	for _, a := range annotations {
		out += "    " + a + "\n"
	}
	return out + "spec:\n  anything: [goes, {here: 1}]\n"
}

func nadYAML(name, config string) string {
	return "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: \"" + name + "\"}\nspec:\n  config: '" + config + "'\n"
}

func vlanYAML(name string, vid int) string {
	return fmt.Sprintf("apiVersion: kubeovn.io/v1\nkind: Vlan\nmetadata: {name: %s}\nspec: {id: %d}\n", name, vid)
}

func TestExamplesLoadWithoutProblem(t *testing.T) {
	s, err := Open("../../../examples", quietLog())
	require.NoError(t, err)
	require.Empty(t, s.Problems())
	require.Len(t, s.Pods(), 5)
	require.Len(t, s.NADs(), 1)
	all, err := s.Subnets(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, 100, all[0].VLAN)
}

// TestExamplesResolve runs every example pod through resolve.
func TestExamplesResolve(t *testing.T) {
	s, err := Open("../../../examples", quietLog())
	require.NoError(t, err)
	got := map[string]string{}
	for _, p := range s.Pods() {
		wants, err := resolve.Resolve(t.Context(), s, resolve.Input{Request: core.Request{
			Op: core.Add, Key: core.Key{Container: "c", IfName: "eth0"}, Pod: p.Pod,
			Conf: core.Conf{Type: "fairlead", Name: "fairlead", CNIVersion: "1.1.0"},
		}})
		require.NoError(t, err, p.Name)
		for _, w := range wants {
			n := w.Steps[0].NIC
			got[p.Name] += fmt.Sprintf("%s=%s vlan=%d qos=%d/%d ips=%v mac=%s;", w.IfName, n.Subnet.Name, n.VLAN, n.QoS.IngressMbps, n.QoS.EgressMbps, n.IPs, n.MAC)
		}
	}
	require.Equal(t, map[string]string{
		"web-0": "eth0=ovn-default vlan=0 qos=0/0 ips=[] mac=;net1=storage vlan=0 qos=0/0 ips=[] mac=;",
		"web-1": "eth0=ovn-default vlan=0 qos=0/0 ips=[] mac=;net1=storage vlan=0 qos=0/0 ips=[10.20.0.50] mac=;",
		"db-0":  "eth0=backend vlan=100 qos=30/10 ips=[] mac=;",
		"db-1":  "eth0=backend vlan=100 qos=30/10 ips=[] mac=;",
		"dns-0": "eth0=ovn-default vlan=0 qos=0/0 ips=[10.16.0.5 fd00:10:16::5] mac=02:16:00:00:00:05;",
	}, got)
}

func TestSeedCasesLoad(t *testing.T) {
	s, err := Open("testdata", quietLog())
	require.NoError(t, err)
	require.Empty(t, s.Problems())
	p, err := s.Pod(t.Context(), core.Pod{Namespace: "ns1", Name: "starter-backend-69459d76f5-ktrwn"})
	require.NoError(t, err)
	require.Equal(t, "100.100.0.3", p.Annotations["ovn.kubernetes.io/ip_address"])
	n, err := s.NAD(t.Context(), "default", "ipvlan-net2")
	require.NoError(t, err)
	require.Contains(t, n.Config, `"ipvlan-network"`)
}

func TestEmptySourceHasTheBuiltinSubnet(t *testing.T) {
	s, err := Open("", quietLog())
	require.NoError(t, err)
	all, err := s.Subnets(t.Context())
	require.NoError(t, err)
	require.Equal(t, []core.Subnet{{
		Name: "ovn-default", Provider: "ovn", Vpc: "ovn-cluster", Default: true, NATOutgoing: true, Builtin: true,
		CIDRs: []netip.Prefix{netip.MustParsePrefix("10.16.0.0/16")}, Gateways: []netip.Addr{netip.MustParseAddr("10.16.0.1")},
	}}, all)
	_, err = s.Pod(t.Context(), core.Pod{Namespace: "default", Name: "x"})
	require.ErrorIs(t, err, core.ErrNotFound)
	_, err = s.NAD(t.Context(), "default", "x")
	require.ErrorIs(t, err, core.ErrNotFound)
}

func TestOpenOfAMissingFolderFails(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "no"), quietLog())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestSubnetValues(t *testing.T) {
	f := newFolder(t, "a.yaml", vlanYAML("v7", 7)+"---\n"+
		subnetYAML("dual", `"10.1.0.0/24, fd00::/64"`, `gateway: "fd00::ff,10.1.0.9"`, "excludeIps: [10.1.0.2, 10.1.0.10..10.1.0.20]", "vlan: v7", "mtu: 1400", "natOutgoing: true", "namespaces: [a, b]")+
		"---\n"+subnetYAML("plain", "10.2.0.0/24", "provider: n.default.ovn"))
	require.Empty(t, f.Problems())
	require.Equal(t, core.Subnet{
		Name: "dual", Provider: "ovn", Vpc: "ovn-cluster", VLAN: 7, MTU: 1400, NATOutgoing: true, Namespaces: []string{"a", "b"},
		CIDRs:    []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00::/64")},
		Gateways: []netip.Addr{netip.MustParseAddr("10.1.0.9"), netip.MustParseAddr("fd00::ff")},
		Exclude: []core.AddrRange{
			{From: netip.MustParseAddr("10.1.0.2"), To: netip.MustParseAddr("10.1.0.2")},
			{From: netip.MustParseAddr("10.1.0.10"), To: netip.MustParseAddr("10.1.0.20")},
		},
	}, f.subnet("dual"))
	require.Equal(t, []netip.Addr{netip.MustParseAddr("10.2.0.1")}, f.subnet("plain").Gateways)
	require.Equal(t, "n.default.ovn", f.subnet("plain").Provider)
	require.True(t, f.subnet("ovn-default").Default)
}

func TestDefaultSubnet(t *testing.T) {
	t.Run("a Subnet with default: true replaces the built-in one", func(t *testing.T) {
		f := newFolder(t, "a.yaml", subnetYAML("mine", "10.1.0.0/24", "default: true"))
		require.Equal(t, []string{"mine [10.1.0.0/24]"}, f.subnets())
	})
	t.Run("a user's ovn-default replaces it and is the default", func(t *testing.T) {
		f := newFolder(t, "a.yaml", subnetYAML("ovn-default", "10.9.0.0/24"))
		require.Equal(t, []string{"ovn-default [10.9.0.0/24]"}, f.subnets())
		require.True(t, f.subnet("ovn-default").Default)
	})
	t.Run("a Subnet over the built-in range leaves it out and says so", func(t *testing.T) {
		f := newFolder(t, "a.yaml", subnetYAML("mine", "10.16.3.0/24"))
		require.Equal(t, []string{"mine [10.16.3.0/24]"}, f.subnets())
		f.problem("a.yaml", 1, "overlaps the built-in")
	})
	t.Run("a default that never was good is not replaced by the built-in one", func(t *testing.T) {
		f := newFolder(t, "a.yaml", subnetYAML("mine", "10.1.0.0/99", "default: true"))
		require.Empty(t, f.subnets())
	})
	t.Run("an ovn-default that never was good is not either", func(t *testing.T) {
		f := newFolder(t, "a.yaml", subnetYAML("ovn-default", "rubbish"))
		require.Empty(t, f.subnets())
	})
	t.Run("another Subnet that never was good leaves the built-in one alone", func(t *testing.T) {
		f := newFolder(t, "a.yaml", subnetYAML("mine", "rubbish"))
		require.Equal(t, []string{"ovn-default [10.16.0.0/16]"}, f.subnets())
	})
	t.Run("the built-in one stays while a new default is wrong", func(t *testing.T) {
		f := newFolder(t)
		f.rewrite("a.yaml", subnetYAML("mine", "rubbish", "default: true"))
		require.Equal(t, []string{"ovn-default [10.16.0.0/16]"}, f.subnets())
		f.rewrite("a.yaml", subnetYAML("mine", "10.1.0.0/24", "default: true"))
		require.Equal(t, []string{"mine [10.1.0.0/24]"}, f.subnets())
	})
}

// TestOneProblem has one wrong thing in file b.yaml; everything else is good.
func TestOneProblem(t *testing.T) {
	good := subnetYAML("good", "10.1.0.0/24", "default: true") + "---\n" + vlanYAML("v7", 7) + "---\n" + podYAML("p", `a: "1"`)
	for _, c := range []struct {
		name, text string
		line       int
		reason     string
	}{
		{"syntax error", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x: y\n", 4, "not YAML: mapping values"},
		{"tab as indentation", "apiVersion: v1\nkind: Pod\nmetadata:\n\tname: x\n", 4, "not YAML"},
		{"syntax error in the second document", "# nothing\n---\na: b\n  c: d\n", 4, "not YAML"},
		{"two documents without a marker", vlanYAML("v1", 1) + "...\n" + vlanYAML("v2", 2), 5, "expected <document start>"},
		{"a list", "- a\n- b\n", 1, "not an object"},
		{"a scalar", "hello\n", 1, "not an object"},
		{"no kind", "metadata: {name: x}\n", 1, `kind "" is not known`},
		{"unknown kind", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n", 2, `kind "Service" is not known`},
		{"no name", "apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {}\n", 3, "metadata.name is missing"},
		{"name with capitals", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: Web\n", 4, "metadata.name"},
		{"namespace with a dot", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  namespace: a.b\n", 5, "metadata.namespace"},
		{"wrong apiVersion", "kind: Subnet\napiVersion: v1\nmetadata: {name: x}\n", 2, `is of "kubeovn.io/v1"`},
		{"unknown field in spec", subnetYAML("x", "10.2.0.0/24", "gatway: 10.2.0.1"), 7, `unknown field "spec.gatway"`},
		{"field in another case", subnetYAML("x", "10.2.0.0/24", "Gateway: 10.2.0.1"), 7, `unknown field "spec.Gateway"`},
		{"unknown field in metadata", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n  anotations: {}\n", 5, `unknown field "metadata.anotations"`},
		{"unknown field at the top", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\nspecs: {}\n", 5, `unknown field "specs"`},
		{"wrong type", subnetYAML("x", "10.2.0.0/24", "mtu: big"), 7, "spec.mtu: want int, got string"},
		{"infinite number", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {a: .inf}\n", 1, "JSON"},
		{"name that is no text", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: n\n", 4, "metadata.name is not text (YAML reads y, n,"},
		{"a document that is empty", "# nothing\n", 0, "is empty"},

		{"no cidrBlock", "apiVersion: kubeovn.io/v1\nkind: Subnet\nmetadata: {name: x}\nspec:\n  mtu: 1400\n", 4, "spec.cidrBlock: is missing"},
		{"cidrBlock without length", subnetYAML("x", "10.2.0.0"), 6, "spec.cidrBlock"},
		{"cidrBlock too long", subnetYAML("x", "10.2.0.0/33"), 6, "spec.cidrBlock"},
		{"cidrBlock with host bits", subnetYAML("x", "10.2.0.7/24"), 6, "the network is 10.2.0.0/24"},
		{"cidrBlock of one address", subnetYAML("x", "10.2.0.7/32"), 6, "no room"},
		{"cidrBlock multicast", subnetYAML("x", "224.0.0.0/8"), 6, "no range for pods"},
		{"cidrBlock all", subnetYAML("x", "0.0.0.0/0"), 6, "no range for pods"},
		{"cidrBlock twice one family", subnetYAML("x", `"10.2.0.0/24,10.3.0.0/24"`), 6, "one family"},
		{"protocol against cidrBlock", subnetYAML("x", "10.2.0.0/24", "protocol: IPv6"), 7, "spec.protocol"},
		{"gateway outside", subnetYAML("x", "10.2.0.0/24", "gateway: 10.3.0.1"), 7, "spec.gateway: 10.3.0.1 lies outside"},
		{"gateway no address", subnetYAML("x", "10.2.0.0/24", "gateway: router"), 7, "spec.gateway"},
		{"gateway network address", subnetYAML("x", "10.2.0.0/24", "gateway: 10.2.0.0"), 7, "network address"},
		{"gateway twice", subnetYAML("x", "10.2.0.0/24", `gateway: "10.2.0.1,10.2.0.2"`), 7, "two gateways"},
		{"gateway for one family only", subnetYAML("x", `"10.2.0.0/24,fd02::/64"`, "gateway: 10.2.0.1"), 7, "none for fd02::/64"},
		{"excludeIps no range", subnetYAML("x", "10.2.0.0/24", "excludeIps:", "- 10.2.0.3", "- 10.2.0.4-10.2.0.9"), 9, "spec.excludeIps[1]"},
		{"excludeIps downwards", subnetYAML("x", "10.2.0.0/24", "excludeIps: [10.2.0.9..10.2.0.4]"), 7, "upwards"},
		{"excludeIps outside", subnetYAML("x", "10.2.0.0/24", "excludeIps: [10.3.0.4]"), 7, "lies outside"},
		{"provider no name", subnetYAML("x", "10.2.0.0/24", "provider: a/b"), 7, "spec.provider"},
		{"default of another provider", subnetYAML("x", "10.2.0.0/24", "provider: n.default.ovn", "default: true"), 8, "spec.default"},
		{"mtu too small", subnetYAML("x", "10.2.0.0/24", "mtu: 100"), 7, "spec.mtu"},
		{"mtu too small for IPv6", subnetYAML("x", "fd02::/64", "mtu: 1000"), 7, "from 1280"},
		{"private", subnetYAML("x", "10.2.0.0/24", "private: true"), 7, "spec.private"},
		{"acls", subnetYAML("x", "10.2.0.0/24", "acls: [{direction: to-lport, match: ip, action: drop}]"), 7, "spec.acls"},
		{"allowSubnets", subnetYAML("x", "10.2.0.0/24", "allowSubnets: [x]"), 7, "spec.allowSubnets[0]"},

		{"egress without table", subnetYAML("x", "10.2.0.0/24", "externalEgressGateway: 192.0.2.1", "policyRoutingPriority: 5"), 5, "spec.policyRoutingTableID: is missing"},
		{"egress by a table of the kernel's", subnetYAML("x", "10.2.0.0/24", "externalEgressGateway: 192.0.2.1", "policyRoutingPriority: 5", "policyRoutingTableID: 254"), 9, "spec.policyRoutingTableID: 254"},
		{"egress without rule", subnetYAML("x", "10.2.0.0/24", "externalEgressGateway: 192.0.2.1", "policyRoutingTableID: 5"), 5, "spec.policyRoutingPriority: is missing"},
		{"egress by a pod", subnetYAML("x", "10.2.0.0/24", "externalEgressGateway: 10.2.0.9", "policyRoutingTableID: 5", "policyRoutingPriority: 5"), 7, "10.2.0.9 lies in cidrBlock"},
		{"egress of another family", subnetYAML("x", "10.2.0.0/24", `externalEgressGateway: "192.0.2.1,fd00::1"`, "policyRoutingTableID: 5", "policyRoutingPriority: 5"), 7, "fd00::1 is of a family"},
		{"egress twice", subnetYAML("x", "10.2.0.0/24", `externalEgressGateway: "192.0.2.1,192.0.2.2"`, "policyRoutingTableID: 5", "policyRoutingPriority: 5"), 7, "two gateways of one family"},
		{"egress no address", subnetYAML("x", "10.2.0.0/24", "externalEgressGateway: router", "policyRoutingTableID: 5", "policyRoutingPriority: 5"), 7, `"router" is not an IP address`},

		{"overlapping subnets", subnetYAML("x", "10.1.0.128/25"), 6, "10.1.0.128/25 overlaps 10.1.0.0/24 of Subnet good"},
		{"two defaults", subnetYAML("x", "10.2.0.0/24", "default: true"), 7, "Subnet good is the default already"},
		{"unknown Vlan", subnetYAML("x", "10.2.0.0/24", "vlan: v8"), 7, `there is no Vlan "v8"`},
		{"Vlan out of range", vlanYAML("x", 4095), 4, "spec.id: 4095"},
		{"Vlan negative", vlanYAML("x", -1), 4, "spec.id: -1"},
		{"old Vlan key out of range", "apiVersion: kubeovn.io/v1\nkind: Vlan\nmetadata: {name: x}\nspec:\n  id: 0\n  vlanId: 5000\n", 6, "spec.vlanId: 5000"},
		{"ProviderNetwork without interface", "apiVersion: kubeovn.io/v1\nkind: ProviderNetwork\nmetadata: {name: x}\nspec:\n  customInterfaces:\n  - nodes: [a]\n", 6, "customInterfaces[0].interface"},
		{"ProviderNetwork with a long name", "apiVersion: kubeovn.io/v1\nkind: ProviderNetwork\nmetadata:\n  name: datacenter-east\nspec: {defaultInterface: eth1}\n", 4, "datacenter-east has more than 12 characters"},
		{"same Subnet in two files", subnetYAML("good", "10.1.0.0/24", "default: true"), 1, "Subnet good is declared twice"},
		{"same Pod in two files", "\n" + podYAML("p", `a: "2"`), 2, "Pod default/p is declared twice"},

		{"NAD config no JSON", nadYAML("n", "{not json"), 5, "spec.config: not JSON"},
		{"NAD config without type", nadYAML("n", `{"cniVersion": "1.0.0"}`), 5, "type"},
		{"NAD config of an unknown version", nadYAML("n", `{"cniVersion": "9.9.9", "type": "x"}`), 5, "cniVersion"},
		{"NAD config empty list", nadYAML("n", `{"cniVersion": "1.0.0", "plugins": []}`), 5, "plugins"},
		{"NAD unknown field", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: x}\nspec:\n  conf: x\n", 5, "spec.conf"},

		{"annotation is a number", podYAML("x", `a: "1"`, "ovn.kubernetes.io/vlan_id: 100"), 7, "ovn.kubernetes.io/vlan_id: the value must be text"},
		{"annotation bad address", podYAML("x", `a: "1"`, "ovn.kubernetes.io/ip_address: 10.1.0"), 7, "ovn.kubernetes.io/ip_address"},
		{"annotation bad rate", podYAML("x", `ovn.kubernetes.io/ingress_rate: "-1"`), 6, "ovn.kubernetes.io/ingress_rate"},
		{"annotation of a NAD", podYAML("x", `n.default.ovn.kubernetes.io/mac_address: zz`), 6, "n.default.ovn.kubernetes.io/mac_address"},
		{"networks annotation", podYAML("x", "k8s.v1.cni.cncf.io/networks: 'a,,b'"), 6, "k8s.v1.cni.cncf.io/networks[1]"},
		{"default network annotation", podYAML("x", "v1.multus-cni.io/default-network: a,b"), 6, "v1.multus-cni.io/default-network"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFolder(t, "a.yaml", good, "b.yaml", c.text)
			f.problem("b.yaml", c.line, c.reason)
			require.Equal(t, []string{"good [10.1.0.0/24]"}, f.subnets())
			p, err := f.Pod(t.Context(), core.Pod{Namespace: "default", Name: "p"})
			require.NoError(t, err)
			require.Equal(t, "1", p.Annotations["a"])
		})
	}
}

func TestAllFaultsOfASubnetAreTold(t *testing.T) {
	f := newFolder(t, "a.yaml", subnetYAML("x", "10.2.0.0/24", "gateway: 10.3.0.1", "mtu: 1", "excludeIps: [x]"))
	require.Len(t, f.Problems(), 3)
}

func TestAGoodDocumentBesideABadOne(t *testing.T) {
	f := newFolder(t, "a.yaml", podYAML("p1", `a: "1"`)+"---\nkind: [\n---\n"+podYAML("p2", `a: "1"`)+"---\n# empty\n---\n")
	require.Len(t, f.Pods(), 2)
	f.problem("a.yaml", 10, "not YAML")
}

func TestJSONAndOtherFiles(t *testing.T) {
	f := newFolder(t,
		"a.json", "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Pod\",\n\t\"metadata\": {\"name\": \"p\"}\n}\n",
		"b.YML", podYAML("q", `a: "1"`), ".hidden.yaml", "rubbish [", "notes.txt", "rubbish [")
	require.NoError(t, os.Mkdir(filepath.Join(f.dir, "d"), 0o700))
	require.NoError(t, f.reload())
	require.Empty(t, f.Problems())
	require.Len(t, f.Pods(), 2)
}

func TestBadObjectThatNeverWasGoodIsAnErrorNotAbsent(t *testing.T) {
	f := newFolder(t, "a.yaml", podYAML("p", "ovn.kubernetes.io/ip_address: x")+"---\n"+nadYAML("n", "x"))
	_, err := f.Pod(t.Context(), core.Pod{Namespace: "default", Name: "p"})
	require.Equal(t, core.CodeValue, core.CodeOf(err))
	require.ErrorContains(t, err, "a.yaml:6")
	_, err = f.NAD(t.Context(), "default", "n")
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	require.Empty(t, f.Pods())
	f.remove("a.yaml")
	_, err = f.Pod(t.Context(), core.Pod{Namespace: "default", Name: "p"})
	require.ErrorIs(t, err, core.ErrNotFound)
}

func TestUnreadableAndHugeFiles(t *testing.T) {
	f := newFolder(t, "a.yaml", podYAML("p", `a: "1"`))
	require.NoError(t, os.Remove(filepath.Join(f.dir, "a.yaml")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(f.dir, "a.yaml")))
	require.NoError(t, f.reload())
	f.problem("a.yaml", 0, "cannot be read")
	require.Len(t, f.Pods(), 1, "the last good version stays")

	require.NoError(t, os.Remove(filepath.Join(f.dir, "a.yaml")))
	big, err := os.Create(filepath.Join(f.dir, "b.yaml"))
	require.NoError(t, err)
	require.NoError(t, big.Truncate(folder.MaxFile))
	require.NoError(t, big.Close())
	require.NoError(t, f.reload())
	f.problem("b.yaml", 0, "limit")
}

func TestAliasBombAndDepthAreRefused(t *testing.T) {
	bomb := "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  a0: &a0 [1, 1]\n"
	for i := 1; i < 20; i++ {
		bomb += fmt.Sprintf("  a%d: &a%d [*a%d, *a%d]\n", i, i, i-1, i-1)
	}
	f := newFolder(t, "a.yaml", bomb)
	require.Len(t, f.Problems(), 1)
	require.Contains(t, f.Problems()[0].Reason, "more than")
	f.rewrite("a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: "+strings.Repeat("[", 100)+strings.Repeat("]", 100)+"\n")
	f.problem("a.yaml", 4, "nested deeper")
	f.rewrite("a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: &s [*s]\n")
	require.Len(t, f.Problems(), 1)
}
