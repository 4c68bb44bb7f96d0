package declared

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// Of is what a PodNetwork says of a pod, nil where it speaks of others. start is the
// first ordinal of its StatefulSet (spec.ordinals.start).
//
// OrdinalOutOfRange (103): a range that ends before the pod's ordinal. Those of Check: an
// API server without its rules, or with others, has let it pass.
func Of(p *v1alpha1.PodNetwork, pod core.Pod, start int) (*Declaration, error) {
	d := &Declaration{Source: "PodNetwork " + p.Namespace + "/" + p.Name}
	if p.Namespace != pod.Namespace {
		return nil, nil
	}
	at := 0
	if set := p.Spec.StatefulSet; set != "" {
		n, ok := ordinal(pod.Name, set)
		if !ok {
			return nil, nil
		}
		d.Level, at = OfStatefulSet, n-start
	} else if p.Name != pod.Name {
		return nil, nil
	}
	if err := Check(p); err != nil {
		return nil, core.Blame(core.WithCode(core.CodeValue, d.Source, err), d.Source)
	}
	for n := range p.Spec.Interfaces {
		i := Interface{PodInterface: p.Spec.Interfaces[n]}
		if err := i.own(at); err != nil {
			return nil, core.Blame(core.Reasoned(core.CodeAddress, core.ReasonOrdinalOutOfRange, "%s: interface %s: %v", d.Source, i.Name, err), d.Source)
		}
		d.Interfaces = append(d.Interfaces, i)
	}
	return d, nil
}

// ordinal is that of a pod in a StatefulSet.
func ordinal(pod, set string) (int, bool) {
	text, ok := strings.CutPrefix(pod, set+"-")
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n >= 0 && strconv.Itoa(n) == text
}

// own puts the pod's own address and MAC in the place of a range and a base.
func (i *Interface) own(at int) error {
	if i.IPRange != "" {
		r, length, err := parseRange(i.IPRange)
		if err != nil {
			return err
		}
		a, ok := add(r.From, at)
		if !ok || !r.Contains(a) {
			return fmt.Errorf("ipRange %s has no address for replica %d", i.IPRange, at)
		}
		i.IPRange, i.IPs = "", []string{a.String() + length}
	}
	if i.MACBase != "" {
		base, err := annotation.ParseMAC(i.MACBase)
		if err != nil {
			return err
		}
		i.MACBase, i.MAC = "", above(base, at).String()
	}
	return nil
}

// add is the address that is n behind a; n may be too large, or negative.
func add(a netip.Addr, n int) (netip.Addr, bool) {
	raw := a.AsSlice()
	if n < 0 {
		return a, false
	}
	for i := len(raw) - 1; i >= 0 && n > 0; i-- {
		n += int(raw[i])
		raw[i] = byte(n) //nolint:gosec // the rest is carried
		n >>= 8
	}
	sum, _ := netip.AddrFromSlice(raw)
	return sum, n == 0
}

// above is the MAC that is n above base, among those of the same maker: the lower
// three bytes go round.
func above(base core.MAC, n int) core.MAC {
	out := slices.Clone(base)
	low := (int(base[3])<<16 | int(base[4])<<8 | int(base[5])) + n
	out[3], out[4], out[5] = byte(low>>16), byte(low>>8), byte(low) //nolint:gosec // they go round
	return out
}

// parseRange reads FIRST-LAST; length is the prefix length behind it, "/24", or "".
func parseRange(text string) (r core.AddrRange, length string, err error) {
	from, to, ok := strings.Cut(text, "-")
	if i := strings.IndexByte(to, '/'); i >= 0 {
		to, length = to[:i], to[i:]
		_, err = netip.ParsePrefix(to + length)
	}
	a, err1 := netip.ParseAddr(from)
	b, err2 := netip.ParseAddr(to)
	if !ok || errors.Join(err, err1, err2) != nil || a.Is4() != b.Is4() || a.Compare(b) > 0 {
		return r, "", fmt.Errorf("ipRange %s is not of the form 10.9.0.16-10.9.0.31", annotation.Clip(text))
	}
	return core.AddrRange{From: a, To: b}, length, nil
}

// flat is the short form of a ConfigMap's value: one interface, with the keys of the
// usual configurations of SR-IOV.
type flat struct {
	Interface string   `json:"interface"`
	Network   string   `json:"network"`
	IP        string   `json:"ip"`
	IPs       []string `json:"ips"`
	Gateway   string   `json:"gateway"`
	MAC       string   `json:"mac"`
	VLAN      *int     `json:"vlan"`
	VLANQoS   int      `json:"vlanQoS"`
	VLANProto string   `json:"vlanProto"`
	Min       *int     `json:"min_tx_rate"`
	Max       *int     `json:"max_tx_rate"`
	SpoofChk  string   `json:"spoofchk"`
	Trust     string   `json:"trust"`
	LinkState string   `json:"link_state"`
	Retain    string   `json:"retain"`
}

