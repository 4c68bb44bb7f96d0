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

	"go4.org/netipx"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// Same tells that two statuses count the same.
func Same(a, b v1.SubnetStatus) bool { return fields(a) == fields(b) }

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
		used, free := ranges(net.CIDRs[i], net, held)
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
		var in, left netipx.IPSetBuilder
		for _, r := range spare {
			if r.From.Is6() == six {
				left.AddRange(netipx.IPRangeFrom(r.From, r.To))
			}
		}
		for _, ip := range held {
			if ip.Is6() == six && slices.ContainsFunc(all, func(r core.AddrRange) bool { return r.Contains(ip) }) {
				in.Add(ip)
				left.Remove(ip)
			}
		}
		if six {
			out.V6UsingIPs, out.V6AvailableIPs, out.V6UsingIPRange, out.V6AvailableIPRange = number(size(in)), number(size(left)), text(in), text(left)
		} else {
			out.V4UsingIPs, out.V4AvailableIPs, out.V4UsingIPRange, out.V4AvailableIPRange = number(size(in)), number(size(left)), text(in), text(left)
		}
	}
	return out
}

// size is the number of addresses of a set; one beyond 2^64-1 is that.
func size(b netipx.IPSetBuilder) (n uint64) {
	set, err := b.IPSet()
	if err != nil {
		return 0
	}
	for _, r := range set.Ranges() {
		more := ipam.Count(core.AddrRange{From: r.From(), To: r.To()})
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

// ranges are the addresses of one network that are held, and those that may be
// given: "a-b,c".
func ranges(cidr netip.Prefix, net core.Subnet, held []netip.Addr) (used, free string) {
	var in, left netipx.IPSetBuilder
	left.AddPrefix(cidr)
	whole := netipx.RangeOfPrefix(cidr)
	if cidr.Addr().BitLen()-cidr.Bits() > 1 {
		left.Remove(whole.From())
		if cidr.Addr().Is4() {
			left.Remove(whole.To())
		}
	}
	for _, g := range net.Gateways {
		left.Remove(g)
	}
	for _, x := range net.Exclude {
		left.RemoveRange(netipx.IPRangeFrom(x.From, x.To))
	}
	for _, ip := range held {
		if ip.Is4() == cidr.Addr().Is4() {
			in.Add(ip)
			left.Remove(ip)
		}
	}
	return text(in), text(left)
}

// text writes the ranges of a set.
func text(b netipx.IPSetBuilder) string {
	set, err := b.IPSet()
	if err != nil {
		return ""
	}
	var out []string
	for _, r := range set.Ranges() {
		if r.From() == r.To() {
			out = append(out, r.From().String())
		} else {
			out = append(out, r.From().String()+"-"+r.To().String())
		}
	}
	return strings.Join(out, ",")
}
