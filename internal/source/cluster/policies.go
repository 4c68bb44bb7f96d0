package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/internal/core"
)

var policyResource = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}

// policies is what is read of a list of NetworkPolicies.
type policies struct {
	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			PodSelector metav1.LabelSelector `json:"podSelector"`
		} `json:"spec"`
	} `json:"items"`
}

// Policies are the names of the NetworkPolicies that select a pod, as the server has both
// now.
func (s *Source) Policies(ctx context.Context, pod core.Pod) (out []string, err error) {
	found, err := ask(ctx, s, func(ctx context.Context, c *clients) (*metav1.PartialObjectMetadata, error) {
		return c.pod(ctx, idOf(pod))
	})
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod, err)
	}
	raw, err := ask(ctx, s, func(ctx context.Context, c *clients) ([]byte, error) {
		return c.objects.Get().AbsPath(path(policyResource, pod.Namespace)...).Do(ctx).Raw()
	})
	if err != nil {
		return nil, fmt.Errorf("NetworkPolicies of namespace %s: %w", pod.Namespace, err)
	}
	var list policies
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("NetworkPolicies of namespace %s: %w", pod.Namespace, err)
	}
	for _, p := range list.Items {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err == nil && selector.Matches(labels.Set(found.Labels)) {
			out = append(out, p.Metadata.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}
