package declarations

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
)

// next is the status of an object in which this node's element is that of own, and false
// where it is that already. Elements of nodes that are gone are left out.
func next(o *v1alpha1.PodNetwork, node string, own []v1alpha1.PodNetworkPod, there func(node string) bool) (v1alpha1.PodNetworkStatus, bool) {
	out := *o.Status.DeepCopy()
	at := slices.IndexFunc(out.Nodes, func(n v1alpha1.PodNetworkNode) bool { return n.Name == node })
	if at < 0 && len(own) == 0 {
		return out, false // it is others' to say
	}
	out.Nodes = slices.DeleteFunc(out.Nodes, func(n v1alpha1.PodNetworkNode) bool { return n.Name == node || !there(n.Name) })
	if len(own) > 0 {
		slices.SortFunc(own, func(a, b v1alpha1.PodNetworkPod) int { return cmp.Compare(a.Name, b.Name) })
		out.Nodes = append(out.Nodes, v1alpha1.PodNetworkNode{Name: node, ObservedGeneration: o.Generation, Pods: own})
	}
	slices.SortFunc(out.Nodes, func(a, b v1alpha1.PodNetworkNode) int { return cmp.Compare(a.Name, b.Name) })
	out.ObservedGeneration = o.Generation
	conclude(&out)
	return out, !equality.Semantic.DeepEqual(out, o.Status)
}

// conclude makes the conditions of what all nodes say.
func conclude(s *v1alpha1.PodNetworkStatus) {
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNoPod, Message: "no node has a pod of it"}
	restart := metav1.Condition{Type: v1alpha1.ConditionRestartNeeded, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonApplied}
	for _, n := range s.Nodes {
		for _, p := range n.Pods {
			said := fmt.Sprintf("pod %s on node %s: %s", p.Name, n.Name, p.Message)
			switch {
			case p.Reason != v1alpha1.ReasonApplied && ready.Status != metav1.ConditionFalse:
				ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, p.Reason, said
			case ready.Status == metav1.ConditionUnknown:
				ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, v1alpha1.ReasonApplied, ""
			}
			if p.Reason == v1alpha1.ReasonRestartNeeded && restart.Status == metav1.ConditionFalse {
				restart.Status, restart.Reason, restart.Message = metav1.ConditionTrue, p.Reason, said
			}
		}
	}
	for _, c := range []metav1.Condition{ready, restart} {
		c.ObservedGeneration = s.ObservedGeneration
		meta.SetStatusCondition(&s.Conditions, c)
	}
}
