package override

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/element"
)

const maxRate = "max_tx_rate" // Mbit/s

// Request is the annotations of a pod that has a virtual function of a network.
type Request struct {
	Allowed Allowed
	Element *element.Element
	Notes   map[string]string // the pod's
	Network string            // namespace/name of the NetworkAttachmentDefinition
	IfName  string
	Default bool // it is the pod's default network, which Kubernetes' rates mean
	Limited bool // a plugin behind the first one limits rates by capability bandwidth
}

// Asking is what they ask for.
type Asking struct {
	PFs   []string // physical functions of which it may be; none: any
	PFsAt string   // the place that names them

	keys map[string]asked // of the configuration of its plugin
}

// asked is a value, whole number or text, and the place that asks for it.
type asked struct {
	value any
	place string
}

// Read reads them. Allowed.Element has refused what the element may not ask for.
//
// 102: a value that cannot be read; a rate that no card has (DriverCannot). 105: two places
// ask for different values. 101: AnnotationForbidden.
func (q *Request) Read() (Asking, error) {
	v := Asking{keys: map[string]asked{}}
	for _, part := range []func(*Request) error{v.args, v.ofElement, v.ofKubernetes, v.ofKubeOVN} {
		if err := part(q); err != nil {
			return v, err
		}
	}
	return v, nil
}

// Into brings the keys into the configuration of the plugin.
func (v *Asking) Into(raw json.RawMessage) (json.RawMessage, error) {
	if len(v.keys) == 0 {
		return raw, nil
	}
	conf := map[string]any{}
	if err := json.Unmarshal(raw, &conf); err != nil {
		return nil, core.Errorf(core.CodeConfig, "configuration of plugin %s: %w", SRIOV, err)
	}
	for key, a := range v.keys {
		conf[key] = a.value
	}
	return json.Marshal(conf)
}

// args are the keys of cni-args that ask for a setting.
func (v *Asking) args(q *Request) error {
	for _, key := range slices.Sorted(maps.Keys(q.Element.CNIArgs)) {
		raw, place := q.Element.CNIArgs[key], q.Element.Field+".cni-args."+key
		if string(raw) == "null" {
			continue
		}
		if err := v.arg(q, key, raw, place); err != nil {
			return err
		}
	}
	return nil
}

// kind is one of values in cni-args: what it must be, and how it is read.
type kind struct {
	what string
	read func(raw json.RawMessage) (value any, ok bool)
}

var (
	whole = kind{"a whole number", func(raw json.RawMessage) (any, bool) {
		var number int
		err := json.Unmarshal(raw, &number)
		return number, err == nil
	}}
	onOff = kind{"on or off", func(raw json.RawMessage) (any, bool) {
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err == nil && (text == "on" || text == "off")
	}}
	proto = kind{"a text", func(raw json.RawMessage) (any, bool) {
		var text string
		err := json.Unmarshal(raw, &text)
		return strings.ToLower(text), err == nil
	}}
	kinds = map[string]kind{
		vlan: whole, "vlanQoS": whole, "vlanProto": proto, trust: onOff, spoofChk: onOff, "min_tx_rate": whole, maxRate: whole,
	}
)

// arg reads one key; plugins may know others.
func (v *Asking) arg(q *Request, key string, raw json.RawMessage, place string) error {
	is := kinds[key]
	switch key {
	case pf:
		is.what = "a name, or a list of names"
		if v.PFs, v.PFsAt = names(raw), place; len(v.PFs) > 0 {
			return nil
		}
	case Bandwidth:
		is.what = "CNI bandwidth"
		var b annotation.Bandwidth
		d := json.NewDecoder(bytes.NewReader(raw))
		if d.DisallowUnknownFields(); d.Decode(&b) == nil {
			return v.limit(q, b, place)
		}
	default:
		if is.read == nil {
			return nil
		}
		if value, ok := is.read(raw); ok {
			return v.put(key, value, place)
		}
	}
	return annotation.Refused(core.CodeValue, place, string(raw), "is not %s", is.what)
}

