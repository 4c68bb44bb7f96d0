package declared

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/whereabouts"
)

// ipam is the ipam of a configuration that gives the declared addresses; nil where none are
// declared, or somebody else has to be told of them.
func (s *Settings) ipam(kind string, raw json.RawMessage) (any, error) {
	var of struct {
		Type string `json:"type"`
	}
	if s.From[IPs] == "" {
		return nil, nil
	}
	readable := len(raw) == 0 || json.Unmarshal(raw, &of) == nil
	switch {
	case !readable: // the plugin's own to refuse
	case of.Type == "" && slices.Contains(fixable, kind):
		return s.static()
	case of.Type == "host-local":
		return s.hostLocal(raw)
	}
	return nil, nil
}

// static is the configuration of the IPAM plugin static.
func (s *Settings) static() (any, error) {
	type address struct {
		Address string `json:"address"`
		Gateway string `json:"gateway,omitempty"`
	}
	var all []address
	for _, ip := range s.IPs {
		if !strings.Contains(ip, "/") {
			return nil, s.outside(ip, "without a prefix length, and its network has no Subnet that tells it")
		}
		all = append(all, address{Address: ip, Gateway: s.gatewayFor(ip)})
	}
	return map[string]any{"type": "static", "addresses": all}, nil
}

func (s *Settings) outside(ip, format string, args ...any) error {
	return core.Reasoned(core.CodeAddress, core.ReasonAddressOutsideSubnet, "%s declares address %s of interface %s %s", s.From[IPs], ip, s.Name, fmt.Sprintf(format, args...))
}

// gatewayFor is the declared gateway of an address's family, "" for none.
func (s *Settings) gatewayFor(ip string) string {
	for _, gw := range s.Gateways {
		if strings.Contains(gw, ":") == strings.Contains(ip, ":") {
			return gw
		}
	}
	return ""
}

// ipRange is one of host-local's, as it stands in a configuration.
type ipRange struct {
	Subnet  string `json:"subnet"`
	Start   string `json:"rangeStart,omitempty"`
	End     string `json:"rangeEnd,omitempty"`
	Gateway string `json:"gateway,omitempty"`
}

// hostLocal is the configuration of host-local with the declared addresses as ranges of one
// address each, in the place of those that give addresses of the same subnet: it keeps the
// address as it keeps all, so that it gives it to nobody else on the machine. nil: it has no
// ranges.
func (s *Settings) hostLocal(raw json.RawMessage) (any, error) {
	var conf map[string]json.RawMessage
	var of struct {
		ipRange

		Ranges [][]ipRange `json:"ranges"`
	}
	readable := json.Unmarshal(raw, &conf) == nil && json.Unmarshal(raw, &of) == nil
	sets := of.Ranges
	if of.Subnet != "" {
		sets = append([][]ipRange{{of.ipRange}}, sets...)
	}
	if !readable || len(sets) == 0 {
		return nil, nil // what cannot be read is its own to refuse
	}
	for _, ip := range s.IPs {
		at, one, err := s.within(sets, ip)
		if err != nil {
			return nil, err
		}
		sets[at] = []ipRange{one}
	}
	for _, key := range []string{"subnet", "rangeStart", "rangeEnd", "gateway"} {
		delete(conf, key)
	}
	var err error
	conf["ranges"], err = json.Marshal(sets)
	return conf, err
}

// InRanges has the declared addresses take the place of those that would be chosen from
// ranges of whereabouts, which tell prefix length and gateway.
//
// 103: an address that no pod can have there.
func (s *Settings) InRanges(c *whereabouts.Conf) error {
	for _, text := range s.IPs {
		ip, err := parseAddr(text)
		if err != nil {
			return err
		}
		r, ok := c.Of(ip)
		if !ok {
			return s.outside(text, "and no range of its network has a subnet with it")
		}
		if err := s.possible(r.CIDR, c.Gateway(ip), text, ip); err != nil {
			return err
		}
		c.Fix(r, ip, s.gatewayFor(text))
	}
	return nil
}

// within finds the set that gives addresses of the subnet that an address is of, and the
// range of that address alone.
func (s *Settings) within(sets [][]ipRange, text string) (at int, one ipRange, err error) {
	ip, err := parseAddr(text)
	if err != nil {
		return 0, one, err
	}
	for at, set := range sets {
		for _, r := range set {
			subnet, err := netip.ParsePrefix(r.Subnet)
			if err == nil && subnet.Contains(ip) {
				one, err = s.only(r, subnet.Masked(), text, ip)
				return at, one, err
			}
		}
	}
	return 0, one, s.outside(text, "and no range of its network has a subnet with it")
}

// only is a range of that address alone, which a pod in that subnet can have.
func (s *Settings) only(r ipRange, subnet netip.Prefix, text string, ip netip.Addr) (ipRange, error) {
	gateway := subnet.Addr().Next() // host-local's own choice
	if gw, err := netip.ParseAddr(r.Gateway); err == nil {
		gateway = gw
	}
	if err := s.possible(subnet, gateway, text, ip); err != nil {
		return r, err
	}
	if gw := s.gatewayFor(text); gw != "" {
		r.Gateway = gw
	}
	return ipRange{subnet.String(), ip.String(), ip.String(), r.Gateway}, nil
}

// possible refuses an address, with the text that declares it, that no pod of a subnet can
// have. gateway may be the zero value.
func (s *Settings) possible(subnet netip.Prefix, gateway netip.Addr, text string, ip netip.Addr) error {
	if p, err := netip.ParsePrefix(text); err == nil && p.Bits() != subnet.Bits() {
		return s.outside(text, "and its network has subnet %s", subnet)
	}
	of := core.Subnet{Name: "of its network", CIDRs: []netip.Prefix{subnet}}
	if gateway.IsValid() {
		of.Gateways = []netip.Addr{gateway}
	}
	if err := annotation.CheckAddresses(s.From[IPs]+": interface "+s.Name, []netip.Addr{ip}, of); err != nil {
		return core.Reasoned(core.CodeAddress, core.ReasonAddressOutsideSubnet, "%w", err)
	}
	return nil
}
