// Package manifest makes the Kubernetes objects of an installation from the
// Helm chart that the binary carries (package deploy) and from values. It is
// what `fairlead install` prints and applies where Helm is not wanted, and it
// must give the same objects as Helm does (test/chart compares). It speaks to
// no API server.
package manifest

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/deploy"
)

// Object is one Kubernetes object as JSON would hold it.
type Object map[string]any

// Kind is the object's kind.
func (o Object) Kind() string { return text(o["kind"]) }

// APIVersion is group and version, "v1" for the core group.
func (o Object) APIVersion() string { return text(o["apiVersion"]) }

// Name is the object's name.
func (o Object) Name() string { return text(o.meta()["name"]) }

// Namespace is "" for an object of the whole cluster.
func (o Object) Namespace() string { return text(o.meta()["namespace"]) }

// String is KIND NAMESPACE/NAME, for messages.
func (o Object) String() string {
	if ns := o.Namespace(); ns != "" {
		return o.Kind() + " " + ns + "/" + o.Name()
	}
	return o.Kind() + " " + o.Name()
}

// Keeps tells that the object stays when the installation goes: what is in it is not
// the installation's.
func (o Object) Keeps() bool {
	notes, _ := o.meta()["annotations"].(map[string]any)
	return notes["helm.sh/resource-policy"] == "keep"
}

func (o Object) meta() map[string]any {
	m, _ := o["metadata"].(map[string]any)
	return m
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// order is that of creation: what others need comes first.
var order = []string{
	"CustomResourceDefinition", "ServiceAccount", "Secret", "ConfigMap", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "DaemonSet", "Deployment", "Subnet",
}

// Order are the kinds that Render can give, in the order in which they are to
// be created.
func Order() []string { return slices.Clone(order) }

// CRDs are the chart's definitions, and with OVN those of the kinds that its
// controller knows, by name.
func CRDs(v Values) ([]Object, error) {
	var out []Object
	take := func(name string, b []byte) error {
		objects, err := split(name, b)
		out = append(out, objects...)
		return err
	}
	err := each(deploy.Chart, deploy.ChartDir, "crds", take)
	if err == nil && v.ovn() != nil {
		err = each(deploy.Kinds, ".", deploy.KindsDir, take)
	}
	return out, err
}

// Render gives the chart's objects for the values, without the CRDs, in the
// order in which they are to be created.
func Render(v Values) ([]Object, error) {
	r, err := newRenderer(v)
	if err != nil {
		return nil, err
	}
	var out []Object
	err = each(deploy.Chart, deploy.ChartDir, "templates", func(name string, b []byte) error {
		if path.Ext(name) != ".yaml" {
			return nil
		}
		made, err := r.render(name)
		if err != nil {
			return err
		}
		objects, err := split(name, made)
		out = append(out, objects...)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, o := range out {
		if !slices.Contains(order, o.Kind()) {
			return nil, fmt.Errorf("%s: its kind has no place in the order of creation", o)
		}
	}
	slices.SortStableFunc(out, func(a, b Object) int {
		return cmp.Compare(slices.Index(order, a.Kind()), slices.Index(order, b.Kind()))
	})
	return out, nil
}

// YAML prints objects as one stream of documents.
func YAML(objects []Object) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objects {
		b, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("print %s: %w", o, err)
		}
		out.WriteString("---\n")
		out.Write(b)
	}
	return out.Bytes(), nil
}

// each reads the files of one folder below root, by name.
func each(files fs.FS, root, folder string, do func(name string, b []byte) error) error {
	dir := path.Join(root, folder)
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return fmt.Errorf("read chart: %w", err)
	}
	for _, e := range entries {
		b, err := fs.ReadFile(files, path.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("read chart: %w", err)
		}
		if err := do(path.Join(folder, e.Name()), b); err != nil {
			return err
		}
	}
	return nil
}

// split reads a stream of documents; empty ones, as a template gives whose
// objects are switched off, are left out.
func split(name string, b []byte) ([]Object, error) {
	var out []Object
	for _, doc := range strings.Split("\n"+string(b), "\n---") {
		var o Object
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(o) == 0 {
			continue
		}
		if o.Kind() == "" || o.APIVersion() == "" || o.Name() == "" {
			return nil, fmt.Errorf("%s: an object without kind, apiVersion or name", name)
		}
		out = append(out, o)
	}
	return out, nil
}
