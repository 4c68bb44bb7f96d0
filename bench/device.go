package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// delegateList has the agent carry out one plugin's configuration.
const delegateList = `{"cniVersion":"1.1.0","name":"fairlead","type":"fairlead","delegates":[%s]}`

// device is a side whose pods have a device of the machine each.
type device struct {
	side
	dir, path string // of the plugin that is called
	list      string // how its configuration holds that of the plugin
	conf      func(*pod) string
}

// deviceConf is host-device with an address, the same on both sides; d0 is the first pod's device.
func deviceConf(p *pod) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"bench","type":"host-device","device":"d%d","ipam":%s}`, p.index, ipamConf)
}

func (d device) Call(w *worker, command string, p *pod) error {
	_, err := w.run(environ(command, d.dir, p), fmt.Appendf(nil, d.list, d.conf(p)), d.path)
	return err
}

// devices makes one for each pod: an end of a veth, whose other end nobody uses.
func devices(n *node) error {
	var batch strings.Builder
	for _, p := range n.pods {
		fmt.Fprintf(&batch, "link add d%d type veth peer name far%d\n", p.index, p.index)
	}
	_, err := n.output("sh", "-c", "echo '"+batch.String()+"' | ip -batch -")
	return err
}

// deviceRow is row 16: a device of the machine moved into a pod and back, by the agent and by
// the program.
func deviceRow(b *bench) (lines []line, err error) {
	f, err := b.fairlead(mostPods, plainSubnet, "/var/lib/fairlead")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.node.close()) }()
	f.conf = fmt.Appendf(nil, delegateList, deviceConf(f.node.pods[0])) // of the question whether it is ready
	if err := errors.Join(devices(f.node), f.start()); err != nil {
		return nil, err
	}
	n, err := b.newNode(mostPods)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := devices(n); err != nil {
		return nil, err
	}
	program := &plugin{node: n, path: b.tool("host-device")}
	ours := device{f, filepath.Dir(f.path), f.path, delegateList, deviceConf}
	peer := device{program, filepath.Dir(program.path), program.path, "%s", deviceConf}
	return b.climb(contest{sides: []side{ours, peer}, metrics: deviceMetrics()}, shortLadder[:2], 0)
}

// deviceMetrics are of an ADD and of its DEL: half the processor time, and 0.7 of the time.
func deviceMetrics() []metric {
	const what = "host-device + host-local in the agent / the programs"
	took := func(of func(sample) phase, verb string) []metric {
		return []metric{
			{row: "16", what: what + ", " + verb + ", p50 (p99)", bound: atLeast(1.43, 1.43),
				value: func(s sample) float64 { return of(s).p50() },
				show:  func(s sample) string { return fmt.Sprintf("%.1f (%.1f) ms", of(s).p50(), of(s).p99()) }},
			{row: "16", what: what + ", " + verb + ", CPU", bound: atLeast(2, 2),
				value: func(s sample) float64 { return of(s).cpuEach() },
				show:  func(s sample) string { return of(s).bill() }},
		}
	}
	return against(1, append(took(func(s sample) phase { return s.add }, "ADD"), took(func(s sample) phase { return s.del }, "DEL")...))
}
