package interconnect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/ports"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/ovn/ic"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Reasons of events.
const (
	ReasonRefused   = "InterconnectionRefused"
	ReasonSilent    = "InterconnectionUnreachable"
	ReasonZoneTaken = "ZoneNameTaken"
	ReasonNode      = "InterconnectionGateway"
	ReasonOverlap   = "NetworksOverlap"
	ReasonLeft      = "InterconnectionLeftBehind"
)

// Config is what a Keeper is made of.
type Config struct {
	object.World
	Maps object.Maps
	DB   Northbound
	// Shared are the databases that the clusters share.
	Shared Shared
	// Join are the nodes' networks where no Subnet object says others.
	Join []netip.Prefix
	Log  *slog.Logger
}

// Northbound is what the Keeper asks of this cluster's database; *ovn.Client is one.
type Northbound interface {
	Apply(ctx context.Context, set *ovn.Set) error
	Interconnection() (ovn.Interconnection, error)
	Interconnect(ctx context.Context, want ovn.Interconnection) error
	Ports() ([]ovn.Port, error)
}

// Shared is what the Keeper asks of the interconnection databases; package ic is one.
type Shared struct {
	Look   func(ctx context.Context, d ic.Databases) (ic.State, error)
	Claim  func(ctx context.Context, d ic.Databases, zone, owner string) error
	Forget func(ctx context.Context, d ic.Databases, zone, owner string) (found bool, err error)
}

// look is the pause between two looks: nothing tells of what other clusters do.
const look = 10 * time.Second

// patience is how long databases may be silent that this cluster leaves, before what is left
// in them is told and forgotten.
const patience = time.Minute

// errSoon is why something is looked at again soon.
var errSoon = errors.New("another look is due")

// Keeper keeps the interconnection, one time of leading after another.
type Keeper struct {
	Config
	*ports.Loop
	told  map[string]string     // what the ConfigMap was told, with its UID
	good  *declare.Interconnect // as it was without fault last since this controller leads; nil for none
	since time.Time             // it parts from databases that do not answer; zero: it does not
	asked time.Time             // it waits for the zone to be there; zero: it is
	seen  object.Seen           // what matters of objects that changed
}

// New makes a Keeper. Run has it work.
func New(c Config) *Keeper {
	return &Keeper{Config: c, Loop: ports.NewLoop(Owner, declare.ConfigInterconnect, c.Maps)}
}

// Run works until ctx ends. It is for who leads.
func (k *Keeper) Run(ctx context.Context) error {
	k.begin()
	again := time.AfterFunc(look, k.Poke)
	defer again.Stop()
	return k.Lead(ctx, k.World, k.concerns, func(ctx context.Context, maps map[string]object.Map) error {
		err := k.once(ctx, maps)
		switch {
		case err == nil && k.good != nil:
			again.Reset(look)
		case err != nil && ctx.Err() == nil && !errors.Is(err, errSoon) && !ports.Untaken(err):
			k.Log.Warn("the interconnection with other clusters is not as it should be yet; it is tried again", "err", err)
		}
		return err
	})
}

// begin forgets what it knew while it led before: another may have led meanwhile.
func (k *Keeper) begin() {
	k.told, k.good, k.since, k.asked = map[string]string{}, nil, time.Time{}, time.Time{}
	k.seen.Forget()
}

// concerns tells an object of which something changed that matters; counts of addresses and
// heartbeats do not.
func (k *Keeper) concerns(of object.Key) bool {
	now := ""
	switch of.Kind {
	case object.KindNode:
		if n, ok := k.Nodes.Get("", of.Name); ok {
			now = fmt.Sprint(n.Annotations[v1.AnnChassis], n.Labels[declare.LabelInterconnect], n.IPs)
		}
	case object.KindSubnet:
		if s, ok := k.Subnets.Get("", of.Name); ok {
			now = fmt.Sprint(s.Spec.CIDRBlock, s.Spec.Provider, s.Spec.Vpc, s.Spec.DisableInterConnection)
		}
	default:
		return false
	}
	return k.seen.Changed(of, now)
}

