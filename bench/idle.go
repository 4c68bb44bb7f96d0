package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Row 9: the agent beside 250 Subnets in which nothing happens, without OVN (its rules are
// in nftables, and Open vSwitch has a port for each Subnet) and with it (in iptables).

// What a Kube-OVN daemon with 250 subnets was measured to do when idle
// (spec/performance.md); it is a record, for it needs a cluster.
const (
	peerIdleCPU       = 43 // ms per second
	peerIdleRSS       = 97 // MB
	peerIdleProcesses = 9  // per second
)

const (
	idleSubnets = 250
	// The agent looks at everything once in so long, beside hearing of changes.
	auditEvery = 2 * time.Minute
)

// idler is a node with an idle agent.
type idler struct {
	node      *node
	agent     *daemon
	databases map[string]string // file, by name
	begun     time.Time         // of the agent
	what      string
}

// idleRow is row 9.
func idleRow(b *bench) ([]line, error) {
	var (
		lines []line
		errs  []error
	)
	for _, start := range []func() (idler, error){b.idleAlone, b.idleOnOVN} {
		i, err := start()
		if err != nil {
			return lines, errors.Join(append(errs, err)...)
		}
		got, err := i.measure(b.quick)
		lines = append(lines, got...)
		errs = append(errs, err, i.node.close())
	}
	b.note("row 9: the agent looks at everything once in %v, which is told apart: the %v of the rows above it lie between two such looks", auditEvery, idleWindow(b.quick))
	return lines, errors.Join(errs...)
}

// idleAlone is a node without OVN.
func (b *bench) idleAlone() (i idler, err error) {
	begun := time.Now()
	f, err := b.ours(0, manySubnets(idleSubnets), "/var/lib/fairlead")
	if err != nil {
		return i, err
	}
	err = until(func() error {
		n, err := f.node.ports()
		if err == nil && n < idleSubnets {
			err = fmt.Errorf("%d of %d gateway ports", n, idleSubnets)
		}
		return err
	})
	if err = errors.Join(err, f.Settle()); err != nil {
		return i, errors.Join(err, f.node.close())
	}
	return idler{f.node, f.agent, map[string]string{"OVSDB": "/var/lib/conf.db"}, begun, "without OVN"}, nil
}

// idleOnOVN is a node of a cluster with OVN, whose controller is beside.
func (b *bench) idleOnOVN() (i idler, err error) {
	o, err := b.oursOnOVN(0)
	if err != nil {
		return i, err
	}
	begun := time.Now() // the cluster was made before the agent
	var things []thing
	for n := 1; n < idleSubnets; n++ {
		things = append(things, subnetThing(fmt.Sprintf("s%d", n), fmt.Sprintf("10.17.%d.0/24", n), fmt.Sprintf("10.17.%d.1", n), "none"))
	}
	err = o.c.api.make(things)
	if err == nil {
		err = o.c.idle()
	}
	if err == nil {
		err = within(2*patience, func() error {
			out, err := o.node.output("ip", "route", "show", "dev", "ovn0", "proto", "static")
			if n := strings.Count(out, "\n"); err == nil && n < idleSubnets {
				err = fmt.Errorf("%d of %d routes to Subnets", n, idleSubnets)
			}
			return err
		})
	}
	if err = errors.Join(err, o.followed()); err != nil {
		return i, errors.Join(err, fmt.Errorf("%s", logs(o.node)), o.node.close())
	}
	return idler{o.node, o.agent, map[string]string{"OVSDB": "/var/lib/conf.db", "NB": "/var/lib/nb.db"}, begun, "with OVN"}, nil
}

// idleWindow is how long is looked at.
func idleWindow(quick bool) time.Duration {
	if quick {
		return 5 * time.Second
	}
	return time.Minute
}

// measure watches the agent do nothing, in a window without an audit and then in one that
// has exactly one.
func (i idler) measure(quick bool) ([]line, error) {
	window := idleWindow(quick)
	const rest = 5 * time.Second // what start-up left to be done; an audit takes less
	// Audits come at multiples of their time from when the agent had started.
	pause := rest
	if since := time.Since(i.begun) % auditEvery; auditEvery-since < window+2*rest {
		pause = auditEvery - since + 2*rest
	}
	time.Sleep(pause)
	calm, err := i.watch(window)
	if err != nil {
		return nil, err
	}
	lines := i.calm(calm)
	if quick {
		return lines, nil
	}
	audited, err := i.watch(auditEvery)
	if err != nil {
		return lines, err
	}
	return append(lines, line{
		row: "9", what: "idle, one audit in it: processes started, CPU", load: i.load(audited), peer: "-", unit: " ms/s",
		ours: fmt.Sprintf("%d programs, %.2f ms/s, %s", audited.started.programs, audited.cpu, audited.written()), got: audited.cpu,
	}), nil
}

// idling is what happened in a window.
type idling struct {
	window  time.Duration
	started family
	cpu     float64        // of the agent and what it ran, ms/s
	writes  map[string]int // into databases, by whomever
	used    memory
}

// watch lets a window pass.
func (i idler) watch(window time.Duration) (out idling, err error) {
	events, err := listen()
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, events.close()) }()
	before, err := i.written()
	if err != nil {
		return out, err
	}
	from, err := cpuOf(i.agent.pid())
	if err != nil {
		return out, err
	}
	time.Sleep(window)
	to, errCPU := cpuOf(i.agent.pid())
	started, errCount := events.count(i.node.pids())
	after, errWritten := i.written()
	used, errUsed := memoryOf(i.agent.pid())
	for name := range after {
		after[name] -= before[name]
	}
	return idling{window, started, millis(to-from) / window.Seconds(), after, used}, errors.Join(errCPU, errCount, errWritten, errUsed)
}

