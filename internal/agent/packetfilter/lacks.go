package packetfilter

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/fairlead/fairlead/internal/gateway/standalone"
)

// ReasonNoAddress is the reason of the event that tells a Subnet that its pods leave by a
// node as that node, and not as spec.gatewayNode says.
const ReasonNoAddress = "GatewayAddressMissing"

// Told hears of a Subnet what its owner should know.
type Told interface {
	WarnSubnet(name, reason, note string)
}

// Lacks tells what a node does not do for Subnets, once.
type Lacks struct {
	Node string
	Log  *slog.Logger
	said atomic.Pointer[string]
}

// Tell tells which networks of pods the node does not route, and why, and to whom pods are
// seen as the node. Both may be nil.
func (l *Lacks) Tell(j *standalone.Join, to Told) {
	if j == nil {
		return
	}
	left := strings.Join(j.Left, "; ")
	now := left
	for _, a := range missing(j) {
		now += "; " + a.Subnet + " " + a.Addr.String()
	}
	if was := l.said.Swap(&now); now == "" || was != nil && *was == now {
		return
	}
	if left != "" {
		l.Log.Error("networks of Subnets that hold addresses of nodes are not routed to pods: give these Subnets other ones", "left", left)
	}
	for _, a := range missing(j) {
		note := fmt.Sprintf("spec.gatewayNode: node %s has no address %s: pods that leave by it are seen as the node until it has", l.Node, a.Addr)
		l.Log.Error("pods leave as the node, which has not the address that their Subnet wants", "subnet", a.Subnet, "ip", a.Addr)
		if to != nil {
			to.WarnSubnet(a.Subnet, ReasonNoAddress, note)
		}
	}
}

// missing are the addresses that the node has not.
func missing(j *standalone.Join) (out []standalone.Alias) {
	for _, a := range j.Aliases {
		if !a.Held {
			out = append(out, a)
		}
	}
	return out
}
