// Package inproc is what CNI plugins that run inside the agent have in common:
// a result as it stands on the wire, the part of CNI_ARGS that concerns an
// interface, the configuration of the interface inside the pod. What it leaves
// on the machine is what containernetworking/plugins v1.9.1 leave
// (ipam.ConfigureIface). It knows no kind of interface and calls no plugin.
package inproc