// written counts the transactions that databases keep: each is a record of its file
// (ovsdb(5)). What a database forgets with its process, as statistics of ports, is none.
func (i idler) written() (map[string]int, error) {
	out := map[string]int{}
	err := i.node.inside(func() error {
		for name, file := range i.databases {
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			out[name] = strings.Count(string(b), "OVSDB JSON ")
		}
		return nil
	})
	return out, err
}

func (i idler) load(w idling) string {
	return fmt.Sprintf("%d subnets %s, %s", idleSubnets, i.what, w.window)
}

// written is the same for people.
func (w idling) written() string {
	text := fmt.Sprintf("%d OVSDB", w.writes["OVSDB"])
	if n, has := w.writes["NB"]; has {
		text += fmt.Sprintf(" and %d NB", n)
	}
	return text + " writes"
}

// calm are the lines that are judged.
func (i idler) calm(w idling) []line {
	started, writes := float64(w.started.forks), 0
	for _, n := range w.writes {
		writes += n
	}
	recorded := func(v any) string { return fmt.Sprint(v, " (recorded)") }
	return []line{
		{row: "9", what: "idle: processes started / Kube-OVN daemon", load: i.load(w), ours: fmt.Sprint(started),
			peer: recorded(float64(peerIdleProcesses) * w.window.Seconds()), got: started, bound: atMost(0, 0)},
		{row: "9", what: "idle: writes into databases", load: i.load(w), ours: w.written(), peer: "-", got: float64(writes), bound: atMost(0, 0)},
		{row: "9", what: "idle: CPU of the agent / Kube-OVN daemon", load: i.load(w), ours: fmt.Sprintf("%.2f ms/s", w.cpu),
			peer: recorded(fmt.Sprintf("%d ms/s", peerIdleCPU)), got: w.cpu, unit: " ms/s", bound: atMost(5, 5)},
		{row: "9", what: "idle: RSS of the agent / Kube-OVN daemon", load: i.load(w), ours: fmt.Sprintf("%.1f MB, %.1f of them no file's", w.used.rss, w.used.own),
			peer: recorded(fmt.Sprintf("%d MB", peerIdleRSS)), got: w.used.rss, unit: " MB", bound: atMost(60, 60)},
	}
}
