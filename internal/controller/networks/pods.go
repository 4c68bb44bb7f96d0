package networks

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
)

// PodsDiffer tells that the rows of a Subnet's pods, or what policies and annotations make
// of them, are not the same with both.
func PodsDiffer(a, b *logical.Subnet) bool {
	return a.Vpc != b.Vpc || a.Offers.DHCP != b.Offers.DHCP || a.Underlay != b.Underlay || a.VLAN != b.VLAN
}

// Serves is why an interface, with a MAC that it asks for, may have no address of a Subnet
// now; nil if it may.
func Serves(n logical.Subnet, mac core.MAC) error {
	switch {
	case n.Name == "":
		return fmt.Errorf("it is not in force: %w", core.ErrNotFound)
	case n.Interconnected && len(n.Interconnection) < len(n.CIDRs):
		return errors.New("OVN's router has no address of each of its networks yet")
	case bytes.Equal(mac, n.GatewayMAC()):
		return fmt.Errorf("MAC %s is that of its gateway", mac)
	}
	return nil
}
