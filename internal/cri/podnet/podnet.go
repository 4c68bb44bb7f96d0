// Package podnet is what the runtime asks of a pod's network, whichever
// plugin gives it, and the answer of an engine that gives it itself.
package podnet

import (
	"context"
	"net/netip"
)

// Pod is what a network may want to know of a pod.
type Pod struct {
	Sandbox     string // the engine's id
	Namespace   string
	Name        string
	UID         string
	Annotations map[string]string
	Ports       []Port
	DNS         DNS
	// Cgroup is the pod's cgroup, "" when the caller named none.
	Cgroup string
	// Conf is Prepare's answer, kept with the pod: the network is given back as it
	// was made, whatever the configuration of the day is.
	Conf string
}

// Port is one port that the host forwards to the pod. Its JSON is that of CNI's
// capability portMappings.
type Port struct {
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

// Network gives pods their networks.
type Network interface {
	// Prepare tells by which configuration the next pod will be attached.
	Prepare(ctx context.Context) (conf string, err error)
	// SetUp attaches the pod by pod.Conf and tells its addresses, the primary one first. What
	// it did before an error it leaves to TearDown.
	SetUp(ctx context.Context, pod Pod, netns string) ([]netip.Addr, error)
	// TearDown detaches the pod. netns is "" when the namespace is gone. It is
	// idempotent, also for a pod that was never set up, and it needs no more of
	// the pod than Sandbox where SetUp left a record.
	TearDown(ctx context.Context, pod Pod, netns string) error
	// Status is nil when pods can be attached, or else says why not.
	Status(ctx context.Context) error
	// SetPodCIDR says from which subnets the pods' addresses come.
	SetPodCIDR(cidrs []string)
}
