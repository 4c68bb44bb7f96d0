// Package probes has kubelet's probes reach pods in Vpcs of their own, to whose addresses the
// node has no route: the packet filter leads what the node sends to a probed port to a
// proxy, which connects to the pod from within the pod's own namespace. It tells which ports
// these are and whether the pods listen, and is the proxy. It must not know rules, or who
// probes.
package probes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/api/agent"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/tcp"
)

const (
	every = time.Second     // as often as kubelet probes at most: a pod is asked whether it listens
	again = 5 * time.Second // asks the server that did not tell, of whichever pod
	// A pod that the server does not have, as one whose sandbox stayed, is asked for less and less often.
	unknownMost = time.Minute
	// ReasonAddress is of the event that tells a pod that nobody probes it.
	ReasonAddress = "ProbeNotForwarded"
)

// Records are what the journal knows; *journal.Journal has them.
type Records interface {
	Heads() []journal.Head
	Get(k core.Key) (core.Record, bool)
}

// Config says whom a Keeper asks and tells.
type Config struct {
	Host    *netns.Handle // the node's namespace; nil = current
	Records Records
	Subnets func(ctx context.Context) ([]core.Subnet, error)
	// Ports are the TCP ports at which a pod's containers are probed.
	Ports func(ctx context.Context, pod core.Pod) ([]uint16, error)
	// Taken are networks that the node reaches by itself: no pod of another Vpc has them.
	Taken   func() []netip.Prefix
	Warn    func(pod core.Pod, reason, note string)
	Changed func() // what Wanted gives is another. It must not block
	Log     *slog.Logger
}

// Keeper knows the probed ports of this node's pods. A nil one knows none.
type Keeper struct {
	cfg   Config
	known map[core.Key]*pod // of Run alone, as is the time from which the server is asked again
	next  time.Time
	vain  bool // this look has waited for a pod that the server does not have
	shown atomic.Pointer[[]port]
	fault [2]atomic.Pointer[string] // why the proxy does not listen, for IPv4 and IPv6

	led, refused atomic.Uint64
}

// pod is one that has been asked for.
type pod struct {
	core.Pod
	called core.Moment
	netns  core.Netns
	subnet string // of the interface that is probed; "" where it is not ours
	addrs  []netip.Prefix
	ports  []uint16
	asked  bool
	// next is when it is asked for again that the server did not have, wait how long that was.
	next time.Time
	wait time.Duration
}

// port is a probed one.
type port struct {
	rules.Probe
	pod   core.Pod
	netns core.Netns
	why   string // it is not served; "" where it is
}

