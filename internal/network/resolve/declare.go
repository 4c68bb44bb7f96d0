package resolve

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/element"
)

// Declarer tells what is declared of pods by their names (PodNetworks and ConfigMaps).
type Declarer interface {
	// Declared is all of it; core.ErrUnavailable while it was not read yet.
	Declared(ctx context.Context) (*declared.Index, error)
}

func (r *resolution) readDeclared(ctx context.Context) error {
	if r.in.Declared == nil || r.pod.IsZero() {
		return nil
	}
	index, err := r.in.Declared.Declared(ctx)
	if err != nil {
		return core.WithCode(core.CodeTryAgain, "what is declared of pods", err)
	}
	r.index = index
	r.declarations, err = index.Of(ctx, r.pod)
	return err
}

// claimNames gives networks without an interface's name the one that is declared for
// them. Names that are declared for networks which the pod does not ask for are taken:
// it gets those as well.
func (r *resolution) claimNames(nets []network) (taken map[string]string) {
	taken = map[string]string{}
	for _, d := range r.declarations {
		for _, i := range d.Interfaces {
			if i.Name == "" || !strings.Contains(i.Network, "/") || slices.ContainsFunc(nets, func(n network) bool { return n.named() == i.Name }) {
				continue
			}
			at := slices.IndexFunc(nets, func(n network) bool { return !n.first && n.named() == "" && n.nad == i.Network })
			if at >= 0 {
				nets[at].ifName = i.Name
			} else {
				taken[i.Name] = d.Source
			}
		}
	}
	return taken
}

// named is the name of the network's interface as far as it is known.
func (n *network) named() string { return cmp.Or(n.ifName, n.elem.IfName) }

// declare settles what is asked for and declared of the pod's interfaces, now that they
// have names, and adds the networks that only declarations name.
func (r *resolution) declare(ctx context.Context, nets []network) ([]network, error) {
	for i := range nets {
		if err := r.ask(&nets[i]); err != nil {
			return nil, err
		}
	}
	var further []string
	for _, n := range nets[1:] {
		further = append(further, n.ifName)
	}
	all, err := r.settled(nets[0].ifName, further)
	if err != nil {
		return nil, err
	}
	for i := range all {
		s := &all[i]
		at := slices.IndexFunc(nets, func(n network) bool { return n.ifName == s.Name })
		if at < 0 {
			if !r.serves() {
				continue // another call of the runtime is for it
			}
			n, err := r.added(ctx, s)
			if err != nil {
				return nil, err
			}
			nets, at = append(nets, n), len(nets)
		}
		if err := r.settle(&nets[at], s); err != nil {
			return nil, err
		}
	}
	return nets, nil
}

// settled is what counts of the pod's interfaces, of which first is the default one.
func (r *resolution) settled(first string, further []string) ([]declared.Settings, error) {
	if err := declared.Place(r.declarations, first, further); err != nil {
		return nil, err
	}
	return declared.Settle(r.declarations)
}

// declareFresh settles what is declared of networks that come to a running pod, which
// has those of stay.
func (r *resolution) declareFresh(ctx context.Context, stay []Present, fresh []network) (of map[string]*declared.Settings, err error) {
	if err := r.readDeclared(ctx); err != nil {
		return nil, err
	}
	var further []string
	for _, p := range stay {
		if p.IfName != r.in.Request.Key.IfName {
			further = append(further, p.IfName)
		}
	}
	for _, n := range fresh {
		further = append(further, n.ifName)
	}
	all, err := r.settled(r.in.Request.Key.IfName, further)
	of = map[string]*declared.Settings{}
	for i := range all {
		of[all[i].Name] = &all[i]
	}
	return of, err
}

// added is a network that only a declaration names.
func (r *resolution) added(ctx context.Context, s *declared.Settings) (network, error) {
	ns, name, nad := strings.Cut(s.Network, "/")
	if !nad {
		return network{}, core.Blame(core.Reasoned(core.CodeConflict, core.ReasonAmbiguousDeclaration,
			"%s: the pod has no interface %s: let it ask for the network there, or name its NetworkAttachmentDefinition, NAMESPACE/NAME, in network", s.Source(), s.Name), s.Sources()...)
	}
	n, err := r.fromNAD(ctx, element.Element{Field: s.From[declared.Network] + ": network", Namespace: ns, Name: name})
	n.ifName, n.only = s.Name, true
	if err == nil {
		err = r.ask(&n)
	}
	return n, err
}

// has tells that an interface of ours has its address already.
func (r *resolution) has(n *network) bool {
	if n.own == nil || r.in.Has == nil {
		return false
	}
	ann := annotation.Notes{All: r.notes, Provider: n.annotated(), IfName: n.ifName, Controlled: r.in.OVN}
	return r.in.Has(ann.Key(v1.FieldIP))
}

