package resolve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/network/resolve/element"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// nic resolves our own interface of network nets[at].
func (r *resolution) nic(ctx context.Context, nets []network, at int, rc map[string]json.RawMessage) (*core.NIC, error) {
	n := &nets[at]
	if n.elem.DeviceID != "" {
		return nil, annotation.Refused(core.CodeDevice, n.elem.Field+".deviceID", n.elem.DeviceID, "cannot be used: network %s has no devices", n.label)
	}
	ann := &annotation.Notes{All: r.notes, Provider: n.annotated(), IfName: n.ifName, Controlled: r.in.OVN}
	a, err := ann.Read()
	if err == nil {
		err = n.allowed.Notes(a, ann, n.label)
	}
	if err != nil {
		return nil, err
	}
	s, err := r.subnet(ctx, n, ann, a)
	if err != nil {
		return nil, err
	}
	s = ann.Routed(s, a)
	nic := &core.NIC{
		Driver: n.driver(), Provider: n.provider, Subnet: s, Settings: a.Settings, Type: a.NICType, IfaceID: r.ifaceID(nets, at, n.provider),
		Family: a.Family, DefaultRoute: n.carriesDefault(),
	}
	nic.Routes, nic.DNS = slices.Concat(n.own.Routes, a.Routes), n.own.DNS
	if !a.HasVLAN {
		nic.VLAN = s.VLAN
	}
	if a.HasDefault {
		nic.DefaultRoute = a.DefaultRoute
	}
	if err := r.identity(n, ann, a, rc, nic); err != nil {
		return nil, n.reasoned(err)
	}
	if err := r.fromPool(ann, a.Pool, nic); err != nil {
		return nil, err
	}
	if err := r.rates(n, rc, nic); err != nil {
		return nil, err
	}
	nic.Ports, err = n.hostPorts(rc)
	if err := errors.Join(err, n.declaredNIC(a, ann, nic), r.keep(n, nic)); err != nil {
		return nil, err
	}
	r.given(nic, a)
	return nic, errors.Join(r.awaited(n, ann, a), checkGateways(n, nic))
}

// given notes what a controller has given; one family alone is all that it gives.
func (r *resolution) given(nic *core.NIC, a annotation.Requested) {
	if r.in.OVN && a.Allocated && len(nic.IPs) == 1 {
		nic.Family = core.FamilyOf(nic.IPs[0])
	}
	nic.Given = a.Allocated && len(nic.IPs) == len(nic.Families())
}

// ifaceID is the name of the logical port (spec/sdn.md, section 2). A provider
// that serves more than one NIC of the pod needs the interface name in it; the
// default NIC keeps the plain name, which other tools look for. That of a virtual
// machine's launcher is named after the machine, where a controller says so.
func (r *resolution) ifaceID(nets []network, at int, provider string) string {
	n := &nets[at]
	id := r.pod.Name + "." + r.pod.Namespace
	if vm := r.notes[n.annotated()+v1.ProviderSuffix+v1.FieldMachine]; r.in.OVN && vm != "" && vm == r.machine {
		id = vm + "." + r.pod.Namespace
	}
	if r.pod.IsZero() {
		id = r.in.Request.Key.Container
	}
	if provider != v1.DefaultProvider {
		id += "." + provider
	}
	if n.first {
		return id
	}
	for i := range nets {
		if i != at && nets[i].uses(provider) {
			return id + "." + n.ifName
		}
	}
	return id
}

// claim is a value that one of several places asked for.
type claim[T any] struct {
	from  string // the place, for messages
	value T
}

// identity settles the fixed addresses and the MAC. Several places may ask for
// them: the NIC's annotations, the element or runtime by capability, CNI_ARGS.
// They must not contradict each other.
func (r *resolution) identity(n *network, ann *annotation.Notes, a annotation.Requested, rc map[string]json.RawMessage, nic *core.NIC) error {
	ips := []claim[[]netip.Addr]{{ann.Key(v1.FieldIP), a.IPs}}
	macs := []claim[core.MAC]{{ann.Key(v1.FieldMAC), a.MAC}}
	byCapability, err := n.addresses(rc, nic.Subnet)
	if err != nil {
		return err
	}
	mac, err := n.hardware(rc)
	if err != nil {
		return err
	}
	ips, macs = append(ips, byCapability), append(macs, mac)
	if n.first {
		ip, mac, err := r.legacyArgs()
		if err != nil {
			return err
		}
		ips, macs = append(ips, ip), append(macs, mac)
	}
	if nic.IPs, err = agreed(ips, func(v []netip.Addr) string { return fmt.Sprint(sorted(v)) }); err != nil {
		return err
	}
	if nic.MAC, err = agreed(macs, core.MAC.String); err != nil {
		return err
	}
	for _, req := range ips {
		if err := annotation.CheckAddresses(req.from, req.value, nic.Subnet); err != nil {
			return err
		}
	}
	return nil
}

// agreed takes the value that is asked for, and refuses two different ones.
func agreed[T any](asked []claim[T], text func(T) string) (T, error) {
	var zero, out T
	from := ""
	for _, q := range asked {
		if t := text(q.value); t == text(zero) || t == text(out) {
			continue
		}
		if from != "" {
			return zero, core.Errorf(core.CodeConflict, "%s asks for %s but %s asks for %s", from, text(out), q.from, text(q.value))
		}
		out, from = q.value, q.from
	}
	return out, nil
}

func sorted(v []netip.Addr) []netip.Addr {
	return slices.SortedFunc(slices.Values(v), netip.Addr.Compare)
}