// once makes all as it should be, and tells the ConfigMap what is not.
func (k *Keeper) once(ctx context.Context, maps map[string]object.Map) error {
	m := maps[declare.ConfigInterconnect]
	m.Name = declare.ConfigInterconnect // of one that is gone there may be something to tell
	want, faults := declare.ReadInterconnect(m.Data)
	p := &pass{Keeper: k, outside: maps[declare.ConfigExternal].Data}
	for _, f := range faults {
		p.say(ReasonRefused, "%s", f)
	}
	if len(faults) > 0 {
		want = k.good
	}
	k.good = want
	err := error(nil)
	if want != nil || len(faults) == 0 { // else this leader does not know it otherwise: what is there stays
		err = p.do(ctx, want)
	}
	return errors.Join(err, k.tell(ctx, m, p.said))
}

// pass is one look.
type pass struct {
	*Keeper
	outside map[string]string // ConfigMap declare.ConfigExternal
	said    []string          // each a reason, a zero byte and words
}

func (p *pass) say(reason, format string, args ...any) {
	p.said = append(p.said, reason+"\x00"+fmt.Sprintf(format, args...))
}

// do parts from what is not wanted, and joins what is.
func (p *pass) do(ctx context.Context, want *declare.Interconnect) error {
	have, err := p.DB.Interconnection()
	if err != nil {
		return err
	}
	if have.NB != "" && (have.Parting || want == nil || have.NB != want.NB || have.SB != want.SB || have.Zone != want.Zone) {
		if err := p.part(ctx, have); err != nil {
			return err
		}
		have = ovn.Interconnection{}
	}
	if want == nil {
		return p.DB.Apply(ctx, &ovn.Set{Owner: Owner})
	}
	return p.join(ctx, *want, have.NB != "")
}

// owner is whom a zone's name belongs to: this cluster, by what never changes of it.
func (p *pass) owner() (string, error) {
	n, ok := p.Namespaces.Get("", declare.ConfigNamespace)
	if !ok || n.UID == "" {
		return "", fmt.Errorf("UID of namespace %s: %w", declare.ConfigNamespace, core.ErrUnavailable)
	}
	return n.UID, nil
}

// join joins the zone that is wanted. joined: it is already.
func (p *pass) join(ctx context.Context, want declare.Interconnect, joined bool) error {
	owner, err := p.owner()
	if err != nil {
		return err
	}
	at := ic.Databases{NB: want.NB, SB: want.SB}
	now, err := p.Shared.Look(ctx, at)
	if err != nil {
		p.say(ReasonSilent, "%v; what is joined stays as it is", err)
		return err
	}
	if now.Owners[want.Zone] == "" && !slices.Contains(now.Zones, want.Zone) {
		if err := p.Shared.Claim(ctx, at, want.Zone, owner); err != nil {
			return err
		}
		return errSoon // that shows whose the name is
	}
	if now.Owners[want.Zone] != owner {
		p.say(ReasonZoneTaken, "data.az-name: %q is another cluster's name in the databases at %s (namespace %s has UID %q there): give this cluster another; if that cluster is gone: docs/interconnection.md",
			want.Zone, want.NB, declare.ConfigNamespace, now.Owners[want.Zone])
		return errSoon
	}
	return p.connect(ctx, want, now, joined)
}

// connect makes the rows of a zone whose name is this cluster's.
func (p *pass) connect(ctx context.Context, want declare.Interconnect, now ic.State, joined bool) error {
	nodes := ports.Gateways(p.Nodes.List(), want.Nodes, want.IsGateway)
	p.sayNodes(want, nodes)
	if twin := p.twins(want.Zone, nodes, now); twin && !joined {
		return errSoon // ovn-ic would write nothing at all
	}
	open, closed := p.own()
	w := ways{closed: closed}
	if want.Routes {
		w.learned = p.learned(want.Zone, now, open, closed)
	}
	leads, err := p.leads(want.Zone, now)
	if err != nil {
		return err
	}
	p.sayAbsent(want, joined && (!leads || !slices.Contains(now.Zones, want.Zone)))
	set, err := rows(want.Zone, nodes, now, w, leads)
	if err != nil {
		return err
	}
	if err := p.DB.Apply(ctx, set); err != nil { // before ovn-ic makes a transit switch of its own
		return err
	}
	err = p.DB.Interconnect(ctx, ovn.Interconnection{NB: want.NB, SB: want.SB, Zone: want.Zone, Routes: want.Routes, Deny: p.deny(open, closed)})
	if err == nil && !leads {
		return errSoon
	}
	return err
}

