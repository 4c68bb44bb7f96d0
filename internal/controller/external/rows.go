// Package external makes the external gateway of the default Vpc: a port of its router on a
// network outside, and translations of pods that have addresses there (Kube-OVN's ConfigMap
// ovn-external-gw-config and annotations eip and snat). What is not as it should be, or not
// carried out, it tells the ConfigMap or the pod by an event. It must not know who else
// has rows.
package external

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Owner owns the rows.
const Owner = "external-gateway"

// Names are the reference's.
const (
	switchName = declare.ExternalNetwork
	localnet   = "ln-" + switchName
	routerPort = v1.DefaultVpc + "-" + switchName
	switchPort = switchName + "-" + v1.DefaultVpc
)

// priority of the policy routes of pods with addresses outside (sdn.md, 11): above those of
// gateway nodes.
const priority = 29250

// first is the priority of the first gateway node, of which there are fewer.
const first = 1000

// Pod is one that asks for an address outside.
type Pod struct {
	object.Object
	IPs []netip.Addr
	// EIP is its own one, to which connections from outside come too; SNAT one that it
	// may share. Both are texts of annotations.
	EIP, SNAT string
	// Elsewhere is why it can have none, "" if it can.
	Elsewhere string
}

// fault is something that is wrong with an object.
type fault struct {
	of   object.Object
	text string
}

// noteData is the external id of the localnet port that has what the rows are made of, a
// ConfigMap's data: of one that is refused nobody else remembers how it was.
const noteData = "config"

// rows are the gateway's, as e says, which was read of data. The default Vpc's Set must be there before. taken are addresses that
// no pod gets, those of nodes.
func rows(e declare.External, data map[string]string, nodes []object.Node, pods []Pod, taken map[netip.Addr]bool) (s *ovn.Set, faults []fault) {
	s = &ovn.Set{Owner: Owner}
	note, _ := json.Marshal(data) // of strings
	s.Put(&ovn.LogicalSwitch{Name: switchName})
	s.Put(&ovn.LogicalSwitchPort{
		Name: localnet, Type: "localnet", Addresses: []string{"unknown"}, Options: map[string]string{"network_name": declare.ExternalNetwork},
		ExternalIDs: map[string]string{noteData: string(note)},
	}, ovn.InSwitch(switchName))
	mac := e.MAC
	if mac == nil {
		mac = core.Subnet{Name: "(external)"}.GatewayMAC() // of no Subnet
	}
	port := &ovn.LogicalRouterPort{Name: routerPort, MAC: mac.String()}
	for _, p := range e.Networks {
		port.Networks = append(port.Networks, p.String())
	}
	s.Put(port, ovn.InRouter(v1.DefaultVpc))
	for i, n := range nodes {
		chassis := n.Annotations[v1.AnnChassis]
		s.Put(&ovn.GatewayChassis{Name: routerPort + "-" + chassis, ChassisName: chassis, Priority: max(first-i, 0)},
			ovn.Place{Table: ovn.TableRouterPort, Key: routerPort, Column: "gateway_chassis"})
	}
	s.Put(&ovn.LogicalSwitchPort{
		Name: switchPort, Type: "router", Addresses: []string{"router"},
		Options: map[string]string{"router-port": routerPort, "nat-addresses": "router"}, // neighbours outside hear who has a pod's address
	}, ovn.InSwitch(switchName))
	t := translations{s, e, taken, map[netip.Addr]string{}, map[netip.Addr]bool{}}
	for _, p := range pods {
		if why := t.pod(p); why != "" {
			faults = append(faults, fault{p.Object, why})
		}
	}
	return s, faults
}

// translations are those of pods. given are the addresses outside that pods have, each with
// the kind of its translation; done are addresses of pods that have one.
type translations struct {
	*ovn.Set
	declare.External
	taken map[netip.Addr]bool // nodes' own
	given map[netip.Addr]string
	done  map[netip.Addr]bool
}

// pod puts a pod's translations and the routes that lead what it sends to the gateway
// outside; why says what is wrong.
func (t translations) pod(p Pod) (why string) {
	if p.Elsewhere != "" {
		return "annotations " + annEIP + " and snat: " + p.Elsewhere
	}
	var all []string
	for _, w := range []struct{ field, text, kind string }{{"eip", p.EIP, "dnat_and_snat"}, {"snat", p.SNAT, "snat"}} {
		if w.text == "" || w.kind == "snat" && p.EIP != "" { // eip does both
			continue
		}
		for text := range strings.SplitSeq(w.text, ",") {
			if why := t.one(p, strings.TrimSpace(text), w.kind); why != "" {
				all = append(all, "annotation ovn.kubernetes.io/"+w.field+": "+why)
			}
		}
	}
	return strings.Join(all, "; ")
}

// one puts one translation.
func (t translations) one(p Pod, text, kind string) (why string) {
	out, err := netip.ParseAddr(text)
	if err != nil || out.Zone() != "" {
		return fmt.Sprintf("%q is not an address", text)
	}
	same := func(a netip.Addr) bool { return a.Is4() == out.Is4() }
	i, g := slices.IndexFunc(p.IPs, same), slices.IndexFunc(t.Gateways, same)
	switch {
	case i < 0 || g < 0:
		return fmt.Sprintf("%s is of a family that the pod or the external gateway has not", out)
	case slices.ContainsFunc(t.Networks, func(n netip.Prefix) bool { return n.Addr() == out }) || slices.Contains(t.Gateways, out):
		return fmt.Sprintf("%s is a router's", out)
	case t.taken[out]:
		return fmt.Sprintf("%s is a node's", out)
	case t.done[p.IPs[i]]:
		return fmt.Sprintf("%s is a second one of its family", out)
	case t.given[out] != "" && (kind != "snat" || t.given[out] != "snat"):
		return fmt.Sprintf("%s is another pod's already", out)
	}
	t.given[out], t.done[p.IPs[i]] = kind, true
	t.put(p.IPs[i], out, t.Gateways[g], kind)
	return ""
}

// put puts the rows of a pod's address in, which is seen as out.
func (t translations) put(in, out, gateway netip.Addr, kind string) {
	t.PutKeyed(fmt.Sprintf("%s/%s/%s", Owner, kind, in), &ovn.NAT{Type: kind, LogicalIP: in.String(), ExternalIP: out.String()},
		ovn.Place{Table: ovn.TableRouter, Key: v1.DefaultVpc, Column: "nat"}, ovn.GatewayPort(routerPort))
	fam := "ip4"
	if in.Is6() {
		fam = "ip6"
	}
	t.PutKeyed(fmt.Sprintf("%s/%d/%s", Owner, priority, in), &ovn.Policy{
		Priority: priority, Match: fmt.Sprintf("%s.src == %s", fam, in), Action: v1.RouteReroute, Nexthops: []string{gateway.String()},
	}, ovn.PolicyOf(v1.DefaultVpc))
}
