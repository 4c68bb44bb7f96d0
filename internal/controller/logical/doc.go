// Package logical says which rows of OVN's northbound database follow from
// Fairlead's objects: a router for each Vpc, a switch for each Subnet, ports
// for nodes and pods (sdn.md, 11). It is pure: objects and addresses in, Sets
// of rows out, the same for the same input, and it knows neither where objects
// come from nor who writes the rows.
//
// Names of switches, routers and ports are the reference's, byte for byte. They
// may collide (Subnet "a-b" of Vpc "c" and Subnet "a" of Vpc "b-c"): the second
// one's Set is refused with ovn.TakenError then, and nothing is overwritten.
package logical