// names are those of a JSON text, with commas, or list; none where one is empty.
func names(raw json.RawMessage) (out []string) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		out = strings.Split(text, ",")
	} else if json.Unmarshal(raw, &out) != nil {
		return nil
	}
	for i := range out {
		if out[i] = strings.TrimSpace(out[i]); out[i] == "" {
			return nil
		}
	}
	return out
}

func (v *Asking) put(key string, value any, place string) error {
	if was, is := v.keys[key]; is && was.value != value {
		return annotation.Refused(core.CodeConflict, place, fmt.Sprint(value), "is not the %v that %s asks for", was.value, was.place)
	}
	v.keys[key] = asked{value, place}
	return nil
}

// limit has the card hold what the pod sends to a rate, above which no burst goes. Nothing
// holds what it receives.
func (v *Asking) limit(q *Request, b annotation.Bandwidth, place string) error {
	if field, value, why := b.Fault(); why != "" {
		return annotation.Refused(core.CodeValue, strings.TrimSuffix(place+"."+field, "."), value, "%s", why)
	}
	if b.IngressRate > 0 {
		return core.Reasoned(core.CodeValue, core.ReasonDriverCannot, "%s asks for a rate towards the pod on network %s, whose cards limit what a pod sends alone", place, q.Network)
	}
	if b.EgressRate == 0 {
		return nil
	}
	return v.put(maxRate, b.QoS().EgressMbps, place)
}

func (v *Asking) ofElement(q *Request) error {
	if q.Element.Bandwidth == nil || q.Limited {
		return nil
	}
	return v.limit(q, *q.Element.Bandwidth, q.Element.Field+".bandwidth")
}

// ofKubernetes are the rates that a pod asks for of its default network.
func (v *Asking) ofKubernetes(q *Request) error {
	if !q.Default || q.Limited {
		return nil
	}
	b, err := annotation.KubeRates(q.Notes)
	if err != nil {
		return err
	}
	place := v1.AnnEgressBandwidth
	if b.IngressRate > 0 {
		place = v1.AnnIngressBandwidth
	}
	return v.limit(q, b, place)
}

// ofKubeOVN are the VLAN and the rates that a pod asks for by Kube-OVN's annotations of the
// network. A VLAN that came with an allocation is a controller's word about its Subnet.
func (v *Asking) ofKubeOVN(q *Request) error {
	namespace, name, _ := strings.Cut(q.Network, "/")
	ann := &annotation.Notes{All: q.Notes, Provider: name + "." + namespace + "." + v1.DefaultProvider, IfName: q.IfName}
	a, err := ann.Limits()
	if err != nil {
		return err
	}
	a.HasVLAN = a.HasVLAN && !a.Allocated
	if err := q.Allowed.Notes(a, ann, q.Network); err != nil {
		return err
	}
	if a.HasVLAN {
		if err := v.put(vlan, a.VLAN, ann.Key(v1.FieldVLAN)); err != nil {
			return err
		}
	}
	const mbit = 1_000_000
	if a.QoS.IngressMbps > 0 {
		return v.limit(q, annotation.Bandwidth{IngressRate: mbit}, ann.Key(v1.FieldIngressRate))
	}
	return v.limit(q, annotation.Bandwidth{EgressRate: uint64(a.QoS.EgressMbps) * mbit}, ann.Key(v1.FieldEgressRate)) //nolint:gosec // read as 0 to 1,000,000
}

// Otherwise is the error where annotations ask for something else of a virtual function than
// is declared of it.
func (v *Asking) Otherwise(s *declared.Settings) error {
	for _, key := range slices.Sorted(maps.Keys(v.keys)) {
		a := v.keys[key]
		if field, value, is := s.Key(key); is && value != a.value {
			return s.Contradicts(field, s.Fields()[field], a.place, fmt.Sprint(a.value))
		}
	}
	if s.From[declared.PF] != "" && len(v.PFs) > 0 && !slices.Equal(slices.Sorted(slices.Values(v.PFs)), slices.Sorted(slices.Values(s.SRIOV.PF))) {
		return s.Contradicts(declared.PF, fmt.Sprint(s.SRIOV.PF), v.PFsAt, fmt.Sprint(v.PFs))
	}
	return nil
}
