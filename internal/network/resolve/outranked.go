package resolve

import (
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/outranked"
)

// outranked is what annotations of the pod ask for of a network, as the pod asks for it,
// where s declares something else. Annotations that cannot be read are left out: the pod is
// refused because of them.
func (r *resolution) outranked(n *network, s *declared.Settings) []declared.Lost {
	l := outranked.Over(s)
	l.Element(&n.elem)
	if b, err := annotation.KubeRates(r.notes); err == nil && n.first {
		l.Rate(b.IngressRate, v1.AnnIngressBandwidth)
		l.Rate(b.EgressRate, v1.AnnEgressBandwidth)
	}
	ann := &annotation.Notes{All: r.notes, Provider: n.annotated(), IfName: n.ifName, Controlled: r.in.OVN}
	if a, err := ann.Read(); err == nil && n.own != nil && (!r.in.OVN || !a.Allocated) { // else a controller has written them
		l.Notes(ann, a)
	}
	return l.All
}
