// Package status writes what the objects that the controller serves are told of
// themselves: conditions, and counts of addresses in use and free, which are a recount
// of the allocator at that moment. It must not know where objects come from.
package status

import (
	"encoding/json"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// Same tells that two statuses count the same, and name the same gateway and addresses of a router.
func Same(a, b v1.SubnetStatus) bool {
	return fields(a) == fields(b) && a.ActivateGateway == b.ActivateGateway && a.U2OInterconnectionIP == b.U2OInterconnectionIP && a.U2OInterconnectionVPC == b.U2OInterconnectionVPC
}

// SameVpc tells that two statuses say the same of a router and its Subnets.
func SameVpc(a, b v1.VpcStatus) bool {
	return a.Standby == b.Standby && a.Default == b.Default && a.Router == b.Router && a.DefaultLogicalSwitch == b.DefaultLogicalSwitch &&
		slices.Equal(a.Subnets, b.Subnets)
}

// SamePool is the same for IPPools.
func SamePool(a, b v1.IPPoolStatus) bool { return poolFields(a) == poolFields(b) }

func poolFields(s v1.IPPoolStatus) [8]string {
	return [8]string{
		string(s.V4AvailableIPs), s.V4AvailableIPRange, string(s.V4UsingIPs), s.V4UsingIPRange,
		string(s.V6AvailableIPs), s.V6AvailableIPRange, string(s.V6UsingIPs), s.V6UsingIPRange,
	}
}

// fields are those of a status that count addresses.
func fields(s v1.SubnetStatus) [8]string {
	return [8]string{
		string(s.V4AvailableIPs), s.V4AvailableIPRange, string(s.V4UsingIPs), s.V4UsingIPRange,
		string(s.V6AvailableIPs), s.V6AvailableIPRange, string(s.V6UsingIPs), s.V6UsingIPRange,
	}
}

// Subnet is a Subnet's addresses in use and free, by number and as ranges
// "a-b,c".
func Subnet(book *ipam.Allocator, net core.Subnet) (out v1.SubnetStatus) {
	held := book.Held(net.Name)
	for _, s := range book.Stats([]core.Subnet{net}) {
		six := s.Family == "IPv6"
		i := slices.IndexFunc(net.CIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() == six })
		in, left := ipam.Spread(net, net.CIDRs[i], held)
		used, free := text(in), text(left)
		if six {
			out.V6UsingIPs, out.V6AvailableIPs, out.V6UsingIPRange, out.V6AvailableIPRange = number(s.Used), number(s.Free), used, free
		} else {
			out.V4UsingIPs, out.V4AvailableIPs, out.V4UsingIPRange, out.V4AvailableIPRange = number(s.Used), number(s.Free), used, free
		}
	}
	return out
}

// Pool is the same for an IPPool: all of its ranges, and those of them that may be
// given while nobody has them.
func Pool(book *ipam.Allocator, net core.Subnet, all, spare []core.AddrRange) (out v1.IPPoolStatus) {
	held := book.Held(net.Name)
	for _, r := range all {
		six := r.From.Is6()
		if six && out.V6UsingIPs != nil || !six && out.V4UsingIPs != nil {
			continue
		}
		family := func(all []core.AddrRange) []core.AddrRange {
			return slices.DeleteFunc(slices.Clone(all), func(r core.AddrRange) bool { return r.From.Is6() != six })
		}
		in, left := ipam.SpreadOf(family(all), family(spare), held)
		if six {
			out.V6UsingIPs, out.V6AvailableIPs, out.V6UsingIPRange, out.V6AvailableIPRange = number(size(in)), number(size(left)), text(in), text(left)
		} else {
			out.V4UsingIPs, out.V4AvailableIPs, out.V4UsingIPRange, out.V4AvailableIPRange = number(size(in)), number(size(left)), text(in), text(left)
		}
	}
	return out
}

// size is the number of addresses of ranges; one beyond 2^64-1 is that.
func size(all []core.AddrRange) (n uint64) {
	for _, r := range all {
		more := ipam.Count(r)
		n += min(more, math.MaxUint64-n)
	}
	return n
}

// number is a count as JSON: a string where a reader of floating point numbers
// would lose digits.
func number(n uint64) json.RawMessage {
	text := strconv.FormatUint(n, 10)
	if n > 1<<53 {
		text = strconv.Quote(text)
	}
	if n == math.MaxUint64 {
		text = strconv.Quote("18446744073709551615")
	}
	return json.RawMessage(text)
}

// text writes ranges: "a-b,c".
func text(all []core.AddrRange) string {
	var out []string
	for _, r := range all {
		if r.From == r.To {
			out = append(out, r.From.String())
		} else {
			out = append(out, r.From.String()+"-"+r.To.String())
		}
	}
	return strings.Join(out, ",")
}
