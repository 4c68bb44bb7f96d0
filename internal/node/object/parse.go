package object

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/internal/source/folder"
)

// understand reads the ConfigMaps and Secrets of a file; other kinds are somebody
// else's. One that is wrong leaves the others alone, and is as it was before.
func understand(file *folder.File, objects []*folder.Object, before *version) *version {
	out := &version{from: file}
	now, refused := map[folder.ID]bool{}, map[folder.ID]bool{}
	for _, o := range objects {
		object, err := read(o)
		if err != nil {
			refused[o.ID] = true
			out.bad = append(out.bad, o.Problem(file.Name, err))
			continue
		}
		now[o.ID] = true
		out.good = append(out.good, declared{o.ID, object, file.Name, o.Line})
	}
	if before == nil {
		return out
	}
	for _, d := range before.good {
		if !now[d.id] && (refused[d.id] || file.MayDeclare(d.id)) {
			out.good = append(out.good, d)
		}
	}
	return out
}

// read makes the object. Fields that it does not have are left out, as with pods.
func read(o *folder.Object) (metav1.Object, *folder.Fault) {
	var into metav1.Object = &v1.ConfigMap{}
	if o.ID.Kind == folder.Secret {
		into = &v1.Secret{}
	}
	if _, wrong := o.Decode(into); wrong != nil {
		return nil, wrong
	}
	into.SetNamespace(o.ID.Namespace)
	if err := checkKeys(into); err != nil {
		return nil, o.Faultf("", "%v", err)
	}
	return into, nil
}

// checkKeys also puts a Secret's plain text where the API server would.
func checkKeys(o metav1.Object) error {
	keys := map[string]bool{}
	switch o := o.(type) {
	case *v1.ConfigMap:
		for k := range o.Data {
			keys[k] = true
		}
		for k := range o.BinaryData {
			if keys[k] {
				return fmt.Errorf("key %s stands in data and in binaryData", k)
			}
			keys[k] = true
		}
	case *v1.Secret:
		for k, text := range o.StringData {
			if o.Data == nil {
				o.Data = map[string][]byte{}
			}
			o.Data[k] = []byte(text)
		}
		o.StringData = nil
		for k := range o.Data {
			keys[k] = true
		}
	}
	for k := range keys {
		if problems := validation.IsConfigMapKey(k); len(problems) > 0 {
			return fmt.Errorf("key %q: %s", k, problems[0])
		}
	}
	return nil
}

func refOf(o any) Ref {
	switch o := o.(type) {
	case *v1.ConfigMap:
		return Ref{ConfigMap, o.Namespace, o.Name}
	case *v1.Secret:
		return Ref{Secret, o.Namespace, o.Name}
	}
	return Ref{}
}
