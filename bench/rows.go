package main

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// standing is how many ports are there already in the second half of a row.
const standing = 100

// rung is how many calls run in parallel, and how many pods a run attaches.
type rung struct{ par, pods, quick int }

// The long ladder is for sides that attach some hundred pods per second.
var (
	ladder      = []rung{{1, 20, 6}, {10, 40, 20}, {50, 100, 50}}
	shortLadder = []rung{{1, 10, 4}, {10, 30, 10}, {50, 50, 50}}
)

// mostPods is what every rung needs beside the standing ones.
const mostPods = 100

func atLeast(gate, target float64) bound { return bound{gate: gate, target: target} }
func atMost(gate, target float64) bound  { return bound{gate: gate, target: target, atMost: true} }

// addTime, addCPU and addRate are the three figures of an ADD.
func addTime(row, what string, b bound) metric {
	return metric{row: row, what: what + ", p50 (p99)", bound: b,
		value: func(s sample) float64 { return s.add.p50() },
		show:  func(s sample) string { return fmt.Sprintf("%.1f (%.1f) ms", s.add.p50(), s.add.p99()) }}
}

func addCPU(row, what string, b bound) metric {
	return metric{row: row, what: what + ", CPU", bound: b,
		value: func(s sample) float64 { return s.add.cpuEach() },
		show:  func(s sample) string { return s.add.bill() }}
}

func addRate(row, what string, b bound) metric {
	return metric{row: row, what: what + ", rate", bound: b, speed: true,
		value: func(s sample) float64 { return s.add.rate() },
		show:  func(s sample) string { return fmt.Sprintf("%.0f pods/s", s.add.rate()) }}
}

// delMetrics are of a mass DEL: the times are of the whole mass, told per pod.
func delMetrics(row, what string, gate bound) []metric {
	took := func(until string, b bound, of func(sample) time.Duration) metric {
		each := func(s sample) float64 { return millis(of(s)) / float64(len(s.del.took)) }
		return metric{row: row, what: what + ", " + until, bound: b, from: 50, value: each,
			show: func(s sample) string { return fmt.Sprintf("%.2f ms/pod", each(s)) }}
	}
	return []metric{
		took("to the last reply", gate, func(s sample) time.Duration { return s.del.wall }),
		took("until no interface and no port is left", gate, func(s sample) time.Duration { return s.clean }),
		{row: row, what: what + ", CPU", from: 50,
			value: func(s sample) float64 { return s.del.cpuEach() },
			show:  func(s sample) string { return s.del.bill() }},
	}
}

// followed is how long ovs-vswitchd takes for what a mass DEL has left to it.
func followed() metric {
	each := func(s sample) float64 { return millis(s.followed) / float64(len(s.del.took)) }
	return metric{row: "7", what: "mass DEL, until ovs-vswitchd has followed", from: 50, floor: true, value: each,
		show: func(s sample) string { return fmt.Sprintf("%.2f ms/pod", each(s)) }}
}

// climb runs a contest on every rung, with no ports there and with many.
func (b *bench) climb(c contest, rungs []rung, ports ...int) (lines []line, err error) {
	c.rounds = b.rounds
	for _, there := range ports {
		for _, s := range c.sides {
			if err := stand(s, there); err != nil {
				return lines, fmt.Errorf("attach %d standing pods: %w", there, err)
			}
		}
		for _, r := range rungs {
			c.par, c.pods, c.load = r.par, r.pods, fmt.Sprintf("%d par, %d ports", r.par, there)
			if b.quick {
				c.pods = r.quick
			}
			got, err := c.run()
			if err != nil {
				return lines, fmt.Errorf("%s: %w", c.load, err)
			}
			lines = append(lines, got...)
		}
	}
	return lines, nil
}

const allPods = standing + mostPods

// bridgeRow is row 2: the same configuration, and so the same state on the
// machine, by the plugins' programs and by the agent.
func bridgeRow(b *bench) (lines []line, err error) {
	ours, err := b.oursBridged(allPods)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ours.node.close()) }()
	peer, err := b.bridgeSide(allPods)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, peer.node.close()) }()
	started, err := b.processes(ours, peer, "the same bridge + host-local")
	if err != nil {
		return nil, err
	}
	lines, err = b.climb(contest{sides: []side{ours, peer}, metrics: bridgeMetrics()}, ladder, 0, standing)
	return append(started, lines...), err
}

func bridgeMetrics() []metric {
	what := "bridge + host-local in the agent, ADD / the programs"
	out := []metric{addTime("2", what, atLeast(1.8, 1.8)), addCPU("2", what, atLeast(2, 2)), addRate("2", what, atLeast(2, 2))}
	out[2].from = 10 // one at a time the rate is the p50 in other words
	return against(1, append(out, delMetrics("2", "the same, mass DEL", bound{})...))
}

// switchRow is row 2o, what a port on Open vSwitch costs beside one on a Linux
// bridge, row 7 by the same pods, and row 11, whose floor shows what is possible
// in the two others.
func switchRow(b *bench) (lines []line, err error) {
	ours, err := b.ours(allPods, plainSubnet, "/var/lib/fairlead")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ours.node.close()) }()
	peer, err := b.bridgeSide(allPods)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, peer.node.close()) }()
	commits, err := ours.commitsPerAdd()
	if err != nil {
		return nil, err
	}
	b.note("row 11: ours makes %.1f journal transactions for an ADD, one at a time; the floor waits for %d, of two fdatasync each", commits, int(commits))
	floor, err := b.floorSide(allPods, int(commits))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, floor.node.close()) }()
	started, err := b.processes(ours, peer, "bridge + host-local")
	if err != nil {
		return nil, err
	}
	lines, err = b.climb(contest{sides: []side{ours, peer, floor}, floor: 2, metrics: switchMetrics()}, ladder, 0, standing)
	return append(started, lines...), err
}

