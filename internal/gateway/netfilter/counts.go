package netfilter

import (
	"context"
	"net/netip"

	"github.com/fairlead/fairlead/internal/gateway/rules"
)

// Traffic is what the node forwarded for a Subnet's network: from its pods, or to them.
type Traffic struct {
	Subnet         string
	CIDR           netip.Prefix
	Out            bool // from the pods
	Packets, Bytes uint64
}

// Traffic reads the counters of what Apply made of in. Of sets that is one exchange over
// netlink, of nftables one process, which is not started where sets have them all.
func (f *Filter) Traffic(ctx context.Context, in rules.Input) ([]Traffic, error) {
	sets, err := f.sets.Read()
	if err != nil {
		return nil, err
	}
	var out []Traffic
	var rest []int // of out, which no set counts
	for _, s := range in.Subnets {
		for _, p := range s.CIDRs {
			for _, leaves := range []bool{true, false} {
				c, ok := sets[rules.CounterSet(p.Addr().Is6(), leaves)].Counts[p]
				if !ok {
					rest = append(rest, len(out))
				}
				out = append(out, Traffic{Subnet: s.Name, CIDR: p, Out: leaves, Packets: c.Packets, Bytes: c.Bytes})
			}
		}
	}
	if len(rest) == 0 {
		return out, nil
	}
	tables, err := f.table.Counts(ctx, rules.Compute(in).NFT())
	if err != nil {
		return nil, err
	}
	for _, i := range rest {
		c := tables[rules.CounterSet(out[i].CIDR.Addr().Is6(), out[i].Out)][out[i].CIDR]
		out[i].Packets, out[i].Bytes = c.Packets, c.Bytes
	}
	return out, nil
}
