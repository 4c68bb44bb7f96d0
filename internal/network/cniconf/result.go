package cniconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	types040 "github.com/containernetworking/cni/pkg/types/040"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/fairlead/fairlead/internal/core"
)

// Result is what a runtime gets for one network, in its CNI version. links are
// those of the network's steps in order; the links of defroute steps, also of
// other networks, may be among them and settle who has the default route. The
// last foreign plugin's result is the base, since a chained plugin answers for
// all that came before it. Versions 0.1.0 and 0.2.0 need at least one address.
func Result(links []core.Link, netns, version string) ([]byte, error) {
	if raw := whole(links, version); raw != nil {
		return raw, nil
	}
	res, err := merged(links, netns)
	if err != nil {
		return nil, err
	}
	return Marshal(res, version)
}

// whole is the last plugin's answer, which PluginLink has proved, where nothing
// is to be changed in it, nil elsewhere: to read it and write it again is a good
// part of an ADD.
func whole(links []core.Link, version string) json.RawMessage {
	if len(links) == 0 {
		return nil
	}
	raw := links[len(links)-1].CNIResult
	if !bytes.HasPrefix(raw, []byte(`{"cniVersion":"`+version+`"`)) {
		return nil // or it is written in another way
	}
	return raw
}

// Final is the prevResult that the foreign plugins of a network get at CHECK
// and DEL. links are as for Result. Where a defroute step serves a family, no
// default route of that family stands in it: that step proves them, and
// plugins know no ECMP. The gateways of the addresses stay what the plugin
// said, because its IPAM compares them.
func Final(links []core.Link, netns, version string) ([]byte, error) {
	if raw := whole(links, version); raw != nil {
		return raw, nil
	}
	res, err := joined(links, netns)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if onlyRoutes(l) {
			dropDefaults(res, defaults(l.Routes))
		}
	}
	return Marshal(res, version)
}

// Convert gives a result in another CNI version.
func Convert(result []byte, version string) ([]byte, error) {
	res, err := decodeResult(result, "")
	if err != nil {
		return nil, core.Errorf(core.CodeDecode, "result: %w", err)
	}
	return Marshal(res, version)
}

// PluginResult proves what a plugin printed and gives it in the version of the
// plugin's configuration, which a result without a version is taken to have
// (containernetworking/cni#895). Nothing of a result in that version is lost.
func PluginResult(out []byte, version string) (json.RawMessage, error) {
	fixed, has, err := versioned(out, version)
	if err != nil {
		return nil, core.Errorf(core.CodeDecode, "result: %w", err)
	}
	if has == version {
		if _, err := decodeResult(fixed, ""); err != nil {
			return nil, core.Errorf(core.CodeDecode, "result: %w", err)
		}
		return fixed, nil
	}
	return Convert(fixed, version)
}

// PluginLink is PluginResult, and what it says of interface ifName of the pod.
// A plugin that makes no interface of this name (a meta plugin, vhost-user)
// still has a result. mtu, in bytes, is written into the result where it is not
// 0 and version knows it; the result must then be of the agent's own making, for
// what the newest version does not know is lost.
func PluginLink(out []byte, version, ifName string, mtu int) (core.Link, error) {
	fixed, has, err := versioned(out, version)
	if err != nil {
		return core.Link{}, core.Errorf(core.CodeDecode, "result: %w", err)
	}
	if has != version {
		if fixed, err = Convert(fixed, version); err != nil {
			return core.Link{}, err
		}
	}
	res, err := decoded(fixed, version)
	if err != nil {
		return core.Link{}, core.Errorf(core.CodeDecode, "result: %w", err)
	}
	if at := podInterface(res, ifName); at >= 0 && mtu != 0 && version == versionGC && res.Interfaces[at].Mtu != mtu {
		res.Interfaces[at].Mtu = mtu
		if fixed, err = marshal(res); err != nil {
			return core.Link{}, err
		}
	}
	l, err := linkIn(res, ifName, fixed)
	if errors.Is(err, core.ErrNotFound) {
		return core.Link{IfName: ifName, CNIResult: fixed}, nil
	}
	return l, err
}

