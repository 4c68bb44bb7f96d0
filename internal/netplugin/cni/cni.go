// Package cni is the network plugin that gives pods the network of a CNI
// configuration folder, whichever CNI plugins it names. A broken file is passed
// over with a reason, and what was once loaded stays in force while nothing
// better is there. What a pod is attached by is recorded first, and it is
// detached by that. It starts CNI plugins through libcni alone, also ours: that
// is one way for every chain, with its cache, versions and timeouts, and ours
// costs a start of 1-2 ms there. It knows no engine.
package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/netplugin/inpod"
	"github.com/fairlead/fairlead/internal/netplugin/store"
)

// Name is the plugin's.
const Name = "cni"

// SyncPeriod is kubelet's.
const SyncPeriod = 5 * time.Second

// Config says where things are.
type Config struct {
	ConfDir string
	// BinDirs are searched in order.
	BinDirs []string
	// CacheDir is libcni's: results of ADDs.
	CacheDir string
	// StateDir has the records.
	StateDir string
	// SyncPeriod is how often the folder is looked at although nothing was seen to
	// change there; 0 is the constant of that name.
	SyncPeriod time.Duration
	Log        *slog.Logger
}

// Plugin is a netplugin.Plugin.
type Plugin struct {
	conf  Config
	cni   *libcni.CNIConfig
	host  netplugin.Host
	store *store.Store

	mu   sync.Mutex
	last *network // the last one that was good, or nil
	said string   // what was logged of the folder last
}

var (
	_ netplugin.Plugin    = (*Plugin)(nil)
	_ netplugin.Runner    = (*Plugin)(nil)
	_ netplugin.Checker   = (*Plugin)(nil)
	_ netplugin.Collector = (*Plugin)(nil)
)

// New makes the plugin; nothing is read before Init.
func New(c Config) *Plugin {
	return &Plugin{conf: c, cni: libcni.NewCNIConfigWithCacheDir(c.BinDirs, c.CacheDir, newStarter())}
}

// Name implements netplugin.Plugin.
func (*Plugin) Name() string { return Name }

// Init reads the records. That there is no network yet is no error: Status tells
// it. Hairpins, masquerading and the MTU are the configuration's to say. Pods
// whose records are damaged end by what libcni kept.
func (p *Plugin) Init(ctx context.Context, host netplugin.Host, _ netplugin.Settings) error {
	s, err := store.Start(p.conf.StateDir, p.conf.Log)
	if err != nil {
		return err
	}
	p.host, p.store = host, s
	_, _ = p.current(ctx) // told in the log and by Status
	return nil
}

// Event takes the pod CIDRs for CNI plugins with the capability ipRanges.
func (p *Plugin) Event(_ context.Context, name string, details map[string]string) error {
	_, err := p.store.Event(name, details, p.conf.Log)
	return err
}

// Capabilities are none: rates are a CNI plugin's to keep.
func (*Plugin) Capabilities() map[netplugin.Capability]bool { return nil }

// SetUpPod brings lo up and runs ADD by the network in force.
func (p *Plugin) SetUpPod(ctx context.Context, pod netplugin.Pod) error {
	ctx, stop := context.WithTimeout(ctx, netplugin.CallLimit)
	defer stop()
	net, err := p.current(ctx)
	if err != nil {
		return err
	}
	id, err := inpod.Identify(ctx, p.host, pod.Sandbox)
	if err != nil {
		return err
	}
	r := store.Record{
		Pod: pod, Ports: p.host.GetPodPortMappings(pod.Sandbox), Netns: id, Conf: net.list.Bytes, CIDRs: p.store.CIDRs(),
	}
	rt, err := runtimeConf(r, id.Path, net.caps)
	if err == nil {
		err = p.missing(net)
	}
	if err != nil {
		return err // no plugin ran, and there is no record: nothing is to be detached
	}
	if err := p.store.Put(r); err != nil {
		return err
	}
	fail.Here("cni.recorded")
	if err := inpod.LoopbackUp(id.Path); err != nil {
		return err
	}
	return p.add(ctx, net.list, rt, r)
}

func (p *Plugin) add(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, r store.Record) error {
	result, err := p.cni.AddNetworkList(ctx, list, rt)
	if err != nil {
		err = fmt.Errorf("network %s: %w", list.Name, err)
		if ctx.Err() != nil {
			return err // nobody knows what it would have answered
		}
		r.Refused = refusal(err)
		return errors.Join(err, p.store.Update(r))
	}
	fail.Here("cni.added")
	got, err := types100.NewResultFromResult(result)
	if err != nil {
		return fmt.Errorf("network %s: result: %w", list.Name, err)
	}
	r.Addrs = addresses(got)
	return p.store.Update(r)
}

