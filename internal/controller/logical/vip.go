package logical

import (
	"net/netip"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
)

// External ids of a Vip's row: its addresses as OVN writes them, which are not in the
// row's own column: OVN would answer for them; and the object's UID.
const (
	KeyAddresses = "fairlead-addresses"
	KeyVipUID    = "fairlead-vip-uid"
)

// Vip is an address of a Subnet that no pod has by itself.
type Vip struct {
	Name, UID string
	Subnet    string
	MAC       core.MAC
	IPs       []netip.Addr
}

// VipPort names a Vip's logical port, as no pod's is named.
func VipPort(name string) string { return "vip/" + name }

// Shared is a Vip's row, which says that the address is given, and does no more: who
// has the address now answers for it by ARP. The Subnet's Set must be there before.
func Shared(v Vip) *ovn.Set {
	s := &ovn.Set{Owner: VipPort(v.Name)}
	s.Put(&ovn.LogicalSwitchPort{
		Name: VipPort(v.Name), Type: "virtual",
		ExternalIDs: map[string]string{keySwitch: v.Subnet, KeyVipUID: v.UID, KeyAddresses: address(v.MAC, v.IPs)},
	}, ovn.InSwitch(v.Subnet))
	return s
}