// WithMTU is a result in which the pod's interface ifName has this MTU, in
// bytes, and all else is as it was. One without the interface, or of a version
// that knows no MTU (before 1.1), stays as it is.
func WithMTU(result json.RawMessage, ifName string, mtu int) (json.RawMessage, error) {
	res, err := decodeResult(result, "")
	if err != nil {
		return nil, core.Errorf(core.CodeDecode, "result: %w", err)
	}
	at := podInterface(res, ifName)
	_, version, err := versioned(result, "")
	if err != nil || version != versionGC || at < 0 || res.Interfaces[at].Mtu == mtu {
		return result, err
	}
	var doc map[string]json.RawMessage
	var interfaces []map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(result, &doc), json.Unmarshal(doc["interfaces"], &interfaces)); err != nil {
		return nil, core.Errorf(core.CodeDecode, "result: %w", err)
	}
	interfaces[at]["mtu"] = json.RawMessage(strconv.Itoa(mtu))
	if doc["interfaces"], err = json.Marshal(interfaces); err != nil {
		return nil, err
	}
	return json.Marshal(doc)
}

// LinkFromResult reads what a plugin says it made of interface ifName of the
// pod. A result with addresses but no interface list (0.1.0, 0.2.0) speaks of
// that interface. core.ErrNotFound: the plugin made no such interface.
func LinkFromResult(result []byte, ifName string) (core.Link, error) {
	res, err := decodeResult(result, "")
	if err != nil {
		return core.Link{}, core.Errorf(core.CodeDecode, "result: %w", err)
	}
	return linkIn(res, ifName, result)
}

// linkIn is LinkFromResult of a result that was read.
func linkIn(res *current.Result, ifName string, result []byte) (core.Link, error) {
	at := podInterface(res, ifName)
	if at < 0 && (len(res.Interfaces) > 0 || len(res.IPs) == 0) {
		return core.Link{}, fmt.Errorf("interface %s in the result: %w", ifName, core.ErrNotFound)
	}
	l := linkOf(res, at)
	l.IfName, l.CNIResult = ifName, append(json.RawMessage(nil), result...)
	return l, nil
}

// decodeResult reads a result of any version into the newest one, and refuses
// everything that a conversion or a later reader could trip over. fallback is
// the version of a result that names none, "" means 0.1.0.
func decodeResult(raw []byte, fallback string) (*current.Result, error) {
	raw, version, err := versioned(raw, fallback)
	if err != nil {
		return nil, err
	}
	return decoded(raw, version)
}

// decoded is decodeResult of a result that names its version.
func decoded(raw []byte, version string) (*current.Result, error) {
	res, err := create.Create(version, raw)
	if err != nil {
		return nil, err
	}
	if hasNull(res) {
		return nil, errors.New("null stands in interfaces, ips or routes")
	}
	newest, err := res.GetAsVersion(current.ImplementedSpecVersion)
	if err != nil {
		return nil, err
	}
	out, ok := newest.(*current.Result)
	if !ok {
		return nil, fmt.Errorf("no conversion of %T", newest)
	}
	return out, sound(out)
}

// versioned gives the result with its version written into it; plugins older
// than 1.0.0 may leave it out (containernetworking/cni#895).
func versioned(raw []byte, fallback string) (fixed []byte, version string, err error) {
	if k := kind(raw); k != "an object" && (k == "nothing" || json.Valid(raw)) {
		return nil, "", fmt.Errorf("want an object, got %s", k)
	}
	var head map[string]json.RawMessage
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, "", fmt.Errorf("not JSON: %w", err)
	}
	if v, ok := head["cniVersion"]; ok {
		if err := json.Unmarshal(v, &version); err != nil {
			return nil, "", fmt.Errorf("key \"cniVersion\": want a string, got %s", kind(v))
		}
	}
	if version != "" {
		return raw, version, nil
	}
	if version = fallback; version == "" {
		version = versionNone
	}
	if head["cniVersion"], err = json.Marshal(version); err != nil {
		return nil, "", err
	}
	fixed, err = json.Marshal(head)
	return fixed, version, err
}

// hasNull finds null elements, which the library's conversions dereference.
func hasNull(res types.Result) bool {
	switch r := res.(type) {
	case *current.Result:
		return anyNil(r.Interfaces) || anyNil(r.IPs) || anyNil(r.Routes)
	case *types040.Result:
		return anyNil(r.Interfaces) || anyNil(r.IPs) || anyNil(r.Routes)
	}
	return false // 0.1.0 and 0.2.0 have no lists of pointers
}

func anyNil[T any](list []*T) bool {
	for _, e := range list {
		if e == nil {
			return true
		}
	}
	return false
}

