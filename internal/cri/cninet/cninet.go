// Package cninet gives pods the network of a CNI configuration folder, whichever
// plugins it names. A broken file is passed over with a reason, and what was once
// loaded stays in force while nothing better is there. A pod is detached by the
// configuration that it was attached by. It starts plugins through libcni alone
// and knows no engine.
package cninet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"sync"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fairlead/fairlead/internal/cri/podnet"
	"github.com/fairlead/fairlead/internal/fail"
)

// ifName of every pod's first interface.
const ifName = "eth0"

// Config says where things are.
type Config struct {
	ConfDir string
	// BinDirs are searched in order.
	BinDirs []string
	// CacheDir keeps what each pod was attached by.
	CacheDir string
}

// Network is a podnet.Network. Its methods may be called from any goroutine.
type Network struct {
	confDir string
	cni     *libcni.CNIConfig

	mu    sync.Mutex
	last  *network // the last one that was good, or nil
	cidrs []string
}

var _ podnet.Network = (*Network)(nil)

// New makes the network; nothing is read yet.
func New(c Config) *Network {
	return &Network{confDir: c.ConfDir, cni: libcni.NewCNIConfigWithCacheDir(c.BinDirs, c.CacheDir, nil)}
}

// current is the network in force. The folder is looked at each time: that costs
// less than being late by a watch.
func (n *Network) current(ctx context.Context) (*network, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	got, err := n.choose(ctx, n.last)
	if err == nil {
		n.last = got
		return got, nil
	}
	if n.last != nil {
		return n.last, nil
	}
	return nil, err
}

// SetPodCIDR says from which subnets addresses come, for plugins with the
// capability ipRanges.
func (n *Network) SetPodCIDR(cidrs []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cidrs = cidrs
}

func (n *Network) podCIDRs() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cidrs
}

// Status tells why pods cannot be attached.
func (n *Network) Status(ctx context.Context) error {
	net, err := n.current(ctx)
	if err != nil {
		return err
	}
	if net.caps["ipRanges"] && len(n.podCIDRs()) == 0 {
		return fmt.Errorf("%s: its plugins want the node's pod CIDR, which nobody has told yet", net.file)
	}
	if err := n.cni.GetStatusNetworkList(ctx, net.list); err != nil {
		return fmt.Errorf("%s: %w", net.file, err)
	}
	return nil
}

// Prepare gives the bytes of the list in force.
func (n *Network) Prepare(ctx context.Context) (string, error) {
	net, err := n.current(ctx)
	if err != nil {
		return "", err
	}
	return string(net.list.Bytes), nil
}

// SetUp runs ADD.
func (n *Network) SetUp(ctx context.Context, pod podnet.Pod, netns string) ([]netip.Addr, error) {
	list, err := libcni.NetworkConfFromBytes([]byte(pod.Conf))
	if err != nil {
		return nil, err
	}
	rt, err := n.runtimeConf(pod, netns, capabilities(list))
	if err != nil {
		return nil, err
	}
	result, err := n.cni.AddNetworkList(ctx, list, rt)
	if err != nil {
		return nil, fmt.Errorf("network %s: %w", list.Name, err)
	}
	fail.Here("cni.added")
	r, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("network %s: result: %w", list.Name, err)
	}
	return addresses(r), nil
}

// addresses of the pod's first interface, or of all where the result does not
// say whose they are.
func addresses(r *types100.Result) []netip.Addr {
	var out []netip.Addr
	for _, ip := range r.IPs {
		if ip.Interface != nil && *ip.Interface >= 0 && *ip.Interface < len(r.Interfaces) && r.Interfaces[*ip.Interface].Name != ifName {
			continue
		}
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// TearDown runs DEL by what libcni kept of the ADD. Where it kept nothing, the ADD
// failed or was cut off: then by the configuration that it was begun by. A pod of
// which not even that is known is detached by the configuration of today, if
// there is one: a plugin may know more than we do.
func (n *Network) TearDown(ctx context.Context, pod podnet.Pod, netns string) error {
	kept, err := n.cni.GetCachedAttachments(pod.Sandbox)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(kept) == 0 {
		return n.detach(ctx, pod, netns)
	}
	var errs []error
	for _, a := range kept {
		list, err := libcni.NetworkConfFromBytes(a.Config)
		if err == nil {
			err = n.cni.DelNetworkList(ctx, list, &libcni.RuntimeConf{
				ContainerID: pod.Sandbox, NetNS: netns, IfName: a.IfName, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs,
			})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", a.Network, err))
		}
	}
	return errors.Join(errs...)
}

func (n *Network) detach(ctx context.Context, pod podnet.Pod, netns string) error {
	if pod.Name == "" { // nobody knows this pod: there is nothing to tell a plugin
		return nil
	}
	conf := pod.Conf
	if conf == "" {
		var err error
		if conf, err = n.Prepare(ctx); err != nil {
			return nil //nolint:nilerr // without a configuration nothing was attached by one
		}
	}
	list, err := libcni.NetworkConfFromBytes([]byte(conf))
	if err != nil {
		return err
	}
	rt, err := n.runtimeConf(pod, netns, capabilities(list))
	if err != nil {
		return err
	}
	if err := n.cni.DelNetworkList(ctx, list, rt); err != nil {
		return fmt.Errorf("network %s: %w", list.Name, err)
	}
	return nil
}

// runtimeConf is what kubelet's runtimes have always told, and what containerd
// and CRI-O tell since.
func (n *Network) runtimeConf(pod podnet.Pod, netns string, caps map[string]bool) (*libcni.RuntimeConf, error) {
	bandwidth, err := rates(pod.Annotations)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	tell := func(capability string, value any, there bool) {
		if there && caps[capability] {
			values[capability] = value
		}
	}
	tell("portMappings", pod.Ports, len(pod.Ports) > 0)
	tell("bandwidth", bandwidth, len(bandwidth) > 0)
	tell("dns", pod.DNS, len(pod.DNS.Servers)+len(pod.DNS.Searches)+len(pod.DNS.Options) > 0)
	tell("ipRanges", n.ranges(), len(n.podCIDRs()) > 0)
	tell("io.kubernetes.cri.pod-annotations", pod.Annotations, true)
	tell("cgroupPath", pod.Cgroup, pod.Cgroup != "")
	return &libcni.RuntimeConf{
		ContainerID: pod.Sandbox, NetNS: netns, IfName: ifName, CapabilityArgs: values,
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", pod.Namespace}, {"K8S_POD_NAME", pod.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", pod.Sandbox}, {"K8S_POD_UID", pod.UID},
		},
	}, nil
}

// ranges has a set for each of the node's pod CIDRs.
func (n *Network) ranges() [][]map[string]string {
	var out [][]map[string]string
	for _, c := range n.podCIDRs() {
		out = append(out, []map[string]string{{"subnet": strings.TrimSpace(c)}})
	}
	return out
}
