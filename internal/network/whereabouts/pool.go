package whereabouts

import (
	"fmt"
	"math/big"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// Pool is the program's book of one range: an IPPool of whereabouts.cni.cncf.io/v1alpha1.
type Pool struct {
	Range       string                `json:"range"`
	Allocations map[string]Allocation `json:"allocations"` // by how far the address is behind the range's first
}

// Allocation is whom the program gave an address.
type Allocation struct {
	Container string `json:"id"`
	Pod       string `json:"podref"` // NAMESPACE/NAME
	IfName    string `json:"ifname"` // "" from old versions
}

// Of is the range's network and the network_name that the name of an IPPool tells.
func (p Pool) Of(name string) (cidr netip.Prefix, network string, err error) {
	written, err := netip.ParsePrefix(p.Range)
	if err != nil {
		return cidr, "", fmt.Errorf("spec.range: %w", err)
	}
	for _, one := range []string{p.Range, written.Masked().String()} {
		tail := strings.NewReplacer(":", "-", "/", "-").Replace(one)
		if network, ok := strings.CutSuffix(name, tail); ok && (network == "" || len(network) > 1 && strings.HasSuffix(network, "-")) {
			return written.Masked(), strings.TrimSuffix(network, "-"), nil
		}
	}
	return cidr, "", fmt.Errorf("its name is not that of range %s: a part of a range for one node, it may be, which has no counterpart", p.Range)
}

// Addr is the address at an offset.
func (p Pool) Addr(offset string) (netip.Addr, error) {
	r, err := netip.ParsePrefix(p.Range)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("spec.range: %w", err)
	}
	by, ok := new(big.Int).SetString(offset, 10)
	if !ok || by.Sign() < 0 {
		return netip.Addr{}, fmt.Errorf("offset %q is not a number", offset)
	}
	last := netipx.PrefixLastIP(r)
	raw := by.Add(by, new(big.Int).SetBytes(r.Addr().AsSlice()))
	if raw.Cmp(new(big.Int).SetBytes(last.AsSlice())) > 0 {
		return netip.Addr{}, fmt.Errorf("offset %s is beyond range %s", offset, p.Range)
	}
	a, _ := netip.AddrFromSlice(raw.FillBytes(make([]byte, r.Addr().BitLen()/8))) // of that length
	return a, nil
}