// sound checks addresses, routes, MACs and indexes.
func sound(res *current.Result) error {
	for i, in := range res.Interfaces {
		if in.Mac == "" {
			continue
		}
		if _, err := net.ParseMAC(in.Mac); err != nil {
			return fmt.Errorf("interfaces[%d].mac: %w", i, err)
		}
	}
	for i, ip := range res.IPs {
		if _, err := prefixOf(ip.Address); err != nil {
			return fmt.Errorf("ips[%d].address: %w", i, err)
		}
		if at := ip.Interface; at != nil && (*at < 0 || *at >= len(res.Interfaces)) {
			return fmt.Errorf("ips[%d].interface: %d of %d interfaces", i, *at, len(res.Interfaces))
		}
	}
	for i, rt := range res.Routes {
		if _, err := prefixOf(rt.Dst); err != nil {
			return fmt.Errorf("routes[%d].dst: %w", i, err)
		}
	}
	return nil
}

// Marshal writes res in a CNI version, "" being 0.1.0.
func Marshal(res *current.Result, version string) ([]byte, error) {
	if version == "" {
		version = versionNone
	}
	if err := versionKnown(version); err != nil {
		return nil, err
	}
	if version != versionGC { // mtu came with CNI 1.1
		stripped := *res
		stripped.Interfaces = make([]*current.Interface, len(res.Interfaces))
		for i, in := range res.Interfaces {
			stripped.Interfaces[i] = in.Copy()
			stripped.Interfaces[i].Mtu = 0
		}
		res = &stripped
	}
	out, err := res.GetAsVersion(version)
	if err != nil {
		return nil, core.Errorf(core.CodeVersion, "result in CNI version %s: %w", version, err)
	}
	if r, ok := out.(*current.Result); ok {
		return marshal(r)
	}
	return json.Marshal(out)
}

// marshal writes a result of 1.0.0 or later as the library does, which writes,
// reads and writes it to leave an empty "dns" out.
func marshal(r *current.Result) ([]byte, error) {
	if r.DNS.IsEmpty() {
		r.DNS = types.DNS{}
	}
	return json.Marshal(struct {
		CNIVersion string               `json:"cniVersion,omitempty"`
		Interfaces []*current.Interface `json:"interfaces,omitempty"`
		IPs        []*current.IPConfig  `json:"ips,omitempty"`
		Routes     []*types.Route       `json:"routes,omitempty"`
		DNS        types.DNS            `json:"dns,omitzero"`
	}(*r))
}

// merged builds the one result of a network's links.
func merged(links []core.Link, netns string) (*current.Result, error) {
	res, err := joined(links, netns)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if onlyRoutes(l) {
			settle(res, l)
		}
	}
	return res, nil
}

// joined is merged without what defroute steps changed.
func joined(links []core.Link, netns string) (*current.Result, error) {
	res := &current.Result{CNIVersion: current.ImplementedSpecVersion}
	base := -1
	for i, l := range links {
		if len(l.CNIResult) > 0 {
			base = i
		}
	}
	if base >= 0 {
		var err error
		if res, err = decodeResult(links[base].CNIResult, ""); err != nil {
			return nil, core.Errorf(core.CodeDecode, "result of a delegate: %w", err)
		}
	}
	for _, l := range links[base+1:] {
		if !onlyRoutes(l) {
			appendLink(res, l, netns)
		}
	}
	return res, nil
}

// onlyRoutes tells the link of a defroute step: it names an interface and its
// default gateways, and made no interface.
func onlyRoutes(l core.Link) bool {
	return l.HostIf == "" && len(l.MAC) == 0 && len(l.Addrs) == 0 && len(l.CNIResult) == 0
}

// appendLink adds one of our own NICs.
func appendLink(res *current.Result, l core.Link, netns string) {
	if l.HostIf != "" {
		res.Interfaces = append(res.Interfaces, &current.Interface{Name: l.HostIf})
	}
	at := len(res.Interfaces)
	res.Interfaces = append(res.Interfaces, &current.Interface{Name: l.IfName, Mac: l.MAC.String(), Mtu: l.MTU, Sandbox: netns})
	for _, p := range l.Addrs {
		res.IPs = append(res.IPs, &current.IPConfig{
			Interface: current.Int(at), Address: ipNet(p), Gateway: gatewayOf(p, defaults(l.Routes)),
		})
	}
	for _, r := range l.Routes {
		res.Routes = append(res.Routes, routeOut(r))
	}
	if len(l.DNS.Nameservers)+len(l.DNS.Search)+len(l.DNS.Options) > 0 || l.DNS.Domain != "" {
		res.DNS = types.DNS(l.DNS)
	}
}

// settle makes res tell the truth after a defroute step: that step's interface
// has the default routes of its families, no other has.
func settle(res *current.Result, l core.Link) {
	gws := defaults(l.Routes)
	ours := podInterface(res, l.IfName)
	dropDefaults(res, gws)
	for _, ip := range res.IPs {
		settleGateway(ip, ours, gws)
	}
	if ours < 0 {
		return
	}
	for _, gw := range gws {
		res.Routes = append(res.Routes, routeOut(core.Route{Dst: core.Anywhere(gw), GW: gw}))
	}
}

