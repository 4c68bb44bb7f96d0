// Package hostport opens ports of the node for pods: one nftables table sends
// what comes to (protocol, address, port) of the node on to a pod, by hash maps,
// so that neither a packet nor a change takes longer where there are many pods.
// Desired are the ports of all pods; each change writes the difference in one
// transaction, and a table that somebody has spoilt is written anew as a whole.
// Connections that are older than a change are forgotten by the kernel. The
// package knows pods by their Specs and nothing of switches and journals.
package hostport
