package core

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
