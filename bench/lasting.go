package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// commitsPerAdd attaches a few pods one after the other and counts.
func (f *fairlead) commitsPerAdd() (float64, error) {
	pods := pick(f, 10)
	f.node.renew(pods)
	from, err := f.commits()
	if err != nil {
		return 0, err
	}
	if _, err := batch(f, "ADD", pods, 1); err != nil {
		return 0, err
	}
	to, err := f.commits()
	if err != nil {
		return 0, err
	}
	_, err = batch(f, "DEL", pods, 10)
	return float64(to-from) / float64(len(pods)), errors.Join(err, f.Settle())
}

// journalRow is row 10: the same agent with its journal on disk and in memory,
// then killed amid its work.
func journalRow(b *bench) (lines []line, err error) {
	disk, err := b.ours(mostPods, plainSubnet, "/var/lib/fairlead")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, disk.node.close()) }()
	memory, err := b.ours(mostPods, plainSubnet, "/run/fairlead-state")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, memory.node.close()) }()
	what := "journal on disk / in memory, ADD"
	metrics := []metric{addTime("10", what, atMost(1.15, 1.15)), addRate("10", what, atMost(1.15, 1.15))}
	metrics[1].from = 10
	for i := range metrics {
		metrics[i].above = true
	}
	lines, err = b.climb(contest{sides: []side{disk, memory}, metrics: against(1, metrics)}, ladder, 0)
	if err != nil {
		return lines, err
	}
	killed, err := b.killed(disk)
	return append(lines, killed), err
}

// killed ends the agent with 50 ADDs in flight, starts it again, retries half
// of what failed, detaches everything, and counts what is left.
func (b *bench) killed(f *fairlead) (line, error) {
	const inFlight = 50
	l := line{row: "10", what: "kill -9 with 50 ADDs in flight, restart, retry / DEL: leaks", peer: "-", bound: atMost(0, 0)}
	before, err := f.inventory(b)
	if err != nil {
		return l, err
	}
	var failed, left int
	for i := range b.rounds {
		n, err := f.killAmid(pick(f, inFlight), 1+i*inFlight/b.rounds)
		if err != nil {
			return l, err
		}
		failed += n
		if err := errors.Join(before.restored(f.node), f.Settle()); err != nil {
			b.note("row 10: %v", err)
		}
		after, err := f.inventory(b)
		if err != nil {
			return l, err
		}
		left += after.minus(before)
	}
	l.load = fmt.Sprintf("%d kills, %d ADDs without answer", b.rounds, failed)
	l.ours, l.got = strconv.Itoa(left), float64(left)
	return l, nil
}

// killAmid starts all ADDs at once and kills the agent when some have
// succeeded. It returns how many did not.
func (f *fairlead) killAmid(pods []*pod, some int) (failed int, err error) {
	f.node.renew(pods)
	outcome := make(chan result, len(pods))
	for _, p := range pods {
		go func() {
			outcome <- result{p, f.node.inside(func() error { return f.Call(&worker{}, "ADD", p) })}
		}()
	}
	var retry []*pod
	good := 0
	for range pods {
		r := <-outcome
		if r.err == nil {
			if good++; good == some {
				f.agent.kill()
			}
			continue
		}
		if failed++; failed%2 == 0 {
			retry = append(retry, r.pod)
		}
	}
	if good < some {
		return failed, fmt.Errorf("only %d ADDs succeeded%s", good, logs(f.node))
	}
	if err := f.start(); err != nil {
		return failed, err
	}
	if _, err := batch(f, "ADD", retry, 10); err != nil {
		return failed, fmt.Errorf("after a kill: %w", err)
	}
	_, err = batch(f, "DEL", pods, 10)
	return failed, err
}

type result struct {
	pod *pod
	err error
}

// inventory is what a leak would add to.
type inventory struct {
	stock
	records, inPods int
}

func (i inventory) minus(o inventory) int {
	return max(0, i.links-o.links) + max(0, i.ports-o.ports) + max(0, i.records-o.records) + max(0, i.inPods-o.inPods)
}

func (f *fairlead) inventory(b *bench) (i inventory, err error) {
	if i.stock, err = takeStock(f.node); err != nil {
		return i, err
	}
	if i.records, err = f.records(b); err != nil {
		return i, err
	}
	for _, p := range f.node.pods {
		out, err := f.node.output("ip", "-o", "-n", p.name, "link")
		if err != nil {
			return i, err
		}
		i.inPods += strings.Count(out, "\n")
	}
	return i, nil
}

// memory is a process's in megabytes (10^6 bytes): all that is resident, and
// what of it is no file's.
type memory struct{ rss, own float64 }

// memoryOf reads VmRSS and RssAnon of /proc/PID/status.
func memoryOf(pid int) (m memory, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m, err
	}
	for name, to := range map[string]*float64{"VmRSS:": &m.rss, "RssAnon:": &m.own} {
		_, rest, found := strings.Cut(string(b), "\n"+name)
		fields := strings.Fields(rest)
		if !found || len(fields) == 0 {
			return m, fmt.Errorf("process %d has no %s", pid, name)
		}
		kib, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return m, fmt.Errorf("%s of process %d: %w", name, pid, err)
		}
		*to = kib * 1024 / 1e6
	}
	return m, nil
}

// manySubnets is the default one and others, each with a gateway of its own.
func manySubnets(count int) string {
	var s strings.Builder
	s.WriteString(plainSubnet)
	for i := 1; i < count; i++ {
		fmt.Fprintf(&s, "---\napiVersion: kubeovn.io/v1\nkind: Subnet\nmetadata: {name: s%d}\nspec: {protocol: IPv4, cidrBlock: 10.17.%d.0/24, gateway: 10.17.%d.1}\n", i, i, i)
	}
	return s.String()
}
