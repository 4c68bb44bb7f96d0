package declarations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// ReasonPolicy is of the Event on a pod with an interface that NetworkPolicies do not
// reach.
const ReasonPolicy = "NetworkPolicyHasNoEffect"

// unreached are the plugins whose interfaces have a way to the wire of their own.
var unreached = []string{"sriov", "macvlan", "ipvlan", "host-device", "vlan"}

// policies tells of pods that a NetworkPolicy selects in vain on some interface: of those
// that were attached since the last look, and now and then of all.
func (k *Keeper) policies(ctx context.Context, pods map[core.Pod][]core.Net) error {
	k.mu.Lock()
	due := k.fresh
	k.fresh = map[core.Pod]bool{}
	k.mu.Unlock()
	all := time.Since(k.asked) > audit
	if all {
		k.asked = time.Now()
	}
	var errs []error
	for pod, nets := range pods {
		if all || due[pod] {
			errs = append(errs, k.inVain(ctx, pod, nets))
		}
	}
	return errors.Join(errs...)
}

// inVain looks at one pod.
func (k *Keeper) inVain(ctx context.Context, pod core.Pod, nets []core.Net) error {
	beyond := k.beyond(nets)
	if len(beyond) == 0 {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	names, err := k.cfg.Pods.Policies(ctx, pod)
	if err == nil && len(names) > 0 {
		k.Warn(pod, ReasonPolicy, fmt.Sprintf("NetworkPolicy %s selects the pod, and has no effect on %s: what such an interface sends and receives does not pass the node's switch",
			strings.Join(names, ", "), strings.Join(beyond, ", ")))
	}
	return err
}

// beyond are the interfaces that no NetworkPolicy reaches, with their plugins.
func (k *Keeper) beyond(nets []core.Net) (out []string) {
	for _, n := range nets {
		namespace, name, further := strings.Cut(n.Name, "/")
		if !further || n.Interface == "" {
			continue
		}
		nad, err := k.cfg.Pods.KnownNAD(namespace, name)
		if err != nil {
			continue
		}
		chain, err := cniconf.ParseChain([]byte(nad.Config), name)
		if err == nil && len(chain.Plugins) > 0 && slices.Contains(unreached, chain.Plugins[0].Type) {
			out = append(out, n.Interface+" ("+chain.Plugins[0].Type+")")
		}
	}
	return out
}
