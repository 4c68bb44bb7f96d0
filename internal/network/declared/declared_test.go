package declared

import (
	"context"
	"math"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
)

var mysql = core.Pod{Namespace: "bank", Name: "mysql-1"}

func number(n int) *int { return &n }

func podNetwork(name, set string, all ...v1alpha1.PodInterface) *v1alpha1.PodNetwork {
	p := &v1alpha1.PodNetwork{Spec: v1alpha1.PodNetworkSpec{StatefulSet: set, Interfaces: all}}
	p.Namespace, p.Name = "bank", name
	return p
}

func configMap(namespace, name, value string) ConfigMap {
	return ConfigMap{namespace, name, map[string]string{mysql.Name: value}}
}

// TestPrecedence: field by field the strongest object counts, what loses is told, and
// from where each value is.
func TestPrecedence(t *testing.T) {
	x := NewIndex(
		[]*v1alpha1.PodNetwork{
			podNetwork("mysql-1", "", v1alpha1.PodInterface{Name: "net1", Network: "bank/db", IPs: []string{"10.9.0.99/24"}}),
			podNetwork("mysql", "mysql", v1alpha1.PodInterface{Name: "net1", IPRange: "10.9.0.16-10.9.0.31", MACBase: "02:0a:09:00:01:ff", VLAN: &v1alpha1.VLAN{ID: 7}}),
			podNetwork("other", "", v1alpha1.PodInterface{Name: "net1", IPs: []string{"10.9.0.5"}}),
		},
		[]ConfigMap{
			configMap("bank", "db-net", `{"interface":"net1","vlan":1200,"min_tx_rate":1000,"max_tx_rate":5000,"trust":"on"}`),
			configMap("system", "all", "interfaces:\n- name: net1\n  sriov: {trust: false, spoofchk: false}\n- name: eth0\n  ips: [10.16.0.9]\n"),
			configMap("foreign", "x", `{"interface":"net1","mac":"02:00:00:00:00:01"}`),
		}, "system", nil)
	all, err := x.Of(t.Context(), mysql)
	require.NoError(t, err)
	got, err := Settle(all)
	require.NoError(t, err)
	require.Len(t, got, 2)
	net1 := got[0]
	require.Equal(t, map[string]string{
		Network: "bank/db", IPs: "[10.9.0.99/24]", MAC: "02:0a:09:00:02:00", VLAN: "7", MinMbps: "1000", MaxMbps: "5000", Trust: "true", SpoofChk: "false",
	}, net1.Fields())
	require.Equal(t, map[string]string{
		Network: "PodNetwork bank/mysql-1", IPs: "PodNetwork bank/mysql-1", MAC: "PodNetwork bank/mysql", VLAN: "PodNetwork bank/mysql",
		MinMbps: "ConfigMap bank/db-net, key mysql-1", MaxMbps: "ConfigMap bank/db-net, key mysql-1", Trust: "ConfigMap bank/db-net, key mysql-1",
		SpoofChk: "ConfigMap system/all, key mysql-1",
	}, net1.From)
	require.Equal(t, []Lost{
		{IPs, "[10.9.0.17]", "PodNetwork bank/mysql"}, {VLAN, "1200", "ConfigMap bank/db-net, key mysql-1"}, {Trust, "false", "ConfigMap system/all, key mysql-1"},
	}, net1.Lost)
	require.Equal(t, "eth0", got[1].Name)
	none, err := x.Of(t.Context(), core.Pod{Namespace: "other", Name: "mysql-1"})
	require.NoError(t, err)
	require.Len(t, none, 1, "the common namespace speaks of pods of all")
}

