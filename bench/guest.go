package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Row 18, inside of the VM. Both sides give the same virtual functions to the same pods, in
// turns, in the machine's own namespace, where the kernel makes the functions' devices.

const (
	guestPF      = "pf0"
	guestMetrics = "127.0.0.1:10461"
	// declaredPods have an address that is declared of them; the first have a VF.
	declaredPods = 1000
)

// vf is a virtual function, as it is while nobody has it.
type vf struct {
	index    int
	pci      string
	name     string // of its device
	mac      string
	declared string // the MAC of the pod that gets it
}

// vfsOf are the first functions of a card.
func vfsOf(sys, pf string, count int) (out []vf, err error) {
	for i := range count {
		to, err := os.Readlink(filepath.Join(sys, "class", "net", pf, "device", fmt.Sprintf("virtfn%d", i)))
		if err != nil {
			return nil, err
		}
		v := vf{index: i, pci: filepath.Base(to), declared: fmt.Sprintf("02:0a:09:00:00:%02x", i+0x10)}
		names, err := os.ReadDir(filepath.Join(sys, "bus", "pci", "devices", v.pci, "net"))
		if err == nil && len(names) != 1 {
			err = fmt.Errorf("it has %d network devices", len(names))
		}
		if err != nil {
			return nil, fmt.Errorf("virtual function %s: %w", v.pci, err)
		}
		v.name = names[0].Name()
		mac, err := os.ReadFile(filepath.Join(sys, "class", "net", v.name, "address"))
		if err != nil {
			return nil, err
		}
		v.mac = strings.TrimSpace(string(mac))
		out = append(out, v)
	}
	return out, nil
}

// conf is the usual configuration of sriov, the same on both sides. The emulated card's
// driver lets a VF have another MAC than the one it began with only where it is trusted.
func (v vf) conf() string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"bench","type":"sriov","deviceID":%q,"vlan":100,"mac":%q,"trust":"on","ipam":%s}`, v.pci, v.declared, ipamConf)
}

// declaredAddresses are PodNetworks, which say each pod's address.
func declaredAddresses(count int) string {
	var s strings.Builder
	for i := range count {
		fmt.Fprintf(&s, `---
apiVersion: net.fairlead.io/v1alpha1
kind: PodNetwork
metadata: {namespace: bench, name: pod-%d}
spec: {interfaces: [{name: eth0, ips: [10.20.%d.%d/16]}]}
`, i, 1+i>>8, i&0xff)
	}
	return s.String()
}

// vfAgent is our side: it tells what its steps took.
type vfAgent struct {
	device
	agent  *daemon
	client *http.Client
	told   map[string]steptime // by step, of all calls so far
}

// What the peer does not do, by steps of ours (fairlead_cni_step_duration_seconds).
var (
	addMore = []string{"sriov.carrier", "sriov.probe", "sriov.prove"}
	delMore = []string{"sriov.del.bind", "sriov.del.prove"}
)

// Split implements splitter.
func (a *vfAgent) Split(s *sample) error {
	now, err := a.steps()
	if err == nil {
		err = split(s, a.told, now)
	}
	a.told = now
	return err
}

// split gives a run what was done between two readings. A step that is not told of would
// be time of the peer's kind.
func split(s *sample, before, now map[string]steptime) error {
	for _, of := range []struct {
		phase *phase
		names []string
	}{{&s.add, addMore}, {&s.del, delMore}} {
		for _, name := range of.names {
			if now[name].calls == before[name].calls {
				return fmt.Errorf("the agent's metrics do not tell of step %s", name)
			}
			of.phase.more += now[name].took - before[name].took
		}
	}
	return nil
}

// steps reads what the agent's steps have taken so far.
func (a *vfAgent) steps() (map[string]steptime, error) {
	resp, err := a.client.Get("http://" + guestMetrics + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return stepsIn(string(text))
}

// steptime is the sum of one step of all calls.
type steptime struct {
	took  time.Duration
	calls int
}

// stepsIn reads the steps' histograms.
func stepsIn(metrics string) (map[string]steptime, error) {
	out := map[string]steptime{}
	for l := range strings.Lines(metrics) {
		rest, is := strings.CutPrefix(l, "fairlead_cni_step_duration_seconds_")
		kind, rest, _ := strings.Cut(rest, `{step="`)
		step, value, ok := strings.Cut(strings.TrimSpace(rest), `"} `)
		if !is || !ok || kind == "bucket" {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
		s := out[step]
		if kind == "sum" {
			s.took = time.Duration(n * float64(time.Second))
		} else {
			s.calls = int(n)
		}
		out[step] = s
	}
	return out, nil
}

