package wayout

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Keys of annotations by which a pod has an address at the external gateway, and the reason
// of the event that refuses one.
const (
	annEIP        = v1.DefaultProvider + v1.ProviderSuffix + v1.ExternalEIP
	annSNAT       = v1.DefaultProvider + v1.ProviderSuffix + v1.ExternalSNAT
	reasonRefused = "ExternalAddressRefused"
)

// outside is what the pod's annotations ask for at the external gateway, "" for nothing.
// eip does what snat does, too.
func (f Facts) outside() string {
	return cmp.Or(f.Pod.Requested[annEIP], f.Pod.Requested[annSNAT])
}

// external tells of an address that OVN's router itself translates, before any node; false
// where there is none of the family, or it is not carried out, which it says.
func (l *leaving) external() bool {
	key := annEIP
	if l.Pod.Requested[annEIP] == "" {
		key = annSNAT
	}
	var out netip.Addr
	for text := range strings.SplitSeq(l.outside(), ",") {
		if a, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil && a.Is4() == l.Address.Is4() {
			out = a
			break
		}
	}
	refused := slices.IndexFunc(l.Pod.Events, func(e agent.PodEvent) bool {
		return e.Reason == reasonRefused && strings.Contains(e.Note, out.String())
	})
	switch {
	case !out.IsValid():
		return false
	case l.External == nil:
		l.step("annotation %s asks for %s, and ConfigMap %s/%s enables no external gateway: it leaves as without", key, out, declare.ConfigNamespace, declare.ConfigExternal)
		return false
	case refused >= 0:
		l.step("annotation %s asks for %s, which was refused: %s", key, out, l.Pod.Events[refused].Note)
		return false
	}
	l.SeenAs, l.Leaving.By = []netip.Addr{out}, slices.Clone(l.External.Nodes)
	l.step("annotation %s: router %s sends it to the external gateway (%s) by the first good one of %s, and Nodes with label %s; no node translates it",
		key, v1.DefaultVpc, texts(l.External.Gateways), cmp.Or(strings.Join(l.External.Nodes, ", "), "no named node"), declare.LabelExternal)
	l.step("the world sees %s", out)
	if key == annEIP {
		l.step("and reaches the pod there")
	}
	return true
}
