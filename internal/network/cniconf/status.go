package cniconf

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hint"

	current "github.com/containernetworking/cni/pkg/types/100"
)

// Status is the network-status of a pod (NPWG v1.3): one entry per interface
// in the sandbox, in order, and one for a network that made none. links[i]
// belongs to specs[i]; specs without a link are not finished and left out.
func Status(specs []core.Spec, links []core.Link) []core.Net {
	specs = specs[:min(len(specs), len(links))]
	var routes []core.Link
	for i := range specs {
		if onlyRoutes(links[i]) {
			routes = append(routes, links[i])
		}
	}
	var nets []core.Net
	for i := 0; i < len(specs); {
		first, of := specs[i], []core.Link{}
		for ; i < len(specs) && sameNetwork(first, specs[i]); i++ {
			if !onlyRoutes(links[i]) {
				of = append(of, links[i])
			}
		}
		if len(of) > 0 {
			nets = append(nets, entries(first, append(of, routes...))...)
		}
	}
	return nets
}

func sameNetwork(a, b core.Spec) bool {
	return a.Network == b.Network && a.Key.IfName == b.Key.IfName
}

// entries are the elements of one network. What belongs to the network as a
// whole stands in one of them, its own interface's: the default flag, and the
// addresses and gateways that the result ascribes to no interface.
func entries(s core.Spec, links []core.Link) []core.Net {
	res, err := merged(links, s.Netns.Path)
	if err != nil { // it was refused at ADD already
		return []core.Net{{Name: s.Network, Default: s.Default}}
	}
	info := deviceInfo(links)
	own := ownInterface(res, s.Key.IfName)
	var nets []core.Net
	for i, in := range res.Interfaces {
		if in.Sandbox == "" && i != own {
			continue
		}
		n := core.Net{Name: s.Network, Interface: in.Name, MAC: in.Mac, MTU: in.Mtu, DeviceInfo: info, Default: s.Default && i == own}
		describe(&n, res, i, own)
		nets = append(nets, n)
	}
	if own < 0 { // before CNI 0.3.0 a result has no interfaces, and any result may be empty
		n := core.Net{Name: s.Network, DeviceInfo: info, Default: s.Default}
		if describe(&n, res, own, own); len(n.IPs) > 0 {
			n.Interface = s.Key.IfName
		}
		nets = append(nets, n)
	}
	for i := range nets {
		if nets[i].Interface == s.Key.IfName {
			observed(&nets[i], links)
		}
	}
	return nets
}

// ownInterface is the index of the interface that a network is about: the one
// that the runtime named, else the first in the sandbox, else -1.
func ownInterface(res *current.Result, ifName string) int {
	if at := podInterface(res, ifName); at >= 0 {
		return at
	}
	return slices.IndexFunc(res.Interfaces, func(in *current.Interface) bool { return in.Sandbox != "" })
}

// describe fills in what the result says of interface at; the network's own has
// also what is nobody's.
func describe(n *core.Net, res *current.Result, at, own int) {
	n.DNS = core.DNS(res.DNS)
	for _, ip := range res.IPs {
		if ip.Interface == nil && at == own || ip.Interface != nil && *ip.Interface == at {
			n.IPs = append(n.IPs, addrOf(ip.Address.IP).String())
		}
	}
	for _, gw := range defaults(linkOf(res, own).Routes) {
		if gatewayAt(res, gw, own) == at {
			n.Gateway = append(n.Gateway, gw.String())
		}
	}
}

// gatewayAt is the interface in the sandbox whose network has gw.
func gatewayAt(res *current.Result, gw netip.Addr, own int) int {
	for _, ip := range res.IPs {
		p, _ := prefixOf(ip.Address) // proved by merged
		if ip.Interface != nil && p.Masked().Contains(gw) && res.Interfaces[*ip.Interface].Sandbox != "" {
			return *ip.Interface
		}
	}
	return own
}

// observed adds what results do not tell: the MTU before CNI 1.1, the MAC
// before 0.3.0, the default route that was asked for.
func observed(n *core.Net, links []core.Link) {
	for _, l := range links {
		if l.IfName != n.Interface || onlyRoutes(l) {
			continue
		}
		if l.MTU > 0 {
			n.MTU = l.MTU
		}
		if n.MAC == "" {
			n.MAC = l.MAC.String()
		}
	}
	n.DefaultRoute = requested(links, n.Interface)
}

