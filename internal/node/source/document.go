package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead/fairlead/internal/yamldoc"
)

// document is one YAML document, or JSON, of a file. The values are read as
// kubelet reads them (YAML 1.1, sigs.k8s.io/yaml); another parser only knows
// where things stand.
type document struct {
	yamldoc.Chunk
	index yamldoc.Index
}

// split cuts a file into its documents and leaves out empty ones.
func split(data []byte) []document {
	var full []document
	for _, c := range yamldoc.Split(data) {
		if !c.Empty() {
			full = append(full, document{Chunk: c, index: yamldoc.Index{Base: c.Line}})
		}
	}
	return full
}

// fault is a Problem that does not know its file yet.
type fault struct {
	line   int
	reason string
	unsafe bool // an unknown field without which a pod must not run
}

func (f fault) Error() string { return fmt.Sprintf("line %d: %s", f.line, f.reason) }

// json turns the document into JSON.
func (d *document) json() ([]byte, error) {
	raw, err := d.JSON()
	if err != nil {
		return nil, d.syntax(err)
	}
	var node yaml.Node
	if yaml.Unmarshal(d.Text, &node) == nil && len(node.Content) == 1 {
		d.index.Root = node.Content[0]
	}
	return raw, nil
}

func (d *document) syntax(err error) error {
	line, reason := d.Syntax(err)
	return fault{line: line, reason: reason}
}

// lineOf is where the field of a path stands, or the nearest one above it.
func (d *document) lineOf(path string) int { return d.index.LineOf(path) }

// raw is one object of a document and its path there, "" for the whole.
type raw struct {
	path string
	json []byte
}

// wrong is an object of a document that is no pod of ours, and why.
type wrong struct {
	raw
	err error
}

// name is the one that the object's pod has on the node, as far as the object
// tells; "" when it does not.
func (r raw) name(at origin) string {
	var o struct {
		metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(r.json, &o); err != nil || o.Name == "" {
		return ""
	}
	pod := &v1.Pod{ObjectMeta: o.ObjectMeta}
	makeStatic(pod, at)
	return nameOf(pod)
}

// objects lists the pods of a document, which is one or a list of them, and what
// is wrong there. Objects of other kinds are left out if others take care of them.
func (d *document) objects(s Static) ([]raw, []wrong) {
	text, err := d.json()
	if err != nil {
		return nil, []wrong{{err: err}}
	}
	whole := raw{json: text}
	var head metav1.TypeMeta
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, []wrong{{whole, fault{line: d.Line, reason: "not an object: " + jsonReason(err)}}}
	}
	if head.Kind != "PodList" && head.Kind != "List" {
		return d.sort([]raw{whole}, head, s)
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &list); err != nil {
		return nil, []wrong{{err: fault{line: d.Line, reason: jsonReason(err)}}}
	}
	if head.APIVersion != "v1" {
		return nil, []wrong{{err: fault{line: d.lineOf("apiVersion"), reason: fmt.Sprintf("apiVersion %q: want v1", head.APIVersion)}}}
	}
	var items []raw
	for i, item := range list.Items {
		items = append(items, raw{path: fmt.Sprintf("items[%d]", i), json: item})
	}
	return d.sort(items, metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, s) // a PodList's items need not say it
}

// sort takes pods out of objects, and says which of the others are nobody's. head
// is of an object that does not tell its kind.
func (d *document) sort(all []raw, head metav1.TypeMeta, s Static) (pods []raw, bad []wrong) {
	for _, r := range all {
		h := head
		if err := json.Unmarshal(r.json, &h); err != nil {
			bad = append(bad, wrong{r, fault{line: d.lineOf(r.path), reason: "not an object: " + jsonReason(err)}})
			continue
		}
		switch mine, err := d.mine(h, r.path, s); {
		case err != nil:
			bad = append(bad, wrong{r, err})
		case mine:
			pods = append(pods, r)
		}
	}
	return pods, bad
}

// mine tells a pod from an object that is somebody else's.
func (d *document) mine(h metav1.TypeMeta, path string, s Static) (bool, error) {
	switch {
	case h.Kind == "Pod" && h.APIVersion == "v1":
		return true, nil
	case s.Objects && (h.Kind == "ConfigMap" || h.Kind == "Secret") && h.APIVersion == "v1":
		return false, nil
	case s.Shared && agents(h):
		return false, nil
	}
	return false, fault{line: d.lineOf(path), reason: fmt.Sprintf("kind %q of apiVersion %q: want Pod of v1", h.Kind, h.APIVersion)}
}

// agents tells the kinds of which the agent takes care, which refuses them
// itself where they are wrong.
func agents(h metav1.TypeMeta) bool {
	switch h.Kind {
	case "NetworkAttachmentDefinition":
		return h.APIVersion == "k8s.cni.cncf.io/v1"
	case "Subnet", "Vlan", "ProviderNetwork":
		return h.APIVersion == "kubeovn.io/v1"
	}
	return false
}

// decode reads a pod; the strings are fields that it does not have.
func (d *document) decode(r raw) (*v1.Pod, []fault, error) {
	pod := &v1.Pod{}
	strict, err := kjson.UnmarshalStrict(r.json, pod)
	if err != nil {
		path := ""
		if te := (*json.UnmarshalTypeError)(nil); errors.As(err, &te) {
			path = te.Field
		}
		return nil, nil, fault{line: d.lineOf(r.path + "." + path), reason: jsonReason(err)}
	}
	pod.TypeMeta = metav1.TypeMeta{}
	var unknown []fault
	for _, e := range strict {
		path := ""
		if fe := (kjson.FieldError)(nil); errors.As(e, &fe) {
			path = fe.FieldPath()
		}
		unknown = append(unknown, fault{line: d.lineOf(r.path + "." + path), reason: e.Error(), unsafe: guards(path)})
	}
	return pod, unknown, nil
}

// guards tells an unknown field that looks like one by which a container gets less
// rights, misspelt or newer than this version: it is refused, others are told.
func guards(path string) bool {
	path = strings.ToLower(path)
	return slices.ContainsFunc([]string{"secur", "hostuser", "seccomp", "apparmor", "privilegeescal"}, func(word string) bool {
		return strings.Contains(path, word)
	})
}

// jsonReason says a decoding error without the words of the library.
func jsonReason(err error) string {
	if te := (*json.UnmarshalTypeError)(nil); errors.As(err, &te) {
		return fmt.Sprintf("%s: want %s, got %s", te.Field, te.Type, te.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