func (r *resolution) settle(n *network, s *declared.Settings) error {
	if r.has(n) {
		return nil
	}
	n.declared = s
	for _, part := range []func(*network, *declared.Settings) error{r.declareNetwork, r.configure, declareAddresses, declareMAC, declareRates, declareHardware} {
		if err := part(n, s); err != nil {
			return core.Blame(err, s.Sources()...)
		}
	}
	return nil
}

// cannot is the error of a setting that a network's plugins have no way to carry out.
func cannot(n *network, s *declared.Settings, field string) error {
	why := ""
	if n.own == nil && len(n.chain.Plugins) > 0 {
		if why = declared.Why(n.chain.Plugins[0].Type, field); why != "" {
			why = ": " + n.chain.Plugins[0].Type + ": " + why
		}
	}
	return core.Blame(core.Reasoned(core.CodeValue, core.ReasonDriverCannot, "%s declares %s of interface %s, and no plugin of network %s can set it%s",
		s.From[field], field, s.Name, n.label, why), s.From[field])
}

func (r *resolution) declareNetwork(n *network, s *declared.Settings) error {
	switch {
	case s.Network == "" || s.Network == n.nad:
	case strings.Contains(s.Network, "/"):
		return s.Contradicts(declared.Network, s.Network, n.field(), n.label)
	case n.own == nil:
		return cannot(n, s, declared.Network)
	default:
		n.subnet = s.Network
	}
	return nil
}

// configure has the first plugin of others' carry out what its configuration has keys
// for; the rest goes by capabilities.
func (r *resolution) configure(n *network, s *declared.Settings) error {
	if n.own != nil || len(n.chain.Plugins) == 0 {
		return nil
	}
	first := n.chain.Plugins[0]
	raw, done, err := s.Configure(first.Type, first.Raw)
	if err != nil {
		return err
	}
	n.written, first.Raw = first.Raw, raw
	n.chain.Plugins = slices.Concat([]core.Plugin{first}, n.chain.Plugins[1:])
	n.configured = done
	if err := r.fixInRanges(n, s); err != nil {
		return err
	}
	return n.asksOtherwise(s)
}

// asksOtherwise is the error where the pod's annotations ask for something else than is declared
// and carried out by the configuration.
func (n *network) asksOtherwise(s *declared.Settings) error {
	if n.elem.IPAMClaim != "" && n.carriesOut(declared.IPs) {
		return s.Contradicts(declared.IPs, fmt.Sprint(s.IPs), n.claimRef(), n.elem.IPAMClaim)
	}
	if n.carriesOut(declared.MAC) {
		if err := n.otherMAC(s); err != nil {
			return err
		}
	}
	if n.carriesOut(declared.IPs) {
		if err := n.otherIPs(s); err != nil {
			return err
		}
	}
	return n.vf.Otherwise(s)
}

// otherIPs is the error where the pod's element asks for other addresses than are declared.
// Plugins hear of the declared ones alone: cni-args would come before them, and without their
// prefix lengths and gateways.
func (n *network) otherIPs(s *declared.Settings) error {
	if key, asked := n.elem.OtherIPs(s.IPs); key != "" {
		return s.Contradicts(declared.IPs, fmt.Sprint(s.IPs), key, fmt.Sprint(asked))
	}
	n.elem.Unargued("ips")
	return nil
}

// otherMAC is otherIPs for the MAC.
func (n *network) otherMAC(s *declared.Settings) error {
	if key, asked := n.elem.OtherMAC(s.MAC); key != "" {
		return s.Contradicts(declared.MAC, s.MAC, key, asked)
	}
	n.elem.Unargued("mac")
	return nil
}

// carriesOut tells that the configuration of the network's first plugin says a field.
func (n *network) carriesOut(field string) bool { return slices.Contains(n.configured, field) }

func declareAddresses(n *network, s *declared.Settings) error {
	e := &n.elem
	if len(s.IPs) > 0 && !n.carriesOut(declared.IPs) {
		if !n.can("ips") {
			return cannot(n, s, declared.IPs)
		}
		if err := n.otherIPs(s); err != nil {
			return err
		}
		if e.IPAMClaim != "" {
			return s.Contradicts(declared.IPs, fmt.Sprint(s.IPs), n.claimRef(), e.IPAMClaim)
		}
		e.IPs = s.IPs
	}
	if len(s.Gateways) > 0 && n.own == nil && !n.carriesOut(declared.Gateway) {
		return cannot(n, s, declared.Gateway)
	}
	return nil
}

