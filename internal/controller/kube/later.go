package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/lib/retry"
)

// Pauses after a write that failed: the first, and the longest but for a quarter.
const (
	firstPause = time.Second
	mostPause  = time.Minute
)

// bare is what is kept of an object of such a kind.
type bare struct {
	generation int64
	conditions []any // whole, since others' have keys that are not known here
}

func readBare(u *unstructured.Unstructured) bare {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions") // what is no list is replaced
	return bare{u.GetGeneration(), conditions}
}

// laterKey names an object of such a kind.
type laterKey struct {
	plural string
	name   cache.ObjectName
}

// TellLater tells the objects of which nobody carries out anything that this is so, by
// condition NotImplemented, until ctx ends. A kind that is not installed has no
// objects, and is followed when it comes. Who leads calls it.
func (c *Cluster) TellLater(ctx context.Context) error {
	queue := retry.NewQueue[laterKey](firstPause, mostPause)
	all := map[string]reader{}
	for _, k := range v1.Later() {
		all[k.Plural] = custom(c.clients, k.Resource(), readBare)
		if err := c.followLater(all[k.Plural], k, queue); err != nil {
			return fmt.Errorf("follow %s objects: %w", k.Kind, err)
		}
	}
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Go(func() { r.RunWithContext(ctx) })
	}
	queue.Run(ctx, 1, func(ctx context.Context, k laterKey) error { return c.tellBare(ctx, all[k.plural].GetStore(), k) })
	wg.Wait()
	return nil
}

// followLater has objects of a kind told that come or change.
func (c *Cluster) followLater(r reader, k v1.LaterKind, queue *retry.Queue[laterKey]) error {
	if err := r.SetTransform(r.keep); err != nil {
		return err
	}
	err := r.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		if !apierrors.IsNotFound(err) {
			c.failed(object.Kind(k.Kind), err)
		}
	})
	if err != nil {
		return err
	}
	news := func(o any) {
		if name, err := cache.ObjectToName(o); err == nil {
			queue.Add(laterKey{k.Plural, name})
		}
	}
	_, err = r.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: news, UpdateFunc: func(_, now any) { news(now) }})
	return err
}

// tellBare writes an object's condition, if it has another one. The API server refuses
// that where the object is not as it is known, whose news comes here again.
func (c *Cluster) tellBare(ctx context.Context, from cache.Store, k laterKey) error {
	found, exists, err := from.GetByKey(k.name.String())
	o, ok := found.(*item[bare])
	if err != nil || !exists || !ok {
		return err
	}
	conditions, news := status.WithNothing(o.value.conditions, o.value.generation)
	if !news {
		return nil
	}
	text, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion}, "status": map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("condition of %s %s: %w", k.plural, k.name, err)
	}
	_, err = c.meta.Resource(v1.GroupVersion.WithResource(k.plural)).Namespace(k.name.Namespace).
		Patch(ctx, k.name.Name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: manager}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("condition of %s %s: %w", k.plural, k.name, err)
	}
	return nil
}
