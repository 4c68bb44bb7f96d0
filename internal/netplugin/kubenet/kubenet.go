// Package kubenet is the network plugin that needs nothing but this program: a
// bridge cbr0 of the node with an address of each of the node's pod CIDRs, pods
// on it with addresses of host-local, masquerading, host ports and rates. It is
// kubelet's plugin of that name without its processes (the bridge, its ports and
// the addresses are made by the same code as the CNI plugins of these names
// inside the agent), and unlike it remembers its pods: what a pod has is recorded
// first, so that whatever process comes later can take it back. It knows no
// engine.
package kubenet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"sigs.k8s.io/knftables"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/bridge"
	"github.com/fairlead/fairlead/internal/driver/builtin/hostlocal"
	"github.com/fairlead/fairlead/internal/gateway/hostport"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/netplugin/inpod"
	"github.com/fairlead/fairlead/internal/netplugin/shaper"
	"github.com/fairlead/fairlead/internal/netplugin/store"
)

// Name is the plugin's, and its network's.
const Name = "kubenet"

// Bridge is what pods are on.
const Bridge = "cbr0"

// Names of nftables tables: masquerading (inet) and promiscuous-bridge's filter
// (bridge) have the first one, host ports the second.
const (
	TableName      = "fairlead-kubenet"
	PortsTableName = "fairlead-kubenet-ports"
)

// Config says where things are.
type Config struct {
	// StateDir has the records.
	StateDir string
	// DataDir is host-local's; "": /var/lib/cni/networks.
	DataDir string
	// Host is the node's namespace; nil: the process's own.
	Host *netns.Handle
	// Load loads a kernel module; nil: nobody does.
	Load func(ctx context.Context, module string) error
	Log  *slog.Logger
}

// Plugin is a netplugin.Plugin.
type Plugin struct {
	conf     Config
	settings netplugin.Settings
	host     netplugin.Host
	store    *store.Store

	reaper *tombstone.Reaper
	bridge *bridge.Plugin
	ipam   *hostlocal.Plugin
	ports  *hostport.Table
	masq   *nft.Table
	shaper *shaper.Shaper

	making sync.Mutex // of the bridge and what belongs to it
	rules  []string   // of promiscuous-bridge, as written last; nil: not known

	applying sync.Mutex
	applied  error // what came of apply
	restored bool  // the host ports of an earlier process
}

var (
	_ netplugin.Plugin    = (*Plugin)(nil)
	_ netplugin.Runner    = (*Plugin)(nil)
	_ netplugin.Checker   = (*Plugin)(nil)
	_ netplugin.Collector = (*Plugin)(nil)
)

// New makes the plugin; nothing is touched before Init.
func New(c Config) *Plugin {
	reaper := tombstone.New(c.Host, c.Log)
	return &Plugin{
		conf: c, reaper: reaper, bridge: bridge.New(c.Host, reaper), ipam: hostlocal.New(),
		ports: hostport.New(hostport.Config{Host: c.Host, Table: PortsTableName, Log: c.Log}),
		masq:  nft.New(c.Host, TableName), shaper: shaper.New(c.Host),
	}
}

// Name implements netplugin.Plugin.
func (*Plugin) Name() string { return Name }

// Capabilities implements netplugin.Plugin.
func (*Plugin) Capabilities() map[netplugin.Capability]bool {
	return map[netplugin.Capability]bool{netplugin.CapabilityShaping: true}
}

// Init reads the records of the pods that an earlier process left, which are as
// they were, and goes on with the pod CIDR that it was told until it is told one.
// What pods of damaged records had is found by its owner's id.
func (p *Plugin) Init(ctx context.Context, host netplugin.Host, s netplugin.Settings) error {
	records, err := store.Start(p.conf.StateDir, p.conf.Log)
	if err != nil {
		return err
	}
	p.host, p.store, p.settings = host, records, s
	netplugin.BridgeFilter{Load: p.conf.Load, Host: p.conf.Host, Log: p.conf.Log}.Enable(ctx)
	if p.settings.MTU == 0 {
		if p.settings.MTU, err = leastMTU(p.conf.Host); err != nil {
			return err
		}
	}
	if err := p.apply(ctx); err != nil { // Status tells it, and tries again
		p.conf.Log.Error("kubenet not ready: pods are refused until it is", "err", err)
	}
	return nil
}

