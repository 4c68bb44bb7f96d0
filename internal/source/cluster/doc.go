// Package cluster is a resolve.Source over the Kubernetes API, and all that the
// agent writes to it: the pods' network-status, conditions and events, and the
// request for the node's own client certificate. It is the agent's only user of
// client-go.
//
// Reading is watching: the pods of this node (their metadata only), the
// NetworkAttachmentDefinitions, Subnets and Vlans are kept in memory, so that
// an ADD reads nothing. What the memory does not have is awaited, and asked for
// once before it is called absent.
//
// The node's ResourceSlices are followed too, from the first pod on whose network
// wants a device that a DRA driver allocated.
//
// Which NetworkPolicies select a pod is asked for, where somebody wants to know.
//
// Rights it needs: get, list, watch of pods and network-attachment-definitions;
// list of networkpolicies; list, watch of nodes, subnets, vlans and resourceslices (resource.k8s.io);
// patch of pods/status and nodes/status;
// create of events (events.k8s.io); with a per-node certificate also create, get,
// list, watch of certificatesigningrequests. Package identity needs those too, and get,
// list, watch of one ConfigMap; an agent with OVN the same of one Lease.
//
// It decides nothing about a pod (resolve's work) and knows no kernel.
package cluster
