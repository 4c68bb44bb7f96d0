package logical

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ReadNetworkPolicy reads a policy. What it cannot read of it lets nothing pass,
// and Set tells it; a policy whose pods it cannot tell governs none.
func ReadNetworkPolicy(namespace, name string, spec networking.NetworkPolicySpec) *NetworkPolicy {
	p := &NetworkPolicy{namespace: namespace, name: name}
	p.pods = p.selector("spec.podSelector", &spec.PodSelector)
	// Without types a policy is about ingress, and about egress if it has rules
	// for that.
	p.ingress = len(spec.PolicyTypes) == 0 || slices.Contains(spec.PolicyTypes, networking.PolicyTypeIngress)
	p.egress = len(spec.PolicyTypes) == 0 && len(spec.Egress) > 0 || slices.Contains(spec.PolicyTypes, networking.PolicyTypeEgress)
	for i, r := range spec.Ingress {
		if p.ingress {
			p.read(fmt.Sprintf("spec.ingress[%d]", i), "from", true, r.From, r.Ports)
		}
	}
	for i, r := range spec.Egress {
		if p.egress {
			p.read(fmt.Sprintf("spec.egress[%d]", i), "to", false, r.To, r.Ports)
		}
	}
	return p
}

func (p *NetworkPolicy) refuse(path, format string, args ...any) {
	p.undone = append(p.undone, path+": "+fmt.Sprintf(format, args...))
}

// selector reads a selector; one that is wrong selects nothing.
func (p *NetworkPolicy) selector(path string, s *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		p.refuse(path, "%v", err)
		return labels.Nothing()
	}
	return out
}

// read adds a rule of the policy.
func (p *NetworkPolicy) read(path, field string, ingress bool, peers []networking.NetworkPolicyPeer, ports []networking.NetworkPolicyPort) {
	r := policyRule{ingress: ingress, all: len(peers) == 0, open: len(ports) == 0}
	var blocks netipx.IPSetBuilder
	for i, o := range peers {
		at := fmt.Sprintf("%s.%s[%d]", path, field, i)
		if o.IPBlock != nil {
			p.block(at+".ipBlock", o.IPBlock, &blocks)
			continue
		}
		spaces, pods := labels.Selector(nil), labels.Everything()
		if o.NamespaceSelector != nil {
			spaces = p.selector(at+".namespaceSelector", o.NamespaceSelector)
		}
		if o.PodSelector != nil {
			pods = p.selector(at+".podSelector", o.PodSelector)
		}
		r.peers = append(r.peers, newSelection(p.namespace, spaces, pods))
	}
	if set, err := blocks.IPSet(); err == nil {
		r.blocks = set.Prefixes()
	} else {
		p.refuse(path, "%v", err)
	}
	for i, o := range ports {
		if port, ok := p.port(fmt.Sprintf("%s.ports[%d]", path, i), o); ok {
			r.ports = append(r.ports, port)
		}
	}
	p.rules = append(p.rules, r)
}

// block adds a network without what is excepted. Each network has its own
// exceptions: what another one lets pass goes.
func (p *NetworkPolicy) block(path string, b *networking.IPBlock, all *netipx.IPSetBuilder) {
	cidr, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		p.refuse(path+".cidr", "%q is no network in CIDR form", b.CIDR)
		return
	}
	if len(b.Except) == 0 {
		all.AddPrefix(cidr.Masked())
		return
	}
	var one netipx.IPSetBuilder
	one.AddPrefix(cidr.Masked())
	for i, text := range b.Except {
		x, err := netip.ParsePrefix(text)
		if err != nil { // what it meant to keep out is not known
			p.refuse(fmt.Sprintf("%s.except[%d]", path, i), "%q is no network in CIDR form: nothing of %s passes", text, cidr)
			return
		}
		one.RemovePrefix(x.Masked())
	}
	if set, err := one.IPSet(); err == nil {
		all.AddSet(set)
	}
}

// port reads a port of a rule.
func (p *NetworkPolicy) port(path string, o networking.NetworkPolicyPort) (out policyPort, ok bool) {
	out = policyPort{path: path, protocol: "tcp"}
	if o.Protocol != nil {
		out.protocol = strings.ToLower(string(*o.Protocol))
	}
	if !slices.Contains([]string{"tcp", "udp", "sctp"}, out.protocol) {
		p.refuse(path+".protocol", "%q is none of TCP, UDP, SCTP", *o.Protocol)
		return out, false
	}
	switch {
	case o.Port == nil:
	case o.Port.Type == intstr.String:
		out.name = o.Port.StrVal
	default:
		out.first, out.last = o.Port.IntValue(), o.Port.IntValue()
		if out.first < 1 || out.first > 65535 {
			p.refuse(path+".port", "%d is not from 1 to 65535", out.first)
			return out, false
		}
	}
	if o.EndPort != nil {
		if out.last = int(*o.EndPort); out.first == 0 || out.last < out.first || out.last > 65535 {
			p.refuse(path+".endPort", "%d is not the end of a range that begins with a number", out.last)
			return out, false
		}
	}
	return out, true
}

// inAny tells of addresses whether a network has them.
func inAny(list []netip.Prefix) func(netip.Addr) bool {
	var b netipx.IPSetBuilder
	for _, p := range list {
		b.AddPrefix(p)
	}
	set, err := b.IPSet()
	if err != nil {
		return func(netip.Addr) bool { return false }
	}
	return set.Contains
}
