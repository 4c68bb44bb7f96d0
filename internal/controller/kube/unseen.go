package kube

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/internal/controller/object"
)

// write is the last write of an object.
type write struct {
	uid     string
	version string // resourceVersion that the API server answered with
}

// last is the last write of an object, unless the watches have told of it.
func (c *Cluster) last(k object.Key) (write, bool) {
	w, ok := c.unseen.Load(k)
	last, _ := w.(write)
	return last, ok
}

// known is what the watch has told of an object.
func (c *Cluster) known(k object.Key) (found any, exists bool, err error) {
	return c.all[k.Kind].GetStore().GetByKey(cache.NewObjectName(k.Namespace, k.Name).String())
}

// awaits tells that the watch has yet to tell of the last write of an object.
func (c *Cluster) awaits(o object.Object) bool {
	last, ok := c.last(o.Key)
	return ok && last.uid == o.UID && !c.knows(o.Key, last.version)
}

// wrote notes a write, unless the watch has told of it already.
func (c *Cluster) wrote(o object.Object, version string) {
	c.unseen.Store(o.Key, write{o.UID, version})
	if c.knows(o.Key, version) { // looked at last: the watch tells meanwhile
		c.unseen.Delete(o.Key)
	}
}

// knows tells that the watch has told of a version of an object or of a later
// one, or that the object is gone. A version that cannot be compared is known.
func (c *Cluster) knows(k object.Key, version string) bool {
	found, exists, err := c.known(k)
	now, ok := found.(metav1.Object)
	if err != nil || !exists || !ok {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(now.GetResourceVersion(), version)
	return err != nil || order >= 0
}

// clean has writes forgotten that the watch of a kind tells of.
func (c *Cluster) clean(kind object.Kind) error {
	told := func(o any) {
		name, err := cache.DeletionHandlingObjectToName(o)
		if err != nil {
			return
		}
		k := object.Key{Kind: kind, Namespace: name.Namespace, Name: name.Name}
		if last, ok := c.last(k); ok && c.knows(k, last.version) {
			c.unseen.Delete(k)
		}
	}
	if _, err := c.all[kind].AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: told, UpdateFunc: func(_, now any) { told(now) }, DeleteFunc: told,
	}); err != nil {
		return fmt.Errorf("follow own writes: %w", err)
	}
	return nil
}