// Event takes the node's pod CIDRs.
func (p *Plugin) Event(ctx context.Context, name string, details map[string]string) error {
	changed, err := p.store.Event(name, details, p.conf.Log)
	if err != nil || !changed {
		return err
	}
	return p.apply(ctx)
}

// errNoCIDR is why a new node has no network yet.
var errNoCIDR = errors.New("nobody has told the node's pod CIDR yet (kubelet, or --pod-cidr)")

// apply opens the ports of the pods that an earlier process left, once, and makes
// the bridge and the rules as the settings and the pod CIDRs say; without these
// nothing. It may be repeated at any time.
func (p *Plugin) apply(ctx context.Context) error {
	p.applying.Lock()
	defer p.applying.Unlock()
	p.applied = p.restore(ctx)
	cidrs := p.store.CIDRs()
	if p.applied == nil && len(cidrs) > 0 {
		p.applied = p.ensureBridge(ctx)
		if p.applied == nil {
			p.applied = p.masq.Apply(ctx, masquerade(cidrs, p.settings.NonMasquerade))
		}
	}
	return p.applied
}

func (p *Plugin) restore(ctx context.Context) error {
	if p.restored {
		return nil
	}
	var specs []core.Spec
	for _, r := range p.store.All() {
		if s := portSpec(r); len(s.HostPorts.Ports) > 0 && len(s.HostPorts.Addrs) > 0 {
			specs = append(specs, s)
		}
	}
	err := p.ports.Restore(ctx, specs)
	p.restored = err == nil
	return err
}

// ready tells what is missing before a pod can be attached, and makes what can be
// made.
func (p *Plugin) ready(ctx context.Context) error {
	if len(p.store.CIDRs()) == 0 {
		return errNoCIDR
	}
	p.applying.Lock()
	failed := p.applied != nil
	p.applying.Unlock()
	if failed {
		return p.apply(ctx)
	}
	return p.ensureBridge(ctx)
}

// masquerade hides pods from where their addresses mean nothing. A family of
// which nobody said where that is keeps its addresses, and one whose addresses
// mean something everywhere.
func masquerade(cidrs, exempt []netip.Prefix) (r nft.Ruleset) {
	out := nft.Chain{Name: "postrouting", Hook: &nft.Hook{Type: knftables.NATType, At: knftables.PostroutingHook, Priority: knftables.SNATPriority}}
	for _, v6 := range []bool{false, true} {
		other := func(p netip.Prefix) bool { return p.Addr().Is6() != v6 }
		pods, spared := slices.DeleteFunc(slices.Clone(cidrs), other), slices.DeleteFunc(slices.Clone(exempt), other)
		if len(pods) == 0 || len(spared) == 0 || slices.ContainsFunc(spared, func(e netip.Prefix) bool { return e.Bits() == 0 }) {
			continue
		}
		ip := map[bool]string{false: "ip", true: "ip6"}[v6]
		r.Sets = append(r.Sets,
			nft.Set{Name: "masquerade-" + ip, V6: v6, Members: pods},
			nft.Set{Name: "internal-" + ip, V6: v6, Members: append(pods, spared...)})
		out.Rules = append(out.Rules, nft.Entry{Text: knftables.Concat(ip, "saddr", "@masquerade-"+ip, ip, "daddr", "!=", "@internal-"+ip, "masquerade random,fully-random")})
	}
	if len(out.Rules) > 0 {
		r.Chains = []nft.Chain{out}
	}
	return r
}

// Status tells what is missing: the pod CIDR, the bridge, or the rules.
func (p *Plugin) Status(ctx context.Context) error {
	if err := p.ready(ctx); err != nil {
		return fmt.Errorf("kubenet: %w", err)
	}
	return nil
}