// requested are the gateways that a defroute step set on ifName.
func requested(links []core.Link, ifName string) []string {
	for _, l := range links {
		if onlyRoutes(l) && l.IfName == ifName {
			return texts(defaults(l.Routes))
		}
	}
	return nil
}

// deviceInfo is what the chain's last plugin left in the network's file.
func deviceInfo(links []core.Link) json.RawMessage {
	for _, l := range slices.Backward(links) {
		if len(l.DeviceInfo) > 0 {
			return l.DeviceInfo
		}
	}
	return nil
}

func texts(addrs []netip.Addr) []string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return out
}

// ErrorJSON is the CNI error object for err, with the code and words of a
// core.Error inside it. version is the configuration's, "" where it is not
// known, shell how its reader calls `fairlead`.
func ErrorJSON(version string, err error, shell hint.Shell) []byte {
	out := cni.Error{CNIVersion: version, Code: core.CodeOf(err), Msg: err.Error()}
	if e := (*core.Error)(nil); errors.As(err, &e) {
		out.Msg, out.Details = e.Msg, e.Details
		if whole := err.Error(); whole != e.Error() { // somebody added context around e
			out.Details = whole
		}
	}
	out.Msg, out.Details = shell.In(out.Msg), shell.In(out.Details)
	raw, _ := json.Marshal(out) // strings and numbers always encode
	return raw
}

// KubeOVNResponse is the answer to Kube-OVN's own plugin for the links of a
// pod's network (sdn.md, section 1): a gateway only where the default route
// goes through it.
func KubeOVNResponse(links []core.Link) (cni.KubeOVNResponse, error) {
	res, err := merged(links, "pod")
	if err != nil {
		return cni.KubeOVNResponse{}, err
	}
	out := cni.KubeOVNResponse{DNS: cni.KubeOVNDNS(res.DNS)}
	for i, in := range res.Interfaces {
		if in.Sandbox == "" || out.PodNicName != "" {
			continue
		}
		out.PodNicName, out.MacAddress, out.Mtu = in.Name, in.Mac, in.Mtu
		for _, ip := range res.IPs {
			if ip.Interface == nil || *ip.Interface == i {
				out.IPs = append(out.IPs, kubeOVNIP(ip))
			}
		}
	}
	for _, r := range res.Routes {
		route := cni.KubeOVNRoute{Destination: r.Dst.String()}
		if gw := addrOf(r.GW); gw.IsValid() {
			route.Gateway = gw.String()
		}
		out.Routes = append(out.Routes, route)
	}
	flat(&out)
	return out, nil
}

// flat says the addresses once more, as Kube-OVN's plugin of 1.13 reads them: the
// first of each family, IPv4 before IPv6.
func flat(r *cni.KubeOVNResponse) {
	var protocols, addrs, cidrs, gateways []string
	for _, family := range []string{"IPv4", "IPv6"} {
		i := slices.IndexFunc(r.IPs, func(ip cni.KubeOVNIP) bool { return ip.Protocol == family })
		if i < 0 {
			continue
		}
		ip := r.IPs[i]
		protocols, addrs, cidrs = append(protocols, family), append(addrs, ip.IP), append(cidrs, ip.CIDR)
		if ip.Gateway != "" {
			gateways = append(gateways, ip.Gateway)
		}
	}
	r.Protocol = strings.Join(protocols, "")
	if len(protocols) > 1 {
		r.Protocol = "Dual"
	}
	if len(gateways) == len(addrs) { // else a plugin could not tell whose it is
		r.Gateway = strings.Join(gateways, ",")
	}
	r.IPAddress, r.CIDR = strings.Join(addrs, ","), strings.Join(cidrs, ",")
}

func kubeOVNIP(ip *current.IPConfig) cni.KubeOVNIP {
	p, _ := prefixOf(ip.Address) // merged has proved it
	out := cni.KubeOVNIP{Protocol: "IPv4", IP: p.Addr().String(), CIDR: p.Masked().String()}
	if p.Addr().Is6() {
		out.Protocol = "IPv6"
	}
	if gw := addrOf(ip.Gateway); gw.IsValid() {
		out.Gateway = gw.String()
	}
	return out
}
