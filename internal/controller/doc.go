// Package controller makes OVN's northbound database and the addresses of pods
// follow the objects of a cluster: a reconciler for each of Vpcs, Subnets, nodes
// and pods reads what should be through Readers, applies rows in fenced
// transactions, and tells what came of it through Outcomes. A pod is told its
// address only after the row is in the database, and an address is free again
// only after its row is gone.
//
// It must not know where objects are stored (internal/controller/kube does), nor
// anything of a node's own.
package controller
