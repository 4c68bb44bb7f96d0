package status

import (
	"cmp"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// Reasons of a node's condition on a ProviderNetwork (sdn.md, section 7).
const (
	BridgeMade   = "InitOVSBridgeSucceeded"
	BridgeFailed = "InitOVSBridgeFailed"
	BridgeUnsaid = "InitOVSBridgePending"
)

// ProviderNode is what a Node says of the provider networks: its labels and annotations.
type ProviderNode struct {
	Name          string
	Labels, Notes map[string]string
}

// Provider is the status of a ProviderNetwork: on which nodes it is, on which it should be
// and is not, and why. A node whose agent has said nothing is not ready. What is no node's is
// said with none.
func Provider(o *v1.ProviderNetwork, nodes []ProviderNode, vlans []*v1.Vlan) v1.ProviderNetworkStatus {
	key := o.Name + ".provider-network.kubernetes.io/"
	var s v1.ProviderNetworkStatus
	for _, n := range slices.SortedFunc(slices.Values(nodes), func(a, b ProviderNode) int { return strings.Compare(a.Name, b.Name) }) {
		if n.Labels[key+"exclude"] == "true" || slices.Contains(o.Spec.ExcludeNodes, n.Name) {
			continue
		}
		c := v1.Condition{Type: "Ready", Status: "Unknown", Reason: BridgeUnsaid, Message: "the node's agent has not said anything of it", ObservedGeneration: o.Generation}
		switch why := n.Notes[key+"err_mesg"]; {
		case why != "":
			c.Status, c.Reason, c.Message = "False", BridgeFailed, why
		case n.Labels[key+"ready"] == "true":
			c.Status, c.Reason, c.Message = "True", BridgeMade, ""
		}
		if c.Status == "True" {
			s.ReadyNodes = append(s.ReadyNodes, n.Name)
		} else {
			s.NotReadyNodes = append(s.NotReadyNodes, n.Name)
		}
		s.Conditions = append(s.Conditions, nodeCondition(o.Status.Conditions, n.Name, c))
	}
	if o.Spec.Unknown != "" {
		s.Conditions = append(s.Conditions, nodeCondition(o.Status.Conditions, "", Undone(o.Generation, Unknown(o.Spec.Unknown))))
	}
	s.Ready = len(s.NotReadyNodes) == 0
	for _, v := range vlans {
		if cmp.Or(v.Spec.Provider, v.Spec.OldProvider) == o.Name {
			s.Vlans = append(s.Vlans, v.Name)
		}
	}
	slices.Sort(s.Vlans)
	return s
}

// nodeCondition dates a node's condition after the one that the object has.
func nodeCondition(all []v1.NodeCondition, node string, c v1.Condition) v1.NodeCondition {
	var have []v1.Condition
	for _, h := range all {
		if h.Node == node {
			have = append(have, h.Condition)
		}
	}
	dated, _ := Merge(have, []v1.Condition{c})
	return v1.NodeCondition{Node: node, Condition: dated[0]}
}
