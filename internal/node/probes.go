package node

import (
	"cmp"
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/node/probe"
)

// Prober looks at the containers that run, and has Node look at their pods when
// something changed. Both may be called again at any time.
type Prober interface {
	Set(ctx context.Context, uid types.UID, running []probe.Instance)
	Health(uid types.UID, c *v1.Container, id string) probe.Health
	Close()
}

// look has the containers of a pod that run looked at.
func (n *Node) look(ctx context.Context, pod *v1.Pod, st *podruntime.Status) {
	ip := ""
	switch ips := st.IPs(); {
	case pod.Spec.HostNetwork && n.conf.NodeIP != "":
		ip = n.conf.NodeIP
	case pod.Spec.HostNetwork:
		ip = "127.0.0.1"
	case len(ips) > 0:
		ip = ips[0]
	}
	var running []probe.Instance
	eachRunning(pod, st, func(c *v1.Container, has *podruntime.Container) {
		running = append(running, probe.Instance{Pod: pod, IP: ip, Spec: c, ID: has.ID, Started: has.Started})
	})
	n.prober.Set(ctx, pod.UID, running)
}

// health is what probes say of the instances that run.
func (n *Node) health(pod *v1.Pod, st *podruntime.Status) map[string]podruntime.Health {
	out := map[string]podruntime.Health{}
	eachRunning(pod, st, func(c *v1.Container, has *podruntime.Container) {
		h := n.prober.Health(pod.UID, c, has.ID)
		out[c.Name] = podruntime.Health{Failed: h.Failed, Grace: h.Grace, NotStarted: !h.Started}
	})
	return out
}

// complaints are what probes said last of instances that run and are not ready.
func (n *Node) complaints(pod *v1.Pod, st *podruntime.Status) map[string]string {
	out := map[string]string{}
	eachRunning(pod, st, func(c *v1.Container, has *podruntime.Container) {
		h := n.prober.Health(pod.UID, c, has.ID)
		out[c.Name] = cmp.Or(h.Failed, h.Why)
	})
	return out
}

// eachRunning calls do with each container that has an instance that runs.
func eachRunning(pod *v1.Pod, st *podruntime.Status, do func(*v1.Container, *podruntime.Container)) {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if has := st.Of(list[i].Name); has != nil && has.Running() {
				do(&list[i], has)
			}
		}
	}
}

// reasonOf gives a failure its word.
func reasonOf(err error) podruntime.Reason {
	if e := (*podruntime.Error)(nil); errors.As(err, &e) {
		return podruntime.Reason{Reason: e.Reason, Message: e.Err.Error()}
	}
	return podruntime.Reason{Reason: "FailedSync", Message: err.Error()}
}