// InConfigMap is what a labelled ConfigMap says of a pod, under the pod's name; nil
// where it has no such key. Its value is a PodNetwork's spec or the flat form, as
// YAML or JSON.
//
// InvalidVLAN, InvalidMAC, RateInvalid (102), and 102 without a reason: what is
// written there cannot be read, or has a value that cannot be.
func InConfigMap(namespace, name string, data map[string]string, pod core.Pod, level Level) (*Declaration, error) {
	text, ok := data[pod.Name]
	if !ok {
		return nil, nil
	}
	d := &Declaration{Level: level, Source: fmt.Sprintf("ConfigMap %s/%s, key %s", namespace, name, pod.Name)}
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, core.Errorf(core.CodeValue, "%s: %v", d.Source, err)
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) != nil || len(keys) == 0 {
		return nil, core.Errorf(core.CodeValue, "%s: it is neither a PodNetwork's spec nor an object with ip, mac, vlan, ...", d.Source)
	}
	if _, whole := keys["interfaces"]; whole {
		err = d.readSpec(raw)
	} else {
		err = d.readFlat(raw)
	}
	if err == nil {
		for n := range d.Interfaces {
			i := &d.Interfaces[n]
			if err = cmp.Or(ofSet(i, false, d.Source), check(i, d.Source)); err != nil {
				break
			}
		}
	}
	return d, core.Blame(err, d.Source)
}

func (d *Declaration) readSpec(raw []byte) error {
	var spec v1alpha1.PodNetworkSpec
	if err := strict(raw, &spec); err != nil {
		return core.Errorf(core.CodeValue, "%s: %v", d.Source, err)
	}
	if spec.StatefulSet != "" {
		return core.Errorf(core.CodeValue, "%s: statefulSet stands in PodNetworks only: a key is one pod's name", d.Source)
	}
	for _, i := range spec.Interfaces {
		d.Interfaces = append(d.Interfaces, Interface{PodInterface: i})
	}
	return nil
}

func (d *Declaration) readFlat(raw []byte) error {
	var f flat
	if err := strict(raw, &f); err != nil {
		return core.Errorf(core.CodeValue, "%s: %v", d.Source, err)
	}
	i := Interface{PodInterface: v1alpha1.PodInterface{Name: f.Interface, Network: f.Network, IPs: f.IPs, MAC: f.MAC, Retain: f.Retain}}
	if f.IP != "" {
		i.IPs = append(i.IPs, split(f.IP)...)
	}
	i.Gateways = split(f.Gateway)
	if f.VLAN != nil || f.VLANQoS != 0 || f.VLANProto != "" {
		i.VLAN = &v1alpha1.VLAN{ID: value(f.VLAN), QoS: f.VLANQoS, Proto: strings.ToLower(f.VLANProto)}
	}
	if f.Min != nil || f.Max != nil {
		i.Bandwidth = &v1alpha1.Bandwidth{MinMbps: f.Min, MaxMbps: f.Max}
	}
	d.Interfaces = []Interface{i}
	return d.readSwitches(f)
}

// readSwitches reads what only a virtual function has.
func (d *Declaration) readSwitches(f flat) error {
	if f.SpoofChk == "" && f.Trust == "" && f.LinkState == "" {
		return nil
	}
	vf := d.Interfaces[0].vf()
	vf.LinkState = f.LinkState
	for _, one := range []struct {
		key, text string
		to        **bool
	}{{"spoofchk", f.SpoofChk, &vf.SpoofChk}, {"trust", f.Trust, &vf.Trust}} {
		on, err := onOff(one.text)
		if err != nil {
			return core.Errorf(core.CodeValue, "%s: %s %w", d.Source, one.key, err)
		}
		*one.to = on
	}
	return nil
}

func split(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' })
}

// onOff reads a switch as the usual configurations of SR-IOV write it.
func onOff(text string) (*bool, error) {
	on := text == "on"
	switch text {
	case "":
		return nil, nil
	case "on", "off":
		return &on, nil
	}
	return nil, fmt.Errorf("%q is neither on nor off", annotation.Clip(text))
}

// strict decodes, and refuses keys that nobody knows.
func strict(raw []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(to)
}
