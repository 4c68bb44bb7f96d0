package elsewhere

import (
	"cmp"
	"fmt"
	"log/slog"
	"strconv"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// NetworkMTU tells the MTU of a provider network's NIC by the Node's labels, in bytes; 0
// where they say nothing of it.
func NetworkMTU(note func(key string) string) func(network string) int {
	return func(network string) int {
		mtu, _ := strconv.Atoi(note(network + v1.NetworkMTU))
		return mtu
	}
}

// AddressConflict is the condition of a pod of which another machine of its VLAN has an
// address, and the reason of the event that tells it.
const (
	AddressConflict = "fairlead.io/AddressConflict"
	ReasonConflict  = "AddressConflict"
)

// Told hears what is amiss with a pod.
type Told interface {
	core.Conditions
	Warn(pod core.Pod, reason, note string)
}

// Conflicting tells a pod that another has an address of it. The pod keeps it: who of both
// is to have it is for people to say.
func Conflicting(to Told, log *slog.Logger, c core.Conflict) {
	where := fmt.Sprintf("port %s of bridge %s", c.Port, c.Bridge)
	if c.Port == "" {
		where = "bridge " + cmp.Or(c.Bridge, "none")
	}
	text := fmt.Sprintf("%s of %s is also that of MAC %s, which is reached by %s of provider network %s: one of both must have another address",
		c.Addr, c.IfName, c.MAC, where, c.Network)
	log.Warn("an address of a pod is another's too", "pod", c.Pod, "ip", c.Addr, "mac", c.MAC, "bridge", c.Bridge, "port", c.Port)
	to.Condition(c.Pod, AddressConflict, "True", ReasonConflict, text)
	to.Warn(c.Pod, ReasonConflict, text)
}