// SetUpPod gives the pod its interface, then its rates, then its host ports.
func (p *Plugin) SetUpPod(ctx context.Context, pod netplugin.Pod) error {
	ctx, stop := context.WithTimeout(ctx, netplugin.CallLimit)
	defer stop()
	rates, err := netplugin.RatesOf(pod.Annotations)
	if err != nil {
		return err
	}
	r, err := p.begin(ctx, pod)
	if err != nil {
		return err
	}
	if err := inpod.LoopbackUp(r.Netns.Path); err != nil {
		return err
	}
	if err := p.attach(ctx, &r); err != nil {
		return err
	}
	if err := p.store.Update(r); err != nil {
		return err
	}
	fail.Here("kubenet.attached")
	if err := p.shaper.Set(pod.Sandbox, r.Port, rates); err != nil {
		return err
	}
	fail.Here("kubenet.shaped")
	if spec := portSpec(r); len(spec.HostPorts.Ports) > 0 {
		_, err = p.ports.Attach(ctx, driver.Run{}, spec)
	}
	return err
}

// begin records what is going to be done. The record need not outlive the machine:
// then nothing is left but the address, which is found by its owner (Collect).
func (p *Plugin) begin(ctx context.Context, pod netplugin.Pod) (store.Record, error) {
	if err := p.ready(ctx); err != nil {
		return store.Record{}, err
	}
	id, err := inpod.Identify(ctx, p.host, pod.Sandbox)
	if err != nil {
		return store.Record{}, err
	}
	r := store.Record{Pod: pod, Ports: p.host.GetPodPortMappings(pod.Sandbox), Netns: id, CIDRs: p.store.CIDRs()}
	if r.Conf, err = p.network(r.CIDRs); err == nil {
		err = p.store.Update(r)
	}
	fail.Here("kubenet.recorded")
	return r, err
}

// TearDownPod takes back what the record says, the ports first: nobody shall be
// led to an address that is free. Of a pod without record its owner's id says
// what it had.
func (p *Plugin) TearDownPod(ctx context.Context, pod netplugin.Pod) error {
	ctx, stop := context.WithTimeout(ctx, netplugin.CallLimit)
	defer stop()
	r, ok := p.store.Get(pod.Sandbox)
	if !ok {
		var err error
		if r, err = p.guess(ctx, pod); err != nil {
			return err
		}
	}
	if len(r.Conf) == 0 { // there never was a network
		return p.store.Forget(pod.Sandbox)
	}
	if len(r.Ports) > 0 || !ok { // closing them reads all connections of the kernel: 10 ms
		if err := p.ports.Detach(ctx, driver.Run{}, portSpec(r)); err != nil {
			return err
		}
	}
	fail.Here("kubenet.closed")
	if err := p.shaper.Clear(pod.Sandbox); err != nil {
		return err
	}
	if err := p.detach(ctx, r); err != nil {
		return err
	}
	fail.Here("kubenet.detached")
	return p.store.Forget(pod.Sandbox)
}

// guess is a record of what a pod may have.
func (p *Plugin) guess(ctx context.Context, pod netplugin.Pod) (store.Record, error) {
	r := store.Record{Pod: pod, Ports: p.host.GetPodPortMappings(pod.Sandbox), CIDRs: p.store.CIDRs()}
	var err error
	r.Netns, err = inpod.Identify(ctx, p.host, pod.Sandbox)
	if err != nil && !errors.Is(err, netplugin.ErrNoNetns) && !errors.Is(err, core.ErrNetnsGone) {
		return r, err
	}
	if len(r.CIDRs) > 0 {
		r.Conf, err = p.network(r.CIDRs)
		return r, err
	}
	return r, nil
}

// GetPodNetworkStatus answers from the record; of a pod without one the kernel
// tells what eth0 has.
func (p *Plugin) GetPodNetworkStatus(ctx context.Context, pod netplugin.Pod) (*netplugin.PodNetworkStatus, error) {
	if r, ok := p.store.Get(pod.Sandbox); ok {
		return netplugin.StatusOf(r.IPs()), nil
	}
	return inpod.Status(ctx, p.host, pod.Sandbox)
}

// Run deletes what was put aside, and writes the host ports anew when a check
// has found them spoilt, until ctx ends.
func (p *Plugin) Run(ctx context.Context) {
	var ended sync.WaitGroup
	ended.Go(func() { p.reaper.Run(ctx) })
	defer ended.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.ports.Spoilt():
			if err := p.ports.Audit(ctx); err != nil {
				p.conf.Log.Error("host ports not compared with what they should be: what somebody changed stays", "err", err)
			}
		}
	}
}
