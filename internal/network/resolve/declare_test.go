package resolve

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
)

// said is a Declarer of ConfigMaps of pod default/p, or of nothing yet.
type said []string

func (s said) Declared(context.Context) (*declared.Index, error) {
	if s == nil {
		return nil, core.ErrUnavailable
	}
	var maps []declared.ConfigMap
	for n, text := range s {
		pod := "p"
		if n > 0 {
			pod = fmt.Sprintf("q%d", n)
		}
		maps = append(maps, declared.ConfigMap{Namespace: "default", Name: fmt.Sprintf("m%d", n), Data: map[string]string{pod: text}})
	}
	return declared.NewIndex(nil, maps, "", nil), nil
}

func (w *world) declaring(t *testing.T, all ...string) ([]core.Want, error) {
	t.Helper()
	return Resolve(t.Context(), w, Input{Request: request(), Declared: said(all)})
}

// TestDeclared: what is declared of a pod by its name is what its NICs get, though the
// pod asks for nothing of it; a network that only the declaration names is added.
func TestDeclared(t *testing.T) {
	w := standard()
	wants, err := w.declaring(t, `
interfaces:
- {name: eth0, network: backend, ips: [10.100.0.7], mac: "02:00:00:00:00:07", vlan: {id: 5}, bandwidth: {maxMbps: 100}}
- {name: net1, network: default/second, ips: [10.20.0.9/24]}
- {name: net7, network: default/foreign, ips: [10.30.0.9/24], mac: "02:00:00:00:00:09"}
`)
	require.NoError(t, err)
	require.Len(t, wants, 3)
	eth0 := wants[0].Steps[0].NIC
	require.Equal(t, "backend", eth0.Subnet.Name)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("10.100.0.7")}, eth0.IPs)
	require.Equal(t, "02:00:00:00:00:07", eth0.MAC.String())
	require.Equal(t, 5, eth0.VLAN)
	require.Equal(t, core.QoS{IngressMbps: 100, EgressMbps: 100}, eth0.QoS)
	require.Equal(t, []string{"net1", "net7"}, []string{wants[1].IfName, wants[2].IfName})
	require.Equal(t, []netip.Addr{netip.MustParseAddr("10.20.0.9")}, wants[1].Steps[0].NIC.IPs)
	require.Empty(t, wants[1].Request, "the annotation has no say in it")
	require.Contains(t, string(wants[2].Steps[0].Exec.Conf), `"ipam":{"addresses":[{"address":"10.30.0.9/24"}],"type":"static"}`)
	require.Contains(t, string(wants[2].Steps[0].Exec.Conf), `"runtimeConfig":{"mac":"02:00:00:00:00:09"}`)
	require.Contains(t, wants[2].Args, "MAC=02:00:00:00:00:09")

	t.Run("the short form means the only further network, else eth0", func(t *testing.T) {
		w := standard()
		wants, err := w.declaring(t, `{"ip":"10.16.0.77/16","gateway":"10.16.0.1","vlan":12}`)
		require.NoError(t, err)
		require.Equal(t, []any{"10.16.0.77", 12}, []any{wants[0].Steps[0].NIC.IPs[0].String(), wants[0].Steps[0].NIC.VLAN})
		w.note("k8s.v1.cni.cncf.io/networks", "second")
		wants, err = w.declaring(t, `{"ip":"10.20.0.77","max_tx_rate":8}`)
		require.NoError(t, err)
		require.Empty(t, wants[0].Steps[0].NIC.IPs)
		require.Equal(t, []any{"net1", "10.20.0.77", 8}, []any{wants[1].IfName, wants[1].Steps[0].NIC.IPs[0].String(), wants[1].Steps[0].NIC.QoS.EgressMbps})
	})
	t.Run("a network without a name has the declared one", func(t *testing.T) {
		w := standard()
		w.note("k8s.v1.cni.cncf.io/networks", "plain,second")
		wants, err := w.declaring(t, `interfaces: [{name: net1, network: default/second, ips: [10.20.0.9]}, {name: net2, network: other/shared}]`)
		require.NoError(t, err)
		require.Equal(t, []string{"eth0", "net3 default/plain", "net1 default/second", "net2 other/shared"},
			[]string{wants[0].IfName, wants[1].IfName + " " + wants[1].Network, wants[2].IfName + " " + wants[2].Network, wants[3].IfName + " " + wants[3].Network})
	})
	t.Run("cni-args that say the same do not come before it", func(t *testing.T) {
		w := standard()
		w.nad("default/fixed", `{"cniVersion":"1.0.0","type":"bridge","ipam":{"type":"static"}}`)
		w.note("k8s.v1.cni.cncf.io/networks", `[{"name":"fixed","cni-args":{"ips":["10.20.0.9/8"],"mac":"02-00-00-00-00-0A","x":1}}]`)
		wants, err := w.declaring(t, `interfaces: [{name: net1, ips: [10.20.0.9/24], mac: "02:00:00:00:00:0a"}]`)
		require.NoError(t, err)
		require.Contains(t, string(wants[1].Steps[0].Exec.Conf), `"args":{"cni":{"x":1}}`)
		require.Contains(t, wants[1].Args, ";MAC=02:00:00:00:00:0a;IP=10.20.0.9/24")
	})
	t.Run("a networks annotation that says the same", func(t *testing.T) {
		w := standard()
		w.note("k8s.v1.cni.cncf.io/networks", `[{"name":"second","interface":"net1","ips":["10.20.0.9"],"mac":"02-00-00-00-00-0A"}]`, "ovn.kubernetes.io/vlan_id", "3")
		wants, err := w.declaring(t, `interfaces: [{name: net1, network: default/second, ips: [10.20.0.9/24], mac: "02:00:00:00:00:0a"}, {name: eth0, vlan: {id: 3}}]`)
		require.NoError(t, err)
		require.Len(t, wants, 2)
	})
}