// more has a line for ADD and one for DEL: what the peer does not do, of a call in the
// mean. The last step is done once in each call.
func (a *vfAgent) more(load string) (out []line) {
	for _, of := range []struct {
		what  string
		names []string
	}{{"ADD", addMore}, {"DEL", delMore}} {
		calls := a.told[of.names[len(of.names)-1]].calls
		var sum float64
		var parts []string
		for _, name := range of.names {
			each := millis(a.told[name].took) / float64(calls)
			sum += each
			parts = append(parts, fmt.Sprintf("%s %.1f ms", name, each))
		}
		out = append(out, line{row: "18", what: "the same, " + of.what + ": what the peer does not do, mean", load: load, ours: strings.Join(parts, ", "), peer: "-", got: sum, unit: " ms"})
	}
	return out
}

// memory is the agent's with all VFs attached.
func (a *vfAgent) memory(quick bool) (line, error) {
	all := a.Node().pods
	if err := renew(a, all); err != nil {
		return line{}, err
	}
	if _, err := batch(a, "ADD", all, 1); err != nil {
		return line{}, err
	}
	rest := 10 * time.Second
	if quick {
		rest = 2 * time.Second
	}
	time.Sleep(rest)
	m, err := memoryOf(a.agent.pid())
	return line{row: "18", what: "RSS of the agent", load: fmt.Sprintf("%d VFs, %d addresses declared", len(all), declaredPods),
		ours: fmt.Sprintf("%.1f MB (anonymous %.1f)", m.rss, m.own), peer: "-", got: m.rss, unit: " MB", bound: atMost(60, 60)}, err
}

// vfSides starts our agent, and makes the peer, which does its work for the same pods.
func (b *bench) vfSides(vfs []vf) (*vfAgent, *vfSteps, error) {
	n, err := newGuest(filepath.Join(b.dir, "ours"))
	if err != nil {
		return nil, nil, err
	}
	f, err := b.agentOn(n, declaredAddresses(declaredPods), "/var/lib/fairlead")
	if err == nil {
		err = n.morePods(len(vfs))
	}
	if err != nil {
		return nil, nil, errors.Join(err, n.close())
	}
	conf := func(p *pod) string { return vfs[p.index].conf() }
	f.args = append(f.args, "--http", guestMetrics)
	f.conf = fmt.Appendf(nil, delegateList, conf(n.pods[0]))
	if err := f.start(); err != nil {
		return nil, nil, errors.Join(err, n.close())
	}
	theirs, err := newGuest(filepath.Join(b.dir, "peer"))
	if err != nil {
		return nil, nil, errors.Join(err, n.close())
	}
	theirs.pods = n.pods
	ours := &vfAgent{device: device{f, filepath.Dir(f.path), f.path, delegateList, conf}, agent: f.agent, client: n.client("")}
	return ours, &vfSteps{theirs, b.tool("host-local"), vfs}, nil
}

// vfMetrics are of an ADD and of its DEL: half the processor time, and, without what the
// peer does not do, 0.7 of the time.
func vfMetrics() []metric {
	took := func(of func(sample) phase, verb string) []metric {
		what := "VF with address, MAC and VLAN, " + verb + " / sriov-cni's steps by ip, "
		return []metric{
			{row: "18", what: what + "whole, p50 (p99)",
				value: func(s sample) float64 { return of(s).p50() },
				show:  func(s sample) string { return fmt.Sprintf("%.0f (%.0f) ms", of(s).p50(), of(s).p99()) }},
			{row: "18", what: what + "without what the peer does not do, mean", bound: atLeast(1.43, 1.43),
				value: func(s sample) float64 { return of(s).less() },
				show:  func(s sample) string { return fmt.Sprintf("%.0f ms", of(s).less()) }},
			{row: "18", what: what + "whole, CPU", bound: atLeast(2, 2),
				value: func(s sample) float64 { return of(s).cpuEach() },
				show:  func(s sample) string { return of(s).bill() }},
		}
	}
	return against(1, append(took(func(s sample) phase { return s.add }, "ADD"), took(func(s sample) phase { return s.del }, "DEL")...))
}

// guest is row 18 in the VM: it writes its report.
func (b *bench) guest(to io.Writer) (err error) {
	vfs, err := vfsOf("/sys", guestPF, guestVFs)
	if err != nil {
		return err
	}
	ours, peer, err := b.vfSides(vfs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.Node().close(), peer.node.close()) }()
	c := contest{sides: []side{ours, peer}, load: fmt.Sprintf("1 par, %d VFs", len(vfs)), pods: len(vfs), par: 1, rounds: b.rounds, metrics: vfMetrics()}
	if b.quick {
		c.pods = 3
	}
	lines, err := c.run()
	if err != nil {
		return err
	}
	more := ours.more(c.load)
	held, err := ours.memory(b.quick)
	if err != nil {
		return err
	}
	b.note("row 18: sriov-cni is not on the module proxy: its steps are done by ip and host-local; all in a VM without hardware virtualization")
	r := report{Notes: b.notes}
	for _, l := range append(append(lines, more...), held) {
		r.Lines = append(r.Lines, tell(l))
	}
	return json.NewEncoder(to).Encode(r)
}
