package resolve

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// lending is a world with a Subnet for macvlan's networks.
func lending() *world {
	w := standard()
	w.subnets = append(w.subnets, pool("lan", "lan.default", "10.60.0.0/24"))
	w.nad("default/lan", `{"cniVersion":"1.0.0","type":"macvlan","master":"eth1",
		"ipam":{"type":"kube-ovn","provider":"lan.default","routes":[{"dst":"10.99.0.0/16"}]}}`)
	w.nad("default/shared", `{"cniVersion":"1.0.0","type":"macvlan","ipam":{"type":"fairlead"}}`)
	return w
}

// loan is what a plugin with conf gets that asks for interface ifName.
func loan(t *testing.T, w *world, ifName, conf string, args map[string]string) (*core.NIC, error) {
	t.Helper()
	req := request()
	var err error
	req.Conf, err = cniconf.Parse([]byte(conf))
	require.NoError(t, err)
	req.Key.IfName, req.Args = ifName, args
	return Addresses(t.Context(), w, Input{Request: req})
}

const (
	lanConf = `{"cniVersion":"1.0.0","name":"lan","type":"macvlan","ipam":{"type":"kube-ovn","provider":"lan.default"}}`
	anyConf = `{"cniVersion":"1.0.0","name":"any","type":"macvlan","ipam":{"type":"fairlead"}}`
)

func addr(s string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(s)} }

// TestAddressesOfAProvider: Subnet and fixed address are those of ipam.provider,
// and for one interface of a network attached twice its own.
func TestAddressesOfAProvider(t *testing.T) {
	w := lending()
	w.note("ovn.kubernetes.io/ip_address", "10.16.0.9", "lan.default.kubernetes.io/ip_address", "10.60.0.9",
		"lan.default.net2.kubernetes.io/ip_address", "10.60.0.8")
	nic, err := loan(t, w, "net1", lanConf, nil)
	require.NoError(t, err)
	require.Equal(t, "lan", nic.Subnet.Name)
	require.Equal(t, addr("10.60.0.9"), nic.IPs)
	require.False(t, nic.DefaultRoute)
	nic, err = loan(t, w, "net2", lanConf, nil)
	require.NoError(t, err)
	require.Equal(t, addr("10.60.0.8"), nic.IPs)
	_, err = loan(t, w, "net1", lanConf, map[string]string{"IP": "10.60.0.7"})
	require.Equal(t, core.CodeConflict, core.CodeOf(err))
}

// TestAddressesWithoutProvider: eth0 is the pod's default interface with all
// that its annotations say; another interface shares only the Subnet with it.
func TestAddressesWithoutProvider(t *testing.T) {
	w := lending()
	w.note("ovn.kubernetes.io/ip_address", "10.16.0.9", "ovn.net1.kubernetes.io/ip_address", "10.16.0.8")
	eth0, err := loan(t, w, "eth0", anyConf, nil)
	require.NoError(t, err)
	require.Equal(t, "ovn-default", eth0.Subnet.Name)
	require.Equal(t, addr("10.16.0.9"), eth0.IPs)
	require.True(t, eth0.DefaultRoute)
	net1, err := loan(t, w, "net1", anyConf, nil)
	require.NoError(t, err)
	require.Equal(t, "ovn-default", net1.Subnet.Name)
	require.Equal(t, addr("10.16.0.8"), net1.IPs)
	require.False(t, net1.DefaultRoute)
	net2, err := loan(t, w, "net2", anyConf, map[string]string{"IP": "10.16.0.7"})
	require.NoError(t, err)
	require.Equal(t, addr("10.16.0.7"), net2.IPs)
}

// TestAddressesAreProvenBefore: what IPAM would refuse a delegate, the pod is
// refused before anything runs; `ips` reach it by CNI_ARGS without a capability.
func TestAddressesAreProvenBefore(t *testing.T) {
	w := lending()
	w.note(networks, `[{"name":"lan","ips":["10.60.0.9"]}]`)
	x := resolved(t, w, nil)[1].Steps[0].Exec
	require.Contains(t, x.Args, "IP=10.60.0.9")
	w.note(networks, `[{"name":"lan","ips":["10.61.0.9"]}]`)
	_, err := Resolve(t.Context(), w, Input{Request: request()})
	require.Equal(t, core.CodeAddress, core.CodeOf(err))
	require.ErrorContains(t, err, "10.61.0.9")
	w.note(networks, `[{"name":"shared","ips":["10.16.0.9"]},{"name":"shared"}]`)
	require.Len(t, resolved(t, w, nil), 3)
}

// TestAddressesOfHostLocal: host-local, which reads one address in CNI_ARGS, hears of several by
// capability, or by args.cni where its plugin has none.
func TestAddressesOfHostLocal(t *testing.T) {
	const nad = `{"cniVersion":"1.0.0","type":"macvlan",%s"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]]}}`
	w := standard()
	w.nad("default/local", fmt.Sprintf(nad, ""))
	w.note(networks, `[{"name":"local","ips":["10.1.0.5","fd00::5"],"cni-args":{"ips":["10.1.0.6"]}}]`)
	x := resolved(t, w, nil)[1].Steps[0].Exec
	require.Contains(t, string(x.Conf), `"ips":["10.1.0.5","10.1.0.6","fd00::5"]`, "host-local says that these are too many")
	for capabilities, ips := range map[string]string{"": `["10.1.0.5","fd00::5"]`, `"capabilities":{"ips":true},`: `["10.1.0.5"]`, `"capabilities":{"ips":true}, `: `["10.1.0.5","fd00::5"]`} {
		w := standard()
		w.nad("default/local", fmt.Sprintf(nad, capabilities))
		w.note(networks, `[{"name":"local","ips":`+ips+`}]`)
		x := resolved(t, w, nil)[1].Steps[0].Exec
		conf, _, err := allocator.LoadIPAMConfig(x.Conf, x.Args)
		require.NoError(t, err, "%s %s", x.Conf, x.Args)
		have, err := json.Marshal(slices.CompactFunc(conf.IPArgs, net.IP.Equal)) // by two ways
		require.NoError(t, err)
		require.JSONEq(t, ips, string(have), "%s %s", x.Conf, x.Args)
	}
}