// addresses of the pod's first interface, or of all where the result does not
// say whose they are.
func addresses(r *types100.Result) []netip.Prefix {
	var out []netip.Prefix
	for _, ip := range r.IPs {
		if ip.Interface != nil && *ip.Interface >= 0 && *ip.Interface < len(r.Interfaces) && r.Interfaces[*ip.Interface].Name != netplugin.IfName {
			continue
		}
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			bits, _ := ip.Address.Mask.Size()
			out = append(out, netip.PrefixFrom(a.Unmap(), bits))
		}
	}
	return out
}

// TearDownPod runs DEL by the record. Without one it goes by what libcni kept of
// the ADD, and without that by the configuration of today, if there is one: a
// CNI plugin may know more than we do.
func (p *Plugin) TearDownPod(ctx context.Context, pod netplugin.Pod) error {
	ctx, stop := context.WithTimeout(ctx, netplugin.CallLimit)
	defer stop()
	netns, err := p.host.GetNetNS(ctx, pod.Sandbox)
	if err != nil && !errors.Is(err, netplugin.ErrNoNetns) {
		return err
	}
	if r, ok := p.store.Get(pod.Sandbox); ok {
		err = p.detach(ctx, r, netns)
	} else {
		err = p.detachUnrecorded(ctx, pod, netns)
	}
	if err != nil {
		return err
	}
	fail.Here("cni.deleted")
	return p.store.Forget(pod.Sandbox)
}

func (p *Plugin) detachUnrecorded(ctx context.Context, pod netplugin.Pod, netns string) error {
	kept, err := p.cni.GetCachedAttachments(pod.Sandbox)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, a := range kept {
		list, err := libcni.NetworkConfFromBytes(a.Config)
		if err == nil {
			err = p.cni.DelNetworkList(ctx, list, &libcni.RuntimeConf{
				ContainerID: pod.Sandbox, NetNS: netns, IfName: a.IfName, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs,
			})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", a.Network, err))
		}
	}
	if len(kept) > 0 || pod.Name == "" { // nobody knows such a pod: there is nothing to tell a CNI plugin
		return errors.Join(errs...)
	}
	net, err := p.current(ctx)
	if err != nil || p.missing(net) != nil {
		return nil //nolint:nilerr // what cannot attach a pod has not attached it
	}
	return p.detach(ctx, store.Record{
		Pod: pod, Ports: p.host.GetPodPortMappings(pod.Sandbox), Conf: net.list.Bytes, CIDRs: p.store.CIDRs(), Refused: &types.Error{}, // as far as anybody knows
	}, netns)
}

// GetPodNetworkStatus answers from the record; of a pod without one the kernel
// tells what eth0 has.
func (p *Plugin) GetPodNetworkStatus(ctx context.Context, pod netplugin.Pod) (*netplugin.PodNetworkStatus, error) {
	if r, ok := p.store.Get(pod.Sandbox); ok {
		return netplugin.StatusOf(r.IPs()), nil
	}
	return inpod.Status(ctx, p.host, pod.Sandbox)
}

// CheckPod runs CHECK by the record.
func (p *Plugin) CheckPod(ctx context.Context, pod netplugin.Pod) error {
	r, ok := p.store.Get(pod.Sandbox)
	if !ok {
		return netplugin.ErrUnchecked
	}
	list, err := libcni.NetworkConfFromBytes(r.Conf)
	if err != nil {
		return err
	}
	if list.DisableCheck {
		return netplugin.ErrUnchecked
	}
	rt, err := runtimeConf(r, r.Netns.Path, capabilities(list))
	if err == nil {
		err = p.cni.CheckNetworkList(ctx, list, rt)
	}
	if errors.Is(err, libcni.ErrorCheckNotSupp) {
		return netplugin.ErrUnchecked
	}
	if err != nil {
		return fmt.Errorf("network %s: %w", list.Name, err)
	}
	return nil
}

// Status tells why pods cannot be attached: no network, no pod CIDR, or what a
// CNI plugin says of itself.
func (p *Plugin) Status(ctx context.Context) error {
	net, err := p.current(ctx)
	if err != nil {
		return err
	}
	if err := p.missing(net); err != nil {
		return fmt.Errorf("%s: %w", net.file, err)
	}
	if net.caps[capRanges] && len(p.store.CIDRs()) == 0 {
		return fmt.Errorf("%s: its plugins want the node's pod CIDR, which nobody has told yet (kubelet, or --pod-cidr)", net.file)
	}
	return p.statusOf(ctx, net)
}

// statusOf asks the plugins one by one: libcni does not tell which one refused.
func (p *Plugin) statusOf(ctx context.Context, net *network) error {
	for _, part := range net.list.Plugins {
		one := *net.list
		one.Plugins = []*libcni.PluginConfig{part}
		if err := p.cni.GetStatusNetworkList(ctx, &one); err != nil {
			return fmt.Errorf("%s: plugin %s: STATUS: %w", net.file, part.Network.Type, err)
		}
	}
	return nil
}