// TestDeclaredOfAVF: what is declared stands in the configuration of an SR-IOV plugin, under
// its own keys, and comes before what the network says; so do addresses where the
// network has nobody who gives any.
func TestDeclaredOfAVF(t *testing.T) {
	w := standard()
	w.nad("default/vf", `{"cniVersion":"1.0.0","type":"sriov","deviceID":"0000:01:10.0","vlan":7,"trust":"on"}`)
	w.nad("default/pool", `{"cniVersion":"1.0.0","type":"sriov","ipam":{"type":"host-local"}}`)
	wants, err := w.declaring(t, `{"interface":"net1","network":"default/vf","ip":"10.9.0.18/24,fd00::18/64","gateway":"10.9.0.1","mac":"02:0A:09:00:00:12","vlan":1200,"vlanQoS":3,"min_tx_rate":0,"max_tx_rate":5000,"spoofchk":"off","link_state":"auto"}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"cniVersion":"1.0.0","name":"vf","type":"sriov","deviceID":"0000:01:10.0","trust":"on",
		"vlan":1200,"vlanQoS":3,"vlanProto":"802.1q","mac":"02:0A:09:00:00:12","min_tx_rate":0,"max_tx_rate":5000,"spoofchk":"off","link_state":"auto",
		"ipam":{"type":"static","addresses":[{"address":"10.9.0.18/24","gateway":"10.9.0.1"},{"address":"fd00::18/64"}]}}`, string(wants[1].Steps[0].Exec.Conf))
	require.Contains(t, w.nads["default/vf"].Config, `"vlan":7`, "the network itself is as it was")

	for text, want := range map[string]struct {
		code         uint
		reason, says string
	}{
		`{"interface":"net1","network":"default/vf","ip":"10.9.0.18"}`:                                  {103, core.ReasonAddressOutsideSubnet, "without a prefix length"},
		`{"interfaces":[{"name":"net1","network":"default/vf","sriov":{"pf":["ens1f0"]}}]}`:             {102, core.ReasonDriverCannot, "sriov.pf"},
		`{"interfaces":[{"name":"net1","network":"default/pool","ips":["10.9.0.18"],"vlan":{"id":5}}]}`: {0, "", ""},
		`{"interfaces":[{"name":"net1","network":"default/pool","mac":"02:00:00:00:00:09"}]}`:           {0, "", ""},
	} {
		_, err := w.declaring(t, text)
		if want.code == 0 {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, want.says, text)
		require.Equal(t, []any{want.code, want.reason}, []any{core.CodeOf(err), core.ReasonOf(err)}, text)
	}
	w.note("k8s.v1.cni.cncf.io/networks", `[{"name":"vf","mac":"02:00:00:00:00:08"}]`)
	_, err = w.declaring(t, `{"mac":"02:00:00:00:00:09"}`)
	require.Equal(t, core.ReasonAnnotationConflict, core.ReasonOf(err), "%v", err)
}