// dropDefaults removes the default routes of the families of gws.
func dropDefaults(res *current.Result, gws []netip.Addr) {
	kept := []*types.Route{}
	for _, r := range res.Routes {
		if p, err := prefixOf(r.Dst); err != nil || p.Bits() != 0 || !hasFamily(gws, p.Addr().Is4()) {
			kept = append(kept, r)
		}
	}
	res.Routes = kept
}

// settleGateway corrects the gateway of one address: gws are those of interface
// ours.
func settleGateway(ip *current.IPConfig, ours int, gws []netip.Addr) {
	p, err := prefixOf(ip.Address)
	if err != nil || !hasFamily(gws, p.Addr().Is4()) {
		return
	}
	ip.Gateway = nil
	if ours >= 0 && (ip.Interface == nil || *ip.Interface == ours) {
		ip.Gateway = gatewayOf(p, gws)
	}
}

// podInterface is the index of the interface called ifName inside the pod, -1
// for none. Some plugins leave the sandbox empty: a name without one will do
// when no interface has both.
func podInterface(res *current.Result, ifName string) int {
	found := -1
	for i, in := range res.Interfaces {
		if in.Name != ifName {
			continue
		}
		if in.Sandbox != "" {
			return i
		}
		found = i
	}
	return found
}

// linkOf reads interface at (or -1, a result without a list) of res. A route
// without gateway goes through the gateway of its family, as plugins program
// it (CNI spec 1.1, "Success": gw).
func linkOf(res *current.Result, at int) core.Link {
	var l core.Link
	if at >= 0 {
		in := res.Interfaces[at]
		mac, _ := net.ParseMAC(in.Mac) // decodeResult has proved it
		l.MAC, l.MTU = core.MAC(mac), in.Mtu
	}
	for _, ip := range res.IPs {
		if ip.Interface != nil && *ip.Interface != at {
			continue
		}
		p, _ := prefixOf(ip.Address) // proved as well
		l.Addrs = append(l.Addrs, p)
		if gw := addrOf(ip.Gateway); gw.IsValid() {
			l.Gateways = append(l.Gateways, gw)
		}
	}
	for _, r := range res.Routes {
		dst, _ := prefixOf(r.Dst) // proved as well
		l.Routes = append(l.Routes, core.Route{Dst: dst.Masked(), GW: routeGateway(r, dst, l.Gateways)})
	}
	l.DNS = core.DNS(res.DNS)
	return l
}

func routeGateway(r *types.Route, dst netip.Prefix, gws []netip.Addr) netip.Addr {
	if gw := addrOf(r.GW); gw.IsValid() {
		return gw
	}
	for _, gw := range gws {
		if gw.Is4() == dst.Addr().Is4() {
			return gw
		}
	}
	return netip.Addr{}
}

// defaults are the gateways of the default routes among routes.
func defaults(routes []core.Route) []netip.Addr {
	var out []netip.Addr
	for _, r := range routes {
		if r.Dst.IsValid() && r.Dst.Bits() == 0 && r.GW.IsValid() {
			out = append(out, r.GW)
		}
	}
	return out
}

// gatewayOf picks the gateway for an address: one inside its network, else the
// first of its family (a gateway reached on-link from a /32), else none.
func gatewayOf(p netip.Prefix, gws []netip.Addr) net.IP {
	var first net.IP
	for _, gw := range gws {
		if p.Masked().Contains(gw) {
			return gw.AsSlice()
		}
		if first == nil && gw.Is4() == p.Addr().Is4() {
			first = gw.AsSlice()
		}
	}
	return first
}

func hasFamily(addrs []netip.Addr, is4 bool) bool {
	for _, a := range addrs {
		if a.Is4() == is4 {
			return true
		}
	}
	return false
}

func routeOut(r core.Route) *types.Route {
	out := &types.Route{Dst: ipNet(r.Dst)}
	if r.GW.IsValid() {
		out.GW = r.GW.AsSlice()
	}
	return out
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// prefixOf is the inverse of ipNet; an address without a mask of its family is
// refused.
func prefixOf(n net.IPNet) (netip.Prefix, error) {
	a := addrOf(n.IP)
	ones, size := n.Mask.Size()
	if !a.IsValid() || size != a.BitLen() {
		return netip.Prefix{}, errors.New("not an address with a prefix length of its family")
	}
	return netip.PrefixFrom(a, ones), nil
}
