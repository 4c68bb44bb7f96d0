package uplink

import (
	"context"
	"fmt"
	"time"
)

// reasonPassed is the reason of an Event of the Node.
const reasonPassed = "RulesNameNIC"

// reads bounds how long the packet filter may take to say what it has.
const reads = 10 * time.Second

// passed tells, once for each NIC, of rules of the packet filter that name it: its packets
// come and go by the bridge now, and pass them by.
func (k *Keeper) passed(ctx context.Context, network, nic, bridge string) {
	if k.cfg.Names == nil || k.looked[network] == nic {
		return
	}
	k.looked[network] = nic
	ctx, stop := context.WithTimeout(ctx, reads)
	defer stop()
	rules, err := k.cfg.Names(ctx, nic, bridge)
	if err != nil {
		k.cfg.Log.Warn("not known whether rules of the packet filter name a NIC that was given away", "network", network, "nic", nic, "err", err)
	}
	if len(rules) == 0 {
		return
	}
	k.cfg.Log.Warn("rules of the packet filter name a NIC whose packets come and go by a bridge now: they do not see them (docs/underlay.md)", "network", network, "nic", nic, "bridge", bridge, "rules", rules)
	if k.cfg.Warn != nil {
		k.cfg.Warn(reasonPassed, fmt.Sprintf("%d rules of the packet filter name %s, whose packets come and go by %s of provider network %s now, and do not see them. Have them name %s too, or set spec.exchangeLinkName (docs/underlay.md; `fairlead doctor` lists them). The first: %s",
			len(rules), nic, bridge, network, bridge, rules[0]))
	}
}