// place names a capability's value: what declares it, the element's field, or
// runtimeConfig.
func (n *network) place(capability string) string {
	if s := n.declared; s != nil && s.From[capability] != "" {
		return s.From[capability] + ": " + capability
	}
	if _, asked := n.elem.RuntimeConfig()[capability]; asked {
		return n.elem.Field + "." + capability
	}
	return "runtimeConfig." + capability
}

// addresses reads the capability `ips`. A prefix length must be the subnet's:
// the NIC gets that one.
func (n *network) addresses(rc map[string]json.RawMessage, s core.Subnet) (claim[[]netip.Addr], error) {
	out := claim[[]netip.Addr]{from: n.place("ips")}
	var list []string
	if err := capability(rc, "ips", &list); err != nil {
		return out, annotation.Refused(core.CodeValue, out.from, string(rc["ips"]), "is not a list of strings")
	}
	for _, text := range list {
		q, err := element.ParseIP(text)
		if err != nil {
			return out, annotation.Refused(core.CodeValue, out.from, text, "%v", err)
		}
		for _, p := range s.CIDRs {
			if q.Bits >= 0 && p.Contains(q.Addr) && q.Bits != p.Bits() {
				return out, annotation.Refused(core.CodeAddress, out.from, text, "has another prefix length than subnet %s (%s)", s.Name, p)
			}
		}
		out.value = append(out.value, q.Addr)
	}
	if err := annotation.OnePerFamily(out.value); err != nil {
		return out, annotation.Refused(core.CodeValue, out.from, strings.Join(list, ","), "%v", err)
	}
	return out, nil
}

func (n *network) hardware(rc map[string]json.RawMessage) (claim[core.MAC], error) {
	out := claim[core.MAC]{from: n.place("mac")}
	var text string
	if err := capability(rc, "mac", &text); err != nil {
		return out, annotation.Refused(core.CodeValue, out.from, string(rc["mac"]), "is not a string")
	}
	if text == "" {
		return out, nil
	}
	mac, err := annotation.ParseMAC(text)
	if err != nil {
		return out, annotation.Refused(core.CodeValue, out.from, text, "%v", err)
	}
	out.value = mac
	return out, nil
}

// legacyArgs reads IP= and MAC= of CNI_ARGS, by which runtimes asked before
// there were capabilities.
func (r *resolution) legacyArgs() (claim[[]netip.Addr], claim[core.MAC], error) {
	ips := claim[[]netip.Addr]{from: "CNI_ARGS IP"}
	mac := claim[core.MAC]{from: "CNI_ARGS MAC"}
	args := r.in.Request.Args
	for _, s := range strings.FieldsFunc(args["IP"], func(c rune) bool { return c == ',' }) {
		q, err := element.ParseIP(s)
		if err != nil {
			return ips, mac, core.Errorf(core.CodeEnv, "CNI_ARGS: IP %q %w", annotation.Clip(s), err)
		}
		ips.value = append(ips.value, q.Addr)
	}
	if err := annotation.OnePerFamily(ips.value); err != nil {
		return ips, mac, core.Errorf(core.CodeEnv, "CNI_ARGS: IP %q %w", annotation.Clip(args["IP"]), err)
	}
	if s := args["MAC"]; s != "" {
		var err error
		if mac.value, err = annotation.ParseMAC(s); err != nil {
			return ips, mac, core.Errorf(core.CodeEnv, "CNI_ARGS: MAC %q %w", annotation.Clip(s), err)
		}
	}
	return ips, mac, nil
}

// capability decodes one runtimeConfig value, whole and strictly.
func capability(rc map[string]json.RawMessage, name string, to any) error {
	raw, ok := rc[name]
	if !ok {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

// rates falls back to CNI's and Kubernetes' own way to ask for bandwidth where
// the NIC's annotations set no rate. A bandwidth plugin behind us in the chain
// shapes already; shaping twice would halve the bursts.
func (r *resolution) rates(n *network, rc map[string]json.RawMessage, nic *core.NIC) (err error) {
	if n.anyPlugin(func(p core.Plugin) bool { return p.Capabilities["bandwidth"] }) {
		return nil
	}
	nic.Bandwidth, err = r.bandwidth(n, rc)
	if nic.QoS.Rated() {
		return nil // it is not in force: what is wrong with it does not matter
	}
	nic.QoS = nic.QoS.WithRates(nic.Bandwidth)
	return err
}

func (r *resolution) bandwidth(n *network, rc map[string]json.RawMessage) (core.QoS, error) {
	var b annotation.Bandwidth
	if err := capability(rc, "bandwidth", &b); err != nil {
		return core.QoS{}, annotation.Refused(core.CodeValue, n.place("bandwidth"), string(rc["bandwidth"]), "is not CNI bandwidth: %v", err)
	}
	// The runtime reads these annotations itself when our configuration
	// declares the capability; then a runtime that does not is helped out.
	if n.first && b == (annotation.Bandwidth{}) && r.conf.Capabilities["bandwidth"] {
		var err error
		if b, err = annotation.KubeRates(r.notes); err != nil {
			return core.QoS{}, err
		}
	}
	q := b.QoS()
	if max(q.IngressMbps, q.EgressMbps) > annotation.MaxMbit {
		return core.QoS{}, annotation.Refused(core.CodeValue, n.place("bandwidth"), string(rc["bandwidth"]), "exceeds 1 Tbit/s")
	}
	return q, nil
}
