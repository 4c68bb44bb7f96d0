package object

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"syscall"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead/fairlead/internal/yamldoc"
)

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode, s.changed = st.Ino, st.Ctim.Nano()
	}
	return s
}

// parse reads the ConfigMaps and Secrets of a file; other kinds are somebody
// else's. It is all or nothing, as with pods.
func parse(data []byte) ([]any, error) {
	var out []any
	n := 0
	for _, doc := range yamldoc.Split(data) {
		if doc.Empty() {
			continue
		}
		n++
		text, err := doc.JSON()
		if err == nil {
			err = objects(text, &out)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
	return out, nil
}

// objects adds those of one document.
func objects(text []byte, out *[]any) error {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Items           []json.RawMessage `json:"items"`
	}
	if bytes.Equal(bytes.TrimSpace(text), []byte("null")) {
		return nil
	}
	if err := json.Unmarshal(text, &head); err != nil || head.APIVersion != "v1" {
		return nil //nolint:nilerr // no object of ours; the pods' source says what is wrong with it
	}
	switch head.Kind {
	case "ConfigMap":
		return one(text, &v1.ConfigMap{}, out)
	case "Secret":
		return one(text, &v1.Secret{}, out)
	case "List", "ConfigMapList", "SecretList":
		for i, item := range head.Items {
			if err := objects(item, out); err != nil {
				return fmt.Errorf("items[%d]: %w", i, err)
			}
		}
	}
	return nil
}

func one(text []byte, into metav1.Object, out *[]any) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, into); err != nil {
		return err
	}
	if into.GetNamespace() == "" {
		into.SetNamespace(v1.NamespaceDefault)
	}
	if problems := validation.IsDNS1123Subdomain(into.GetName()); len(problems) > 0 {
		return fmt.Errorf("metadata.name %q: %s", into.GetName(), problems[0])
	}
	if err := checkKeys(into); err != nil {
		return fmt.Errorf("%s: %w", refOf(into), err)
	}
	*out = append(*out, into)
	return nil
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
