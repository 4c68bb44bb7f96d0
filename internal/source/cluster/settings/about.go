package settings

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/source/cluster/event"
)

// About is the object of a declaration's source, for events; without a UID where it is
// not known any more.
func (s *Source) About(source string) event.Regarding {
	kind, namespace, name := declared.Object(source)
	out := event.Regarding{APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name}
	if kind == "PodNetwork" {
		out.APIVersion = v1alpha1.APIVersion
	}
	now := s.now.Load()
	if now == nil {
		return out
	}
	f := now.networks
	if kind != "PodNetwork" {
		f = now.maps[namespace]
	}
	if f.store == nil {
		return out
	}
	if o, ok, _ := f.store.GetByKey(namespace + "/" + name); ok {
		if m, ok := o.(metav1.Object); ok {
			out.UID = string(m.GetUID())
		}
	}
	return out
}
