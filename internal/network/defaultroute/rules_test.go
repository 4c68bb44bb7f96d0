package defaultroute

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// network is one of a pod's networks in a row of the table.
type network struct {
	want core.Want
	made core.Link // what its plugin says that it made
}

// own is a network of ours whose Subnet has gateways; eth0 is the default
// network.
func own(ifName string, gws ...string) network {
	subnet := core.Subnet{Name: "of-" + ifName, Gateways: addrs(gws...)}
	for _, gw := range subnet.Gateways {
		subnet.CIDRs = append(subnet.CIDRs, netip.PrefixFrom(gw, 24).Masked())
	}
	nic := &core.NIC{Subnet: subnet, DefaultRoute: ifName == "eth0"}
	return network{want: core.Want{Network: "n-" + ifName, IfName: ifName, Default: ifName == "eth0", Steps: []core.Step{{NIC: nic}}}}
}

// foreign is a network of a foreign plugin, which sets default routes through
// gateways.
func foreign(ifName string, gws ...string) network {
	n := own(ifName)
	n.want.Steps = []core.Step{{Exec: &core.Exec{Type: "p", CNIVersion: "1.0.0"}}}
	routes, ips := []string{}, []string{}
	for i, gw := range addrs(gws...) {
		routes = append(routes, fmt.Sprintf(`{"dst":%q,"gw":%q}`, core.Anywhere(gw), gw))
		ips = append(ips, fmt.Sprintf(`{"address":"%s/%d","gateway":%q,"interface":0}`, gw.Next(), 24+40*i, gw))
	}
	n.made = core.Link{IfName: ifName, PodSide: core.PodSide{Routes: Via(addrs(gws...))}, CNIResult: fmt.Appendf(nil,
		`{"cniVersion":"1.0.0","interfaces":[{"name":%q,"sandbox":"/x"}],"ips":[%s],"routes":[%s]}`, ifName, strings.Join(ips, ","), strings.Join(routes, ","))}
	return n
}

// asks is the network with `default-route`; an empty list asks too.
func (n network) asks(gws ...string) network {
	n.want.Gateways, n.want.TakesDefault = addrs(gws...), len(gws) == 0
	return n
}

// annotated is the network with the annotation default_route.
func (n network) annotated(yes bool) network {
	n.want.Steps[0].NIC.DefaultRoute = yes
	return n
}

