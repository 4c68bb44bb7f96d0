package annotation

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// UnallocatedError says that a pod has no address yet, where a controller gives
// addresses. It wraps core.ErrUnavailable.
type UnallocatedError struct {
	Network string            // that waits for one
	Missing []string          // annotations that the controller has yet to write
	Seen    map[string]string // the pod's annotations
}

// Error implements error.
func (e *UnallocatedError) Error() string {
	return fmt.Sprintf("network %s: the controller has not given the pod its address: %s missing", e.Network, strings.Join(e.Missing, ", "))
}

// Unwrap implements error.
func (e *UnallocatedError) Unwrap() error { return core.ErrUnavailable }

// Unallocated is nil when a controller has written of a network's interface all
// that it writes; else an *UnallocatedError.
func (n *Notes) Unallocated(network string, a Requested) error {
	return n.lacking(network, map[string]bool{
		v1.FieldAllocated: a.Allocated, v1.FieldRouted: a.Routed, v1.FieldIP: len(a.IPs) > 0, v1.FieldMAC: a.MAC != nil,
		v1.FieldSubnet: a.Subnet != "",
	})
}

// Unaddressed is Unallocated for an interface that a foreign plugin makes and no OVN
// carries: a controller need not write more than its addresses.
func (n *Notes) Unaddressed(network string, a Requested) error {
	return n.lacking(network, map[string]bool{v1.FieldAllocated: a.Allocated, v1.FieldIP: len(a.IPs) > 0})
}

// lacking is an *UnallocatedError about fields that a NIC does not have, nil for none.
func (n *Notes) lacking(network string, fields map[string]bool) error {
	var missing []string
	for field, has := range fields {
		if !has {
			missing = append(missing, n.Key(field))
		}
	}
	if missing == nil {
		return nil
	}
	slices.Sort(missing)
	return &UnallocatedError{Network: network, Missing: missing, Seen: n.All}
}
