// Package lease says what the leases of addresses and MACs are called, when one may
// pass from one holder to the next, and who of this node has which. It is pure, and
// knows neither where leases are kept nor how anybody learns of a node.
package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/core"
)

// longest is how many bytes a domain's name may have, so that the name of its longest
// lease has 253.
const longest = 213

// Domain names a domain of layer 2: a network's name, and the VLAN in it, 0 for none.
// One that is too long ends in a hash.
func Domain(network string, vlan int) string {
	out := strings.ToLower(network)
	if vlan != 0 {
		out += ".vlan" + strconv.Itoa(vlan)
	}
	if len(out) <= longest {
		return out
	}
	sum := sha256.Sum256([]byte(out))
	digits := hex.EncodeToString(sum[:8])
	return strings.TrimRight(out[:longest-len(digits)-1], ".-") + "-" + digits
}

// nameable is what may stand in an object's name.
var nameable = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// Nameable tells that a domain may be in the names of objects.
func Nameable(domain string) bool { return nameable.MatchString(domain) }

// OfSubnet is the domain of a Subnet's addresses: its provider network and VLAN, or the
// Subnet alone.
func OfSubnet(s core.Subnet) string {
	if s.Underlay != "" {
		return Domain(s.Underlay, s.VLAN)
	}
	return Domain(s.Name, 0)
}

// InVLAN is what an interface claims when it is in a VLAN, 0 for none, in the place of c.
func InVLAN(c core.Claim, vlan int) core.Claim {
	if c.Wire == "" {
		return c
	}
	if domain := Domain(c.Wire, vlan); domain != c.Domain {
		c.Domain, c.Epoch = domain, 0
	}
	return c
}

// Name is that of the lease of a claim: "db-vlan.10.9.0.17",
// "db-vlan.fd00-0018-0000-0000-0000-0000-0000-0001", "db-vlan.mac.020a09000011".
func Name(c core.Claim) string {
	if !c.Addr.IsValid() {
		return c.Domain + ".mac." + hex.EncodeToString(c.MAC)
	}
	return c.Domain + "." + Text(c.Addr)
}

// Text is an address as it stands in names.
func Text(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	return strings.ReplaceAll(a.StringExpanded(), ":", "-")
}

// Holder is the sandbox that has a lease; the zero value is nobody.
type Holder struct {
	Pod    core.Pod // with its UID, where the runtime tells it
	Key    core.Key // sandbox and interface
	Node   string
	BootID string // of the node
	Device string // PCI address, "" for none
	// SelfFence: its node takes it off the network before its heartbeat ends.
	SelfFence bool `json:",omitempty"`
}

// IsZero tells nobody.
func (h Holder) IsZero() bool { return h.Key.Container == "" }

// Same tells one sandbox on one boot of one node.
func (h Holder) Same(o Holder) bool {
	return h.Key.Container == o.Key.Container && h.Node == o.Node && h.BootID == o.BootID
}

// Reincarnates tells that h is another sandbox of o's pod, of one UID, on one boot of
// one node: the runtime makes a pod's sandboxes one after the other.
func (h Holder) Reincarnates(o Holder) bool {
	return h.Pod.UID != "" && h.Pod == o.Pod && h.Node == o.Node && h.BootID == o.BootID
}

// Node is what is known of a holder's node.
type Node struct {
	Known        bool   // there is a Node of its name
	BootID       string // that it reports, "" for none yet
	OutOfService bool   // it carries the taint node.kubernetes.io/out-of-service
	Silent       string // the boot whose heartbeat has ended, "" for none known
}

// Heartbeat is the name of the Lease by which a node that fences itself says that it lives.
func Heartbeat(node string) string { return "fairlead-node-" + node }

// Dead says by what it is proved that a holder's sandbox is no more, "" where it is not
// (spec/sriov.md, Lease rules, 4).
func Dead(h Holder, n Node) string {
	switch {
	case !n.Known:
		return "there is no Node " + h.Node + " any more"
	case n.OutOfService:
		return "node " + h.Node + " is out of service"
	case n.BootID != "" && h.BootID != "" && n.BootID != h.BootID:
		return "node " + h.Node + " was booted again"
	case h.SelfFence && h.BootID != "" && n.Silent == h.BootID:
		return "node " + h.Node + " has fenced itself: its heartbeat has ended"
	}
	return ""
}

// Own is why a node with that boot id may not bind leases, nil where it may: others
// would take what it binds for dead, or two machines act as one node.
func Own(node, bootID string, n Node) error {
	switch {
	case !n.Known:
		return core.Errorf(core.CodeTryAgain, "addresses of this node are not leased while there is no Node %s: others take them for free", node)
	case n.OutOfService:
		return core.Errorf(core.CodeTryAgain, "node %s is marked out of service (taint node.kubernetes.io/out-of-service): others may take what it leases", node)
	case n.BootID != "" && n.BootID != bootID:
		return core.Errorf(core.CodeTryAgain, "Node %s reports boot %s, and this machine is in boot %s: either its kubelet has yet to tell, or another machine acts as this node", node, n.BootID, bootID)
	}
	return nil
}

// Held is the error of a claim that another has: AddressHeld (11) or MACInUse (103).
// since may be zero; more says what else is to be told.
func Held(c core.Claim, by Holder, since time.Time, more string) error {
	code, reason := taken(c)
	who := "pod " + by.Pod.String()
	if by.Pod.IsZero() {
		who = "container " + by.Key.Container
	}
	if by.Node != "" {
		who += " on node " + by.Node
	}
	if !since.IsZero() {
		who += " since " + since.UTC().Format(time.RFC3339)
	}
	if more != "" {
		more = fmt.Sprintf(" (%s)", more)
	}
	return core.Reasoned(code, reason, "%s in %s is held by %s%s", c, c.Domain, who, more)
}

// Kept is the error of a claim of what nobody has and a lease keeps for another pod.
func Kept(c core.Claim, owner core.Pod, name string) error {
	code, reason := taken(c)
	return core.Reasoned(code, reason, "%s in %s is kept for pod %s (AddressLease %s, retain Forever)", c, c.Domain, owner, name)
}

// taken are code and reason where a claim is another's.
func taken(c core.Claim) (code uint, reason string) {
	if !c.Addr.IsValid() {
		return core.CodeAddress, core.ReasonMACInUse
	}
	return core.CodeTryAgain, core.ReasonAddressHeld
}
