package declare

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// Offers are what OVN answers pods of a Subnet that configure themselves, and how it
// forwards for them, as options of its own rows (ovn-nb(5)). What a user does not say of
// them is not there. Only OVN carries it out.
type Offers struct {
	DHCP   bool              // DHCP is answered, of the Subnet's families
	DHCPv4 map[string]string // of DHCP_Options
	DHCPv6 map[string]string
	RA     bool              // routers advertise themselves
	RAs    map[string]string // Logical_Router_Port ipv6_ra_configs
	Snoop  bool              // multicast goes to those who asked for it (IGMP, MLD)
	Table  string            // of the routes by which pods leave; "" is the main one
}

// offers reads them. Options of what is not enabled are read too: they are refused alike.
func (r *subnetReader) offers() {
	s := r.spec
	r.out.Offers = Offers{DHCP: s.EnableDHCP, RA: s.EnableIPv6RA, Snoop: s.EnableMulticastSnoop, Table: s.RouteTable}
	for _, o := range []struct {
		field, text string
		to          *map[string]string
	}{
		{"dhcpV4Options", s.DHCPv4Options, &r.out.Offers.DHCPv4}, {"dhcpV6Options", s.DHCPv6Options, &r.out.Offers.DHCPv6},
		{"ipv6RAConfigs", s.IPv6RAConfigs, &r.out.Offers.RAs},
	} {
		all, err := options(o.text)
		if err != nil {
			r.refuse(o.field, "%v", err)
		}
		*o.to = all
	}
}

// options reads "key=value,key={value,value}"; nil for none.
func options(text string) (out map[string]string, err error) {
	depth := 0
	for one := range slices.Values(strings.FieldsFunc(text, func(c rune) bool {
		switch c {
		case '{':
			depth++
		case '}':
			depth--
		}
		return c == ',' && depth == 0
	})) {
		key, value, ok := strings.Cut(strings.TrimSpace(one), "=")
		if key, value = strings.TrimSpace(key), strings.TrimSpace(value); !ok || key == "" || value == "" {
			return nil, fmt.Errorf("%q is not key=value", one)
		}
		if out == nil {
			out = map[string]string{}
		}
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("%s is there twice", key)
		}
		out[key] = value
	}
	if depth != 0 {
		return nil, fmt.Errorf("%q: a brace has no other", text)
	}
	return out, nil
}

// UnheardOffers are fields about offers that are set and say nothing: nobody is answered.
func UnheardOffers(s v1.SubnetSpec) (fields []string) {
	six := strings.Contains(s.CIDRBlock, ":")
	for _, f := range []struct {
		field string
		set   bool
	}{
		{"spec.dhcpV4Options (enableDHCP is not set)", s.DHCPv4Options != "" && !s.EnableDHCP},
		{"spec.dhcpV6Options (enableDHCP is not set)", s.DHCPv6Options != "" && !s.EnableDHCP},
		{"spec.ipv6RAConfigs (enableIPv6RA is not set)", s.IPv6RAConfigs != "" && !s.EnableIPv6RA},
		{"spec.enableIPv6RA (no network of the Subnet is IPv6)", s.EnableIPv6RA && !six},
		{"spec.enableIPv6RA (of an underlay Subnet the physical gateway advertises itself)", s.EnableIPv6RA && six && s.Vlan != "" && !s.LogicalGateway},
		{"spec.routeTable (an underlay Subnet's pods leave by its physical gateway)", s.RouteTable != "" && s.Vlan != "" && !s.LogicalGateway},
	} {
		if f.set {
			fields = append(fields, f.field)
		}
	}
	return fields
}
