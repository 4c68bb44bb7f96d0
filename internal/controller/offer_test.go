package controller_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// TestOffers: what a Subnet's pods are answered by DHCP and told by its router is in the
// database, for pods too that were there before, and goes again.
func TestOffers(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	spec := v1.SubnetSpec{CIDRBlock: "10.40.0.0/24,fd00:10:40::/112", Default: true, Mtu: 1300}
	w.subnet("web", spec)
	w.pod("a", "1")
	lead(t, "one", w, db)
	w.ip(t, "a")
	refs := func() string {
		return db.Get("Logical_Switch_Port", "a.ns", "dhcpv4_options") + db.Get("Logical_Switch_Port", "a.ns", "dhcpv6_options")
	}
	require.Equal(t, "[][]", refs())

	offering := spec
	offering.EnableDHCP, offering.DHCPv4Options = true, "lease_time=60, dns_server={10.96.0.10,10.96.0.11}"
	offering.EnableIPv6RA, offering.IPv6RAConfigs = true, "max_interval=20"
	offering.EnableMulticastSnoop, offering.RouteTable = true, "t1"
	w.subnet("web", offering)
	mac := strings.Trim(db.Get("Logical_Router_Port", "ovn-cluster-web", "mac"), `"`)
	four := `{dns_server="{10.96.0.10,10.96.0.11}", lease_time="60", mtu="1300", router="10.40.0.1", server_id="169.254.0.254", server_mac="` + mac + `"}`
	six := `{server_id="` + mac + `"}`
	options := func(column string) string {
		ref := db.Get("Logical_Switch_Port", "a.ns", column)
		if ref == "[]" {
			return ""
		}
		return db.Get("DHCP_Options", ref, "options")
	}
	require.Eventually(t, func() bool { return options("dhcpv4_options") == four && options("dhcpv6_options") == six }, patience, tick)
	require.Equal(t, `{address_mode=dhcpv6_stateful, max_interval="20", min_interval="5", send_periodic="true"}`, db.Get("Logical_Router_Port", "ovn-cluster-web", "ipv6_ra_configs"))
	require.Equal(t, "{route_table=t1}", db.Get("Logical_Router_Port", "ovn-cluster-web", "options"))
	require.Equal(t, `{mcast_querier="false", mcast_snoop="true"}`, db.Get("Logical_Switch", "web", "other_config"))
	require.Eventually(t, func() bool {
		return strings.Contains(db.Nbctl("--route-table=t1", "lr-route-list", "ovn-cluster"), "0.0.0.0/0") // beside that of the main table
	}, patience, tick)

	w.subnet("web", spec)
	require.Eventually(t, func() bool { return refs() == "[][]" && db.Count("DHCP_Options") == 0 }, patience, tick)
	require.Equal(t, "{}", db.Get("Logical_Switch", "web", "other_config"))

	// What is no option is refused by name.
	bad := spec
	bad.DHCPv4Options = "lease_time"
	w.subnet("web", bad)
	require.Eventually(t, func() bool {
		o, _ := lister[*v1.Subnet]{w, "Subnet"}.Get("", "web")
		return len(o.Status.Conditions) > 0 && o.Status.Conditions[0].Message == `spec.dhcpV4Options: "lease_time" is not key=value`
	}, patience, tick)
}
