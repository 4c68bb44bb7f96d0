package resolve

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// Limits of one pod (reliability.md, Security).
const (
	maxAnnotation = 8 << 10 // bytes
	maxNetworks   = 16
)

// element is one network that a pod asks for (NPWG v1.3, section 4.1.2). The
// raw parts go to plugins as they were written, after validation.
type element struct {
	field     string // where it stands, for messages
	name      string
	namespace string
	ifName    string
	ips       []string // as written, with or without prefix length
	mac       string
	guid      string
	ports     []annotation.PortMapping
	bandwidth *annotation.Bandwidth
	cniArgs   map[string]json.RawMessage
	gateways  []netip.Addr
	// takesDefault: `default-route` is an empty list, which asks for the default
	// route through whatever gateway the network has (NPWG v1.3, 4.1.2.1.9).
	takesDefault bool
	deviceID     string
	ipamClaim    string
	request      string // all of this in one form
}

// parseNetworks reads a networks annotation in either form; key names it in
// messages, namespace is where names without one live.
func parseNetworks(key, value, namespace string) ([]element, error) {
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
	if len(list) > maxNetworks {
		return nil, annotation.Refused(core.CodeValue, key, value, "names %d networks, the limit is %d", len(list), maxNetworks)
	}
	for i := range list {
		if list[i].namespace == "" {
			list[i].namespace = namespace
		}
		if err := list[i].check(); err != nil {
			return nil, err
		}
		list[i].request = list[i].canonical()
	}
	return list, nil
}

// parseCSV reads [namespace/]name[@interface], joined by commas.
func parseCSV(key, value string) ([]element, error) {
	var out []element
	for i, item := range strings.Split(value, ",") {
		e := element{field: fmt.Sprintf("%s[%d]", key, i)}
		rest, ifName, hasIf := strings.Cut(strings.TrimSpace(item), "@")
		ns, name, hasNS := strings.Cut(rest, "/")
		if !hasNS {
			ns, name = "", rest
		}
		if (hasNS && ns == "") || (hasIf && ifName == "") || name == "" || strings.Contains(ifName, "@") {
			return nil, annotation.Refused(core.CodeValue, e.field, item, "is not [namespace/]name[@interface]")
		}
		e.namespace, e.name, e.ifName = ns, name, ifName
		out = append(out, e)
	}
	return out, nil
}

