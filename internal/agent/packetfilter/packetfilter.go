// Package packetfilter is the agent's side of the node's packet filter: what flags say
// of it, what it needs to know of the node's way out, and the news that somebody changed
// it. It must not know Subnets, or what else the agent keeps.
package packetfilter

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/agent/chassis"
	"github.com/fairlead/fairlead/internal/agent/metrics"
	"github.com/fairlead/fairlead/internal/gateway/encap"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/kernel/ipset"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/hint"
)

// Table is the nft table, family inet, of the rules where these are kept by nftables.
const Table = netfilter.OwnTable

// Flags are what the command line says.
type Flags struct {
	Netfilter string // one of netfilter.Modes
	// MSS is the largest segment of TCP connections that leave by the underlay interface,
	// in bytes: "0" is what the path's MTU allows, "" what they ask for.
	MSS string
	// Probes leads the node's own packets to probed ports of pods in Vpcs of their own to a
	// proxy.
	Probes bool
}

// Bounds of a segment's size, in bytes: what a header leaves of the smallest and of the
// largest packet.
const (
	leastMSS = 48
	mostMSS  = 65495
)

// Check refuses what makes no sense.
func (f Flags) Check() (errs []error) {
	if !slices.Contains(netfilter.Modes, netfilter.Mode(f.Netfilter)) {
		errs = append(errs, hint.Usagef("--netfilter %q is none of %v", f.Netfilter, netfilter.Modes))
	}
	if n, err := f.mss(); err != nil || n != 0 && (n < leastMSS || n > mostMSS) {
		errs = append(errs, hint.Usagef("--mss %q is neither 0 nor between %d and %d", f.MSS, leastMSS, mostMSS))
	}
	return errs
}

func (f Flags) mss() (int, error) {
	if f.MSS == "" {
		return 0, nil
	}
	return strconv.Atoi(f.MSS)
}

// Filter is the node's packet filter.
func (f Flags) Filter() *netfilter.Filter {
	return netfilter.New(netfilter.Config{Mode: netfilter.Mode(f.Netfilter), Table: Table})
}

// Outward adds to w what rules need to know of the way out by the interface that is
// chosen, if flags ask for such ones.
func (f Flags) Outward(w *standalone.Wanted, services []netip.Prefix, by chassis.Choice) error {
	if w.Services = services; len(services) == 0 && f.MSS == "" {
		return nil
	}
	conn, err := rtnl.Open(nil)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	nic, err := by.Find(conn)
	if err != nil || nic.Index == 0 {
		return err
	}
	w.Out = nic.Name
	if size, err := f.mss(); f.MSS != "" && err == nil {
		w.Clamp = &rules.Clamp{Device: nic.Name, Size: size}
	}
	has, err := conn.Addrs(nic.Index)
	w.Own = own(w.Join, nic, has)
	return err
}

// own are the addresses by which others know the node, of those that its interface has.
// First come those that its Node has, then that of its tunnels. An address that somebody
// added to others (a virtual one, one for pods of a Subnet) stands behind them, as does
// one that the kernel has for privacy.
func own(j *standalone.Join, nic encap.NIC, has []rtnl.Addr) (out []netip.Addr) {
	has = slices.DeleteFunc(has, func(a rtnl.Addr) bool { return !encap.Serves(a) })
	rank := func(a rtnl.Addr) int {
		switch addr := a.Prefix.Addr(); {
		case j != nil && slices.Contains(j.Own, addr):
			return 0
		case addr == nic.Addr:
			return 1
		case a.Flags&unix.IFA_F_SECONDARY == 0 && !a.Prefix.IsSingleIP(): // IFA_F_TEMPORARY of IPv6 is the same bit
			return 2
		}
		return 3
	}
	slices.SortFunc(has, func(a, b rtnl.Addr) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Prefix.Addr().Compare(b.Prefix.Addr()))
	})
	for _, a := range has {
		out = append(out, a.Prefix.Addr())
	}
	return out
}

// setsEvery is how often the sets' headers are asked for: the kernel tells nobody when
// they change.
const setsEvery = 500 * time.Millisecond

// Watch hears of what somebody changes.
type Watch struct{ tables *nft.Watch }

// NewWatch listens from now on, also for other tables of family inet, by their names. Run
// must be called once.
func NewWatch(tables ...string) (*Watch, error) {
	w, err := nft.NewWatch(nil, append(tables, Table)...)
	if err != nil {
		return nil, err
	}
	w.Chains(rules.ChainPrefix)
	return &Watch{w}, nil
}

// Run calls lost when rules or sets may have been changed, by us too, until ctx ends, and
// pods when that was the set of the node's own pods. An error is why some of that is not
// heard of.
func (w *Watch) Run(ctx context.Context, lost, pods func()) error {
	var (
		wg   sync.WaitGroup
		sets error
	)
	wg.Go(func() {
		sets = ipset.Watch(ctx, nil, setsEvery, rules.OwnSet, func(set string) {
			if rules.PodSet(set) {
				pods()
			} else {
				lost()
			}
		})
	})
	err := w.tables.Run(ctx, lost)
	wg.Wait()
	return errors.Join(err, sets)
}

// trafficLimit is for a scrape to wait for the counters.
const trafficLimit = 5 * time.Second

// Traffic is what a node's gateways forwarded, for the metrics.
func Traffic(ctx context.Context, node string, g *standalone.Gateway) (out []metrics.Traffic, err error) {
	ctx, stop := context.WithTimeout(ctx, trafficLimit)
	defer stop()
	all, err := g.Traffic(ctx)
	for _, t := range all {
		out = append(out, metrics.Traffic{Node: node, Subnet: t.Subnet, CIDR: t.CIDR, Out: t.Out, Packets: t.Packets, Bytes: t.Bytes})
	}
	return out, err
}

// Named is what people are told of a part of the gateways.
func Named(subnet string) string {
	switch subnet {
	case standalone.Filtered:
		return "rules of the packet filter"
	case standalone.Probed:
		return "way to the proxy of probes"
	}
	return "gateway of subnet " + subnet
}
