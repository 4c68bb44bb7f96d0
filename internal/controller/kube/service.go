package kube

import (
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
)

// kindSlice are the EndpointSlices, of which the controller hears as of their
// Services.
const kindSlice object.Kind = "EndpointSlice"

// byService is the index of EndpointSlices by Service.
const byService = "service"

// endpoints implements controller.Readers.Endpoints.
func (c *Cluster) endpoints(namespace, service string) (out []logical.Endpoints) {
	found, err := c.all[kindSlice].GetIndexer().ByIndex(byService, cache.NewObjectName(namespace, service).String())
	if err != nil {
		return nil // there is no such index: New makes it
	}
	for _, o := range found {
		if i, ok := o.(*item[logical.Endpoints]); ok {
			out = append(out, i.value)
		}
	}
	return out
}

// indexed is byService's value of an EndpointSlice.
func indexed(o any) ([]string, error) {
	i, ok := o.(*item[logical.Endpoints])
	if !ok || i.value.Service == "" {
		return nil, nil
	}
	return []string{cache.NewObjectName(i.value.Namespace, i.value.Service).String()}, nil
}

// serviceOf is the Service of an EndpointSlice; false for another object.
func serviceOf(o any) (object.Key, bool) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	i, ok := o.(*item[logical.Endpoints])
	if !ok {
		return object.Key{}, false
	}
	return object.Key{Kind: object.KindService, Namespace: i.value.Namespace, Name: i.value.Service}, true
}
