package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/gateway/rules"
)

// Sizes of the packet filter's part of row 15.
const (
	filterSubnets = 1000
	filterLooks   = 30
	filterMore    = 3
)

// filterInput is a node with so many Subnets of both families, of which every second one has
// natOutgoing.
func filterInput(subnets int) (in rules.Input) {
	for i := range subnets {
		hi, lo := byte(i>>8), byte(i)
		in.Subnets = append(in.Subnets, rules.Subnet{
			Name: fmt.Sprintf("net-%d", i), NAT: i%2 == 0,
			CIDRs: []netip.Prefix{
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 64 + hi, lo, 0}), 24),
				netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 4: hi, 5: lo}), 64),
			},
		})
	}
	return in
}

// filterRow is what the packet filter's rules cost the agent, by either renderer: a look at
// all of them, by which a full recompute that finds nothing to do is known, all made from
// nothing, and one Subnet more. The peer reads alone, by the renderer's own program. It is a
// measurement of a package and not of a program. What goes to the kernel for one Subnet more is
// counted as it is given to nft and iptables-restore, in bytes, and to ipset, in members of sets.
func filterRow(b *bench) (lines []line, err error) {
	for _, mode := range []netfilter.Mode{netfilter.NFTables, netfilter.IPTables} {
		got, failed := b.filters(mode)
		lines, err = append(lines, got...), errors.Join(err, failed)
	}
	return lines, err
}

func (b *bench) filters(mode netfilter.Mode) (lines []line, err error) {
	n, err := newNode(filepath.Join(b.dir, "filter-"+string(mode)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	in, f, ctx := filterInput(filterSubnets+filterMore), netfilter.New(netfilter.Config{Mode: mode, Table: netfilter.OwnTable}), context.Background()
	apply := func(subnets ...int) (took []time.Duration, err error) {
		now := in
		for _, count := range subnets {
			now.Subnets = in.Subnets[:count]
			begun := time.Now()
			err = errors.Join(err, n.inside(func() error { return f.Apply(ctx, now) }))
			took = append(took, time.Since(begun))
		}
		return took, err
	}
	made, errMade := apply(filterSubnets)
	looks, errLooks := apply(slices.Repeat([]int{filterSubnets}, filterLooks)...)
	reads, errReads := n.reads(mode)
	before := f.Written()
	more, errMore := apply(filterSubnets+1, filterSubnets+2, filterSubnets+filterMore)
	wrote := f.Written()
	if err := errors.Join(errMade, errLooks, errReads, errMore); err != nil {
		return nil, err
	}
	load, floor := fmt.Sprintf("%d subnets, %s", filterSubnets, mode), quantile(reads, 0.5)
	tell := func(what string, ms float64) line {
		return line{row: "15", what: "rules: " + what, load: load, ours: fmt.Sprintf("%.0f ms", ms), peer: fmt.Sprintf("%.0f ms", floor), got: ms / floor}
	}
	given := float64(wrote.Bytes-before.Bytes) / filterMore
	look := tell("full recompute, nothing to do, p99 (goal 100 ms) / reading them", quantile(looks, 0.99))
	look.got, look.unit, look.bound = quantile(looks, 0.99), " ms", atMost(100, 100)
	return []line{
		look, {
			row: "15", what: "rules: one Subnet more, given to the kernel (text, members of ipset)", load: load, peer: "-", unit: " B",
			ours: fmt.Sprintf("%.0f B, %d members", given, (wrote.Members-before.Members)/filterMore), got: given,
		},
		tell("all made from nothing / reading them", quantile(made, 0.5)), tell("one Subnet more / reading them", quantile(more, 0.5)),
	}, nil
}

// reads times what reading all rules and sets costs by themselves.
func (n *node) reads(mode netfilter.Mode) (took []time.Duration, err error) {
	how := [][]string{{"nft", "list", "table", "inet", netfilter.OwnTable}}
	if mode == netfilter.IPTables {
		how = [][]string{{"iptables-save"}, {"ip6tables-save"}, {"ipset", "save"}}
	}
	for range filterLooks {
		begun := time.Now()
		for _, argv := range how {
			err = errors.Join(err, n.command(argv...))
		}
		took = append(took, time.Since(begun))
	}
	return took, err
}
