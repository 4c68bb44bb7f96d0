package cniconf

import (
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fairlead/fairlead/internal/core"
)

// Addresses is the result of an IPAM plugin (CNI spec 1.1, section 4: no
// interfaces, and no index into them): addresses, each with the gateway of its
// network, routes and DNS. Versions 0.1.0 and 0.2.0 need at least one address.
func Addresses(l core.Link, version string) ([]byte, error) {
	res := &current.Result{CNIVersion: current.ImplementedSpecVersion, DNS: types.DNS(l.DNS)}
	for _, p := range l.Addrs {
		res.IPs = append(res.IPs, &current.IPConfig{Address: ipNet(p), Gateway: gatewayOf(p, l.Gateways)})
	}
	for _, r := range l.Routes {
		res.Routes = append(res.Routes, routeOut(r))
	}
	return Marshal(res, version)
}