// TestOrdinals: the pods of a StatefulSet have an address and a MAC each, from its first
// ordinal on; behind the range's end there is none.
func TestOrdinals(t *testing.T) {
	p := podNetwork("db", "mysql", v1alpha1.PodInterface{Name: "net1", IPRange: "fd00::fe-fd00::101", MACBase: "02:00:00:ff:ff:fe"})
	for ordinal, want := range map[string][]string{"5": {"fd00::fe", "02:00:00:ff:ff:fe"}, "8": {"fd00::101", "02:00:00:00:00:01"}} {
		d, err := Of(p, core.Pod{Namespace: "bank", Name: "mysql-" + ordinal}, 5)
		require.NoError(t, err)
		require.Equal(t, want, []string{d.Interfaces[0].IPs[0], d.Interfaces[0].MAC})
	}
	long, err := Of(podNetwork("db", "mysql", v1alpha1.PodInterface{Name: "net1", IPRange: "10.9.0.254-10.9.1.9/16"}), core.Pod{Namespace: "bank", Name: "mysql-3"}, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"10.9.1.1/16"}, long.Interfaces[0].IPs)
	for _, ordinal := range []string{"4", "9"} {
		_, err := Of(p, core.Pod{Namespace: "bank", Name: "mysql-" + ordinal}, 5)
		require.Equal(t, core.ReasonOrdinalOutOfRange, core.ReasonOf(err))
		require.Equal(t, core.CodeAddress, core.CodeOf(err))
	}
	for _, name := range []string{"mysql", "mysql-", "mysql-x", "mysql-01", "mysql-1-1", "mymysql-1"} {
		d, err := Of(p, core.Pod{Namespace: "bank", Name: name}, 0)
		require.NoError(t, err)
		require.Nil(t, d, name)
	}
	require.Equal(t, "02:00:00:ff:ff:fe", p.Spec.Interfaces[0].MACBase, "the object is as it was")
}

// TestAmbiguous: two objects of one level that speak of one interface, and a short form
// that could mean several.
func TestAmbiguous(t *testing.T) {
	refused := func(first string, further []string, values ...string) error {
		var maps []ConfigMap
		for n, v := range values {
			maps = append(maps, configMap("bank", string(rune('a'+n)), v))
		}
		all, err := NewIndex(nil, maps, "", nil).Of(t.Context(), mysql)
		require.NoError(t, err)
		if err := Place(all, first, further); err != nil {
			return err
		}
		_, err = Settle(all)
		return err
	}
	const one, other = `{"ip":"10.9.0.18/24"}`, `{"interface":"net1","vlan":5}`
	require.NoError(t, refused("eth0", nil, one, other), "the former means eth0")
	for _, err := range []error{refused("eth0", []string{"net1"}, one, other), refused("eth0", []string{"net1", "net2"}, one), refused("net1", nil, other, other)} {
		require.Equal(t, core.ReasonAmbiguousDeclaration, core.ReasonOf(err), err)
		require.Equal(t, core.CodeConflict, core.CodeOf(err))
		require.ErrorContains(t, err, "ConfigMap bank/a, key mysql-1")
	}
}

// TestShortForm reads all keys of a ConfigMap's short form.
func TestShortForm(t *testing.T) {
	d, err := InConfigMap("bank", "db", map[string]string{mysql.Name: `
interface: net1
network: bank/db
ip: 10.9.0.18/24
ips: ["fd00::18"]
gateway: 10.9.0.1
mac: 02:0a:09:00:00:12
vlan: 1200
vlanQoS: 3
vlanProto: 802.1AD
min_tx_rate: 10
max_tx_rate: 0
spoofchk: "off"
trust: "on"
link_state: enable
`}, mysql, OfNamespace)
	require.NoError(t, err)
	off, on := false, true
	require.Equal(t, []Interface{{
		PodInterface: v1alpha1.PodInterface{
			Name: "net1", Network: "bank/db", IPs: []string{"fd00::18", "10.9.0.18/24"}, MAC: "02:0a:09:00:00:12",
			VLAN: &v1alpha1.VLAN{ID: 1200, QoS: 3, Proto: "802.1ad"}, Bandwidth: &v1alpha1.Bandwidth{MinMbps: number(10), MaxMbps: number(0)},
			SRIOV: &v1alpha1.SRIOV{SpoofChk: &off, Trust: &on, LinkState: "enable"},
		},
		Gateways: []string{"10.9.0.1"},
	}}, d.Interfaces)
}