// TestDeclaredPF: a device of another physical function than those that are declared is
// none for the pod, and neither is one that has none.
func TestDeclaredPF(t *testing.T) {
	w := standard()
	w.nad("default/vf", `{"cniVersion":"1.0.0","type":"sriov","deviceID":"0000:01:10.0"}`)
	for pf, want := range map[string]struct{ reason, says string }{
		"ens1f0": {"", ""},
		"ens2f0": {core.ReasonNoVFMatches, "declares sriov.pf [ens1f0 ens1f1] of interface net1, and the pod's device 0000:01:10.0 is of ens2f0"},
		"":       {core.ReasonNoVFMatches, "is no virtual function"},
	} {
		pfOf := func(device string) (string, error) {
			require.Equal(t, "0000:01:10.0", device)
			if pf == "" {
				return "", fmt.Errorf("%w: is no virtual function", core.ErrNotFound)
			}
			return pf, nil
		}
		said := said{`{"interfaces":[{"name":"net1","network":"default/vf","sriov":{"pf":["ens1f0","ens1f1"]}}]}`}
		_, err := Resolve(t.Context(), w, Input{Request: request(), Declared: said, PFOf: pfOf})
		require.Equal(t, want.reason, core.ReasonOf(err), "%v", err)
		if want.reason != "" {
			require.ErrorContains(t, err, want.says)
			require.Equal(t, core.CodeDevice, core.CodeOf(err))
		}
	}
}

// TestDeclaredOfARunningPod: a network that comes to a running pod has what is declared
// of its interface.
func TestDeclaredOfARunningPod(t *testing.T) {
	w := standard()
	w.note("k8s.v1.cni.cncf.io/networks", "second")
	in := Input{Request: request(), Declared: said{`{"interface":"net1","ip":"10.20.0.9"}`}}
	c, err := Replug(t.Context(), w, in, nil, []Present{{IfName: "eth0"}})
	require.NoError(t, err)
	require.NoError(t, c.Come[0].Err)
	require.Equal(t, "10.20.0.9", c.Come[0].Want.Steps[0].NIC.IPs[0].String())
}

