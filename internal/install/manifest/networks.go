package manifest

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// defaultJoin is what the controller takes where ovn.joinCIDR is "" (its flag
// --join-cidr).
const defaultJoin = "100.64.0.0/16,fd00:100:64::/112"

// Cluster is what a cluster has that an installation's networks must agree with.
type Cluster struct {
	Nodes    map[string][]netip.Addr   // InternalIPs
	Subnets  map[string][]netip.Prefix // of the default Vpc, whose addresses pods have
	Services []netip.Prefix            // what the API server gives Services addresses of
	// Builtin: no Subnet is the default one, so that the built-in one serves.
	Builtin bool
}

// builtin is the network of pods where neither a value nor a Subnet says another
// (sdn.md, 11).
var builtin = network{"the built-in network of pods 10.16.0.0/16 (ovn.podCIDR and Subnets with default: true say another)", netip.MustParsePrefix("10.16.0.0/16")}

// network is one that must not overlap others, with what names it.
type network struct {
	what string
	netip.Prefix
}

// networks reads a value: one prefix of each family at most.
func (v Values) networks(key, fallback string) (out []network, err error) {
	ovn, _ := v["ovn"].(map[string]any)
	value, isText := ovn[key].(string)
	if !isText && ovn[key] != nil {
		return nil, fmt.Errorf("ovn.%s: %v is not a network in CIDR form", key, ovn[key])
	}
	if value == "" {
		value = fallback
	}
	if value == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(value, ",") {
		p, err := readNetwork(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("ovn.%s: %w", key, err)
		}
		if slices.ContainsFunc(out, func(o network) bool { return o.Addr().Is4() == p.Addr().Is4() }) {
			return nil, fmt.Errorf("ovn.%s: %s is the second network of one family", key, p)
		}
		out = append(out, network{fmt.Sprintf("ovn.%s %s", key, p), p})
	}
	return out, nil
}

// readNetwork reads one network that has room for addresses.
func readNetwork(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, fmt.Errorf("%q is not a network in CIDR form", text)
	case p != p.Masked():
		return p, fmt.Errorf("%s has bits set behind its prefix length; the network is %s", p, p.Masked())
	case p.Addr().IsMulticast() || p.Addr().IsLoopback() || p.Bits() == 0 || p.Addr().BitLen()-p.Bits() < 2:
		return p, fmt.Errorf("%s is no range for addresses: it is everything, loopback, multicast, or has no room", p)
	}
	return p, nil
}

// CheckNetworks refuses networks of pods, nodes and Services that overlap each other
// or something that a cluster has, by name; all that is wrong is told. Without OVN
// there is nothing to check. The zero Cluster leaves the values themselves.
func (v Values) CheckNetworks(c Cluster) error {
	ovn, _ := v["ovn"].(map[string]any)
	if on, _ := ovn["enabled"].(bool); !on {
		return nil
	}
	pods, errPods := v.networks("podCIDR", "")
	join, errJoin := v.networks("joinCIDR", defaultJoin)
	services, errServices := v.networks("serviceCIDR", "")
	if err := errors.Join(errPods, errJoin, errServices); err != nil {
		return err
	}
	if len(pods) == 0 && c.Builtin {
		pods = []network{builtin}
	}
	errs := []error{disjoint(pods, join), disjoint(pods, services), disjoint(join, services), families(pods, join)}
	errs = append(errs, agree(services, c.Services))
	if len(services) == 0 {
		for _, p := range c.Services {
			services = append(services, network{"the API server's network of Services " + p.String(), p})
		}
		errs = append(errs, disjoint(pods, services), disjoint(join, services))
	}
	errs = append(errs, apart(c.Subnets, pods, join, services))
	for _, name := range slices.Sorted(maps.Keys(c.Nodes)) {
		for _, ip := range c.Nodes[name] {
			for _, n := range slices.Concat(pods, join, services) {
				if n.Contains(ip) {
					errs = append(errs, fmt.Errorf("%s has the address %s of node %s", n.what, ip, name))
				}
			}
		}
	}
	errs = append(errs, room(join, len(c.Nodes)))
	return errors.Join(errs...)
}

// disjoint refuses networks of two groups that overlap.
func disjoint(a, b []network) error {
	var errs []error
	for _, one := range a {
		for _, other := range b {
			if one.Overlaps(other.Prefix) {
				errs = append(errs, fmt.Errorf("%s overlaps %s", one.what, other.what))
			}
		}
	}
	return errors.Join(errs...)
}

// families wants each family of the pods' on the nodes' network too: by it nodes and
// pods reach each other.
func families(pods, join []network) error {
	for _, p := range pods {
		if !slices.ContainsFunc(join, func(j network) bool { return j.Addr().Is4() == p.Addr().Is4() }) {
			return fmt.Errorf("%s: ovn.joinCIDR has no network of that family, and nodes would not reach these pods", p.what)
		}
	}
	return nil
}

// agree wants of Services what the API server says, where both are known.
func agree(said []network, real []netip.Prefix) error {
	if len(real) == 0 {
		return nil
	}
	for _, n := range said {
		if !slices.Contains(real, n.Prefix) {
			return fmt.Errorf("%s: the API server gives Services addresses of %s", n.what, list(real))
		}
	}
	return nil
}

func list[T fmt.Stringer](of []T) string {
	var out []string
	for _, o := range of {
		out = append(out, o.String())
	}
	return strings.Join(out, ", ")
}

// Names of Subnets that values are about.
const (
	podSubnet  = "ovn-default"
	joinSubnet = "join"
)

// apart refuses networks that overlap Subnets which are there already. The Subnets
// that the values are about are the networks themselves, and must be so.
func apart(subnets map[string][]netip.Prefix, pods, join, services []network) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(subnets)) {
		for _, own := range []struct {
			subnet string
			of     []network
		}{{podSubnet, pods}, {joinSubnet, join}, {"", services}} {
			for _, n := range own.of {
				at := slices.IndexFunc(subnets[name], func(p netip.Prefix) bool { return p.Overlaps(n.Prefix) })
				if at >= 0 && (name != own.subnet || subnets[name][at] != n.Prefix) {
					errs = append(errs, fmt.Errorf("%s overlaps %s of Subnet %s", n.what, subnets[name][at], name))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// room wants an address for each node, beside the gateway and what no network gives.
func room(join []network, nodes int) error {
	for _, j := range join {
		if bits := j.Addr().BitLen() - j.Bits(); bits < 31 && 1<<bits-3 < nodes {
			return fmt.Errorf("%s has %d addresses for %d nodes", j.what, 1<<bits-3, nodes)
		}
	}
	return nil
}
