package resolve

import (
	"context"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// Settings that a NetworkAttachmentDefinition keeps from pods' annotations unless it
// names them.
const (
	overVLAN      = "vlan"
	overTrust     = "trust"
	overSpoofChk  = "spoofchk"
	overBandwidth = "bandwidth"
	overPF        = "pf"
)

// overrides are these, with the keys of cni-args that ask for each.
var overrides = map[string][]string{
	overVLAN:      {"vlan", "vlanQoS", "vlanProto"},
	overTrust:     {"trust"},
	overSpoofChk:  {"spoofchk"},
	overBandwidth: {"bandwidth", "min_tx_rate", "max_tx_rate"},
	overPF:        {"pf"},
}

// confine is what a network lets annotations ask for: nil is what it can, else no more than
// these. A network of virtual functions is confined, and any that says so by
// v1alpha1.AnnAllowPodOverride; others are as Kube-OVN has them.
//
// 7: a word there that means nothing.
func confine(nad *NAD, chain core.Chain) (allowed []string, err error) {
	text, said := nad.Annotations[v1alpha1.AnnAllowPodOverride]
	if !said && (len(chain.Plugins) == 0 || chain.Plugins[0].Type != "sriov") {
		return nil, nil
	}
	allowed = []string{}
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		if _, known := overrides[word]; !known && word != "" {
			return nil, core.Errorf(core.CodeConfig, "annotation %s: %q is none of bandwidth, pf, spoofchk, trust, vlan", v1alpha1.AnnAllowPodOverride, annotation.Clip(word))
		}
		allowed = append(allowed, word)
	}
	return allowed, nil
}

// forbidden is an AnnotationForbidden (101) where what asks for a setting may not.
func forbidden(allowed []string, setting, where, network string) error {
	if allowed == nil || slices.Contains(allowed, setting) {
		return nil
	}
	return core.Reasoned(core.CodeDenied, core.ReasonAnnotationForbidden,
		"%s asks for %s on network %s, which is not the pod's to say: a PodNetwork declares it, or annotation %s of the NetworkAttachmentDefinition names %s",
		where, setting, network, v1alpha1.AnnAllowPodOverride, setting)
}

// mayAsk refuses what the element asks of a confined network.
func (n *network) mayAsk(notes map[string]string) error {
	if n.allowed == nil {
		return nil
	}
	if n.elem.Bandwidth != nil {
		if err := forbidden(n.allowed, overBandwidth, n.elem.Field+".bandwidth", n.label); err != nil {
			return err
		}
	}
	for _, key := range []string{v1.AnnIngressBandwidth, v1.AnnEgressBandwidth} {
		if n.first && notes[key] != "" {
			if err := forbidden(n.allowed, overBandwidth, key, n.label); err != nil {
				return err
			}
		}
	}
	for setting, keys := range overrides {
		for _, key := range keys {
			if _, asked := n.elem.CNIArgs[key]; !asked {
				continue
			}
			if err := forbidden(n.allowed, setting, n.elem.Field+".cni-args."+key, n.label); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayHave refuses what annotations of a NIC of ours ask for on a confined network, but for
// what a controller has written.
func (n *network) mayHave(a annotation.Requested, ann *annotation.Notes) error {
	if a.HasVLAN && (!ann.Controlled || !a.Allocated) {
		if err := forbidden(n.allowed, overVLAN, ann.Key(v1.FieldVLAN), n.label); err != nil {
			return err
		}
	}
	if a.QoS.Rated() {
		return forbidden(n.allowed, overBandwidth, "rates of "+ann.Provider+v1.ProviderSuffix, n.label)
	}
	return nil
}

// MayTune is an AnnotationForbidden (101) where the annotations of a running pod ask for
// rates that are not the pod's to say. network is as in Want. Other errors: nobody can say.
func MayTune(ctx context.Context, src Source, network string, asked core.QoS) error {
	namespace, name, further := strings.Cut(network, "/")
	if !further || !asked.Rated() {
		return nil
	}
	nad, err := FromMemory{src}.NAD(ctx, namespace, name)
	if err != nil {
		return core.WithCode(core.CodeTryAgain, "network "+network, err)
	}
	r := newResolution(src, Input{})
	chain, err := r.nadChain(nad)
	if err != nil {
		return core.WithCode(core.CodeConfig, "network "+network, err)
	}
	allowed, err := confine(nad, chain)
	if err != nil {
		return err
	}
	return forbidden(allowed, overBandwidth, "an annotation", network)
}
