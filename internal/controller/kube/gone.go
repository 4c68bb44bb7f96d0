package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/controller/object"
)

// gone implements controller.Readers.Gone. What it asks is answered by etcd, not by a
// cache of the API server.
func (c *Cluster) gone(ctx context.Context, k object.Key) (bool, error) {
	what := services
	switch k.Kind {
	case object.KindNode:
		what = nodes
	case object.KindPolicy:
		what = policies
	case object.KindGroup:
		what = groups
	case object.KindVip:
		what = vips
	}
	_, err := c.meta.Resource(what).Namespace(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read %s: %w", k, err)
	}
	return false, nil
}
