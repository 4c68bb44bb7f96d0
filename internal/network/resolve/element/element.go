// Package element reads what a pod asks for of one network: an element of its networks
// annotation. It is pure: no source, no kernel.
package element

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// Limits of one annotation (reliability.md, Security): bytes, and networks.
const (
	maxAnnotation = 8 << 10
	MaxNetworks   = 16
)

// Element is one network that a pod asks for (NPWG v1.3, section 4.1.2). The
// raw parts go to plugins as they were written, after validation.
type Element struct {
	Field     string // where it stands, for messages
	Name      string
	Namespace string
	IfName    string
	IPs       []string // as written, with or without prefix length
	MAC       string
	GUID      string
	Ports     []annotation.PortMapping
	Bandwidth *annotation.Bandwidth
	CNIArgs   map[string]json.RawMessage
	ArgIPs    []string // ips of CNIArgs, which IPAM plugins take as addresses of the interface
	ArgMAC    string   // mac of CNIArgs, likewise
	Gateways  []netip.Addr
	// TakesDefault: `default-route` is an empty list, which asks for the default
	// route through whatever gateway the network has (NPWG v1.3, 4.1.2.1.9).
	TakesDefault bool
	DeviceID     string
	IPAMClaim    string
	Request      string // all of this in one form
}

// Parse reads a networks annotation in either form; key names it in
// messages, namespace is where names without one live.
func Parse(key, value, namespace string) ([]Element, error) {
	if len(value) > maxAnnotation {
		return nil, annotation.Refused(core.CodeValue, key, value, "has %d bytes, the limit is %d", len(value), maxAnnotation)
	}
	value = strings.TrimSpace(value)
	if value == "" {
		return nil, nil
	}
	parse := parseCSV
	// csv can hold none of these characters (DNS-1123 names, '/', '@').
	if strings.ContainsAny(value, `[{"`) {
		parse = parseJSON
	}
	list, err := parse(key, value)
	if err != nil {
		return nil, err
	}
	if len(list) > MaxNetworks {
		return nil, annotation.Refused(core.CodeValue, key, value, "names %d networks, the limit is %d", len(list), MaxNetworks)
	}
	for i := range list {
		if list[i].Namespace == "" {
			list[i].Namespace = namespace
		}
		err := list[i].check()
		if err == nil {
			err = list[i].shares(list[:i])
		}
		if err != nil {
			return nil, err
		}
		list[i].Request = list[i].canonical()
	}
	return list, nil
}

// shares refuses the IPAMClaim of another element: its addresses are one interface's.
func (e *Element) shares(others []Element) error {
	at := slices.IndexFunc(others, func(o Element) bool { return e.IPAMClaim != "" && o.IPAMClaim == e.IPAMClaim })
	if at < 0 {
		return nil
	}
	return annotation.Refused(core.CodeConflict, e.Field+".ipam-claim-reference", e.IPAMClaim, "is that of %s already", others[at].Field)
}

// parseCSV reads [namespace/]name[@interface], joined by commas.
func parseCSV(key, value string) ([]Element, error) {
	var out []Element
	for i, item := range strings.Split(value, ",") {
		e := Element{Field: fmt.Sprintf("%s[%d]", key, i)}
		rest, ifName, hasIf := strings.Cut(strings.TrimSpace(item), "@")
		ns, name, hasNS := strings.Cut(rest, "/")
		if !hasNS {
			ns, name = "", rest
		}
		if (hasNS && ns == "") || (hasIf && ifName == "") || name == "" || strings.Contains(ifName, "@") {
			return nil, annotation.Refused(core.CodeValue, e.Field, item, "is not [namespace/]name[@interface]")
		}
		e.Namespace, e.Name, e.IfName = ns, name, ifName
		out = append(out, e)
	}
	return out, nil
}