func declareMAC(n *network, s *declared.Settings) error {
	if s.MAC == "" || n.carriesOut(declared.MAC) {
		return nil
	}
	if !n.can("mac") || n.anyIpvlan() {
		return cannot(n, s, declared.MAC)
	}
	if err := n.otherMAC(s); err != nil {
		return err
	}
	n.elem.MAC = strings.ToLower(s.MAC)
	return nil
}

// anyIpvlan: one takes capability mac, and leaves it.
func (n *network) anyIpvlan() bool {
	return n.anyPlugin(func(p core.Plugin) bool { return p.Type == "ipvlan" })
}

// declareRates has plugins of others limit the rate by CNI's bandwidth; our own NICs
// have it from declaredNIC.
func declareRates(n *network, s *declared.Settings) error {
	if s.From[declared.MaxMbps] == "" || n.own != nil || n.carriesOut(declared.MaxMbps) {
		return nil
	}
	if !n.can("bandwidth") {
		return cannot(n, s, declared.MaxMbps)
	}
	const mbit = 1_000_000
	want := annotation.Bandwidth{}
	if most := *s.Bandwidth.MaxMbps; most > 0 {
		rate := uint64(most) * mbit //nolint:gosec // checked to be 0 to 1,000,000
		want = annotation.Bandwidth{IngressRate: rate, IngressBurst: rate, EgressRate: rate, EgressBurst: rate}
	}
	if b := n.elem.Bandwidth; b != nil && (b.IngressRate != want.IngressRate || b.EgressRate != want.EgressRate) {
		return s.Contradicts(declared.MaxMbps, fmt.Sprint(*s.Bandwidth.MaxMbps), n.elem.Field+".bandwidth", fmt.Sprintf("%d and %d bit/s", b.IngressRate, b.EgressRate))
	}
	n.elem.Bandwidth = &want
	return nil
}

// declareHardware refuses of others' plugins what CNI has no words for.
func declareHardware(n *network, s *declared.Settings) error {
	if n.own != nil {
		return nil
	}
	for _, field := range []string{declared.VLAN, declared.MinMbps, declared.SpoofChk, declared.Trust, declared.LinkState, declared.PF} {
		proven := field == declared.PF && (n.resource != "" || n.device() != "") // of the device, by ofPF
		if s.From[field] != "" && !n.carriesOut(field) && !proven {
			return cannot(n, s, field)
		}
	}
	return nil
}

// declaredNIC brings what is declared into a NIC of our own.
func (n *network) declaredNIC(a annotation.Requested, ann *annotation.Notes, nic *core.NIC) error {
	if n.declared == nil {
		return nil
	}
	if v := n.declared.VLAN; v != nil && a.HasVLAN && a.VLAN != v.ID {
		return n.declared.Contradicts(declared.VLAN, fmt.Sprint(v.ID), ann.Key(v1.FieldVLAN), fmt.Sprint(a.VLAN))
	}
	return n.declared.Tell(nic, a.QoS)
}

// reasoned gives an error about a NIC's addresses and MAC its reason, where these are
// declared.
func (n *network) reasoned(err error) error {
	reason := map[uint]string{core.CodeConflict: core.ReasonAnnotationConflict, core.CodeAddress: core.ReasonAddressOutsideSubnet}[core.CodeOf(err)]
	if n.declared == nil || reason == "" {
		return err
	}
	return &core.Error{Code: core.CodeOf(err), Reason: reason, Msg: reason + ": " + err.Error(), Err: err}
}

// keep holds addresses back that are declared: the NIC is given none, and may ask for none of another pod.
func (r *resolution) keep(n *network, nic *core.NIC) error {
	if given := r.in.OVN && (!n.lent || !r.in.Alone); r.index == nil || given || r.has(n) {
		return nil // a controller has given the addresses
	}
	kept := r.index.Within(nic.Subnet, n.nad)
	nic.Subnet.Exclude = slices.Clone(nic.Subnet.Exclude)
	for _, k := range kept { // also the pod's own, which it gets as a fixed address on the NIC that has it
		nic.Subnet.Exclude = append(nic.Subnet.Exclude, k.AddrRange)
	}
	var held error
	others := func(ip netip.Addr) bool {
		err := declared.Held(kept, r.pod, ip)
		held = cmp.Or(err, held)
		return err != nil
	}
	asked := len(nic.Pool) // an address that is not of the list was not asked for
	nic.Pool = slices.DeleteFunc(nic.Pool, func(ips []netip.Addr) bool { return slices.ContainsFunc(ips, others) })
	if slices.ContainsFunc(nic.IPs, others) || asked > 0 && len(nic.Pool) == 0 {
		return held
	}
	return nil
}
