package object

import (
	"encoding/json"
	"net"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/api/agent"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// Attached is an interface of a pod that runs.
type Attached struct {
	IPs []netip.Addr
	MAC core.MAC // nil for one that is not of Ethernet
}

// Attached are a pod's interfaces by name: as its node told in network-status, and
// the addresses of eth0 as kubelet did. A tenant may have written the former.
func (p Pod) Attached() map[string]Attached {
	out := map[string]Attached{}
	var told []agent.NetworkStatus
	_ = json.Unmarshal([]byte(p.Annotations[v1.AnnStatus]), &told) // whatever is no list says nothing
	for _, s := range told {
		is := out[s.Interface]
		for _, text := range s.IPs {
			if ip, err := netip.ParseAddr(text); err == nil {
				is.IPs = append(is.IPs, ip.Unmap())
			}
		}
		if mac, err := net.ParseMAC(s.MAC); err == nil && len(mac) == 6 {
			is.MAC = core.MAC(mac)
		}
		out[s.Interface] = is
	}
	if len(p.IPs) > 0 {
		first := out["eth0"]
		first.IPs = p.IPs
		out["eth0"] = first
	}
	return out
}

// Has tells that one of a pod's interfaces has one of some addresses.
func (p Pod) Has(ips []netip.Addr) bool {
	for _, a := range p.Attached() {
		if slices.ContainsFunc(ips, func(ip netip.Addr) bool { return slices.Contains(a.IPs, ip) }) {
			return true
		}
	}
	return false
}