// parseJSON reads a list of elements. Keys that nobody knows are ignored, as
// the standard's other readers do; known keys in another case are refused, for
// some readers take them and others do not.
func parseJSON(key, value string) ([]Element, error) {
	if err := cniconf.Strict([]byte(value)); err != nil {
		return nil, annotation.Refused(core.CodeValue, key, value, "cannot be read: %v", err)
	}
	var list []map[string]json.RawMessage
	if err := json.Unmarshal([]byte(value), &list); err != nil {
		return nil, annotation.Refused(core.CodeValue, key, value, "is not a JSON list of objects")
	}
	var out []Element
	for i, keys := range list {
		p := elementParser{key: fmt.Sprintf("%s[%d]", key, i), keys: keys}
		if keys == nil {
			return nil, annotation.Refused(core.CodeValue, p.key, "null", "is not an object")
		}
		e := p.parse()
		p.cased(p.key, keys, p.known)
		if p.err != nil {
			return nil, p.err
		}
		out = append(out, e)
	}
	return out, nil
}

// elementParser takes typed values out of one JSON element; the first refusal
// stays.
type elementParser struct {
	key   string
	keys  map[string]json.RawMessage
	known []string // keys that were asked for
	err   error
}

func (p *elementParser) parse() Element {
	e := Element{Field: p.key}
	p.take("name", "a string", &e.Name)
	p.take("namespace", "a string", &e.Namespace)
	p.take("interfaceRequest", "a string", &e.IfName) // its name before v1.0, which Multus reads too
	p.take("interface", "a string", &e.IfName)
	p.take("ips", "a list of strings", &e.IPs)
	p.take("mac", "a string", &e.MAC)
	p.take("infiniband-guid", "a string", &e.GUID)
	p.take("portMappings", "a list of {hostPort, containerPort, protocol, hostIP}", &e.Ports)
	p.take("bandwidth", "an object of whole numbers that are not negative", &e.Bandwidth)
	p.take("cni-args", "an object", &e.CNIArgs)
	p.argued(&e)
	p.take("deviceID", "a string", &e.DeviceID)
	p.take("ipam-claim-reference", "a string", &e.IPAMClaim)
	var gws []string
	p.take("default-route", "a list of strings", &gws)
	p.within("portMappings", "hostPort", "containerPort", "protocol", "hostIP")
	p.within("bandwidth", "ingressRate", "ingressBurst", "egressRate", "egressBurst")
	e.TakesDefault = gws != nil && len(gws) == 0
	for _, s := range gws {
		gw, err := annotation.ParseAddr(s)
		if err != nil && p.err == nil {
			p.err = annotation.Refused(core.CodeValue, p.key+".default-route", s, "%v", err)
		}
		e.Gateways = append(e.Gateways, gw)
	}
	return e
}

// take decodes one key; null is the same as absent.
func (p *elementParser) take(key, want string, to any) {
	p.known = append(p.known, key)
	raw, ok := p.keys[key]
	if !ok || string(raw) == "null" || p.err != nil {
		return
	}
	if err := json.Unmarshal(raw, to); err != nil {
		p.err = annotation.Refused(core.CodeValue, p.key+"."+key, string(raw), "is not %s", want)
	}
}

// argued reads the keys of cni-args that plugins take as the interface's addresses and MAC
// (CNI's conventions for args).
func (p *elementParser) argued(e *Element) {
	of := elementParser{key: p.key + ".cni-args", keys: e.CNIArgs, err: p.err}
	of.take("ips", "a list of strings", &e.ArgIPs)
	of.take("mac", "a string", &e.ArgMAC)
	of.cased(of.key, of.keys, of.known)
	p.err = of.err
}

// within refuses keys of the objects in a value that are known in another case.
func (p *elementParser) within(key string, known ...string) {
	raw := p.keys[key]
	objects := []map[string]json.RawMessage{nil}
	if json.Unmarshal(raw, &objects[0]) != nil && json.Unmarshal(raw, &objects) != nil {
		return // it is absent, or refused already
	}
	for _, keys := range objects {
		p.cased(p.key+"."+key, keys, known)
	}
}

// cased refuses keys that are known in another case.
func (p *elementParser) cased(where string, keys map[string]json.RawMessage, known []string) {
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		at := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, key) })
		if p.err == nil && at >= 0 && known[at] != key {
			p.err = annotation.Refused(core.CodeValue, where, key, "is no key: it is written %s", known[at])
		}
	}
}

