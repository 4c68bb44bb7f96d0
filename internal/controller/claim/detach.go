package claim

import (
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// An interface of a running pod goes when its agent has detached it, which may be long
// after the pod's annotation ceased to ask for it: the agent may be down, or the plugin
// refuse. Nobody tells when one begins to attach, so that only an interface that was
// there is seen to go. Until then the pod keeps its address, at the latest until the
// pod is gone.

// Observe notes whether an interface that a pod is to have is attached.
func (k *Keeper) Observe(l core.Lease) {
	is, _ := k.Attached(l.Owner.Pod, l.IPs)
	k.note(l.Owner.Key, is)
}

// Detached tells that an interface which a pod is not to have any more is not attached:
// it was and is no more, or the pod has no node that could have begun.
func (k *Keeper) Detached(l core.Lease) bool {
	is, placed := k.Attached(l.Owner.Pod, l.IPs)
	if is {
		k.note(l.Owner.Key, true)
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return !placed || k.seen[l.Owner.Key]
}

// note keeps whether an interface is attached.
func (k *Keeper) note(port core.Key, is bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen == nil {
		k.seen = map[core.Key]bool{}
	}
	k.seen[port] = is
	if !is {
		delete(k.seen, port)
	}
}

// Kept tells that a lease is its pod's although it asks for no such interface: the pod
// is told of it still, or has it.
func (k *Keeper) Kept(l core.Lease) bool {
	pod := l.Owner.Pod
	if uid, live := k.Live(pod); !live || uid != l.Owner.Key.Container {
		return false
	}
	net, ok := k.Net(l.Subnet)
	has, _ := k.Attached(pod, l.IPs)
	return ok && Needed(net) && has || slices.ContainsFunc(k.Told(pod), func(told core.Lease) bool { return told.Owner.Key == l.Owner.Key })
}
