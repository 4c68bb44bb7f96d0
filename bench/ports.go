package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
)

// portsSubnet is the default network with masquerade.
const portsSubnet = `apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: bench}
spec: {default: true, protocol: IPv4, cidrBlock: 10.16.0.0/16, gateway: 10.16.0.1, natOutgoing: true}
`

// Each pod asks for as much on both sides: three ports of the node, and rates
// both ways, in the form in which runtimes ask.
const (
	portsEach = 3
	rates     = `{"ingressRate":100000000,"ingressBurst":20000000,"egressRate":100000000,"egressBurst":20000000}`
)

// mappings are a pod's ports.
func mappings(p *pod) string {
	type mapping struct {
		HostPort      int    `json:"hostPort"`
		ContainerPort int    `json:"containerPort"`
		Protocol      string `json:"protocol"`
	}
	var list []mapping
	for i := range portsEach {
		list = append(list, mapping{20000 + p.index*portsEach + i, 80 + i, []string{"tcp", "udp"}[i%2]})
	}
	b, _ := json.Marshal(list) // plain values
	return string(b)
}

// opener is our side: the plugin alone, which declares both capabilities.
type opener struct{ *fairlead }

func (o opener) Call(w *worker, command string, p *pod) error {
	conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"fairlead","type":"fairlead","capabilities":{"portMappings":true,"bandwidth":true},
		"runtimeConfig":{"portMappings":%s,"bandwidth":%s}}`, mappings(p), rates)
	_, err := w.run(environ(command, filepath.Dir(o.path), p), []byte(conf), o.path)
	return err
}

// chained is a list of plugins as a runtime runs it: ADD in order, each with the
// result of the one before, DEL backwards with the last result.
type chained struct {
	*plugin
	results sync.Map // container -> last result
}

// chainConfs are the plugins of the list, the first one first.
func chainConfs(p *pod, prev []byte) []string {
	const head = `{"cniVersion":"1.1.0","name":"bench",`
	tail := "}"
	if prev != nil {
		tail = `,"prevResult":` + string(prev) + "}"
	}
	return []string{
		head + `"type":"bridge","bridge":"cni0","mtu":1400,"isGateway":true,"ipMasq":true,"ipam":` + ipamConf + tail,
		head + `"type":"portmap","snat":true,"runtimeConfig":{"portMappings":` + mappings(p) + `}` + tail,
		head + `"type":"bandwidth","runtimeConfig":{"bandwidth":` + rates + `}` + tail,
	}
}

var chainTypes = []string{"bridge", "portmap", "bandwidth"}

func (c *chained) Call(w *worker, command string, p *pod) error {
	dir := filepath.Dir(c.path)
	if command == "DEL" {
		prev, _ := c.results.LoadAndDelete(p.container)
		last, _ := prev.([]byte)
		confs := chainConfs(p, last)
		for i := len(confs) - 1; i >= 0; i-- {
			if _, err := w.run(environ(command, dir, p), []byte(confs[i]), filepath.Join(dir, chainTypes[i])); err != nil {
				return err
			}
		}
		return nil
	}
	var result []byte
	for i, name := range chainTypes {
		var err error
		if result, err = w.run(environ(command, dir, p), []byte(chainConfs(p, result)[i]), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	c.results.Store(p.container, result)
	return nil
}

// portsRow is row 3: masquerade, three host ports and rates, ADD and DEL.
func portsRow(b *bench) (lines []line, err error) {
	f, err := b.ours(allPods, portsSubnet, "/var/lib/fairlead")
	if err != nil {
		return nil, err
	}
	ours := opener{f}
	defer func() { err = errors.Join(err, ours.node.close()) }()
	p, err := b.bridgeSide(allPods)
	if err != nil {
		return nil, err
	}
	peer := &chained{plugin: p}
	defer func() { err = errors.Join(err, peer.node.close()) }()
	started, err := b.processes(ours, peer, "bridge ipMasq + portmap + bandwidth")
	if err != nil {
		return nil, err
	}
	started[0].bound = atMost(0.5, 0.5) // nft makes the table for the first pod and takes it away with the last
	b.note("row 3: portmap, bandwidth: containernetworking/plugins %s; what a pod sends is policed by Open vSwitch where the kernel can, by an ifb device with the peer",
		version(b.tool("portmap"), "github.com/containernetworking/plugins"))
	lines, err = b.climb(contest{sides: []side{ours, peer}, metrics: portsMetrics()}, shortLadder[:2], 0, standing)
	return append(started, lines...), err
}

// portsMetrics are of an ADD and its DEL together.
func portsMetrics() []metric {
	what, gate := "3 host ports + rates + masquerade, ADD + DEL / bridge + portmap + bandwidth", atLeast(4, 8)
	both := metric{row: "3", what: what + ", p50 of ADD, of DEL", bound: gate,
		value: func(s sample) float64 { return s.add.p50() + s.del.p50() },
		show:  func(s sample) string { return fmt.Sprintf("%.1f + %.1f ms", s.add.p50(), s.del.p50()) }}
	cpu := metric{row: "3", what: what + ", CPU", bound: gate,
		value: func(s sample) float64 { return s.add.cpuEach() + s.del.cpuEach() },
		show:  func(s sample) string { return fmt.Sprintf("%.1f + %.1f ms", s.add.cpuEach(), s.del.cpuEach()) }}
	return against(1, []metric{both, cpu})
}
