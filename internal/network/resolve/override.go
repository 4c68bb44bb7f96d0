package resolve

import (
	"context"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/override"
)

const capBandwidth = "bandwidth"

// gives tells that the network's first plugin is one of others, of that type.
func (n *network) gives(kind string) bool { return n.own == nil && firstType(n.chain) == kind }

// firstType is the type of a chain's first plugin, "" for none.
func firstType(c core.Chain) string {
	if len(c.Plugins) == 0 {
		return ""
	}
	return c.Plugins[0].Type
}

// mayAsk refuses what the element, and Kubernetes' annotations of a default network, ask of
// a confined network.
func (n *network) mayAsk(notes map[string]string) error {
	if n.first {
		if err := n.allowed.Kubernetes(notes, n.label); err != nil {
			return err
		}
	}
	return n.allowed.Element(&n.elem, n.label)
}

// ask brings what annotations ask for of a virtual function into the configuration of its
// plugin.
func (r *resolution) ask(n *network) (err error) {
	if n.nad == "" || !n.gives(override.SRIOV) || r.in.Request.Op == core.Del {
		return nil
	}
	limits := func(c call) bool { return c.plugin.Capabilities[capBandwidth] }
	q := override.Request{
		Allowed: n.allowed, Element: &n.elem, Notes: r.notes, Network: n.nad, IfName: n.ifName, Default: n.first,
		Limited: slices.ContainsFunc(n.calls()[1:], limits),
	}
	first := n.chain.Plugins[0]
	if n.vf, err = q.Read(); err == nil {
		first.Raw, err = n.vf.Into(first.Raw)
	}
	n.chain.Plugins = slices.Concat([]core.Plugin{first}, n.chain.Plugins[1:])
	return err
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
	allowed, err := override.Confine(nad.Annotations, firstType(chain))
	if err != nil {
		return err
	}
	return allowed.Forbidden(override.Bandwidth, "an annotation", network)
}