// TestDeclaredAndRefused: what cannot be, or contradicts, is refused with its reason and
// the object's name; nothing is dropped in silence.
func TestDeclaredAndRefused(t *testing.T) {
	const networks, vlan, ip = "k8s.v1.cni.cncf.io/networks", "ovn.kubernetes.io/vlan_id", "ovn.kubernetes.io/ip_address"
	for _, c := range []struct {
		note, value, text string
		code              uint
		reason, says      string
	}{
		{"", "", `{"interface":"net1","ip":"10.20.0.9"}`, 105, core.ReasonAmbiguousDeclaration, "the pod has no interface net1"},
		{"", "", `{"interface":"net1","network":"backend"}`, 105, core.ReasonAmbiguousDeclaration, "the pod has no interface net1"},
		{"", "", `{"interface":"net1","network":"default/nobody"}`, 7, "", "default/nobody does not exist"},
		{"", "", `{"network":"nobody"}`, 7, "", "network nobody is no Subnet"},
		{networks, "plain,second", `{"ip":"10.20.0.9"}`, 105, core.ReasonAmbiguousDeclaration, "several further networks"},
		{networks, "plain@net1", `{"interface":"net1","network":"default/second"}`, 105, core.ReasonAnnotationConflict, "default/plain"},
		{networks, `[{"name":"second","ips":["10.20.0.8"]}]`, `{"ip":"10.20.0.9"}`, 105, core.ReasonAnnotationConflict, "10.20.0.8"},
		{networks, `[{"name":"second","mac":"02:00:00:00:00:08"}]`, `{"mac":"02:00:00:00:00:09"}`, 105, core.ReasonAnnotationConflict, "02:00:00:00:00:08"},
		{networks, `[{"name":"plain","cni-args":{"ips":["10.20.0.8/24"]}}]`, `{"ip":"10.20.0.9/24"}`, 105, core.ReasonAnnotationConflict, "networks[0].cni-args.ips asks for [10.20.0.8/24]"},
		{networks, `[{"name":"fixed","cni-args":{"ips":["10.20.0.8/24"]}}]`, `{"ip":"10.20.0.9/24"}`, 105, core.ReasonAnnotationConflict, "networks[0].cni-args.ips asks for [10.20.0.8/24]"},
		{networks, `[{"name":"main","namespace":"kube-system","cni-args":{"mac":"02:00:00:00:00:08"}}]`, `{"mac":"02:00:00:00:00:09"}`, 105, core.ReasonAnnotationConflict, "networks[0].cni-args.mac asks for 02:00:00:00:00:08"},
		{networks, `[{"name":"vf","cni-args":{"mac":"02:00:00:00:00:08"}}]`, `{"mac":"02:00:00:00:00:09"}`, 105, core.ReasonAnnotationConflict, "networks[0].cni-args.mac asks for 02:00:00:00:00:08"},
		{ip, "10.16.0.8", `{"ip":"10.16.0.9"}`, 105, core.ReasonAnnotationConflict, "10.16.0.8"},
		{vlan, "7", `{"vlan":8}`, 105, core.ReasonAnnotationConflict, "asks for 7"},
		{"ovn.kubernetes.io/egress_rate", "7", `{"max_tx_rate":8}`, 105, core.ReasonAnnotationConflict, "egress 7"},
		{"ovn.kubernetes.io/logical_switch", "nsnet", `{"network":"backend"}`, 105, core.ReasonAnnotationConflict, "nsnet"},
		{"", "", `{"ip":"10.16.0.9/24"}`, 103, core.ReasonAddressOutsideSubnet, "prefix length"},
		{"", "", `{"ip":"10.99.0.9"}`, 103, core.ReasonAddressOutsideSubnet, "10.99.0.9"},
		{"", "", `{"ip":"10.16.0.1"}`, 103, core.ReasonAddressOutsideSubnet, "10.16.0.1"},
		{"", "", `{"gateway":"10.16.0.5"}`, 103, core.ReasonAddressOutsideSubnet, "has [10.16.0.1 fd00:10:16::1]"},
		{networks, "kube-system/main", `{"ip":"10.20.0.9/24"}`, 102, core.ReasonDriverCannot, "no plugin of network kube-system/main can set it"},
		{networks, "plain", `{"ip":"10.20.0.9"}`, 103, core.ReasonAddressOutsideSubnet, "without a prefix length"},
		{networks, "foreign", `{"vlan":9,"vlanQoS":1}`, 102, core.ReasonDriverCannot, "macvlan: it has VLANs of 802.1q without a priority"},
		{networks, "foreign", `{"max_tx_rate":9}`, 102, core.ReasonDriverCannot, "maxMbps of interface net1, and no plugin of network default/foreign can set it: macvlan: packets between pods"},
		{networks, "foreign", `{"min_tx_rate":9}`, 102, core.ReasonDriverCannot, "minMbps"},
		{networks, "foreign", `{"trust":"on"}`, 102, core.ReasonDriverCannot, "sriov.trust"},
		{networks, "foreign", `{"gateway":"10.0.0.1"}`, 102, core.ReasonDriverCannot, "gateway"},
		{networks, "foreign", `{"network":"backend"}`, 102, core.ReasonDriverCannot, "network"},
		{"", "", `{"vlan":4095}`, 102, core.ReasonInvalidVLAN, "4095"},
	} {
		w := standard()
		w.nad("default/fixed", `{"cniVersion":"1.0.0","type":"bridge","ipam":{"type":"static"}}`)
		w.nad("default/vf", `{"cniVersion":"1.0.0","plugins":[{"type":"sriov","deviceID":"0000:01:10.0"},{"type":"tuning"}]}`)
		if c.note != "" {
			w.note(c.note, c.value)
		}
		_, err := w.declaring(t, c.text)
		require.ErrorContains(t, err, c.says, c)
		require.ErrorContains(t, err, "ConfigMap default/m0, key p", c)
		require.Equal(t, c.code, core.CodeOf(err), c)
		require.Equal(t, c.reason, core.ReasonOf(err), c)
	}
	_, err := Resolve(t.Context(), standard(), Input{Request: request(), Declared: said(nil)})
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err), "nobody may get an address while it is not known what is declared: %v", err)
}

