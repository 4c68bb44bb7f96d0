package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// Row 8's other half: what an address costs by itself, without API server and
// database. It is the one measurement of a package and not of a program.

// Sizes of the measurement: an IPv4 /16, of which a tenth is free in the end.
const (
	ipamMask     = 16
	ipamFresh    = 10_000
	ipamTenth    = 6_500
	ipamSample   = 3_000
	ipamRestored = 10_000
)

// ipamNet is the measurement's Subnet.
func ipamNet() core.Subnet {
	return core.Subnet{
		Name: "bench", CIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 16}), ipamMask)},
		Gateways: []netip.Addr{netip.AddrFrom4([4]byte{10, 16, 0, 1})},
	}
}

// ipamPod is the owner of an address.
func ipamPod(i int) core.Owner {
	name := fmt.Sprintf("pod-%d", i)
	return core.Owner{Key: core.Key{Container: "uid-" + name, IfName: name + ".bench"}, Pod: core.Pod{Namespace: "bench", Name: name}}
}

// asking times Acquire of so many pods, from a number on. Their names are made
// before.
func asking(a *ipam.Allocator, from, count int) (took []time.Duration, leases []core.Lease, err error) {
	requests := make([]ipam.Request, count)
	for i := range requests {
		requests[i] = ipam.Request{Subnet: ipamNet(), Owner: ipamPod(from + i)}
	}
	took, leases = make([]time.Duration, 0, count), make([]core.Lease, 0, count)
	for _, r := range requests {
		begun := time.Now()
		l, err := a.Acquire(r)
		took = append(took, time.Since(begun))
		if err != nil {
			return nil, nil, err
		}
		leases = append(leases, l)
	}
	return took, leases, nil
}

// fragmented times Acquire where nine of ten addresses are taken, at random. Those
// that are free were never used, or were all given back.
func fragmented(seed uint64, used bool) ([]time.Duration, error) {
	full := ipam.New()
	_, all, err := asking(full, 0, 1<<(32-ipamMask)-3)
	if err != nil {
		return nil, err
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if used {
		for _, l := range all[:ipamTenth] {
			full.Release(l)
		}
	} else {
		full = ipam.New()
		for _, l := range all[ipamTenth:] {
			if _, err := full.Acquire(ipam.Request{Subnet: ipamNet(), Owner: l.Owner, IPs: l.IPs}); err != nil {
				return nil, err
			}
		}
	}
	took, _, err := asking(full, len(all), ipamSample)
	return took, err
}

// ipamRound is the figures of one round, in microseconds; restore in milliseconds.
type ipamRound struct{ fresh, unused, released, restore float64 }

func ipamMeasure(seed uint64) (r ipamRound, err error) {
	fresh, leases, err := asking(ipam.New(), 0, ipamFresh)
	if err != nil {
		return r, err
	}
	leases = leases[:ipamRestored]
	begun := time.Now()
	if err := ipam.New().Restore(leases, nil); err != nil {
		return r, err
	}
	r.restore = millis(time.Since(begun))
	unused, err := fragmented(seed, false)
	if err != nil {
		return r, err
	}
	released, err := fragmented(seed, true)
	r.fresh, r.unused, r.released = 1000*quantile(fresh, 0.5), 1000*quantile(unused, 0.5), 1000*quantile(released, 0.5)
	return r, err
}

// ipamRow is the address part of row 8.
func ipamRow(b *bench) ([]line, error) {
	var rounds []ipamRound
	for i := range 1 + b.rounds { // the first one warms up
		r, err := ipamMeasure(uint64(i)) //nolint:gosec // G115: a few
		if err != nil {
			return nil, err
		}
		if i > 0 {
			rounds = append(rounds, r)
		}
	}
	of := func(f func(ipamRound) float64) float64 {
		var all []float64
		for _, r := range rounds {
			all = append(all, f(r))
		}
		return median(slices.Clone(all))
	}
	micros := func(v float64) string { return fmt.Sprintf("%.2f us", v) }
	fresh, restore := of(func(r ipamRound) float64 { return r.fresh }), of(func(r ipamRound) float64 { return r.restore })
	out := []line{{row: "8", what: "IPAM alone: an address of a fresh /16, p50", load: "1 par", ours: micros(fresh), peer: "-", got: fresh, unit: " us", bound: atMost(1, 1)}}
	for _, c := range []struct {
		what string
		of   func(ipamRound) float64
	}{
		{"the rest never used", func(r ipamRound) float64 { return r.unused }},
		{"the rest given back", func(r ipamRound) float64 { return r.released }},
	} {
		out = append(out, line{row: "8", what: "the same, 90 % taken at random, " + c.what + " / fresh", load: "1 par", ours: micros(of(c.of)), peer: micros(fresh),
			got: of(func(r ipamRound) float64 { return c.of(r) / r.fresh }), unit: " x", bound: atMost(2, 2)})
	}
	return append(out, line{row: "8", what: "IPAM alone: 10,000 leases restored", load: "1 par", ours: fmt.Sprintf("%.1f ms", restore), peer: "-",
		got: restore, unit: " ms", bound: atMost(50, 50)}), nil
}
