package uplink

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/gateway/uplink"
)

// Shown is a provider network as people are told of it: its transfer, if it has a NIC
// here, and why it is not as it should be.
type Shown struct {
	uplink.Shown
	Reason string
}

// Show tells of all networks that have a NIC here, or should.
func (k *Keeper) Show() ([]Shown, error) {
	all, err := k.cfg.Transfers.Show()
	var out []Shown
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range all {
		one := Shown{Shown: s}
		if why := k.fate[s.Network]; why != nil {
			one.Reason = why.Error()
		}
		out = append(out, one)
	}
	for network, why := range k.fate {
		if !slices.ContainsFunc(all, func(s uplink.Shown) bool { return s.Network == network }) {
			one := Shown{Reason: why.Error()}
			one.Network = network
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b Shown) int { return strings.Compare(a.Network, b.Network) })
	return out, err
}