// writes is the network whose configuration writes default routes.
func (n network) writes(gws ...string) network {
	n.want.Steps[0].NIC.Routes = Via(addrs(gws...))
	return n
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// pod is what the tests do with a record, as the engine does it.
type pod struct {
	t *testing.T
	core.Record
}

// steps are the specs and links of wants[at] without its default-route step.
func (p *pod) steps(wants []core.Want, at int, made core.Link) (specs []core.Spec, links []core.Link) {
	w := wants[at]
	s := core.Spec{Key: core.Key{Container: "c", IfName: w.IfName}, Network: w.Network, Default: w.Default}
	if !w.Default {
		s.Request = w.IfName
	}
	n := w.Steps[0].NIC
	if n == nil {
		s.Exec = w.Steps[0].Exec
		return []core.Spec{s}, []core.Link{made}
	}
	s.NIC = &core.NICSpec{Gateways: n.Subnet.Gateways, NoDefault: w.Default && !n.DefaultRoute && len(w.Gateways) == 0}
	s.NIC.Routes = Routes(wants, at, n, n.Subnet.Gateways)
	for _, there := range p.Specs {
		if there.NIC != nil {
			s.NIC.Routes = Beside(s.NIC.Routes, there.NIC.Routes)
		}
	}
	l := core.Link{HostIf: "h", IfName: w.IfName, Gateways: s.NIC.Gateways, PodSide: core.PodSide{Routes: s.NIC.Routes}}
	for _, gw := range s.NIC.Gateways {
		l.Addrs = append(l.Addrs, netip.PrefixFrom(gw.Next(), 24))
	}
	return []core.Spec{s}, []core.Link{l}
}

func (p *pod) add(nets []network) *Conflict {
	var wants []core.Want
	for _, n := range nets {
		if nic := n.want.Steps[0].NIC; nic != nil {
			Own(&n.want, nic, n.want.Default)
		}
		wants = append(wants, n.want)
	}
	if c := Settle(wants); c != nil {
		return c
	}
	var steps []core.Spec
	for i := range wants {
		specs, links := p.steps(wants, i, nets[i].made)
		p.Specs, p.Links = append(p.Specs, specs...), append(p.Links, links...)
		if NeedsStep(wants, i) {
			steps = append(steps, Step(specs[0], wants[i].Gateways))
		}
	}
	for _, s := range steps {
		p.Specs = append(p.Specs, s)
		p.attachLast()
	}
	return nil
}

// attachLast sets the default routes of the last spec.
func (p *pod) attachLast() {
	last := len(p.Specs) - 1
	require.NoError(p.t, Tell(&p.Record, last))
	p.Links = append(p.Links, Link(p.Specs[last]))
}

func (p *pod) plug(n network) {
	w := n.want
	if nic := w.Steps[0].NIC; nic != nil {
		Own(&w, nic, false)
	}
	gws, takes := Claim(&w)
	specs, links := p.steps([]core.Want{w}, 0, n.made)
	if takes {
		coming := pod{t: p.t, Record: core.Record{Specs: append(specs, Step(specs[0], gws)), Links: links}}
		coming.attachLast()
		specs, links = coming.Specs, coming.Links
	}
	specs = Take(&p.Record, specs)
	p.Specs, p.Links = append(p.Specs, specs...), append(p.Links, links...)
}

func (p *pod) unplug(ifName string) {
	before := p.Record
	p.Specs, p.Links = nil, nil
	for i, s := range before.Specs {
		if s.Key.IfName != ifName {
			p.Specs, p.Links = append(p.Specs, s), append(p.Links, before.Links[i])
		}
	}
	restore := Return(&p.Record, before, ifName)
	for _, s := range restore {
		require.Contains(p.t, p.owners(), owners([]core.Spec{s}), "what is set is what the record says")
	}
}

func (p *pod) owners() string { return owners(Owners(p.Record, nil)) }

func owners(specs []core.Spec) string {
	var out []string
	for _, s := range specs {
		for _, gw := range s.DefaultRoute.Gateways {
			out = append(out, s.Key.IfName+" "+gw.String())
		}
	}
	return strings.Join(out, ", ")
}

// told is who has the default routes by what runtimes and operators are told.
func (p *pod) told() string {
	var out []string
	for _, v4 := range families {
		for _, n := range cniconf.Status(p.Specs, p.Links) {
			for _, gw := range family(addrs(n.Gateway...), v4) {
				out = append(out, n.Interface+" "+gw.String())
			}
		}
	}
	return strings.Join(out, ", ")
}

// carried proves that an interface of ours has the default routes of its spec,
// which CHECK looks for, and no other.
func (p *pod) carried() {
	for _, s := range p.Specs {
		if s.Kind() != core.KindNIC {
			continue
		}
		for _, v4 := range families {
			of, _ := owner(p.Record, v4)
			gws := gateways(s.NIC.Routes, v4)
			if of.Key != s.Key {
				require.Empty(p.t, gws, "%s has lost its default route", s.Key.IfName)
			} else if !ecmp(of.DefaultRoute.Gateways) {
				require.Equal(p.t, of.DefaultRoute.Gateways, gws)
			}
		}
	}
}

// rules are what the multi-network specification says of default routes. Each row
// names the rule, in its words where it has some.
var rules = []struct {
	rule string
	add  []network
	then []any  // a network that comes, or the interface of one that goes
	has  string // who has the default routes, IPv4 first
}{
	{"nobody asks: the default network", []network{own("eth0", "10.16.0.1", "fd00::1"), own("net1", "10.20.0.1")}, nil,
		"eth0 10.16.0.1, eth0 fd00::1"},
	{"7 default-route: program", []network{own("eth0", "10.16.0.1"), own("net1", "10.20.0.1").asks("10.20.0.254")}, nil,
		"net1 10.20.0.254"},
	{"7 default-route: program, what a plugin did", []network{own("eth0", "10.16.0.1"), foreign("net1", "10.61.0.1"), own("net2", "10.20.0.1").asks("10.20.0.1")}, nil,
		"net2 10.20.0.1"},
	{"7 per family", []network{own("eth0", "10.16.0.1", "fd00::1"), own("net1", "10.20.0.1").asks("10.20.0.1")}, nil,
		"net1 10.20.0.1, eth0 fd00::1"},
	{"7 per family: two networks", []network{own("eth0", "10.16.0.1", "fd00::1"), own("net1", "10.20.0.1").asks("10.20.0.1"), own("net2", "fd01::1").asks("fd01::1")}, nil,
		"net1 10.20.0.1, net2 fd01::1"},
	{"7 several gateways of one family are an ECMP route", []network{own("eth0", "10.16.0.1"), own("net1", "10.20.0.1").asks("10.20.0.1", "10.20.0.2")}, nil,
		"net1 10.20.0.1, net1 10.20.0.2"},
	{"an empty list: the network's own gateways", []network{own("eth0", "10.16.0.1"), own("net1", "10.20.0.1").asks()}, nil,
		"net1 10.20.0.1"},
	{"an empty list: those that its plugins tell", []network{foreign("eth0", "10.1.0.1"), foreign("net1", "10.61.0.1", "fd61::1").asks()}, nil,
		"net1 10.61.0.1, net1 fd61::1"},
	{"7 the routes of networks that lost the default are removed, also when it is told late", []network{own("eth0", "10.16.0.1", "fd00::1"), foreign("net1", "10.61.0.1").asks()}, nil,
		"net1 10.61.0.1, eth0 fd00::1"},
	{"12 and it goes", []network{own("eth0", "10.16.0.1", "fd00::1"), foreign("net1", "10.61.0.1").asks()}, []any{"net1"},
		"eth0 10.16.0.1, eth0 fd00::1"},
	{"default_route of a further network", []network{own("eth0", "10.16.0.1"), own("net1", "10.20.0.1").annotated(true)}, nil,
		"net1 10.20.0.1"},
	{"default_route false of the default network", []network{own("eth0", "10.16.0.1").annotated(false), own("net1", "10.20.0.1")}, nil,
		""},
	{"a written route of the default network comes before its gateway", []network{own("eth0", "10.16.0.1", "fd00::1").writes("10.16.0.9")}, nil,
		"eth0 10.16.0.9, eth0 fd00::1"},

	{"7 the routes of networks that lost the default are removed, written ones too", []network{own("eth0", "10.16.0.1").writes("10.16.0.9"), own("net1", "10.20.0.1").asks()}, nil,
		"net1 10.20.0.1"},
	{"a written route of a further network takes the default route", []network{own("eth0", "10.16.0.1", "fd00::1"), own("net1", "10.20.0.1").writes("10.20.0.9")}, nil,
		"net1 10.20.0.9, eth0 fd00::1"},
	{"the last one of several", []network{own("eth0", "10.16.0.1"), own("net1", "10.20.0.1").writes("10.20.0.9"), own("net2", "10.30.0.1").writes("10.30.0.9")}, nil,
		"net2 10.30.0.9"},
	{"what is asked for comes before what is written", []network{own("eth0", "10.16.0.1"), own("net1", "10.20.0.1").asks("10.20.0.8"), own("net2", "10.30.0.1").writes("10.30.0.9")}, nil,
		"net1 10.20.0.8"},
	{"also of one network", []network{own("eth0", "10.16.0.1"), foreign("net1", "10.61.0.1"), own("net2", "10.20.0.1").writes("10.20.0.9").asks("10.20.0.8")}, nil,
		"net2 10.20.0.8"},

	{"12 a network that comes takes nothing unasked", []network{own("eth0", "10.16.0.1")}, []any{own("net1", "10.20.0.1")},
		"eth0 10.16.0.1"},
	{"12 it takes what it asks for", []network{own("eth0", "10.16.0.1", "fd00::1")}, []any{own("net1", "10.20.0.1").asks("10.20.0.1")},
		"net1 10.20.0.1, eth0 fd00::1"},
	{"12 it takes what its plugins tell", []network{own("eth0", "10.16.0.1")}, []any{foreign("net1", "10.61.0.1").asks()},
		"net1 10.61.0.1"},
	{"12 it takes what its configuration writes", []network{own("eth0", "10.16.0.1", "fd00::1")}, []any{own("net1", "10.20.0.1").writes("10.20.0.9")},
		"net1 10.20.0.9, eth0 fd00::1"},
	{"12 and gives it back", []network{own("eth0", "10.16.0.1")}, []any{own("net1", "10.20.0.1").writes("10.20.0.9"), "net1"},
		"eth0 10.16.0.1"},
	{"12 what it asks for comes before what is written", []network{own("eth0", "10.16.0.1")}, []any{own("net1", "10.20.0.1").writes("10.20.0.9").asks("10.20.0.8")},
		"net1 10.20.0.8"},
	{"12 several gateways", []network{own("eth0", "10.16.0.1")}, []any{own("net1", "10.20.0.1").asks("10.20.0.1", "10.20.0.2")},
		"net1 10.20.0.1, net1 10.20.0.2"},
	{"12 from the one that took it", []network{own("eth0", "10.16.0.1")}, []any{own("net1", "10.20.0.1").asks(), own("net2", "10.30.0.1").asks()},
		"net2 10.30.0.1"},
	{"12 it goes: who had it before", []network{own("eth0", "10.16.0.1")}, []any{own("net1", "10.20.0.1").asks("10.20.0.9"), own("net2", "10.30.0.1").asks(), "net2"},
		"net1 10.20.0.9"},
	{"12 both go: the default network", []network{own("eth0", "10.16.0.1")}, []any{own("net1", "10.20.0.1").asks(), own("net2", "10.30.0.1").asks(), "net2", "net1"},
		"eth0 10.16.0.1"},
	{"12 who had it before went before", []network{own("eth0", "10.16.0.1")}, []any{own("net1", "10.20.0.1").asks(), own("net2", "10.30.0.1").asks(), "net1", "net2"},
		"eth0 10.16.0.1"},
	{"12 another one goes", []network{own("eth0", "10.16.0.1")}, []any{own("net1", "10.20.0.1").asks(), own("net2", "10.30.0.1"), "net2"},
		"net1 10.20.0.1"},
	{"12 families go apart", []network{own("eth0", "10.16.0.1", "fd00::1")}, []any{own("net1", "10.20.0.1").asks(), own("net2", "fd01::1").asks(), "net1"},
		"eth0 10.16.0.1, net2 fd01::1"},
	{"12 one of the ADD goes", []network{own("eth0", "10.16.0.1"), own("net1", "10.20.0.1").asks()}, []any{"net1"},
		"eth0 10.16.0.1"},
	{"12 one of the ADD goes, a plugin's default network", []network{foreign("eth0", "10.1.0.1"), foreign("net1", "10.61.0.1").asks("10.61.0.1")}, []any{"net1"},
		"eth0 10.1.0.1"},
	{"12 a plugin's default network has it again", []network{foreign("eth0", "10.1.0.1")}, []any{own("net1", "10.20.0.1").asks(), "net1"},
		"eth0 10.1.0.1"},
	{"12 what the default network asked for comes back", []network{foreign("eth0", "10.1.0.1").asks("10.1.0.9")}, []any{own("net1", "10.20.0.1").asks(), "net1"},
		"eth0 10.1.0.9"},
	{"12 what a default network of ours asked for comes back", []network{own("eth0", "10.16.0.1").asks("10.16.0.9")}, []any{own("net1", "10.20.0.1").asks(), "net1"},
		"eth0 10.16.0.9"},
	{"12 a default network without a default route stays so", []network{own("eth0", "10.16.0.1").annotated(false)}, []any{own("net1", "10.20.0.1").asks(), "net1"},
		""},
}

// TestRules: who has the default routes by the record, by the result and the
// status, and by the specs that CHECK proves.
func TestRules(t *testing.T) {
	for _, c := range rules {
		t.Run(c.rule, func(t *testing.T) {
			p := &pod{t: t, Record: core.Record{Key: core.Key{Container: "c", IfName: "eth0"}}}
			require.Nil(t, p.add(c.add))
			for _, then := range c.then {
				before := p.Record
				kept := fmt.Sprintf("%+v", before)
				if n, comes := then.(network); comes {
					p.plug(n)
				} else {
					p.unplug(then.(string))
				}
				require.Equal(t, kept, fmt.Sprintf("%+v", before), "what was is not changed")
			}
			require.Equal(t, c.has, p.owners())
			require.Equal(t, sortedWords(c.has), sortedWords(p.told()))
			p.carried()
		})
	}
}

func sortedWords(list string) []string {
	return slices.Sorted(slices.Values(strings.Split(list, ", ")))
}

// TestConflicts: one family is asked for by one network.
func TestConflicts(t *testing.T) {
	eth0, net1, taker := own("eth0", "10.16.0.1"), own("net1", "10.20.0.1").asks("10.20.0.1"), foreign("net2", "10.61.0.1").asks()
	for _, c := range []struct {
		nets []network
		want *Conflict
	}{
		{[]network{eth0, net1, own("net2", "fd01::1").asks("fd01::1")}, nil},
		{[]network{eth0, net1, own("net2", "10.30.0.1").asks("10.30.0.1")}, &Conflict{At: 2, By: 1}},
		{[]network{eth0, net1, taker}, &Conflict{At: 1, By: 2, All: true}},
		{[]network{eth0, taker, foreign("net3", "10.62.0.1").asks()}, &Conflict{At: 2, By: 1, All: true}},
	} {
		require.Equal(t, c.want, (&pod{t: t}).add(c.nets))
	}
}
