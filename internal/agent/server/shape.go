package server

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
)

// This file turns the journal's values into the API's: no decisions, no I/O.

func compare(a1, b1, a2, b2 string) int {
	return cmp.Or(cmp.Compare(a1, b1), cmp.Compare(a2, b2))
}

func ref(r core.Record) agent.AttachmentRef {
	return agent.AttachmentRef{
		Namespace: r.Pod.Namespace, Pod: r.Pod.Name, Container: r.Key.Container, IfName: r.Key.IfName,
	}
}

func steps(in []core.Timing) []agent.Step {
	var out []agent.Step
	for _, t := range in {
		out = append(out, agent.Step{Name: t.Step, StartMs: ms(t.Start), TookMs: ms(t.Took), Error: t.Error})
	}
	return out
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (s *Server) attachment(rec core.Record) agent.Attachment {
	a := agent.Attachment{
		Container: rec.Key.Container, IfName: rec.Key.IfName, Network: rec.Network, Netns: rec.Netns.Path,
		Phase: string(rec.Phase), Delivered: rec.Delivered, Orphan: rec.Orphan, Error: rec.Error,
		Created: rec.Created, Interfaces: interfaces(rec), Timeline: steps(s.Engine.Timeline(rec)),
		NetworkStatus: networkStatus(rec.Statuses), Problem: rec.Problem,
	}
	for _, plug := range rec.Plugs {
		a.HotPlugged = append(a.HotPlugged, agent.HotPlugged{IfName: plug.IfName, When: plug.When, Timeline: steps(plug.Timeline)})
	}
	for n := range a.Interfaces {
		i := &a.Interfaces[n]
		if i.HostIf == "" {
			continue
		}
		i.EgressUnenforced = s.View.Unpoliced && i.QoS != nil && i.QoS.EgressMbps > 0
		i.DelayUnenforced = i.QoS != nil && i.QoS.Delays() && s.View.Delays() != nil
		p, ok := s.View.Port(i.HostIf)
		if ok {
			i.Port = &p
		}
		i.PortMissing = !ok && rec.Phase == core.Added && onSwitch(rec, i.Name) && s.View.PortMissing(i.HostIf)
	}
	return a
}

// onSwitch tells that an interface of the record is a port of ours.
func onSwitch(rec core.Record, ifName string) bool {
	return slices.ContainsFunc(rec.Specs, func(s core.Spec) bool { return s.Key.IfName == ifName && s.OVS() != nil })
}

func networkStatus(in []core.Net) []agent.NetworkStatus {
	var out []agent.NetworkStatus
	for _, n := range in {
		out = append(out, agent.NetworkStatus{
			Name: n.Name, Interface: n.Interface, IPs: n.IPs, MAC: n.MAC, MTU: n.MTU, Default: n.Default,
			DNS: agent.DNS(n.DNS), DeviceInfo: n.DeviceInfo, Gateway: n.Gateway, DefaultRoute: n.DefaultRoute,
		})
	}
	return out
}

// interfaces folds a record's specs into the interfaces they made: a chain of
// several steps is one interface.
func interfaces(rec core.Record) []agent.Interface {
	out := []agent.Interface{}
	at := map[core.Key]int{}
	for i, spec := range rec.Specs {
		n, seen := at[spec.Key]
		if !seen {
			n = len(out)
			at[spec.Key] = n
			out = append(out, planned(spec))
			if ownDefault(rec, spec) {
				out[n].Network = agent.DefaultNet
			}
		}
		switch spec.Kind() {
		case core.KindDelegate:
			out[n].Plugins = append(out[n].Plugins, spec.Exec.Type)
		case core.KindHostPorts:
			for _, p := range spec.HostPorts.Ports {
				out[n].HostPorts = append(out[n].HostPorts, agent.HostPort(p))
			}
		}
		if i < len(rec.Links) {
			made(&out[n], rec.Links[i])
		}
	}
	return out
}

// ownDefault tells our own default network, which a spec has under the name of
// the runtime's configuration, from one that the configuration delegates to.
func ownDefault(rec core.Record, s core.Spec) bool {
	return s.Default && s.Kind() != core.KindDelegate && s.Network == rec.Network && s.CNIVersion == ""
}

// planned shows a spec's own values.
func planned(s core.Spec) agent.Interface {
	out := agent.Interface{
		Name: s.Key.IfName, Network: s.Network, Default: s.Default, Driver: s.Driver, Addresses: s.Addresses(),
	}
	if s.Kind() == core.KindDefaultRoute {
		out.Gateways = s.DefaultRoute.Gateways
	}
	n := s.Given()
	if n == nil {
		return out
	}
	out.Subnet, out.Gateways, out.Routes, out.MAC, out.MTU = n.Subnet, n.Gateways, routes(n.Routes), n.MAC.String(), n.MTU
	out.VLAN, out.Mirror = n.VLAN, n.Mirror
	if n.QoS != (core.QoS{}) {
		q := agent.QoS(n.QoS)
		out.QoS = &q
	}
	if n.OVS != nil {
		out.HostIf, out.NICType = n.OVS.HostIf, n.OVS.Type
		out.PortSecurity, out.VIPs = security(n), n.VIPs.Addrs()
	}
	return out
}

// security is agent.Interface's PortSecurity.
func security(n *core.NICSpec) string {
	switch {
	case n.Open:
		return "off"
	case n.OVS.Secure:
		return "on"
	}
	return ""
}

// made overlays what a driver says is really there.
func made(i *agent.Interface, l core.Link) {
	if len(l.Addrs) > 0 {
		i.Addresses, i.Gateways, i.Routes = l.Addrs, l.Gateways, routes(l.Routes)
	}
	if len(l.MAC) > 0 {
		i.MAC = l.MAC.String()
	}
	if l.MTU > 0 {
		i.MTU = l.MTU
	}
	if l.HostIf != "" {
		i.HostIf = l.HostIf
	}
	if len(l.DNS.Nameservers)+len(l.DNS.Search)+len(l.DNS.Options) > 0 || l.DNS.Domain != "" {
		d := agent.DNS(l.DNS)
		i.DNS = &d
	}
	i.Warnings = append(i.Warnings, l.Warnings...)
}

func routes(in []core.Route) []agent.Route {
	var out []agent.Route
	for _, r := range in {
		out = append(out, agent.Route(r))
	}
	return out
}

// differences are the lines of a CHECK's error, none for nil. Its cause has a
// line for each; the error itself, which a runtime shows, is one line.
func differences(err error) []string {
	if err == nil {
		return nil
	}
	if e := (*core.Error)(nil); errors.As(err, &e) && e.Details != "" && e.Err != nil {
		err = e.Err
	}
	return strings.Split(err.Error(), "\n")
}

// names are the interfaces of a record.
func names(rec core.Record) (out []string) {
	for _, i := range interfaces(rec) {
		out = append(out, i.Name)
	}
	return out
}
