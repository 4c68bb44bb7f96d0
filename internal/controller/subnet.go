package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go4.org/netipx"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/ovn"
)

// subnet makes a Subnet's switch what is in force. The switch of one that is
// declared no more stays until nobody has an address of it.
func (t *term) subnet(ctx context.Context, k Key) error {
	net, _, ok := t.nets.Get(k.Name)
	if !ok {
		return t.unswitch(ctx, k)
	}
	t.book.open(k.Name)
	err := t.DB.Apply(ctx, logical.Switch(net))
	t.refused(k.Name, err)
	if err != nil {
		t.awaits(k, net.Vpc)
		return err
	}
	t.calm(k)
	before := t.switchOf(k.Name, net.Vpc)
	if before != "" && before != net.Vpc {
		t.queue.Add(Key{Kind: KindVpc, Name: before})
	}
	t.rouse(k.Name)
	t.counted(k.Name)
	return nil
}

// refused notes why a Subnet that is good by itself has no rows, nil where it has
// them, and has its condition tell that. What passes by itself it does not tell.
func (t *term) refused(subnet string, err error) {
	missing := (*ovn.MissingError)(nil)
	switch {
	case errors.As(err, &missing):
		err = fmt.Errorf("there is no router of Vpc %s: it does not exist, or its condition says why", missing.Key)
	case err != nil && !errors.As(err, new(*ovn.TakenError)):
		return
	}
	t.mu.Lock()
	before := t.faults[subnet]
	t.faults[subnet] = err
	if err == nil {
		delete(t.faults, subnet)
	}
	t.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		t.counted(subnet)
	}
}

// unswitch removes the rows of a Subnet that is not in force.
func (t *term) unswitch(ctx context.Context, k Key) error {
	t.refused(k.Name, nil)
	t.counted(k.Name)
	if !t.book.shut(k.Name) {
		return nil // the last address that is given back comes here again
	}
	if err := t.DB.Apply(ctx, &ovn.Set{Owner: "subnet/" + k.Name}); err != nil {
		return err
	}
	if vpc := t.switchOf(k.Name, ""); vpc != "" {
		t.queue.Add(t.vpcsOf(vpc)...)
	}
	return nil
}

// status tells a Subnet's object what came of it, and how many of its addresses
// are in use.
func (t *term) status(ctx context.Context, k Key) error {
	obj, ok := t.Subnets.Get("", k.Name)
	if !ok {
		return nil
	}
	net, fault, inForce := t.nets.Get(k.Name)
	t.mu.Lock()
	refused := t.faults[k.Name]
	t.mu.Unlock()
	if fault != "" {
		refused = errors.New(fault)
	}
	want := v1.SubnetStatus{}
	if inForce {
		want = counts(t.book.ipam, net.Subnet)
	}
	conditions, changed := merge(obj.Status.Conditions, conditionsOf(obj.Generation, refused, undone(obj.Spec)))
	want.Conditions = conditions
	if !changed && reflect.DeepEqual(counted(obj.Status), counted(want)) {
		return nil
	}
	return gone(t.SubnetStatus(ctx, Object{Key: Key{Kind: KindSubnet, Name: k.Name}, UID: string(obj.UID)}, want))
}

// gone takes an object that is gone for one that needs nothing any more.
func gone(err error) error {
	if errors.Is(err, core.ErrNotFound) {
		return nil
	}
	return err
}

// counted are the fields of a status that count addresses.
func counted(s v1.SubnetStatus) [8]string {
	return [8]string{
		string(s.V4AvailableIPs), s.V4AvailableIPRange, string(s.V4UsingIPs), s.V4UsingIPRange,
		string(s.V6AvailableIPs), s.V6AvailableIPRange, string(s.V6UsingIPs), s.V6UsingIPRange,
	}
}

// undone are the fields of a Subnet that are set and that nobody carries out.
func undone(s v1.SubnetSpec) (out []string) {
	for _, f := range []struct {
		path string
		set  bool
	}{
		{"spec.gatewayNode", s.GatewayNode != ""},
		{"spec.gatewayType: " + s.GatewayType + " (pods leave by their own node)", s.GatewayType == v1.GatewayCentralized},
		{"spec.gatewayNodeSelectors", len(s.GatewayNodeSelectors) > 0},
		{"spec.natOutgoingPolicyRules", len(s.NatOutgoingPolicy) > 0},
		{"spec.disableInterConnection", s.DisableInterConnection},
		{"spec.enableExternalLBAddress", s.EnableExternalLBAddress},
		{"spec.natOutgoing (Vpc " + s.Vpc + " has no way out by nodes)", s.NatOutgoing && s.Vpc != "" && s.Vpc != v1.DefaultVpc},
		{"spec.externalEgressGateway", s.ExternalEgressGateway != ""},
		{"spec.vips", len(s.Vips) > 0},
		{"spec.enableDHCP", s.EnableDHCP},
		{"spec.enableIPv6RA", s.EnableIPv6RA},
		{"spec.u2oInterconnection", s.U2OInterconnection},
		{"spec.enableMulticastSnoop", s.EnableMulticastSnoop},
		{"spec.routeTable", s.RouteTable != ""},
		{"spec.nodeNetwork", s.NodeNetwork != ""},
	} {
		if f.set {
			out = append(out, f.path)
		}
	}
	return out
}

// counts are a Subnet's addresses in use and free, by number and as ranges.
func counts(book *ipam.Allocator, net core.Subnet) (out v1.SubnetStatus) {
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
