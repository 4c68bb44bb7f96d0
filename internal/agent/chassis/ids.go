package chassis

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/internal/gateway/encap"
)

// External ids of Open vSwitch that ovn-controller reads (ovn-controller(8)).
const (
	idSystem   = "system-id"
	idRemote   = "ovn-remote"
	idKind     = "ovn-encap-type"
	idAddr     = "ovn-encap-ip"
	idChecksum = "ovn-encap-csum"
	idBridge   = "ovn-bridge"
	idDatapath = "ovn-bridge-datapath-type"
	idCalm     = "ovn-ofctrl-wait-before-clear" // milliseconds
	idJoins    = "ovn-is-interconn"
)

// idSettled is an external id of our own: the claim of the node's port since which
// ovn-controller has computed all flows.
const idSettled = "fairlead-settled"

// calm is how long a restarted ovn-controller leaves the flows of the one before
// as they are while it learns what they should be. Without it there are none until
// it knows. Where the switch has none, on a new node and after a restart of
// ovs-vswitchd, to wait for that would only cost the time.
const calm = 5 * time.Second

// State is whether the switch has the flows of ovn-controller.
type State int32

// States. Before anybody has looked, what was said stays.
const (
	Unseen State = iota
	Bare         // it has none
	Flowing
)

// Facts are what a node is as a chassis, but for what Flags say.
type Facts struct {
	Node             string // its name
	Bridge, Datapath string
	Addr             netip.Addr // of the tunnels; the zero value leaves it alone
	State            State
	Joins            *bool // it is a gateway to other clusters; nil leaves what is said of it alone
}

// IDs are the external ids of the switch that f and its flags ask for, beside
// those that it has. Without a Remote they are only those that a flag is about.
// The system-id, which is the chassis' name, is kept if there is one, unless the
// database knows the chassis by its certificate: that has the node's name.
func (f Facts) IDs(flags Flags, have map[string]string) map[string]string {
	out := map[string]string{}
	set := func(given bool, key, value string) {
		if given && value != "" {
			out[key] = value
		}
	}
	whole := flags.Remote != ""
	set(whole && (flags.TLS() || have[idSystem] == ""), idSystem, f.Node)
	set(whole, idRemote, flags.Remote)
	set(whole || flags.Kind != "", idKind, cmp.Or(flags.Kind, encap.Geneve))
	set(f.Addr.IsValid(), idAddr, f.Addr.String())
	set(flags.Checksum != "", idChecksum, string(flags.Checksum))
	set(whole, idBridge, f.Bridge)
	set(whole, idDatapath, f.Datapath)
	set(whole && f.State == Flowing, idCalm, fmt.Sprint(calm.Milliseconds()))
	set(whole && f.State == Bare && have[idCalm] != "", idCalm, "0")
	if f.Joins != nil {
		set(*f.Joins, idJoins, "true")
		set(!*f.Joins && have[idJoins] != "", idJoins, "false")
	}
	return out
}
