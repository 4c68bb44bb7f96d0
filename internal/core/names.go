package core

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Names of the drivers: what a Spec's Driver says, and with it the journal, the
// metrics and the operator's API. A driver that is added gets its name here.
const (
	DriverOVS       = "ovs"       // NICs that are ports of an Open vSwitch bridge
	DriverExec      = "exec"      // calls of foreign plugins
	DriverDefroute  = "defroute"  // who of a pod's networks has the default route
	DriverHostport  = "hostport"  // ports of the node
	DriverDummy     = "dummy"     // NICs that lead nowhere, for tests
	DriverAddresses = "addresses" // addresses alone, on an interface that somebody else makes
)

// nicTypes are the plugin types that the agent serves itself, and the driver of the
// NICs that a network of the type gives. A driver of NICs has a row of its own.
var nicTypes = map[string]string{
	"fairlead":    DriverOVS,
	"multus":      DriverOVS,
	"multus-shim": DriverOVS,
	"kube-ovn":    DriverOVS,

	"fairlead-dummy": DriverDummy,
}

// OwnType tells the plugin types that this agent serves itself.
func OwnType(t string) bool { return nicTypes[t] != "" }

// NICDriver is the driver of the NICs of a network of an own type. Calls that name
// no type, as Kube-OVN's plugin makes them, mean ports of the switch.
func NICDriver(t string) string {
	if name := nicTypes[t]; name != "" {
		return name
	}
	return DriverOVS
}

// NodePort names a node's port in OVN's network of nodes, the iface-id of its ovn0, and
// the IP object of its address: "node-" and the node's name. A pod's port has a dot in
// its name, POD.NAMESPACE; so that no pod can have a node's, the dots of a node's name
// are hyphens, and a hash follows.
func NodePort(node string) string {
	const prefix, digits = "node-", 8
	if !strings.Contains(node, ".") {
		return prefix + node
	}
	sum := sha256.Sum256([]byte(node))
	return prefix + strings.ReplaceAll(node, ".", "-") + "-" + hex.EncodeToString(sum[:])[:digits]
}

// GatewayMAC is the MAC of the Subnet's gateway, on a node's own switch as on an OVN
// router. It follows from the name, which is the Subnet's alone in a cluster, so that
// the neighbour tables of pods stay right when the gateway is made anew, or when OVN
// takes it over. It is locally administered.
func (s Subnet) GatewayMAC() MAC {
	sum := sha256.Sum256([]byte("gateway of subnet " + s.Name))
	return MAC{0x0a, sum[27], sum[28], sum[29], sum[30], sum[31]}
}