// parseJSON reads a list of elements. Keys that nobody knows are ignored, as
// the standard's other readers do; known keys in another case are refused, for
// some readers take them and others do not.
func parseJSON(key, value string) ([]element, error) {
	if err := cniconf.Strict([]byte(value)); err != nil {
		return nil, annotation.Refused(core.CodeValue, key, value, "cannot be read: %v", err)
	}
	var list []map[string]json.RawMessage
	if err := json.Unmarshal([]byte(value), &list); err != nil {
		return nil, annotation.Refused(core.CodeValue, key, value, "is not a JSON list of objects")
	}
	var out []element
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

func (p *elementParser) parse() element {
	e := element{field: p.key}
	p.take("name", "a string", &e.name)
	p.take("namespace", "a string", &e.namespace)
	p.take("interfaceRequest", "a string", &e.ifName) // its name before v1.0, which Multus reads too
	p.take("interface", "a string", &e.ifName)
	p.take("ips", "a list of strings", &e.ips)
	p.take("mac", "a string", &e.mac)
	p.take("infiniband-guid", "a string", &e.guid)
	p.take("portMappings", "a list of {hostPort, containerPort, protocol, hostIP}", &e.ports)
	p.take("bandwidth", "an object of whole numbers that are not negative", &e.bandwidth)
	p.take("cni-args", "an object", &e.cniArgs)
	p.take("deviceID", "a string", &e.deviceID)
	p.take("ipam-claim-reference", "a string", &e.ipamClaim)
	var gws []string
	p.take("default-route", "a list of strings", &gws)
	p.within("portMappings", "hostPort", "containerPort", "protocol", "hostIP")
	p.within("bandwidth", "ingressRate", "ingressBurst", "egressRate", "egressBurst")
	e.takesDefault = gws != nil && len(gws) == 0
	for _, s := range gws {
		gw, err := annotation.ParseAddr(s)
		if err != nil && p.err == nil {
			p.err = annotation.Refused(core.CodeValue, p.key+".default-route", s, "%v", err)
		}
		e.gateways = append(e.gateways, gw)
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
func (e *element) check() error {
	for _, test := range []func() (field, value, why string){
		e.nameFault, e.addressFault, e.deviceFault, e.portFault, e.bandwidthFault, e.gatewayFault,
	} {
		if field, value, why := test(); why != "" {
			return annotation.Refused(core.CodeValue, e.field+"."+field, value, "%s", why)
		}
	}
	return nil
}

func (e *element) nameFault() (field, value, why string) {
	switch {
	case e.name == "":
		return "name", "", "is missing"
	case !annotation.IsName(e.name):
		return "name", e.name, "is not a DNS-1123 name"
	case !annotation.IsNamespace(e.namespace):
		return "namespace", e.namespace, "is not a DNS-1123 label"
	case e.ifName != "" && annotation.IfNameFault(e.ifName) != "":
		return "interface", e.ifName, annotation.IfNameFault(e.ifName)
	}
	return "", "", ""
}

func (e *element) addressFault() (field, value, why string) {
	if e.ips != nil && len(e.ips) == 0 {
		return "ips", "[]", "names no address: leave the key out to be given one"
	}
	if len(e.ips) > 0 && e.ipamClaim != "" {
		return "ips", strings.Join(e.ips, ","), "cannot be combined with ipam-claim-reference"
	}
	for i, s := range e.ips {
		if _, err := parseIP(s); err != nil {
			return fmt.Sprintf("ips[%d]", i), s, err.Error()
		}
	}
	if e.ipamClaim != "" && !annotation.IsName(e.ipamClaim) {
		return "ipam-claim-reference", e.ipamClaim, "is not a DNS-1123 name"
	}
	if e.mac != "" {
		if _, err := annotation.ParseMAC(e.mac); err != nil {
			return "mac", e.mac, err.Error()
		}
	}
	return "", "", ""
}

// parseIP reads an address with or without a prefix length; without one the
// length of the prefix is -1.
func parseIP(s string) (ipRequest, error) {
	addr, bits, has := strings.Cut(s, "/")
	a, err := annotation.ParseAddr(addr)
	if err != nil || !has {
		return ipRequest{addr: a, bits: -1}, err
	}
	p, err := netip.ParsePrefix(a.String() + "/" + bits)
	if err != nil {
		return ipRequest{}, fmt.Errorf("has no valid prefix length")
	}
	return ipRequest{addr: a, bits: p.Bits()}, nil
}

type ipRequest struct {
	addr netip.Addr
	bits int
}

func (e *element) deviceFault() (field, value, why string) {
	guid := strings.ReplaceAll(e.guid, ":", "")
	if raw, err := hex.DecodeString(guid); e.guid != "" && (err != nil || len(raw) != 8) {
		return "infiniband-guid", e.guid, "is not a GUID of 8 bytes"
	}
	if strings.ContainsAny(e.deviceID, "/ \t\n") {
		return "deviceID", e.deviceID, "is not a device id"
	}
	return "", "", ""
}

func (e *element) portFault() (field, value, why string) {
	for i := range e.ports {
		m := &e.ports[i]
		p, field, why := m.Parse()
		if why != "" {
			return fmt.Sprintf("portMappings[%d].%s", i, field), m.Text(field), why
		}
		m.Protocol = p.Protocol
	}
	return "", "", ""
}

func (e *element) bandwidthFault() (field, value, why string) {
	if field, value, why = e.bandwidth.Fault(); field != "" {
		field = "." + field
	}
	return "bandwidth" + field, value, why
}

func (e *element) gatewayFault() (field, value, why string) {
	for i, gw := range e.gateways {
		if slices.Contains(e.gateways[:i], gw) {
			return "default-route", gw.String(), "is named twice"
		}
	}
	return "", "", ""
}

// runtimeConfig is what the element asks of plugins, by capability.
func (e *element) runtimeConfig() map[string]any {
	out := map[string]any{}
	if len(e.ips) > 0 {
		out["ips"] = e.ips
	}
	if e.mac != "" {
		out["mac"] = e.mac
	}
	if e.guid != "" {
		out["infinibandGUID"] = e.guid
	}
	if len(e.ports) > 0 {
		out["portMappings"] = e.ports
	}
	if e.bandwidth != nil {
		out["bandwidth"] = e.bandwidth
	}
	return out
}

// fieldOf is the element's key for a capability.
func fieldOf(capability string) string {
	if capability == "infinibandGUID" {
		return "infiniband-guid"
	}
	return capability
}

// defaultElement reads the annotation that replaces the default network. Names
// without a namespace are meant in Multus' own (multinet.md, Annotations).
func defaultElement(all map[string]string, multusNamespace string) (*element, error) {
	list, err := parseNetworks(v1.AnnDefaultNetwork, all[v1.AnnDefaultNetwork], multusNamespace)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	if len(list) != 1 {
		return nil, annotation.Refused(core.CodeValue, v1.AnnDefaultNetwork, all[v1.AnnDefaultNetwork], "names %d networks, it must be one", len(list))
	}
	if list[0].ifName != "" {
		return nil, annotation.Refused(core.CodeValue, list[0].field+".interface", list[0].ifName, "cannot be chosen for the default network")
	}
	return &list[0], nil
}