// TestKeptForOthers: an address that is declared for another pod is not given, and a pod
// that asks for it is told whose it is, in the networks that the declaration means.
func TestKeptForOthers(t *testing.T) {
	others := []string{`{"interface":"eth0","vlan":0}`, `{"ip":"10.16.0.9"}`, `{"network":"nsnet","ip":"10.16.0.10"}`}
	w := standard()
	wants, err := w.declaring(t, others...)
	require.NoError(t, err)
	a := netip.MustParseAddr("10.16.0.9")
	require.Equal(t, []core.AddrRange{{From: a, To: a}}, wants[0].Steps[0].NIC.Subnet.Exclude)
	require.Empty(t, w.subnets[2].Exclude, "the source's own is as it was")

	w.note("ovn.kubernetes.io/ip_address", "10.16.0.9")
	_, err = w.declaring(t, others...)
	require.ErrorContains(t, err, "ConfigMap default/m1, key q1")
	require.Equal(t, []any{core.CodeTryAgain, core.ReasonAddressHeld}, []any{core.CodeOf(err), core.ReasonOf(err)})
	w.note("ovn.kubernetes.io/ip_address", "10.16.0.10")
	_, err = w.declaring(t, others...)
	require.NoError(t, err, "it is declared of another network")

	w.note("ovn.kubernetes.io/ip_address", "", "ovn.kubernetes.io/ip_pool", "10.16.0.9;10.16.0.20")
	wants, err = w.declaring(t, others...)
	require.NoError(t, err)
	require.Equal(t, [][]netip.Addr{{netip.MustParseAddr("10.16.0.20")}}, wants[0].Steps[0].NIC.Pool)
	w.note("ovn.kubernetes.io/ip_pool", "10.16.0.9")
	_, err = w.declaring(t, others...)
	require.Equal(t, core.ReasonAddressHeld, core.ReasonOf(err), "it is given none that is not of its list: %v", err)

	// What is declared of one interface of a pod is not given to another one of it; and of
	// all pods the Subnet is the same, so that it is not laid out anew for each.
	w = standard()
	mine := `{"interface":"eth0","ip":"10.16.0.9"}`
	wants, err = w.declaring(t, mine)
	require.NoError(t, err)
	require.Equal(t, []core.AddrRange{{From: a, To: a}}, wants[0].Steps[0].NIC.Subnet.Exclude)
	require.Equal(t, []netip.Addr{a}, wants[0].Steps[0].NIC.IPs)
}