// New makes a Keeper; nothing is asked before Run.
func New(c Config) *Keeper {
	return &Keeper{cfg: c, known: map[core.Key]*pod{}}
}

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	if k == nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, v6 := range []bool{false, true} {
		wg.Go(func() { k.listen(ctx, rules.ProxyAt(v6), &k.fault[i]) })
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		k.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Wanted are the ports that the node is to lead to the proxy; core.ErrUnavailable before
// the first look.
func (k *Keeper) Wanted() ([]rules.Probe, error) {
	if k == nil {
		return nil, nil
	}
	all := k.shown.Load()
	if all == nil {
		return nil, fmt.Errorf("probed ports of pods are not known yet: %w", core.ErrUnavailable)
	}
	return wanted(*all), nil
}

// now are the ports as they were seen last.
func (k *Keeper) now() []port {
	if all := k.shown.Load(); all != nil {
		return *all
	}
	return nil
}

func wanted(all []port) (out []rules.Probe) {
	for _, p := range all {
		if p.why == "" {
			out = append(out, p.Probe)
		}
	}
	return out
}

// Show tells people of each port, and why the proxy does not serve, "" while it does.
func (k *Keeper) Show() (out []agent.OutwardProbe, fault string) {
	if k == nil {
		return nil, ""
	}
	for _, p := range k.now() {
		out = append(out, agent.OutwardProbe{Pod: p.pod.String(), To: p.To, Open: p.Open, Why: p.why})
	}
	for i := range k.fault {
		if said := k.fault[i].Load(); said != nil {
			fault = *said
		}
	}
	return out, fault
}

// Counts are the connections that were led to pods, and those that were refused.
func (k *Keeper) Counts() (led, refused uint64) { return k.led.Load(), k.refused.Load() }

// look learns which ports there are now.
func (k *Keeper) look(ctx context.Context) {
	subnets, err := k.cfg.Subnets(ctx)
	if err != nil {
		return // not known: what is there stays
	}
	away := map[string]bool{} // Subnets to which the node has no route
	for _, s := range subnets {
		away[s.Name] = v1.Routed(s.Provider) && s.Vpc != "" && s.Vpc != v1.DefaultVpc
	}
	now := k.all(ctx, away)
	first, was := k.shown.Load() == nil, k.now()
	for i := range now {
		k.listens(&now[i], was)
	}
	k.shown.Store(&now)
	if first || !slices.Equal(wanted(was), wanted(now)) {
		k.cfg.Changed()
	}
	k.tell(was, now)
}

// tell says of pods to which probes are not led why, once.
func (k *Keeper) tell(was, now []port) {
	for _, p := range now {
		if p.why != "" && !slices.ContainsFunc(was, func(o port) bool { return o.pod == p.pod && o.To == p.To && o.why == p.why }) {
			k.cfg.Log.Warn("probes of a pod are not led to it", "pod", p.pod, "to", p.To, "because", p.why)
			k.cfg.Warn(p.pod, ReasonAddress, "probes of "+p.To.String()+" do not reach the pod: "+p.why)
		}
	}
}

// all are the probed ports of pods in such Subnets, those of the pod that came first before
// others with the same.
func (k *Keeper) all(ctx context.Context, away map[string]bool) (out []port) {
	taken, holder := k.cfg.Taken(), map[netip.AddrPort]core.Pod{}
	for _, p := range k.probed(ctx, away) {
		for _, a := range p.addrs {
			for _, n := range p.ports {
				one := port{Probe: rules.Probe{To: netip.AddrPortFrom(a.Addr(), n)}, pod: p.Pod, netns: p.netns}
				other, has := holder[one.To]
				switch {
				case has:
					one.why = "pod " + other.String() + " of this node, in another Vpc, has the same address and port, and whoever probes cannot say which is meant"
				case slices.ContainsFunc(taken, func(t netip.Prefix) bool { return t.Contains(a.Addr()) }):
					one.why = "the node reaches that address by itself: in Vpc " + v1.DefaultVpc + ", or as a node's or a Service's"
				default:
					holder[one.To] = one.pod
				}
				out = append(out, one)
			}
		}
	}
	return out
}

// probed are the pods of such Subnets whose ports are known, in the order of their coming.
func (k *Keeper) probed(ctx context.Context, away map[string]bool) (pods []*pod) {
	there := map[core.Key]bool{}
	k.vain = false
	for _, h := range k.cfg.Records.Heads() {
		if h.Phase != core.Added || h.Orphan {
			continue
		}
		there[h.Key] = true
		p := k.pod(h)
		if away[p.subnet] && k.ask(ctx, p) {
			pods = append(pods, p)
		}
	}
	maps.DeleteFunc(k.known, func(key core.Key, _ *pod) bool { return !there[key] })
	slices.SortStableFunc(pods, func(a, b *pod) int { return a.called.Compare(b.called) })
	return pods
}

// pod is what is known of a record.
func (k *Keeper) pod(h journal.Head) *pod {
	if p := k.known[h.Key]; p != nil && p.called.Compare(h.Called) == 0 {
		return p
	}
	p := &pod{Pod: h.Pod, called: h.Called, netns: h.Netns}
	r, ok := k.cfg.Records.Get(h.Key)
	if !ok {
		return p // gone meanwhile
	}
	if i := slices.IndexFunc(r.Specs, func(s core.Spec) bool { return s.Default && s.Given() != nil }); i >= 0 {
		p.subnet, p.addrs = r.Specs[i].Given().Subnet, r.Specs[i].Given().Addrs
	}
	k.known[h.Key] = p
	return p
}

// ask learns at which ports a pod is probed, once: they cannot be changed. False while
// nobody could tell.
func (k *Keeper) ask(ctx context.Context, p *pod) bool {
	if now := time.Now(); p.asked || now.Before(k.next) || now.Before(p.next) || p.wait > 0 && k.vain {
		return p.asked
	}
	ports, err := k.cfg.Ports(ctx, p.Pod)
	if err != nil {
		k.cfg.Log.Warn("not known at which ports a pod is probed; asked again", "pod", p.Pod, "err", err)
	}
	switch {
	case errors.Is(err, core.ErrNotFound): // others are asked for meanwhile
		p.wait = min(max(again, 2*p.wait), unknownMost)
		p.next, k.vain = time.Now().Add(p.wait), true
		return false
	case err != nil:
		k.next = time.Now().Add(again)
		return false
	}
	p.ports, p.asked = ports, true
	return true
}

// listens fills in whether the pod listens at a port. While nobody can tell it is as it was.
func (k *Keeper) listens(p *port, was []port) {
	if i := slices.IndexFunc(was, func(o port) bool { return o.pod == p.pod && o.To == p.To }); i >= 0 {
		p.Open = was[i].Open
	}
	ns, err := netns.Verify(p.netns)
	if errors.Is(err, core.ErrNetnsGone) {
		p.Open = false
	}
	if err != nil {
		return
	}
	defer func() { _ = ns.Close() }()
	if all, err := tcp.Listeners(ns); err == nil {
		p.Open = slices.ContainsFunc(all, func(l tcp.Listener) bool { return l.Takes(p.To) })
	}
}