func switchMetrics() []metric {
	what := "OVS port + IPAM, ADD / bridge + host-local"
	out := []metric{addTime("2o", what, bound{}), addCPU("2o", what, bound{}), addRate("2o", what, bound{})}
	out[2].from = 10
	for i := range out {
		out[i].floor = true
	}
	out = append(append(out, delMetrics("7", "mass DEL", atLeast(1.5, 3))...), followed())
	least := []metric{addTime("11", "ADD / floor", atMost(1.5, 1.5)), addCPU("11", "ADD / floor", bound{}), addRate("11", "ADD / floor", bound{})}
	for i := range least {
		least[i].above = true
	}
	return append(against(1, out), against(2, least)...)
}

// against sets whom ours is compared with.
func against(peer int, metrics []metric) []metric {
	for i := range metrics {
		metrics[i].peer = peer
	}
	return metrics
}

// vlanRow is row 5.
func vlanRow(b *bench) (lines []line, err error) {
	ours, err := b.ours(allPods, vlanSubnet, "/var/lib/fairlead")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ours.node.close()) }()
	peer, err := b.stepsSide(allPods)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, peer.node.close()) }()
	what := "OVS VLAN port, ofport ready / ovs-cni's steps"
	gate := atLeast(2.2, 3)
	metrics := []metric{addTime("5", what, gate), addCPU("5", what, gate), addRate("5", what, gate)}
	metrics[2].from = 10
	b.note("row 5: ovs-cni is not on the module proxy; its steps are done by ip, ovs-vsctl (waits for the ofport) and host-local")
	return b.climb(contest{sides: []side{ours, peer}, metrics: against(1, metrics)}, shortLadder, 0, standing)
}

// processes counts what an ADD and its DEL start beside the plugin itself.
func (b *bench) processes(ours, peer side, name string) ([]line, error) {
	const pairs = 10
	var each [2]family
	for i, s := range []side{ours, peer} {
		f, err := listen()
		if err != nil {
			return nil, err
		}
		_, err = cycle(s, pick(s, pairs), 2, 2)
		if err == nil {
			each[i], err = f.count(s.Node().pids())
		}
		if err := errors.Join(err, f.close()); err != nil {
			return nil, err
		}
	}
	show := func(f family) string {
		return fmt.Sprintf("%.4g (forks %.4g)", float64(f.programs)/pairs, float64(f.forks)/pairs)
	}
	return []line{{row: "-", what: "processes started by ADD + DEL beside the plugin / " + name, load: "exact count",
		ours: show(each[0]), peer: show(each[1]), got: float64(each[0].forks) / pairs, bound: atMost(0, 0)}}, nil
}

// versionRow is row 1: starting the plugin is all that it does.
func versionRow(b *bench) (lines []line, err error) {
	n, err := b.newNode(0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	peers := []struct{ name, path, module string }{
		{"Multus, thin", b.peer("multus"), "gopkg.in/k8snetworkplumbingwg/multus-cni.v4"},
		{"Multus, shim", b.peer("multus-shim"), "gopkg.in/k8snetworkplumbingwg/multus-cni.v4"},
		{"Kube-OVN", b.peer("kube-ovn"), "github.com/kubeovn/kube-ovn"},
	}
	ours := &plugin{node: n, path: b.bin("fairlead-cni"), conf: []byte(oursConf)}
	for _, p := range peers {
		if _, err := os.Stat(p.path); err != nil {
			b.note("row 1: %s is not measured: %v", p.name, err)
			continue
		}
		what := fmt.Sprintf("plugin VERSION, CPU / %s %s", p.name, version(p.path, p.module))
		l, err := b.versions(what, ours, &plugin{node: n, path: p.path, conf: []byte(oursConf)})
		if err != nil {
			return lines, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// versions is A B A B of VERSION calls.
func (b *bench) versions(what string, ours, peer side) (line, error) {
	calls := make([]*pod, 200)
	if b.quick {
		calls = calls[:30]
	}
	for i := range calls {
		calls[i] = &pod{name: "version"}
	}
	var sum [2]phase
	var ratios []float64
	for i := range 1 + b.rounds {
		var each [2]phase
		for turn := range 4 {
			s, batchOf := turn%2, calls
			if i == 0 {
				batchOf = calls[:warmups]
			}
			got, err := batch([]side{ours, peer}[s], "VERSION", batchOf, 1)
			if err != nil {
				return line{}, err
			}
			each[s].join(got)
		}
		if i > 0 {
			ratios = append(ratios, each[1].cpuEach()/each[0].cpuEach())
			sum[0].join(each[0])
			sum[1].join(each[1])
		}
	}
	show := func(p phase) string { return fmt.Sprintf("%.2f ms", p.cpuEach()) }
	return line{row: "1", what: what, load: "1 par", ours: show(sum[0]), peer: show(sum[1]),
		got: median(ratios), unit: " x", bound: atLeast(5, 8)}, nil
}
