package query

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/source/catalog"
)

// PodNetworks lists what PodNetworks declare, with the pods of which their status tells.
func (c *Client) PodNetworks(ctx context.Context, s Scope) (agent.PodNetworkList, error) {
	out := agent.PodNetworkList{Items: []agent.PodNetwork{}}
	err := c.Each(ctx, PodNetworks, s, func(o Object) {
		p := &v1alpha1.PodNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}}
		if err := Read(o.Spec, &p.Spec); err != nil {
			c.note(fmt.Sprintf("PodNetwork %s/%s cannot be read: %v", p.Namespace, p.Name, err))
			return
		}
		_ = Read(o.Status, &p.Status) // of a status that cannot be read no pods are told
		item := catalog.PodNetwork(p)
		item.Conditions = conditions(o)
		for _, n := range p.Status.Nodes {
			for _, pod := range n.Pods {
				item.Pods = append(item.Pods, agent.PodNetworkPod{Name: pod.Name, Node: n.Name, Reason: pod.Reason, Message: pod.Message})
			}
		}
		out.Items = append(out.Items, item)
	})
	if isNotFound(err) {
		err = nil // the kind is not served: there is none
	}
	return out, err
}
