// Package netplugin is the framework by which the runtime side gives pods their
// networks: what a plugin must be able to do, what it may ask its host, which of
// several plugins is chosen, and the order in which they are asked. The plugins
// are packages below it; it knows none of them, and no container engine.
//
// The calls are those that kubelet and its shims had (runtime.md, A), so that
// whoever knows these finds them here.
package netplugin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// CallLimit is what a plugin gives a call that attaches or detaches: kubelet
// gives up after 240 s.
const CallLimit = 220 * time.Second

// IfName is every pod's first interface.
const IfName = "eth0"

// Pod is what a plugin is told of a pod. Of one whose record was lost only
// Sandbox is known.
type Pod struct {
	Sandbox     string            `json:"sandbox"` // the engine's id
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Annotations map[string]string `json:"annotations,omitempty"`
	DNS         DNS               `json:"dns,omitzero"`
	// Cgroup is the pod's cgroup, "" when the caller named none.
	Cgroup string `json:"cgroup,omitempty"`
}

// PortMapping is one port that the host forwards to the pod. Its JSON is that of
// CNI's capability portMappings.
type PortMapping struct {
	HostPort      int32  `json:"hostPort"`
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol"` // tcp, udp, sctp
	HostIP        string `json:"hostIP,omitempty"`
}

// DNS is what the pod's resolv.conf says. Its JSON is that of CNI's capability
// dns.
type DNS struct {
	Servers  []string `json:"servers,omitempty"`
	Searches []string `json:"searches,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// IsZero tells that nothing is said.
func (d DNS) IsZero() bool { return len(d.Servers)+len(d.Searches)+len(d.Options) == 0 }

// PodNetworkStatus is a pod's addresses: IPs has all of them, IP is the first.
type PodNetworkStatus struct {
	IP  netip.Addr
	IPs []netip.Addr
}

// StatusOf makes a PodNetworkStatus; nil without an address.
func StatusOf(ips []netip.Addr) *PodNetworkStatus {
	if len(ips) == 0 {
		return nil
	}
	return &PodNetworkStatus{IP: ips[0], IPs: ips}
}

// Capability is something that a plugin does itself.
type Capability int

// CapabilityShaping is that the plugin itself keeps pods to their rates
// (NET_PLUGIN_CAPABILITY_SHAPING, whose number it keeps).
const CapabilityShaping Capability = 1

// Event's name and key: the node's pod CIDRs as "a[,b]". The first value of a
// process's life counts, later ones are ignored.
const (
	EventPodCIDR  = "pod-cidr-change"
	DetailPodCIDR = "pod-cidr"
)

// ErrNoNetns is GetNetNS's for a sandbox that has ended or is not known.
var ErrNoNetns = errors.New("cannot find network namespace for the terminated container")

// Host is what a plugin may ask whoever runs the pods.
type Host interface {
	// GetNetNS is the path of a running sandbox's network namespace; ErrNoNetns
	// when there is none any more.
	GetNetNS(ctx context.Context, sandbox string) (string, error)
	// GetPodPortMappings are the ports that the pod asks of the host; none for a
	// sandbox that is not known.
	GetPodPortMappings(sandbox string) []PortMapping
}

// Settings are what all plugins are told at the start.
type Settings struct {
	Hairpin Hairpin
	// NonMasquerade is where packets of pods keep their source; of a family
	// without one, and with one of length 0, nothing is masqueraded.
	NonMasquerade []netip.Prefix
	MTU           int // bytes; 0: the plugin looks for it
}

// Plugin gives pods their networks. Its size is kubelet's, not ours. All methods
// but Init may be called from many goroutines; for one pod SetUpPod and
// TearDownPod come one after the other.
type Plugin interface {
	// Name is a qualified name, and the plugin's alone.
	Name() string
	// Init is called once, before all others but Name.
	Init(ctx context.Context, host Host, s Settings) error
	// Event tells of a change, of which there is one: EventPodCIDR.
	Event(ctx context.Context, name string, details map[string]string) error
	Capabilities() map[Capability]bool
	// SetUpPod attaches a pod whose sandbox runs. What it did before an error it
	// leaves to TearDownPod.
	SetUpPod(ctx context.Context, pod Pod) error
	// TearDownPod detaches a pod; one that was never attached, or whose sandbox is
	// gone, is success. It needs no more of the pod than Sandbox where SetUpPod
	// left a record.
	TearDownPod(ctx context.Context, pod Pod) error
	// GetPodNetworkStatus gives the pod's addresses; nil when they are not the
	// plugin's to tell.
	GetPodNetworkStatus(ctx context.Context, pod Pod) (*PodNetworkStatus, error)
	// Status is nil when pods can be attached, or else says why not.
	Status(ctx context.Context) error
}

// Runner is a Plugin that has work to do between the calls, until ctx ends.
type Runner interface{ Run(ctx context.Context) }

// Checker is a Plugin that can prove that a pod is attached as it was.
type Checker interface {
	// CheckPod's error says what is different; ErrUnchecked: nobody can tell.
	CheckPod(ctx context.Context, pod Pod) error
}

// ErrUnchecked is CheckPod's where the pod's plugins have no check.
var ErrUnchecked = errors.New("its network cannot be checked")

// Collector is a Plugin that keeps something for pods which it gives back when
// they are gone without a TearDownPod.
type Collector interface {
	// Attached are the sandboxes that the plugin keeps something for.
	Attached() []Pod
	// Collect has the rest given back: what belongs neither to these sandboxes nor
	// to those that are attached. No pod is set up or torn down meanwhile.
	Collect(ctx context.Context, live map[string]bool) error
}

// Hairpin says how a pod may reach itself through a service's address.
type Hairpin string

// The modes of --hairpin-mode.
const (
	HairpinNone Hairpin = "none"
	// HairpinVeth lets frames leave by the port they came in by.
	HairpinVeth Hairpin = "hairpin-veth"
	// PromiscuousBridge has the bridge take every frame, so that the node routes
	// back what the bridge would not forward; kubenet only. Today's kernels (6.18
	// was looked at) forget the connection of such a packet on the way, and with
	// it the translation of its source: there it leads nowhere.
	PromiscuousBridge Hairpin = "promiscuous-bridge"
)

// pluginOfPromiscuity is the one whose bridge can be promiscuous.
const pluginOfPromiscuity = "kubenet"

// EffectiveHairpin is the mode that a plugin gets for the one asked for: nobody
// but kubenet has a bridge to be promiscuous.
func EffectiveHairpin(mode, plugin string) (Hairpin, error) {
	switch m := Hairpin(mode); m {
	case HairpinNone, HairpinVeth:
		return m, nil
	case PromiscuousBridge:
		if plugin != pluginOfPromiscuity {
			return HairpinVeth, nil
		}
		return m, nil
	}
	return "", fmt.Errorf("hairpin mode %q is none of %s, %s, %s", mode, HairpinNone, HairpinVeth, PromiscuousBridge)
}
