package kubeovn

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/internal/gateway/uplink"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/former"
)

// Keys of Kube-OVN's on a provider network's rows (sdn.md, section 7).
const (
	idExchanged = "exchange-link-name"      // of the bridge
	idVLAN      = "provider-vlan-interface" // of a port that stands in for a VLAN link of the NIC
)

// userspace is the datapath_type of bridges whose NIC the kernel hears too.
const userspace = "netdev"

// byHand is the next step where a bridge is none that Kube-OVN has finished.
const byHand = "`ovs-vsctl show` tells; make it whole by hand, or remove it, then again"

// bridges are Kube-OVN's of provider networks. What the agent could not give back one day is
// an error.
func bridges(s former.Switch) (out []uplink.Former, err error) {
	networks := map[string]string{}
	mapped := s.Entries(former.Mappings)
	for _, network := range slices.Sorted(maps.Keys(mapped)) {
		networks[mapped[network]] = network
	}
	for _, b := range s.Bridges {
		if b.IDs[ovs.KeyVendor] != ovs.Vendor || b.Name == integration(s) {
			continue
		}
		network := networks[b.Name]
		if network == "" {
			return nil, hint.On(fmt.Errorf("bridge %s is Kube-OVN's, and %s names no network of it", b.Name, former.Mappings), byHand)
		}
		nic, err := nicOf(s, b)
		if err != nil {
			return nil, err
		}
		out = append(out, uplink.Former{Network: network, Bridge: b.Name, Port: nic, Exchanged: b.IDs[idExchanged] == "true"})
	}
	return out, nil
}

// nicOf is the one port of a bridge that is a NIC.
func nicOf(s former.Switch, b former.Bridge) (nic string, err error) {
	for _, p := range s.Ports {
		switch {
		case p.Bridge != b.Name || p.Name == b.Name || p.Type == "patch":
		case p.IDs[idVLAN] != "":
			return "", hint.On(fmt.Errorf("bridge %s has port %s in the place of VLAN link %s of the NIC, with the node's addresses there: the agent has VLAN links stay above the NIC", b.Name, p.Name, p.IDs[idVLAN]),
				"have Kube-OVN give it back: without spec.preserveVlanInterfaces, spec.vlanInterfaces and spec.autoCreateVlanSubinterfaces of the ProviderNetwork")
		case p.Type == "" && p.Members == 1 && nic == "":
			nic = p.Name
		default:
			return "", hint.On(fmt.Errorf("bridge %s has port %s, %s: the agent has one NIC on such a bridge, and no more", b.Name, p.Name, p.Kind()), byHand)
		}
	}
	if nic == "" {
		return "", hint.On(fmt.Errorf("bridge %s has no NIC", b.Name), byHand)
	}
	return nic, nil
}

// transfers are those of the journal.
func (n node) transfers(j *journal.Journal, s former.Switch) (*uplink.Transfers, error) {
	boot, err := netns.BootID()
	return uplink.New(uplink.Config{
		Journal: j, Host: n.host, BootID: boot, Log: slog.New(slog.DiscardHandler),
		Userspace: slices.ContainsFunc(s.Bridges, func(b former.Bridge) bool { return b.Datapath == userspace }),
	}), err
}
