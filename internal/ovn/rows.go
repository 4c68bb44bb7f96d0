package ovn

import (
	"github.com/ovn-kubernetes/libovsdb/model"
)

// The northbound rows that Fairlead writes (ovn-nb(5)), with the columns that
// it uses and no more. A nil or empty column is one that is empty in the
// database. Columns with the tag `ref` hold references: a Set says them as
// Places and Refs, and their fields are what the database has. Sets of
// references are filled by Places, those with `own` by the row's own Refs.
// Columns with `read` are others' to write.
type (
	// LogicalSwitch is a network of one link layer.
	LogicalSwitch struct {
		UUID              string            `ovsdb:"_uuid"`
		Name              string            `ovsdb:"name"`
		Ports             []string          `ovsdb:"ports" ref:"Logical_Switch_Port"`
		ACLs              []string          `ovsdb:"acls" ref:"ACL"`
		LoadBalancer      []string          `ovsdb:"load_balancer" ref:"Load_Balancer"`
		LoadBalancerGroup []string          `ovsdb:"load_balancer_group" ref:"Load_Balancer_Group" own:"refs"`
		OtherConfig       map[string]string `ovsdb:"other_config"`
		ExternalIDs       map[string]string `ovsdb:"external_ids"`
	}
	// LogicalSwitchPort is what a pod, a node or a router has on a switch.
	LogicalSwitchPort struct {
		UUID           string            `ovsdb:"_uuid"`
		Name           string            `ovsdb:"name"`
		Type           string            `ovsdb:"type"`      // "" is a pod's or node's; router, localnet
		Addresses      []string          `ovsdb:"addresses"` // each "MAC IP IP", or router, unknown
		PortSecurity   []string          `ovsdb:"port_security"`
		Options        map[string]string `ovsdb:"options"`
		Tag            *int              `ovsdb:"tag"` // 802.1Q id of a localnet port
		Enabled        *bool             `ovsdb:"enabled"`
		DHCPv4Options  *string           `ovsdb:"dhcpv4_options" ref:"DHCP_Options"`
		DHCPv6Options  *string           `ovsdb:"dhcpv6_options" ref:"DHCP_Options"`
		HAChassisGroup *string           `ovsdb:"ha_chassis_group" ref:"HA_Chassis_Group"`
		Up             *bool             `ovsdb:"up" read:"northd"` // bound to a chassis
		ExternalIDs    map[string]string `ovsdb:"external_ids"`
	}
	// LogicalRouter routes between switches.
	LogicalRouter struct {
		UUID              string            `ovsdb:"_uuid"`
		Name              string            `ovsdb:"name"`
		Ports             []string          `ovsdb:"ports" ref:"Logical_Router_Port"`
		StaticRoutes      []string          `ovsdb:"static_routes" ref:"Logical_Router_Static_Route"`
		Policies          []string          `ovsdb:"policies" ref:"Logical_Router_Policy"`
		NAT               []string          `ovsdb:"nat" ref:"NAT"`
		LoadBalancer      []string          `ovsdb:"load_balancer" ref:"Load_Balancer"`
		LoadBalancerGroup []string          `ovsdb:"load_balancer_group" ref:"Load_Balancer_Group" own:"refs"`
		Options           map[string]string `ovsdb:"options"`
		ExternalIDs       map[string]string `ovsdb:"external_ids"`
	}
	// LogicalRouterPort is a router's end of a link.
	LogicalRouterPort struct {
		UUID           string            `ovsdb:"_uuid"`
		Name           string            `ovsdb:"name"`
		MAC            string            `ovsdb:"mac"`
		Networks       []string          `ovsdb:"networks"` // addresses with prefix length
		Peer           *string           `ovsdb:"peer"`     // the other router's port, where two routers meet
		Enabled        *bool             `ovsdb:"enabled"`
		GatewayChassis []string          `ovsdb:"gateway_chassis" ref:"Gateway_Chassis"`
		HAChassisGroup *string           `ovsdb:"ha_chassis_group" ref:"HA_Chassis_Group"`
		IPv6RAConfigs  map[string]string `ovsdb:"ipv6_ra_configs"`
		Options        map[string]string `ovsdb:"options"`
		ExternalIDs    map[string]string `ovsdb:"external_ids"`
	}
	// StaticRoute is a route of a router.
	StaticRoute struct {
		UUID        string            `ovsdb:"_uuid"`
		IPPrefix    string            `ovsdb:"ip_prefix"`
		Nexthop     string            `ovsdb:"nexthop"`
		OutputPort  *string           `ovsdb:"output_port"`
		Policy      *string           `ovsdb:"policy"` // dst-ip (nil) or src-ip
		RouteTable  string            `ovsdb:"route_table"`
		Options     map[string]string `ovsdb:"options"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	// Policy is a policy route of a router.
	Policy struct {
		UUID        string            `ovsdb:"_uuid"`
		Priority    int               `ovsdb:"priority"` // 0 to 32767, the highest counts
		Match       string            `ovsdb:"match"`
		Action      string            `ovsdb:"action"` // allow, drop, reroute
		Nexthops    []string          `ovsdb:"nexthops"`
		Options     map[string]string `ovsdb:"options"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	// NAT is an address translation of a router.
	NAT struct {
		UUID        string            `ovsdb:"_uuid"`
		Type        string            `ovsdb:"type"` // snat, dnat, dnat_and_snat
		LogicalIP   string            `ovsdb:"logical_ip"`
		ExternalIP  string            `ovsdb:"external_ip"`
		ExternalMAC *string           `ovsdb:"external_mac"`
		LogicalPort *string           `ovsdb:"logical_port"`
		GatewayPort *string           `ovsdb:"gateway_port" ref:"Logical_Router_Port"` // OVN >= 22.03
		Options     map[string]string `ovsdb:"options"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	// ACL is a rule of a switch or of a port group.
	ACL struct {
		UUID        string            `ovsdb:"_uuid"`
		Name        *string           `ovsdb:"name"`      // at most 63 characters, in the log
		Direction   string            `ovsdb:"direction"` // from-lport, to-lport
		Priority    int               `ovsdb:"priority"`  // 0 to 32767, the highest counts
		Match       string            `ovsdb:"match"`
		Action      string            `ovsdb:"action"` // allow, allow-related, allow-stateless, drop, reject
		Log         bool              `ovsdb:"log"`
		Severity    *string           `ovsdb:"severity"`
		Meter       *string           `ovsdb:"meter"`
		Label       int               `ovsdb:"label"`
		Tier        int               `ovsdb:"tier"` // 0 to 3, the lowest is asked first; OVN >= 23.06
		Options     map[string]string `ovsdb:"options"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	// Meter limits what a chassis does for rows that name it: how often it logs a rule.
	Meter struct {
		UUID        string            `ovsdb:"_uuid"`
		Name        string            `ovsdb:"name"`
		Unit        string            `ovsdb:"unit"`                              // kbps, pktps
		Bands       []string          `ovsdb:"bands" ref:"Meter_Band" own:"refs"` // at least one
		Fair        *bool             `ovsdb:"fair"`                              // each rule that names it has the rate for itself
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	// MeterBand is what a meter does above a rate.
	MeterBand struct {
		UUID        string            `ovsdb:"_uuid"`
		Action      string            `ovsdb:"action"`     // drop
		Rate        int               `ovsdb:"rate"`       // in the meter's unit
		BurstSize   int               `ovsdb:"burst_size"` // 0 is the rate
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	// PortGroup is a set of ports that ACLs name; $NAME_ip4 and $NAME_ip6 are
	// their addresses.
	PortGroup struct {
		UUID        string            `ovsdb:"_uuid"`
		Name        string            `ovsdb:"name"`
		Ports       []string          `ovsdb:"ports" ref:"Logical_Switch_Port"`
		ACLs        []string          `ovsdb:"acls" ref:"ACL"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	// AddressSet is a set of addresses that ACLs name.
	AddressSet struct {
		UUID        string            `ovsdb:"_uuid"`
		Name        string            `ovsdb:"name"`
		Addresses   []string          `ovsdb:"addresses"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	// LoadBalancer spreads connections to addresses of Services.
	LoadBalancer struct {
		UUID            string            `ovsdb:"_uuid"`
		Name            string            `ovsdb:"name"`
		Protocol        *string           `ovsdb:"protocol"` // tcp (nil), udp, sctp
		Vips            map[string]string `ovsdb:"vips"`     // "IP:port" -> "IP:port,IP:port"
		SelectionFields []string          `ovsdb:"selection_fields"`
		Options         map[string]string `ovsdb:"options"`
		ExternalIDs     map[string]string `ovsdb:"external_ids"`
	}
	// LoadBalancerGroup is a set of load balancers for switches and routers. The
	// table has no external ids: our mark is in the name.
	LoadBalancerGroup struct {
		UUID         string   `ovsdb:"_uuid"`
		Name         string   `ovsdb:"name"`
		LoadBalancer []string `ovsdb:"load_balancer" ref:"Load_Balancer"`
	}
	// TemplateVars are what names in load balancers stand for on one chassis
	// (ovn-nb(5), Chassis_Template_Var); OVN >= 22.12.
	TemplateVars struct {
		UUID        string            `ovsdb:"_uuid"`
		Chassis     string            `ovsdb:"chassis"` // its name
		Variables   map[string]string `ovsdb:"variables"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	// DHCPOptions are what OVN answers to DHCP of ports.
	DHCPOptions struct {
		UUID        string            `ovsdb:"_uuid"`
		CIDR        string            `ovsdb:"cidr"`
		Options     map[string]string `ovsdb:"options"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	// GatewayChassis is where a router's port may be.
	GatewayChassis struct {
		UUID        string            `ovsdb:"_uuid"`
		Name        string            `ovsdb:"name"`
		ChassisName string            `ovsdb:"chassis_name"`
		Priority    int               `ovsdb:"priority"` // 0 to 32767, the highest is active
		Options     map[string]string `ovsdb:"options"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	// HAChassisGroup is a set of chassis of which one is active.
	HAChassisGroup struct {
		UUID        string            `ovsdb:"_uuid"`
		Name        string            `ovsdb:"name"`
		HAChassis   []string          `ovsdb:"ha_chassis" ref:"HA_Chassis"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	// HAChassis is one of an HAChassisGroup.
	HAChassis struct {
		UUID        string            `ovsdb:"_uuid"`
		ChassisName string            `ovsdb:"chassis_name"`
		Priority    int               `ovsdb:"priority"` // 0 to 32767, the highest is active
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	// nbGlobal is the database's one root row.
	nbGlobal struct {
		UUID        string            `ovsdb:"_uuid"`
		Name        string            `ovsdb:"name"`
		Options     map[string]string `ovsdb:"options"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
)

// Row is one of the exported row types, as a pointer. It clones itself, because
// libovsdb otherwise copies rows through JSON.
type Row interface {
	CloneModel() model.Model
	CloneModelInto(model.Model)
}