// leads tells that the router may be on the transit switch: its port has the number in tunnels
// that it will keep, or is there already. Until ovn-ic has chosen it the port has one of this
// cluster's alone, and an ovn-controller that knew that one (OVN 23.03) goes on sending with it.
func (p *pass) leads(zone string, now ic.State) (bool, error) {
	if _, chosen := tunnelKey(zone, now); chosen {
		return true, nil
	}
	all, err := p.DB.Ports()
	return slices.ContainsFunc(all, func(o ovn.Port) bool { return o.Name == switchPortOf(zone) && len(o.Networks) > 0 }), err
}

// sayNodes says which gateway nodes are none.
func (p *pass) sayNodes(want declare.Interconnect, nodes []object.Node) {
	for _, name := range want.Nodes {
		if slices.ContainsFunc(nodes, func(n object.Node) bool { return n.Name == name }) {
			continue
		}
		if _, there := p.Nodes.Get("", name); there {
			p.say(ReasonNode, "data.gw-nodes: node %s is no chassis of OVN", name)
		} else {
			p.say(ReasonNode, "data.gw-nodes: there is no Node %s", name)
		}
	}
	if len(nodes) == 0 {
		p.say(ReasonNode, "no gateway node is a chassis of OVN: nothing gets to other clusters; data.gw-nodes names them, or label %s=true", declare.LabelInterconnect)
	}
}

// sayAbsent says that nobody carries out what ovn-ic is told.
func (p *pass) sayAbsent(want declare.Interconnect, absent bool) {
	switch {
	case !absent:
		p.asked = time.Time{}
	case p.asked.IsZero():
		p.asked = time.Now()
	case time.Since(p.asked) > 2*look:
		p.say(ReasonSilent, "zone %q, or its port, has not come into the databases at %s: no member of OVN's central part runs ovn-ic (Debian: package ovn-ic), or none reaches them", want.Zone, want.SB)
	}
}

// twins says which gateways have the name of another zone's.
func (p *pass) twins(zone string, nodes []object.Node, now ic.State) (any bool) {
	for _, g := range now.Gateways {
		if g.Zone != zone && slices.ContainsFunc(nodes, func(n object.Node) bool { return n.Annotations[v1.AnnChassis] == g.Name }) {
			p.say(ReasonNode, "chassis %s has the name of a gateway of cluster %q: gateways of joined clusters need names of their own; take another node", g.Name, g.Zone)
			any = true
		}
	}
	return any
}

// own are networks of the default Vpc: those that others reach, and those that they do not,
// of the nodes and of Subnets that say so.
func (p *pass) own() (open map[netip.Prefix]string, closed []netip.Prefix) {
	open = map[netip.Prefix]string{}
	for _, n := range p.Join {
		closed = append(closed, n.Masked())
	}
	for _, s := range p.Subnets.List() {
		switch {
		case !v1.Routed(s.Spec.Provider) || s.Spec.Vpc != "" && s.Spec.Vpc != v1.DefaultVpc:
		case s.Spec.DisableInterConnection || s.Name == joinSubnet:
			closed = append(closed, networks(s.Spec.CIDRBlock)...)
		default:
			for _, n := range networks(s.Spec.CIDRBlock) {
				open[n] = s.Name
			}
		}
	}
	return open, closed
}

