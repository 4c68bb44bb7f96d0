package chassis_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/chassis"
	"github.com/fairlead/fairlead/internal/gateway/encap"
)

// TestIDs: what no flag is about is left alone, and the name of a chassis is the
// node's where the database knows it by a certificate.
func TestIDs(t *testing.T) {
	f := chassis.Facts{Node: "node-1", Bridge: "br-int", Datapath: "netdev"}
	require.Empty(t, f.IDs(chassis.Flags{}, nil))

	f.Addr = netip.MustParseAddr("172.18.0.1")
	require.Equal(t, map[string]string{"ovn-encap-ip": "172.18.0.1", "ovn-encap-type": "vxlan", "ovn-encap-csum": "false"},
		f.IDs(chassis.Flags{Kind: encap.VXLAN, Checksum: "false"}, nil))

	all := map[string]string{
		"system-id": "node-1", "ovn-remote": "tcp:10.0.0.1:6642", "ovn-encap-type": "geneve", "ovn-encap-ip": "172.18.0.1",
		"ovn-bridge": "br-int", "ovn-bridge-datapath-type": "netdev",
	}
	require.Equal(t, all, f.IDs(chassis.Flags{Remote: "tcp:10.0.0.1:6642"}, nil))
	kept := f.IDs(chassis.Flags{Remote: "tcp:10.0.0.1:6642"}, map[string]string{"system-id": "6ae3"})
	require.NotContains(t, kept, "system-id")
	named := f.IDs(chassis.Flags{Remote: "ssl:10.0.0.1:6642"}, map[string]string{"system-id": "6ae3"})
	require.Equal(t, "node-1", named["system-id"])
	require.NotContains(t, named, "ovn-ofctrl-wait-before-clear", "a new node has no flows to keep")
	for _, c := range []struct {
		state      chassis.State
		have, want string
	}{{chassis.Unseen, "5000", ""}, {chassis.Flowing, "", "5000"}, {chassis.Bare, "5000", "0"}, {chassis.Bare, "", ""}, {chassis.Flowing, "0", "5000"}} {
		f.State = c.state
		have := map[string]string{}
		if c.have != "" {
			have["ovn-ofctrl-wait-before-clear"] = c.have
		}
		require.Equal(t, c.want, f.IDs(chassis.Flags{Remote: "ssl:10.0.0.1:6642"}, have)["ovn-ofctrl-wait-before-clear"], "%+v", c)
	}
}

// TestGatewayToOthers: what nobody knows is left alone, and what was never said is not taken back.
func TestGatewayToOthers(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		joins      *bool
		have, want string
	}{{nil, "true", ""}, {&yes, "", "true"}, {&no, "true", "false"}, {&no, "", ""}} {
		have := map[string]string{}
		if c.have != "" {
			have["ovn-is-interconn"] = c.have
		}
		require.Equal(t, c.want, chassis.Facts{Joins: c.joins}.IDs(chassis.Flags{}, have)["ovn-is-interconn"], "%+v", c)
	}
}

// TestMTU: tunnels take their headers.
func TestMTU(t *testing.T) {
	v4 := encap.NIC{MTU: 1500, Addr: netip.MustParseAddr("172.18.0.1")}
	v6 := encap.NIC{MTU: 1500, Addr: netip.MustParseAddr("fd00::1")}
	for _, c := range []struct {
		kind string
		nic  encap.NIC
		want int
	}{{"", v4, 1400}, {encap.Geneve, v4, 1400}, {encap.VXLAN, v4, 1450}, {"", v6, 1380}, {encap.VXLAN, v6, 1430}, {"", encap.NIC{MTU: 1500}, 1400}} {
		require.Equal(t, c.want, chassis.Flags{Kind: c.kind}.MTU(c.nic), "%+v", c)
	}
}

// TestFlags: what makes no sense is refused by name.
func TestFlags(t *testing.T) {
	for _, c := range []struct {
		flags chassis.Flags
		alone bool // without --ovn
		says  string
	}{
		{flags: chassis.Flags{}},
		{flags: chassis.Flags{Kind: "geneve", Checksum: "true", Remote: "ssl:10.0.0.1:6642,ssl:[fd00::1]:6642", Recompute: time.Minute, ServiceRange: "10.96.0.0/12,fd00::/112"}},
		{flags: chassis.Flags{Kind: "vxlan", Checksum: "true"}, alone: true},
		{flags: chassis.Flags{Remote: "unix:/run/ovn/ovnsb_db.sock"}},
		{flags: chassis.Flags{Kind: "vlan"}, says: "--network-type vlan is no tunnel"},
		{flags: chassis.Flags{Kind: "stt"}, says: "--network-type stt"},
		{flags: chassis.Flags{Kind: "gre"}, says: `"gre" is neither`},
		{flags: chassis.Flags{Remote: "ssl:central:6642"}, says: "is not ssl:ADDRESS:PORT"},
		{flags: chassis.Flags{Remote: "ssl:fd00::1:6642"}, says: "in brackets"},
		{flags: chassis.Flags{Remote: "ssl:10.0.0.1:6642,tcp:10.0.0.2:6642"}, says: "either all members by ssl"},
		{flags: chassis.Flags{Remote: "10.0.0.1:6642"}, says: "is not ssl"},
		{flags: chassis.Flags{Recompute: time.Second}, says: "--recompute-interval 1s"},
		{flags: chassis.Flags{Remote: "tcp:10.0.0.1:6642"}, alone: true, says: "go with --ovn"},
		{flags: chassis.Flags{ServiceRange: "10.96.0.0"}, says: "--service-cluster-ip-range"},
	} {
		err := errors.Join(c.flags.Check(!c.alone)...)
		if c.says == "" {
			require.NoError(t, err, "%+v", c.flags)
			continue
		}
		require.ErrorContains(t, err, c.says)
	}
	idle := chassis.Flags{ServiceRange: "10.96.0.0/12", DefaultNIC: "eth0", Checksum: "true"}
	require.Len(t, idle.Idle(true), 1)
	require.Len(t, idle.Idle(false), 2)
}
