package cniconf

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/core"

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

// entries are the elements of one network.
func entries(s core.Spec, links []core.Link) []core.Net {
	res, err := merged(links, s.Netns.Path)
	if err != nil || !anySandbox(res) {
		// an unreadable result was refused at ADD already: name and
		// addresses are all there is to tell
		n := core.Net{Name: s.Network, Default: s.Default}
		if err == nil && len(res.IPs) > 0 {
			n = entry(s, res, -1)
			n.Interface = s.Key.IfName
		}
		n.DeviceInfo = deviceInfo(links)
		return []core.Net{n}
	}
	var nets []core.Net
	for i, in := range res.Interfaces {
		if in.Sandbox != "" {
			nets = append(nets, entry(s, res, i))
		}
	}
	for i := range nets {
		if nets[i].Interface == s.Key.IfName {
			nets[i].DefaultRoute = requested(links, s.Key.IfName)
			nets[i].DeviceInfo = deviceInfo(links)
		}
	}
	return nets
}

// entry describes interface at of res.
func entry(s core.Spec, res *current.Result, at int) core.Net {
	l := linkOf(res, at)
	n := core.Net{Name: s.Network, Default: s.Default, MAC: l.MAC.String(), MTU: l.MTU, DNS: l.DNS}
	if at >= 0 {
		n.Interface = res.Interfaces[at].Name
	}
	for _, p := range l.Addrs {
		n.IPs = append(n.IPs, p.Addr().String())
	}
	n.Gateway = texts(defaults(l.Routes))
	return n
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

func anySandbox(res *current.Result) bool {
	for _, in := range res.Interfaces {
		if in.Sandbox != "" {
			return true
		}
	}
	return false
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
// known.
func ErrorJSON(version string, err error) []byte {
	out := cni.Error{CNIVersion: version, Code: core.CodeOf(err), Msg: err.Error()}
	if e := (*core.Error)(nil); errors.As(err, &e) {
		out.Msg, out.Details = e.Msg, e.Details
		if whole := err.Error(); whole != e.Error() { // somebody added context around e
			out.Details = whole
		}
	}
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
	return out, nil
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
