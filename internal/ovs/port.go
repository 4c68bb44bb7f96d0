// Package ovs keeps ports on one Open vSwitch bridge over OVSDB: one write
// transaction per change, a monitor instead of polls, and a connection that
// comes back by itself. It knows the vswitch schema and nothing of pods,
// network namespaces or journals; what its callers write into external_ids is
// theirs, except for the few keys named here.
package ovs

import (
	"github.com/fairlead/fairlead/internal/core"
)

// Keys of Interface external_ids with a meaning to this package or to more
// than one of its callers (sdn.md, section 2, configureNic).
const (
	// KeyIfaceID names the logical port; only one Interface may carry a value.
	KeyIfaceID = "iface-id"
	// KeyVendor marks rows of Kube-OVN's kind; its value is Vendor.
	KeyVendor = "vendor"
	// KeyContainer is the full container id: the owner of a pod's port.
	KeyContainer = "container_id"
	// KeyGateway is the Subnet whose gateway an internal port carries: the
	// owner of a gateway's port.
	KeyGateway = "fairlead-gateway"
	// KeyPort is set on QoS and Queue rows: the name of the Port they belong
	// to. Both tables are roots, so nothing else would collect them.
	KeyPort = "port"

	// Vendor is the value of KeyVendor on all that Fairlead makes.
	Vendor = "kube-ovn"
)

// The bridge's mirror and the port it copies to (sdn.md, section 5).
const (
	MirrorName = "m0"
	MirrorPort = "mirror0"
)

// Port is a port of the bridge as it should be: a value, complete in itself.
type Port struct {
	Name string // the network device; at most 15 characters
	// Type is "" for a device that exists, "internal" for one that OVS makes.
	Type        string
	VLAN        int               // 802.1Q id of an access port, 0 = no tag
	ExternalIDs map[string]string // of the Interface
	// PolicingRate (kbit/s) and PolicingBurst (kbit) limit what the device
	// sends into the bridge; 0 = no limit.
	PolicingRate  int
	PolicingBurst int
	QoS           *QoS     // what the bridge sends to the device; nil = no limit
	MAC           core.MAC // internal ports only; nil = OVS chooses
	MTU           int      // internal ports only, bytes; 0 = OVS chooses
	Mirror        bool     // traffic towards the port is copied to MirrorPort
}

// QoS is a Port's QoS row and its Queue 0.
type QoS struct {
	Type        string            // linux-htb or linux-netem
	Other       map[string]string // other_config of the QoS
	QueueOther  map[string]string // other_config of Queue 0; nil = no queue
	ExternalIDs map[string]string // of both rows; KeyPort is added
}

// PortState is a port as the database has it.
type PortState struct {
	Port
	Bridge    string // the bridge that holds it; "" = none
	Trunks    []int
	VLANMode  string
	OFPort    int    // OpenFlow number, > 0 once OVS forwards; 0 = not yet, -1 = failed
	Error     string // why OVS could not open the device
	LinkState string // up, down or ""
	IfIndex   int    // of the device, as OVS sees it; 0 = unknown
}

// Owner tells whose port it is: two ports with the same name and different
// owners are a conflict.
func (p Port) Owner() string {
	if c := p.ExternalIDs[KeyContainer]; c != "" {
		return "container " + c
	}
	if g := p.ExternalIDs[KeyGateway]; g != "" {
		return "gateway " + g
	}
	return ""
}
