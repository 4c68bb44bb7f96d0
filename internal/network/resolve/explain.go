package resolve

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/outranked"
)

// Explained is what is declared of a pod's interfaces.
type Explained struct {
	// Declarations are all that speak of the pod, but those that cannot be read.
	Declarations []declared.Declaration
	// Interfaces are those of which something is declared, as far as it was settled, or left to
	// an IPAMClaim.
	// Lost has what their networks and the pod's annotations say, too.
	Interfaces []ExplainedInterface
}

// ExplainedInterface is one interface with what counts of it.
type ExplainedInterface struct {
	declared.Settings

	Network string // as Want.Network
}

// Explain settles what is declared of a pod as Resolve does, whether or not the pod is
// there, and says what was settled before a refusal. Devices, which only a pod that is
// there is given, are not asked for, and an address that a controller has yet to give is
// no refusal. carried is asked whether drivers can carry out a NIC. The error is Resolve's,
// or that of carried.
func Explain(ctx context.Context, src Source, in Input, carried func(core.Want) error) (Explained, error) {
	r := newResolution(src, in)
	var out Explained
	if err := r.readPod(ctx); err != nil {
		return out, err
	}
	err := r.readDeclared(ctx)
	out.Declarations = r.declarations
	if err != nil {
		return out, err
	}
	nets, err := r.networks(ctx)
	if err != nil {
		return out, err
	}
	if err := r.nameInterfaces(nets, r.claimNames(nets)); err != nil {
		return out, err
	}
	asked := slices.Clone(nets) // as the pod asks for them
	all, err := r.declare(ctx, nets)
	if err != nil {
		all = nets
	}
	for i := range all {
		if n := &all[i]; n.declared != nil || n.leavesToClaim() {
			over := r.over(n)
			if i < len(asked) {
				over.Lost = append(over.Lost, r.outranked(&asked[i], over)...)
			}
			if err == nil {
				err = core.Blame(r.prove(ctx, all, i, over, carried), n.declaredBy()...)
			}
			out.Interfaces = append(out.Interfaces, ExplainedInterface{*over, n.label})
		}
	}
	return out, err
}

// over is what is declared of a network, or left to an IPAMClaim, with what its configuration
// says otherwise.
func (r *resolution) over(n *network) *declared.Settings {
	s := declared.Settings{From: map[string]string{}}
	s.Name = n.ifName
	if n.declared != nil {
		s = *n.declared
	}
	if n.leavesToClaim() && s.From[declared.IPs] == "" {
		s.IPs, s.From = []string{outranked.ByClaim(&n.elem)}, maps.Clone(s.From)
		s.From[declared.IPs] = r.claimOf(n).String()
	}
	if n.written != nil {
		s.Over("NetworkAttachmentDefinition "+n.nad, n.chain.Plugins[0].Type, n.written)
	}
	return &s
}

// prove makes the Want, for what is refused there.
func (r *resolution) prove(ctx context.Context, nets []network, at int, s *declared.Settings, carried func(core.Want) error) error {
	w, err := r.want(ctx, nets, at)
	if later := (*annotation.UnallocatedError)(nil); errors.As(err, &later) {
		return nil
	}
	if err == nil {
		err = carried(w)
	}
	for _, step := range w.Steps {
		if nic := step.NIC; nic != nil && s.VLAN != nil && nic.Subnet.VLAN != 0 && nic.Subnet.VLAN != s.VLAN.ID {
			s.Lost = append(s.Lost, declared.Lost{Field: declared.VLAN, Value: strconv.Itoa(nic.Subnet.VLAN), Source: "Subnet " + nic.Subnet.Name})
		}
	}
	return err
}

// Carried has carry complete a Spec of each NIC of a Want, as plan will.
func Carried(w core.Want, carry func(*core.Spec, *core.NIC) error) error {
	for _, step := range w.Steps {
		if n := step.NIC; n != nil {
			s := core.Spec{Key: core.Key{IfName: w.IfName}, NIC: &core.NICSpec{Settings: n.Settings}}
			if err := carry(&s, n); err != nil {
				return err
			}
		}
	}
	return nil
}
