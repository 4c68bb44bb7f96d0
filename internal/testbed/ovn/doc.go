// Package ovn adds real OVN to nodes of package testbed: central (the
// northbound and the southbound database and ovn-northd) on one, a chassis
// (ovn-controller) on each of the others (spec/testbed.md, 1). It knows the
// product not at all, and reads what is true with ovn-nbctl, ovn-sbctl and
// ovs-vsctl.
package ovn
