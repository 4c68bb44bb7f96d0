package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// oursConf is the whole CNI configuration that Fairlead needs.
const oursConf = `{"cniVersion":"1.1.0","name":"fairlead","type":"fairlead"}`

// The default network of all measurements: no NAT, as with the peers.
const plainSubnet = `apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: bench}
spec: {default: true, protocol: IPv4, cidrBlock: 10.16.0.0/16, gateway: 10.16.0.1}
`

// vlanSubnet is the same behind an 802.1Q tag.
const vlanSubnet = `apiVersion: kubeovn.io/v1
kind: Vlan
metadata: {name: v100}
spec: {id: 100}
---
apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: bench}
spec: {default: true, protocol: IPv4, cidrBlock: 10.16.0.0/16, gateway: 10.16.0.1, vlan: v100}
`

// fairlead is our side: the plugin and the agent on a node with Open vSwitch.
type fairlead struct {
	plugin
	args  []string // of the agent
	state string   // --state-dir, in the node
	agent *daemon
}

// ours makes a node with pods and starts the agent on the objects.
func (b *bench) ours(pods int, objects, state string) (*fairlead, error) {
	f, err := b.fairlead(pods, objects, state)
	if err != nil {
		return nil, err
	}
	f.settle = f.node.barrier
	err = f.node.startOVS()
	if err == nil {
		err = f.start()
	}
	if err != nil {
		return nil, errors.Join(err, f.node.close())
	}
	return f, nil
}

// oursBridged makes a node whose pods' network is the peers' bridge, on which
// the agent works without Open vSwitch, as the peers do.
func (b *bench) oursBridged(pods int) (*fairlead, error) {
	f, err := b.fairlead(pods, plainSubnet, "/var/lib/fairlead")
	if err != nil {
		return nil, err
	}
	f.conf = []byte(`{"cniVersion":"1.1.0","name":"fairlead","type":"fairlead","delegates":[` + bridgeConf + `]}`)
	err = f.start()
	if err == nil {
		err = f.once() // it makes the bridge, which stays
	}
	if err != nil {
		return nil, errors.Join(err, f.node.close())
	}
	return f, nil
}

// fairlead makes a node with pods and the objects, and nothing that runs.
func (b *bench) fairlead(pods int, objects, state string) (*fairlead, error) {
	n, err := b.newNode(pods)
	if err != nil {
		return nil, err
	}
	f, err := b.agentOn(n, objects, state)
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return f, nil
}

// agentOn is fairlead on a node that is there.
func (b *bench) agentOn(n *node, objects, state string) (*fairlead, error) {
	f := &fairlead{plugin: plugin{node: n, path: b.bin("fairlead-cni"), conf: []byte(oursConf)}, state: state}
	folder := filepath.Join(n.dir, "objects")
	f.args = []string{b.bin("fairlead"), "agent", "--node-name", "bench", "--objects", folder, "--state-dir", state,
		"--mtu", "1400", "--cni-bin-dir", b.tool(""), "--conf-dir", folder}
	return f, errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "objects.yaml"), []byte(objects), 0o600))
}

// start runs the agent and waits until it is ready for ADD.
func (f *fairlead) start() (err error) {
	if f.agent, err = f.node.start(f.args...); err != nil {
		return err
	}
	probe := &pod{name: "probe", container: "probe"}
	err = f.node.inside(func() error {
		return f.agent.await(func() error { return f.Call(&worker{}, "STATUS", probe) })
	})
	return errors.Join(err, f.Settle())
}

// records counts the pods and addresses that the agent says it holds.
func (f *fairlead) records(b *bench) (sum int, err error) {
	for _, what := range []string{"pods", "ips"} {
		out, err := f.node.output(b.bin("fairlead"), "get", what, "-o", "json")
		if err != nil {
			return 0, err
		}
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return 0, fmt.Errorf("fairlead get %s: %w: %s", what, err, out)
		}
		sum += len(list.Items)
	}
	return sum, nil
}

// commits is the number of the journal's last transaction, read from the meta
// pages of the bbolt file (two 4 KiB pages at its start; magic at byte 16,
// transaction id at byte 64, little-endian).
func (f *fairlead) commits() (last uint64, err error) {
	var head []byte
	err = f.node.inside(func() error {
		file, err := os.Open(filepath.Join(f.state, "agent.db"))
		if err != nil {
			return err
		}
		defer file.Close()
		head = make([]byte, 2*4096)
		_, err = file.ReadAt(head, 0)
		return err
	})
	if err != nil {
		return 0, err
	}
	for page := 0; page < len(head); page += 4096 {
		if meta := head[page:]; binary.LittleEndian.Uint32(meta[16:]) == 0xED0CDAED {
			last = max(last, binary.LittleEndian.Uint64(meta[64:]))
		}
	}
	if last == 0 {
		return 0, errors.New("agent.db has no meta page")
	}
	return last, nil
}
