package ovn

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
)

// Port is a logical port as the database has it.
type Port struct {
	Name   string
	Owner  string // of the Set; "" for a port without our mark
	Switch string // "" for a port of no switch
	Type   string // "" is a pod's or node's; router, localnet
	MAC    core.MAC
	IPs    []netip.Addr
	// Up: a chassis has bound it.
	Up          bool
	ExternalIDs map[string]string
	// Networks are those of the router's port to which one of type router leads.
	Networks []netip.Prefix
}

// Ports lists the logical switch ports, also those that are not ours, by name:
// what is given away. It fails with core.ErrUnavailable while the database is
// away, since an empty list would read as nothing given.
func (c *Client) Ports() ([]Port, error) {
	conn, err := c.db.Conn()
	if err != nil {
		return nil, err
	}
	home := map[string]string{}
	for _, s := range conn.View.All(TableSwitch) {
		for _, uuid := range strs(s, "ports") {
			home[uuid] = text(s, "name")
		}
	}
	routers := map[string][]netip.Prefix{}
	for _, row := range conn.View.All(TableRouterPort) {
		routers[text(row, "name")] = prefixes(strs(row, "networks"))
	}
	var out []Port
	for _, row := range conn.View.All(TableSwitchPort) {
		m, _ := marked(row)
		p := Port{
			Name: text(row, "name"), Owner: m.owner, Switch: home[uuidOf(row)],
			Type: text(row, "type"), ExternalIDs: ids(row),
		}
		if up, ok := field(row, "up"); ok && !up.IsNil() {
			p.Up = up.Elem().Bool()
		}
		if v, ok := field(row, "options"); ok && p.Type == "router" {
			options, _ := v.Interface().(map[string]string)
			p.Networks = routers[options["router-port"]]
		}
		p.MAC, p.IPs = parse(strs(row, "addresses"))
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// prefixes reads addresses with prefix lengths; what is none is left out.
func prefixes(list []string) (out []netip.Prefix) {
	for _, s := range list {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// parse reads "MAC IP IP"; words such as unknown, router and dynamic are none.
func parse(addresses []string) (mac core.MAC, ips []netip.Addr) {
	for _, a := range addresses {
		for _, word := range strings.Fields(a) {
			if ip, err := netip.ParseAddr(word); err == nil {
				ips = append(ips, ip)
			} else if mac == nil {
				_ = mac.UnmarshalText([]byte(word)) // a word of OVN's, no address
			}
		}
	}
	return mac, ips
}
