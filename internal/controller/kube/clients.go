package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// clients are ways to one API server.
type clients struct {
	client dynamic.Interface    // of kinds of CustomResourceDefinitions, and for what is made
	core   kubernetes.Interface // of Kubernetes' own kinds: a pod in protobuf is a fraction of the work of one in JSON
	meta   metadata.Interface   // for writes: it gives an object's metadata back, and no more
}

func connect(config *rest.Config) (to clients, err error) {
	if to.client, err = dynamic.NewForConfig(config); err != nil {
		return to, err
	}
	if to.meta, err = metadata.NewForConfig(config); err != nil {
		return to, err
	}
	short := rest.CopyConfig(config)
	short.AcceptContentTypes, short.ContentType = runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
	to.core, err = kubernetes.NewForConfig(short)
	return to, err
}

// reader is an informer, and what it keeps of an object.
type reader struct {
	cache.SharedIndexInformer
	keep cache.TransformFunc
}

// custom reads a kind of a CustomResourceDefinition.
func custom[T any](to clients, r schema.GroupVersionResource, read func(*unstructured.Unstructured) T) reader {
	return reader{dynamicinformer.NewFilteredDynamicInformer(to.client, r, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer(), keep(read)}
}

// builtin reads one of Kubernetes' own kinds.
func builtin[P interface {
	runtime.Object
	metav1.Object
}, T any](from rest.Interface, r schema.GroupVersionResource, kind P, read func(P) T) reader {
	all := cache.NewListWatchFromClient(from, r.Resource, metav1.NamespaceAll, fields.Everything())
	return reader{cache.NewSharedIndexInformer(all, kind, 0, cache.Indexers{}), keep(read)}
}

// keep has an informer keep what read makes of an object.
func keep[P metav1.Object, T any](read func(P) T) cache.TransformFunc {
	return func(o any) (any, error) {
		u, ok := o.(P)
		if !ok {
			return o, nil // it was read already
		}
		return &item[T]{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
			},
			value: read(u),
		}, nil
	}
}