// TestKeptWithoutSubnet: in a network without Subnet a pod that asks for an address which is
// declared for another is told whose it is, by whichever key it asks, whatever else is declared
// of the pod, and also where the declaration names no network, or another NAD of the domain.
func TestKeptWithoutSubnet(t *testing.T) {
	const (
		nothing, vlan = `{"interface":"eth0","vlan":0}`, `{"interface":"net1","vlan":1300}`
		ips, args     = `"ips":["10.7.0.16/24"]`, `"cni-args":{"ips":["10.7.0.16/24"]}`
		fixed         = `{"network":"default/fixed","ip":"10.7.0.16/24"}`
	)
	for _, c := range []struct {
		asks, mine, theirs string
		held               bool
	}{
		{ips, nothing, fixed, true},
		{args, nothing, fixed, true},
		{`"cni-args":{"ips":["10.7.0.17/24"]}`, nothing, fixed, false},
		{ips, nothing, `{"ip":"10.7.0.16/24"}`, true},
		{ips, vlan, fixed, true},
		{ips, `{"interface":"net1","ip":"10.7.0.16/24"}`, fixed, false},
		{ips, nothing, `{"network":"default/fixed2","ip":"10.7.0.16/24"}`, true},
		{ips, nothing, `{"network":"default/fixed2","ip":"10.7.0.16/24","vlan":1300}`, false},
		{ips, vlan, `{"network":"default/fixed2","ip":"10.7.0.16/24","vlan":1300}`, true},
		{ips, vlan, `{"network":"default/fixed2","ip":"10.7.0.16/24"}`, false},
		{ips, nothing, `{"network":"default/plain","ip":"10.7.0.16/24"}`, false},
		{ips, nothing, `{"network":"default/borrowed","ip":"10.7.0.16/24"}`, false},
		{ips, nothing, `{"network":"default/nobody","ip":"10.7.0.16/24"}`, false},
		{ips, nothing, `{"network":"backend","ip":"10.7.0.16/24"}`, false},
		{ips, nothing, `{"network":"default/junk","ip":"10.7.0.16/24"}`, true}, // nobody can say where it leads
	} {
		w := standard()
		for _, name := range []string{"default/fixed", "default/fixed2"} {
			w.nad(name, `{"cniVersion":"1.0.0","type":"macvlan","ipam":{"type":"static"}}`)
			w.nads[name].Annotations = map[string]string{v1alpha1.AnnL2Domain: "racks"}
		}
		w.note("k8s.v1.cni.cncf.io/networks", `[{"name":"fixed",`+c.asks+`}]`)
		_, err := w.declaring(t, c.mine, c.theirs)
		if !c.held {
			require.NoError(t, err, c)
			continue
		}
		require.ErrorContains(t, err, "is kept for another pod: ConfigMap default/m1, key q1 declares it", c)
		require.Equal(t, []any{core.CodeTryAgain, core.ReasonAddressHeld}, []any{core.CodeOf(err), core.ReasonOf(err)}, c)
	}
}