// check validates what does not depend on the network (multinet.md, rule 1).
func (e *Element) check() error {
	for _, test := range []func() (field, value, why string){
		e.nameFault, e.addressFault, e.deviceFault, e.portFault, e.bandwidthFault, e.gatewayFault,
	} {
		if field, value, why := test(); why != "" {
			return annotation.Refused(core.CodeValue, e.Field+"."+field, value, "%s", why)
		}
	}
	return nil
}

func (e *Element) nameFault() (field, value, why string) {
	switch {
	case e.Name == "":
		return "name", "", "is missing"
	case !annotation.IsName(e.Name):
		return "name", e.Name, "is not a DNS-1123 name"
	case !annotation.IsNamespace(e.Namespace):
		return "namespace", e.Namespace, "is not a DNS-1123 label"
	case e.IfName != "" && annotation.IfNameFault(e.IfName) != "":
		return "interface", e.IfName, annotation.IfNameFault(e.IfName)
	}
	return "", "", ""
}

func (e *Element) addressFault() (field, value, why string) {
	if e.IPs != nil && len(e.IPs) == 0 {
		return "ips", "[]", "names no address: leave the key out to be given one"
	}
	if len(e.IPs) > 0 && e.IPAMClaim != "" {
		return "ips", strings.Join(e.IPs, ","), "cannot be combined with ipam-claim-reference"
	}
	if e.IPAMClaim != "" && !annotation.IsName(e.IPAMClaim) {
		return "ipam-claim-reference", e.IPAMClaim, "is not a DNS-1123 name"
	}
	for _, a := range e.asks() {
		if field, value, why = a.fault(); why != "" {
			return field, value, why
		}
	}
	return "", "", ""
}

// asks are the addresses and the MAC that an element asks for in one place.
type asks struct {
	within string // what comes before the keys there
	ips    []string
	mac    string
}

// asks are both places: the element's own keys, and those of cni-args.
func (e *Element) asks() []asks {
	return []asks{{"", e.IPs, e.MAC}, {"cni-args.", e.ArgIPs, e.ArgMAC}}
}

func (a asks) fault() (field, value, why string) {
	for i, s := range a.ips {
		if _, err := ParseIP(s); err != nil {
			return fmt.Sprintf("%sips[%d]", a.within, i), s, err.Error()
		}
	}
	if a.mac != "" {
		if _, err := annotation.ParseMAC(a.mac); err != nil {
			return a.within + "mac", a.mac, err.Error()
		}
	}
	return "", "", ""
}

// OtherIPs are addresses that the element asks for and that are not ips, with the key that
// does; nil for none.
func (e *Element) OtherIPs(ips []string) (key string, asked []string) {
	for _, a := range e.asks() {
		if len(a.ips) > 0 && !SameIPs(a.ips, ips) {
			return e.Field + "." + a.within + "ips", a.ips
		}
	}
	return "", nil
}

// OtherMAC is a MAC that the element asks for and that is not mac, with the key that does; ""
// for none.
func (e *Element) OtherMAC(mac string) (key, asked string) {
	for _, a := range e.asks() {
		if a.mac != "" && !SameMAC(a.mac, mac) {
			return e.Field + "." + a.within + "mac", a.mac
		}
	}
	return "", ""
}

// Unargued takes a key from what plugins are told by cni-args.
func (e *Element) Unargued(key string) {
	e.CNIArgs = maps.Clone(e.CNIArgs) // others have the same map
	delete(e.CNIArgs, key)
}

// ParseIP reads an address with or without a prefix length; without one the
// length of the prefix is -1.
func ParseIP(s string) (IPRequest, error) {
	addr, bits, has := strings.Cut(s, "/")
	a, err := annotation.ParseAddr(addr)
	if err != nil || !has {
		return IPRequest{Addr: a, Bits: -1}, err
	}
	p, err := netip.ParsePrefix(a.String() + "/" + bits)
	if err != nil {
		return IPRequest{}, fmt.Errorf("has no valid prefix length")
	}
	return IPRequest{Addr: a, Bits: p.Bits()}, nil
}

// IPRequest is an address as it is asked for; Bits is -1 without a prefix length.
type IPRequest struct {
	Addr netip.Addr
	Bits int
}

