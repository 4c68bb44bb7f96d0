// Package ovn writes OVN's northbound database for the controller. An owner
// (a Subnet, a pod, a Service) says as one value, a Set, which rows it wants;
// Apply compares that with the rows that carry the owner's mark and writes the
// difference as one transaction. Rows without our mark are never touched, and
// nothing is deleted to be made again.
//
// Of two controllers that both believe they lead only one can write: who leads
// takes the database (Take), which raises an epoch in it, and each transaction
// fails whole unless that epoch still stands.
//
// The package knows tables and references and nothing of what they are for: no
// pod, no Subnet, no address plan. It needs no Kubernetes.
package ovn
