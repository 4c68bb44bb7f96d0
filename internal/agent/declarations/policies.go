package declarations

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// ReasonPolicy is of the Event on a pod with an interface that NetworkPolicies do not
// reach.
const ReasonPolicy = "NetworkPolicyHasNoEffect"

// unreached are the plugins whose interfaces have a way to the wire of their own.
var unreached = []string{"sriov", "macvlan", "ipvlan", "host-device", "vlan"}

// policies tells of pods that a NetworkPolicy selects in vain on some interface.
func (k *Keeper) policies(ctx context.Context, pods map[core.Pod][]core.Net) error {
	for pod, nets := range pods {
		beyond := k.beyond(nets)
		if len(beyond) == 0 || ctx.Err() != nil {
			continue
		}
		names, err := k.cfg.Pods.Policies(ctx, pod)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			k.Warn(pod, ReasonPolicy, fmt.Sprintf("NetworkPolicy %s selects the pod, and has no effect on %s: what such an interface sends and receives does not pass the node's switch",
				strings.Join(names, ", "), strings.Join(beyond, ", ")))
		}
	}
	return nil
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
