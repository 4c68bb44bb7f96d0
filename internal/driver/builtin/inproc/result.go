package inproc

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// The versions whose results have the form of Result.
const (
	newest   = "1.1.0"
	previous = "1.0.0"
)

// Result is a CNI result of version 1.0.0 or 1.1.0 with all that a plugin may
// say (CNI spec 1.1, "ADD Success"). core.Link has less: it is what the agent
// needs to know of one interface.
type Result struct {
	CNIVersion string      `json:"cniVersion"`
	Interfaces []Interface `json:"interfaces,omitempty"`
	IPs        []IP        `json:"ips,omitempty"`
	Routes     []Route     `json:"routes,omitempty"`
	DNS        core.DNS    `json:"dns,omitzero"`
}

// Interface is an interface that a plugin made or used; Sandbox is the path of
// its namespace, "" for the host's.
type Interface struct {
	Name    string `json:"name"`
	MAC     string `json:"mac,omitempty"`
	MTU     int    `json:"mtu,omitempty"` // bytes
	Sandbox string `json:"sandbox,omitempty"`
}

// IP is an address with its network's length; Interface is an index into
// Result.Interfaces.
type IP struct {
	Interface *int         `json:"interface,omitempty"`
	Address   netip.Prefix `json:"address"`
	Gateway   netip.Addr   `json:"gateway,omitzero"`
}

// Route is a route that the pod gets. Without GW it goes through the first
// gateway of its family.
type Route struct {
	Dst      netip.Prefix `json:"dst"`
	GW       netip.Addr   `json:"gw,omitzero"`
	MTU      int          `json:"mtu,omitempty"`
	AdvMSS   int          `json:"advmss,omitempty"`
	Priority int          `json:"priority,omitempty"`
	Table    *int         `json:"table,omitempty"`
	Scope    *int         `json:"scope,omitempty"`
}

// Parse reads the result of a plugin whose configuration has this CNI version;
// a result that names none is taken to have it. An error has code 6.
func Parse(out json.RawMessage, version string) (Result, error) {
	var r Result
	err := json.Unmarshal(out, &r)
	if err != nil || r.CNIVersion != newest && r.CNIVersion != previous {
		if r, err = convert(out, version); err != nil {
			return Result{}, err
		}
	}
	err = r.check()
	return r, err
}

// convert reads a result of any version.
func convert(out json.RawMessage, version string) (r Result, err error) {
	fixed, err := cniconf.PluginResult(out, version)
	if err != nil {
		return r, err
	}
	now, err := cniconf.Convert(fixed, newest)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(now, &r); err != nil {
		return r, core.Errorf(core.CodeDecode, "result: %w", err)
	}
	return r, nil
}

// check refuses what netip reads as nothing: null, and empty text. A gateway of
// IPv4 in the clothes of IPv6 is one of IPv4.
func (r *Result) check() error {
	for i := range r.IPs {
		if !r.IPs[i].Address.IsValid() {
			return core.Errorf(core.CodeDecode, "result: ips[%d].address is missing", i)
		}
		r.IPs[i].Gateway = r.IPs[i].Gateway.Unmap()
	}
	for i := range r.Routes {
		if !r.Routes[i].Dst.IsValid() {
			return core.Errorf(core.CodeDecode, "result: routes[%d].dst is missing", i)
		}
		r.Routes[i].GW = r.Routes[i].GW.Unmap()
	}
	if len(r.DNS.Nameservers)+len(r.DNS.Search)+len(r.DNS.Options) == 0 && r.DNS.Domain == "" {
		r.DNS = core.DNS{}
	}
	return nil
}

// Encode writes the result in a CNI version. Versions before 0.3.0 need an
// address.
func (r Result) Encode(version string) (json.RawMessage, error) {
	r.CNIVersion = version
	if version != newest && version != previous {
		r.CNIVersion = newest
	}
	out, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	if r.CNIVersion != version {
		return cniconf.Convert(out, version)
	}
	return out, nil
}