// learned are the networks of other zones that pods reach there: none that this cluster has
// itself, or a part of which.
func (p *pass) learned(zone string, now ic.State, open map[netip.Prefix]string, closed []netip.Prefix) (out []ic.Route) {
	for _, r := range now.Routes {
		mine := slices.ContainsFunc(closed, r.Prefix.Overlaps)
		if r.Zone == zone || r.Prefix.Bits() == 0 || !slices.ContainsFunc(now.Networks, func(n netip.Prefix) bool { return n.Contains(r.Nexthop) }) {
			continue
		}
		for own, subnet := range open {
			if r.Prefix.Overlaps(own) {
				p.say(ReasonOverlap, "cluster %q has %s, which overlaps Subnet %s (%s): pods with such addresses do not reach each other; one of the two needs another CIDR, or spec.disableInterConnection", r.Zone, r.Prefix, subnet, own)
				mine = mine || r.Prefix.Bits() >= own.Bits()
			}
		}
		if !mine {
			out = append(out, r)
		}
	}
	return out
}

// deny are the networks that are not told to other clusters: closed ones, nodes' addresses and
// networks outside. OVN 23.03 takes a denied IPv6 network for each that is as long or longer:
// one by which a network of pods would be lost is left out.
func (p *pass) deny(open map[netip.Prefix]string, closed []netip.Prefix) (out []string) {
	all := slices.Clone(closed)
	for _, n := range p.Nodes.List() {
		for _, ip := range n.IPs {
			all = append(all, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	if e, faults := declare.ReadExternal(p.outside); e != nil && len(faults) == 0 {
		for _, n := range e.Networks {
			all = append(all, n.Masked())
		}
	}
	for _, n := range all {
		lost := func(own netip.Prefix) bool { return n.Addr().Is6() && own.Addr().Is6() && own.Bits() >= n.Bits() }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(open)), lost) {
			out = append(out, n.String())
		}
	}
	return out
}

// joinSubnet is the nodes' Subnet.
const joinSubnet = "join"

// networks are those of a Subnet; what is none is left out.
func networks(cidrs string) (out []netip.Prefix) {
	for text := range strings.SplitSeq(cidrs, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// part withdraws what was joined: here at once, and then from the databases that are shared.
// Those that do not answer have patience.
func (p *pass) part(ctx context.Context, have ovn.Interconnection) error {
	owner, err := p.owner()
	if err != nil {
		return err
	}
	have.Parting = true
	if err := p.DB.Interconnect(ctx, have); err != nil { // ovn-ic does nothing from here on
		return err
	}
	if err := p.DB.Apply(ctx, &ovn.Set{Owner: Owner}); err != nil {
		return err
	}
	found, err := p.Shared.Forget(ctx, ic.Databases{NB: have.NB, SB: have.SB}, have.Zone, owner)
	if p.since.IsZero() {
		p.since = time.Now()
	}
	switch {
	case err != nil && time.Since(p.since) < patience:
		return fmt.Errorf("zone %s is withdrawn here, but not from what the clusters share: %w", have.Zone, err)
	case err != nil:
		p.say(ReasonLeft, "zone %q was withdrawn here, and is left in the databases at %s: %v; docs/interconnection.md says how it is taken out there", have.Zone, have.NB, err)
	case found:
		return errSoon // until nothing is
	}
	p.since = time.Time{}
	return p.DB.Interconnect(ctx, ovn.Interconnection{})
}

// tell tells the ConfigMap what is wrong, each thing once.
func (k *Keeper) tell(ctx context.Context, m object.Map, said []string) (err error) {
	now := map[string]bool{}
	for _, s := range said {
		now[s] = true
		if uid, once := k.told[s]; once && uid == m.UID {
			continue
		}
		reason, message, _ := strings.Cut(s, "\x00")
		if m.UID == "" { // it is gone
			k.Log.Warn("the ConfigMap that asked for the interconnection is gone; it would be told", "reason", reason, "message", message)
		} else if failed := k.Warn(ctx, m.Object(), object.Event{Reason: reason, Message: message}); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		k.told[s] = m.UID
	}
	for s := range k.told {
		if !now[s] {
			delete(k.told, s)
		}
	}
	return err
}
