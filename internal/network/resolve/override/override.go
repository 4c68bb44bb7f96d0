// Package override is what a pod's annotations may ask for of a network that keeps its
// settings to itself, and what they ask for of a virtual function. It is pure: it knows
// neither sources nor what becomes of a request.
package override

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/element"
)

// SRIOV is the type of plugins that give virtual functions.
const SRIOV = "sriov"

// Settings that a NetworkAttachmentDefinition keeps from pods' annotations unless it
// names them.
const (
	vlan      = "vlan"
	trust     = "trust"
	spoofChk  = "spoofchk"
	Bandwidth = "bandwidth"
	pf        = "pf"
)

// arguments are these, with the keys of cni-args that ask for each.
var arguments = map[string][]string{
	vlan:      {"vlan", "vlanQoS", "vlanProto"},
	trust:     {"trust"},
	spoofChk:  {"spoofchk"},
	Bandwidth: {"bandwidth", "min_tx_rate", maxRate},
	pf:        {"pf"},
}

// Allowed is what a network lets annotations ask for: nil is what it can, else no more than
// these.
type Allowed []string

// Confine reads it of a NetworkAttachmentDefinition's annotations. A network of virtual
// functions is confined, and any that says so by v1alpha1.AnnAllowPodOverride; others are as
// Kube-OVN has them. first is the type of the network's first plugin, "" for none.
//
// 7: a word there that means nothing.
func Confine(notes map[string]string, first string) (Allowed, error) {
	text, said := notes[v1alpha1.AnnAllowPodOverride]
	if !said && first != SRIOV {
		return nil, nil
	}
	allowed := Allowed{}
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		if _, known := arguments[word]; !known && word != "" {
			return nil, core.Errorf(core.CodeConfig, "annotation %s: %q is none of bandwidth, pf, spoofchk, trust, vlan", v1alpha1.AnnAllowPodOverride, annotation.Clip(word))
		}
		allowed = append(allowed, word)
	}
	return allowed, nil
}

// Forbidden is an AnnotationForbidden (101) where what asks for a setting may not.
func (a Allowed) Forbidden(setting, where, network string) error {
	if a == nil || slices.Contains(a, setting) {
		return nil
	}
	return core.Reasoned(core.CodeDenied, core.ReasonAnnotationForbidden,
		"%s asks for %s on network %s, which is not the pod's to say: a PodNetwork declares it, or annotation %s of the NetworkAttachmentDefinition names %s",
		where, setting, network, v1alpha1.AnnAllowPodOverride, setting)
}

// Element refuses what an element asks of a confined network.
func (a Allowed) Element(e *element.Element, network string) error {
	if e.Bandwidth != nil {
		if err := a.Forbidden(Bandwidth, e.Field+".bandwidth", network); err != nil {
			return err
		}
	}
	for setting, keys := range arguments {
		for _, key := range keys {
			if _, asked := e.CNIArgs[key]; !asked {
				continue
			}
			if err := a.Forbidden(setting, e.Field+".cni-args."+key, network); err != nil {
				return err
			}
		}
	}
	return nil
}

// Kubernetes refuses the rates that a pod asks for of its default network, if that is
// confined.
func (a Allowed) Kubernetes(notes map[string]string, network string) error {
	for _, key := range []string{v1.AnnIngressBandwidth, v1.AnnEgressBandwidth} {
		if notes[key] == "" {
			continue
		}
		if err := a.Forbidden(Bandwidth, key, network); err != nil {
			return err
		}
	}
	return nil
}

// Notes refuses what annotations of one interface ask for on a confined network, but for
// what a controller has written.
func (a Allowed) Notes(r annotation.Requested, ann *annotation.Notes, network string) error {
	if r.HasVLAN && (!ann.Controlled || !r.Allocated) {
		if err := a.Forbidden(vlan, ann.Key(v1.FieldVLAN), network); err != nil {
			return err
		}
	}
	if r.QoS.Rated() {
		return a.Forbidden(Bandwidth, "rates of "+ann.Provider+v1.ProviderSuffix, network)
	}
	return nil
}
