package main

import (
	"fmt"
	"net"
	"strings"
	"time"
)

const (
	schema = "/usr/share/openvswitch/vswitch.ovsschema"
	bridge = "br-int"
)

// startOVS runs an Open vSwitch in the node, with default settings.
func (n *node) startOVS() error {
	if err := n.command("ovsdb-tool", "create", "/var/lib/conf.db", schema); err != nil {
		return err
	}
	server, err := n.start("ovsdb-server", "/var/lib/conf.db", "--remote=punix:/run/openvswitch/db.sock",
		"--unixctl=/run/openvswitch/ovsdb-server.ctl", "--verbose=console:warn")
	if err != nil {
		return err
	}
	err = n.inside(func() error {
		return server.await(func() error {
			c, err := net.Dial("unix", "/run/openvswitch/db.sock")
			if err == nil {
				err = c.Close()
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	if err := n.command("ovs-vsctl", "--no-wait", "init"); err != nil {
		return err
	}
	_, err = n.start("ovs-vswitchd", "unix:/run/openvswitch/db.sock",
		"--unixctl=/run/openvswitch/ovs-vswitchd.ctl", "--verbose=console:warn")
	if err != nil {
		return err
	}
	n.ovs = true
	return n.barrier()
}

// barrier returns when ovs-vswitchd has done all that was committed before:
// ovs-vsctl waits for it after a change.
func (n *node) barrier() error {
	return n.command("ovs-vsctl", "--timeout=60", "set", "open_vswitch", ".",
		fmt.Sprintf("external_ids:x=%d", time.Now().UnixNano()))
}

// addBridge makes the bridge with the userspace datapath.
func (n *node) addBridge() error {
	return n.command("ovs-vsctl", "--timeout=60", "--may-exist", "add-br", bridge, "--",
		"set", "bridge", bridge, "datapath_type=netdev", "fail_mode=standalone")
}

// ports counts the bridge's ports in the database; a node without Open vSwitch
// has none.
func (n *node) ports() (int, error) {
	if !n.ovs {
		return 0, nil
	}
	out, err := n.output("ovs-vsctl", "--timeout=60", "list-ports", bridge)
	return len(strings.Fields(out)), err
}