// TestBadValues of ConfigMaps, which no API server checks, are named.
func TestBadValues(t *testing.T) {
	for value, want := range map[string]struct{ reason, text string }{
		`[`:                                 {"", "key mysql-1"},
		`"x"`:                               {"", "neither a PodNetwork's spec nor"},
		`{}`:                                {"", "neither a PodNetwork's spec nor"},
		`{"vlann":5}`:                       {"", `unknown field "vlann"`},
		"ip: 10.9.0.1\nip: 10.9.0.2":        {"", `key "ip" already set`},
		`{"ip":"10.9.0.300"}`:               {"", `ips "10.9.0.300"`},
		`{"ips":["10.9.0.1","10.9.0.2"]}`:   {"", "at most one of each family"},
		`{"gateway":"x"}`:                   {"", `gateway "x"`},
		`{"vlan":4095}`:                     {core.ReasonInvalidVLAN, "vlan id 4095"},
		`{"vlan":-1}`:                       {core.ReasonInvalidVLAN, "vlan id -1"},
		`{"vlanQoS":3}`:                     {core.ReasonInvalidVLAN, "needs an id"},
		`{"vlan":1,"vlanQoS":8}`:            {core.ReasonInvalidVLAN, "vlan qos 8"},
		`{"vlanProto":"802.1ad"}`:           {core.ReasonInvalidVLAN, "802.1ad needs an id"},
		`{"vlan":1,"vlanProto":"qinq"}`:     {core.ReasonInvalidVLAN, `"qinq"`},
		`{"mac":"01:00:00:00:00:01"}`:       {core.ReasonInvalidMAC, "multicast"},
		`{"mac":"00:00:00:00:00:00"}`:       {core.ReasonInvalidMAC, "all zero"},
		`{"min_tx_rate":5,"max_tx_rate":4}`: {core.ReasonRateInvalid, "minMbps 5 is more than maxMbps 4"},
		`{"max_tx_rate":-1}`:                {core.ReasonRateInvalid, "0 to"},
		`{"max_tx_rate":1000001}`:           {core.ReasonRateInvalid, "0 to"},
		`{"spoofchk":"yes"}`:                {"", `spoofchk "yes" is neither on nor off`},
		`{"link_state":"up"}`:               {"", `linkState "up"`},
		`{"interface":"a/b"}`:               {"", "must not contain"},
		`{"network":"A/b"}`:                 {"", `network "A/b"`},
		`{"retain":"Never"}`:                {"", `retain "Never"`},
		`{"retain":"Forever"}`:              {"", `retain Forever: no address or MAC is declared`},
		`{"ip":"10.9.0.3","retain":"UntilScaleDown"}`:                    {"", `retain UntilScaleDown is for the pods of a statefulSet`},
		`{"interfaces":[{"name":"net1","ipRange":"10.9.0.3-10.9.0.9"}]}`: {"", `ipRange and macBase are for the pods of a statefulSet`},
		`{"statefulSet":"mysql","interfaces":[{"name":"net1"}]}`:         {"", "statefulSet stands in PodNetworks only"},
		`{"interfaces":[{"name":"net1","vlan":{"id":5000}}]}`:            {core.ReasonInvalidVLAN, "vlan id 5000"},
	} {
		_, err := NewIndex(nil, []ConfigMap{configMap("bank", "db", value)}, "", nil).Of(t.Context(), mysql)
		require.ErrorContains(t, err, want.text, value)
		require.ErrorContains(t, err, "ConfigMap bank/db", value)
		require.Equal(t, core.CodeValue, core.CodeOf(err), value)
		require.Equal(t, want.reason, core.ReasonOf(err), value)
	}
}