// TestDeclaredOfEachPlugin: what is declared comes into the configuration of the network's
// first plugin, under its own keys or ours, or is refused with the reason; none is left out.
func TestDeclaredOfEachPlugin(t *testing.T) {
	const (
		static  = `"ipam":{"type":"static","addresses":[{"address":"10.9.0.18/24","gateway":"10.9.0.1"}]}`
		ranges  = `"ipam":{"type":"host-local","subnet":"10.9.0.0/24","rangeStart":"10.9.0.100","rangeEnd":"10.9.0.110","routes":[{"dst":"0.0.0.0/0"}]}`
		address = `"interface":"net1","network":"default/net","ip":"10.9.0.18/24"`
	)
	for _, c := range []struct{ conf, said, want, reason string }{
		{`"type":"macvlan"`, address + `,"gateway":"10.9.0.1","vlan":7`, `"type":"macvlan",` + static + `,"net.fairlead.io/settings":{"vlan":7}`, ""},
		{`"type":"ipvlan"`, address + `,"gateway":"10.9.0.1","vlan":7`, `"type":"ipvlan",` + static + `,"net.fairlead.io/settings":{"vlan":7}`, ""},
		{`"type":"vlan","vlanId":3`, address + `,"gateway":"10.9.0.1","vlan":7,"mac":"02:0A:09:00:00:12"`, `"type":"vlan","vlanId":7,` + static + `,"net.fairlead.io/settings":{"mac":"02:0a:09:00:00:12"}`, ""},
		{`"type":"host-device","device":"d0"`, address + `,"gateway":"10.9.0.1","mac":"02:0a:09:00:00:12"`, `"type":"host-device","device":"d0",` + static + `,"net.fairlead.io/settings":{"mac":"02:0a:09:00:00:12"}`, ""},
		{`"type":"macvlan"`, `"interface":"net1","network":"default/net","vlan":0`, `"type":"macvlan"`, ""},

		// In the place of the network's range.
		{`"type":"ipvlan",` + ranges, address, `"type":"ipvlan","ipam":{"type":"host-local","ranges":[[{"subnet":"10.9.0.0/24","rangeStart":"10.9.0.18","rangeEnd":"10.9.0.18"}]],"routes":[{"dst":"0.0.0.0/0"}]}`, ""},
		{`"type":"bridge","ipam":{"type":"host-local","ranges":[[{"subnet":"fd00::/64"}],[{"subnet":"10.9.0.0/24","gateway":"10.9.0.9"}]]}`, address,
			`"type":"bridge","ipam":{"type":"host-local","ranges":[[{"subnet":"fd00::/64"}],[{"subnet":"10.9.0.0/24","rangeStart":"10.9.0.18","rangeEnd":"10.9.0.18","gateway":"10.9.0.9"}]]}`, ""},
		{`"type":"macvlan",` + ranges, address + `,"gateway":"10.9.0.7"`, `"type":"macvlan","ipam":{"type":"host-local","ranges":[[{"subnet":"10.9.0.0/24","rangeStart":"10.9.0.18","rangeEnd":"10.9.0.18","gateway":"10.9.0.7"}]],"routes":[{"dst":"0.0.0.0/0"}]}`, ""},
		{`"type":"ipvlan",` + ranges, `"interface":"net1","network":"default/net","ip":"10.9.1.18"`, "", core.ReasonAddressOutsideSubnet},
		{`"type":"ipvlan",` + ranges, `"interface":"net1","network":"default/net","ip":"10.9.0.18/16"`, "", core.ReasonAddressOutsideSubnet},
		{`"type":"ipvlan",` + ranges, `"interface":"net1","network":"default/net","ip":"10.9.0.1"`, "", core.ReasonAddressOutsideSubnet},
		{`"type":"ipvlan",` + ranges, `"interface":"net1","network":"default/net","ip":"10.9.0.255"`, "", core.ReasonAddressOutsideSubnet},
		{`"type":"ipvlan",` + ranges, address + `,"mac":"02:0a:09:00:00:12"`, "", core.ReasonDriverCannot},
		{`"type":"ipvlan","capabilities":{"mac":true}`, `"interface":"net1","network":"default/net","mac":"02:0a:09:00:00:12"`, "", core.ReasonDriverCannot},
		{`"type":"ipvlan"`, `"interface":"net1","network":"default/net","max_tx_rate":9`, "", core.ReasonDriverCannot},
		{`"type":"macvlan"`, `"interface":"net1","network":"default/net","vlan":7,"vlanProto":"802.1ad"`, "", core.ReasonDriverCannot},
		{`"type":"vlan","vlanId":3`, `"interface":"net1","network":"default/net","vlan":0`, "", core.ReasonDriverCannot},
		{`"type":"vlan","vlanId":3`, `"interface":"net1","network":"default/net","max_tx_rate":9`, "", core.ReasonDriverCannot},
		{`"type":"host-device","device":"d0"`, `"interface":"net1","network":"default/net","vlan":7`, "", core.ReasonDriverCannot},
		{`"type":"host-device","device":"d0"`, `"interface":"net1","network":"default/net","max_tx_rate":9`, "", core.ReasonDriverCannot},
		{`"type":"bridge"`, `"interface":"net1","network":"default/net","vlan":7`, "", core.ReasonDriverCannot},
	} {
		w := standard()
		w.nad("default/net", `{"cniVersion":"1.0.0",`+c.conf+`}`)
		wants, err := w.declaring(t, `{`+c.said+`}`)
		if c.reason != "" {
			require.Equal(t, c.reason, core.ReasonOf(err), "%s: %v", c, err)
			continue
		}
		require.NoError(t, err, c)
		require.JSONEq(t, `{"cniVersion":"1.0.0","name":"net",`+c.want+`}`, string(wants[1].Steps[0].Exec.Conf), c)
	}
}