func (e *Element) deviceFault() (field, value, why string) {
	guid := strings.ReplaceAll(e.GUID, ":", "")
	if raw, err := hex.DecodeString(guid); e.GUID != "" && (err != nil || len(raw) != 8) {
		return "infiniband-guid", e.GUID, "is not a GUID of 8 bytes"
	}
	if strings.ContainsAny(e.DeviceID, "/ \t\n") {
		return "deviceID", e.DeviceID, "is not a device id"
	}
	return "", "", ""
}

func (e *Element) portFault() (field, value, why string) {
	for i := range e.Ports {
		m := &e.Ports[i]
		p, field, why := m.Parse()
		if why != "" {
			return fmt.Sprintf("portMappings[%d].%s", i, field), m.Text(field), why
		}
		m.Protocol = p.Protocol
	}
	return "", "", ""
}

func (e *Element) bandwidthFault() (field, value, why string) {
	if field, value, why = e.Bandwidth.Fault(); field != "" {
		field = "." + field
	}
	return "bandwidth" + field, value, why
}

func (e *Element) gatewayFault() (field, value, why string) {
	for i, gw := range e.Gateways {
		if slices.Contains(e.Gateways[:i], gw) {
			return "default-route", gw.String(), "is named twice"
		}
	}
	return "", "", ""
}

// RuntimeConfig is what the element asks of plugins, by capability.
func (e *Element) RuntimeConfig() map[string]any {
	out := map[string]any{}
	if len(e.IPs) > 0 {
		out["ips"] = e.IPs
	}
	if e.MAC != "" {
		out["mac"] = e.MAC
	}
	if e.GUID != "" {
		out["infinibandGUID"] = e.GUID
	}
	if len(e.Ports) > 0 {
		out["portMappings"] = e.Ports
	}
	if e.Bandwidth != nil {
		out["bandwidth"] = e.Bandwidth
	}
	return out
}

// FieldOf is the element's key for a capability.
func FieldOf(capability string) string {
	if capability == "infinibandGUID" {
		return "infiniband-guid"
	}
	return capability
}

// canonical is an element in one form: equal requests are equal strings.
func (e *Element) canonical() string {
	var gateways *[]string // an empty list is a request too
	if len(e.Gateways) > 0 || e.TakesDefault {
		gateways = &[]string{}
	}
	for _, gw := range e.Gateways {
		*gateways = append(*gateways, gw.String())
	}
	raw, err := json.Marshal(struct {
		Name      string                     `json:"name"`
		Namespace string                     `json:"namespace"`
		Interface string                     `json:"interface,omitempty"`
		IPs       []string                   `json:"ips,omitempty"`
		MAC       string                     `json:"mac,omitempty"`
		GUID      string                     `json:"infiniband-guid,omitempty"`
		Ports     []annotation.PortMapping   `json:"portMappings,omitempty"`
		Bandwidth *annotation.Bandwidth      `json:"bandwidth,omitempty"`
		CNIArgs   map[string]json.RawMessage `json:"cni-args,omitempty"`
		Gateways  *[]string                  `json:"default-route,omitempty"`
		DeviceID  string                     `json:"deviceID,omitempty"`
		IPAMClaim string                     `json:"ipam-claim-reference,omitempty"`
	}{
		e.Name, e.Namespace, e.IfName, e.IPs, e.MAC, e.GUID, e.Ports, e.Bandwidth, e.CNIArgs, gateways, e.DeviceID, e.IPAMClaim,
	})
	if err != nil {
		return "" // everything in it was read from JSON
	}
	return string(raw)
}

// Label is the network's name, as core.Want's Network has it.
func (e *Element) Label() string { return e.Namespace + "/" + e.Name }

// SameIPs tells that two lists have the same addresses, whatever their order and prefix lengths.
func SameIPs(a, b []string) bool {
	texts := func(list []string) (out []string) {
		for _, s := range list {
			if q, err := ParseIP(s); err == nil {
				out = append(out, q.Addr.String())
			}
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(texts(a), texts(b))
}

// SameMAC tells that two texts are one MAC.
func SameMAC(a, b string) bool {
	x, err := annotation.ParseMAC(a)
	y, err2 := annotation.ParseMAC(b)
	return err == nil && err2 == nil && x.String() == y.String()
}