// TestUnchecked: a PodNetwork that an API server without its rules has let pass is refused
// where its pod asks, in the words of the rules.
func TestUnchecked(t *testing.T) {
	x := NewIndex([]*v1alpha1.PodNetwork{podNetwork("mysql-1", "", v1alpha1.PodInterface{Name: "net1", VLAN: &v1alpha1.VLAN{ID: 5000}})}, nil, "", nil)
	_, err := x.Of(t.Context(), mysql)
	require.ErrorContains(t, err, "PodNetwork bank/mysql-1: InvalidVLAN: spec.interfaces[net1]: vlan id 5000")
	require.Equal(t, []any{core.CodeValue, core.ReasonInvalidVLAN}, []any{core.CodeOf(err), core.ReasonOf(err)})
}

// TestKept: declared addresses are kept for the pods that they are declared for.
func TestKept(t *testing.T) {
	x := NewIndex([]*v1alpha1.PodNetwork{
		podNetwork("mysql", "mysql", v1alpha1.PodInterface{Name: "net1", Network: "bank/db", IPRange: "10.9.0.16-10.9.0.31"}),
		podNetwork("one", "", v1alpha1.PodInterface{Name: "eth0", IPs: []string{"10.8.0.1/24", "fd00::1"}}),
	}, []ConfigMap{configMap("system", "all", `{"ip":"10.9.0.40"}`), configMap("bank", "bad", `{"ip":"10.9.0.400"}`)}, "system", nil)
	in := x.Within(core.Subnet{Name: "s", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("fd00::/64")}}, "bank/db")
	var got []string
	for _, k := range in {
		got = append(got, k.From.String()+" "+k.Source)
	}
	require.Equal(t, []string{"10.9.0.16 PodNetwork bank/mysql", "10.9.0.40 ConfigMap system/all, key mysql-1", "fd00::1 PodNetwork bank/one"}, got)
	require.True(t, in[0].For(mysql))
	require.False(t, in[0].For(core.Pod{Namespace: "other", Name: "mysql-1"}))
	require.True(t, in[1].For(core.Pod{Namespace: "other", Name: "mysql-1"}))
	require.True(t, in[2].For(core.Pod{Namespace: "bank", Name: "one"}))
	require.False(t, in[2].For(mysql))
}

// TestSays: what is declared of a pod is said of it; what is retained until its StatefulSet is
// scaled down below it, as long as that has not happened or is not known.
func TestSays(t *testing.T) {
	start, replicas, fault, questions := 2, 3, error(nil), 0
	says := func(pod, ip, retain string) bool {
		x := NewIndex([]*v1alpha1.PodNetwork{
			podNetwork("mysql", "mysql", v1alpha1.PodInterface{Name: "net1", IPRange: "10.9.0.16-10.9.0.31", Retain: retain}),
		}, nil, "", func(context.Context, string, string) (int, int, error) { questions++; return start, replicas, fault })
		return x.Says(t.Context(), core.Pod{Namespace: "bank", Name: pod}, core.Claim{Domain: "db", Addr: netip.MustParseAddr(ip)})
	}
	require.True(t, says("mysql-4", "10.9.0.18", v1alpha1.RetainUntilScaleDown))
	require.False(t, says("mysql-5", "10.9.0.19", v1alpha1.RetainUntilScaleDown))
	require.Equal(t, 2, questions, "one each")
	require.True(t, says("mysql-5", "10.9.0.19", v1alpha1.RetainWhileDeclared))
	require.True(t, says("mysql-5", "10.9.0.19", ""))
	require.False(t, says("mysql-5", "10.9.0.18", ""))
	replicas = math.MaxInt32
	require.True(t, says("mysql-5", "10.9.0.19", v1alpha1.RetainUntilScaleDown))
	start, replicas = 0, 0 // it is gone
	require.False(t, says("mysql-0", "10.9.0.16", v1alpha1.RetainUntilScaleDown))
	fault = core.ErrUnavailable
	require.True(t, says("mysql-0", "10.9.0.16", v1alpha1.RetainUntilScaleDown))
}
