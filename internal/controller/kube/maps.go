package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Maps is object.Maps.
func (c *Cluster) Maps(ctx context.Context, changed func()) func() (map[string]object.Map, bool) {
	stores, news := map[cache.Store]cache.InformerSynced{}, func(any) { changed() }
	for _, name := range []string{declare.ConfigExternal, declare.ConfigInterconnect} {
		only := cache.NewListWatchFromClient(c.core.CoreV1().RESTClient(), "configmaps", declare.ConfigNamespace, fields.OneTermEqualSelector("metadata.name", name))
		store, control := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: only, ObjectType: &corev1.ConfigMap{},
			Handler: cache.ResourceEventHandlerFuncs{AddFunc: news, UpdateFunc: func(_, now any) { news(now) }, DeleteFunc: news}})
		go control.RunWithContext(ctx)
		stores[store] = control.HasSynced
	}
	return func() (map[string]object.Map, bool) {
		out, known := map[string]object.Map{}, true
		for store, all := range stores {
			known = known && all()
			for _, o := range store.List() {
				m, _ := o.(*corev1.ConfigMap)
				out[m.Name] = object.Map{Name: m.Name, UID: string(m.UID), Data: m.Data}
			}
		}
		return out, known
	}
}
