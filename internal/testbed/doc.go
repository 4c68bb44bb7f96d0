// Package testbed makes a whole node for one test: a network namespace, a
// mount namespace with /run, /etc, /opt and /var/lib of its own, an Open
// vSwitch that runs inside, the agent and the plugin as real processes, pods
// as named network namespaces, and a namespace that stands for the world
// outside. Nodes share nothing, so tests may run beside each other, and paths
// such as /run/fairlead or /var/lib/cni mean the node's own.
//
// Nodes that are to reach each other join an Underlay.
//
// A node can lose parts (the agent, ovsdb-server, ovs-vswitchd, conf.db) and
// can be rebooted: the disk stays, all else is new, the boot id too. What it
// holds is read with ip, tc, nft and ovs-vsctl only and compared as an
// Inventory. When the test ends, everything goes; whatever the test or the
// product left running fails it.
//
// The package knows the product only as programs, sockets and files: it
// imports none of its packages but the wire types in api.
package testbed
