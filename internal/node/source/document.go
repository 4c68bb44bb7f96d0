package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"
)

// document is one YAML document, or JSON, of a file.
type document struct {
	text  []byte
	line  int        // of its first line in the file, from 1
	index *yaml.Node // for line numbers; nil where it cannot be had
}

// split cuts a file at the lines that separate documents and leaves out empty
// ones. The values are read as kubelet reads them (YAML 1.1, sigs.k8s.io/yaml);
// the second parser only knows where things stand.
func split(data []byte) []document {
	var out []document
	cur := document{line: 1}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if bytes.HasPrefix(text, []byte("---")) && (len(text) == 3 || strings.IndexByte(" \t\r\n", text[3]) >= 0) {
			out = append(out, cur)
			// The marker's line stays, with what may stand behind it.
			cur = document{line: line}
		}
		cur.text = append(cur.text, text...)
	}
	out = append(out, cur)
	full := out[:0]
	for _, d := range out {
		if !d.empty() {
			full = append(full, d)
		}
	}
	return full
}

// empty tells that there is nothing but comments.
func (d *document) empty() bool {
	for text := range bytes.Lines(d.text) {
		text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("---")))
		if len(text) > 0 && text[0] != '#' {
			return false
		}
	}
	return true
}

// fault is a Problem that does not know its file yet.
type fault struct {
	line   int
	reason string
}

func (f fault) Error() string { return fmt.Sprintf("line %d: %s", f.line, f.reason) }

// yamlLine finds the line that the parser names only in its text.
var yamlLine = regexp.MustCompile(`(?:error converting YAML to JSON: )?yaml: (?:line (\d+): )?(?s:(.*))$`)

// json turns the document into JSON. What begins with a brace is JSON for
// kubelet; the agent takes it for YAML of the short form as well.
func (d *document) json(s Static) ([]byte, error) {
	raw := bytes.TrimSpace(d.text)
	if !bytes.HasPrefix(raw, []byte("{")) || s.Shared && !json.Valid(raw) {
		var err error
		if raw, err = kyaml.YAMLToJSON(d.text); err != nil {
			return nil, d.syntax(err)
		}
	}
	var node yaml.Node
	if yaml.Unmarshal(d.text, &node) == nil && len(node.Content) == 1 {
		d.index = node.Content[0]
	}
	return raw, nil
}

func (d *document) syntax(err error) error {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return fault{d.line, "not YAML: " + err.Error()}
	}
	line, convErr := strconv.Atoi(m[1])
	if convErr != nil {
		line = 1
	}
	return fault{d.line + line - 1, "not YAML: " + m[2]}
}

// lineOf is where the field of a path like "spec.containers[1].image" stands,
// or the nearest one above it that is there.
func (d *document) lineOf(path string) int {
	n, line := d.index, d.line
	if n != nil {
		line = d.line + n.Line - 1
	}
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		next, at := child(n, step)
		if next == nil {
			break
		}
		n, line = next, d.line+at-1
	}
	return line
}

// child finds a mapping's value by key or a sequence's element by number, and
// the line to name for it.
func child(n *yaml.Node, step string) (*yaml.Node, int) {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n == nil:
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	case n.Kind == yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
	}
	return nil, 0
}

// raw is one object of a document and its path there, "" for the whole.
type raw struct {
	path string
	json []byte
}

// objects lists the pods of a document, which is one or a list of them.
// Objects of other kinds are left out if others take care of them.
func (d *document) objects(s Static) ([]raw, error) {
	text, err := d.json(s)
	if err != nil {
		return nil, err
	}
	var head metav1.TypeMeta
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fault{d.line, "not an object: " + jsonReason(err)}
	}
	if head.Kind != "PodList" && head.Kind != "List" {
		mine, err := d.mine(head, "", s)
		if !mine {
			return nil, err
		}
		return []raw{{json: text}}, nil
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &list); err != nil {
		return nil, fault{d.line, jsonReason(err)}
	}
	if head.APIVersion != "v1" {
		return nil, fault{d.lineOf("apiVersion"), fmt.Sprintf("apiVersion %q: want v1", head.APIVersion)}
	}
	var out []raw
	for i, item := range list.Items {
		r := raw{path: fmt.Sprintf("items[%d]", i), json: item}
		h := metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"} // a PodList's items need not say it
		if err := json.Unmarshal(item, &h); err != nil {
			return nil, fault{d.lineOf(r.path), "not an object: " + jsonReason(err)}
		}
		mine, err := d.mine(h, r.path, s)
		if err != nil {
			return nil, err
		}
		if mine {
			out = append(out, r)
		}
	}
	return out, nil
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
	return false, fault{d.lineOf(path), fmt.Sprintf("kind %q of apiVersion %q: want Pod of v1", h.Kind, h.APIVersion)}
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
		return nil, nil, fault{d.lineOf(r.path + "." + path), jsonReason(err)}
	}
	pod.TypeMeta = metav1.TypeMeta{}
	var unknown []fault
	for _, e := range strict {
		path := ""
		if fe := (kjson.FieldError)(nil); errors.As(e, &fe) {
			path = fe.FieldPath()
		}
		unknown = append(unknown, fault{d.lineOf(r.path + "." + path), e.Error()})
	}
	return pod, unknown, nil
}

// jsonReason says a decoding error without the words of the library.
func jsonReason(err error) string {
	if te := (*json.UnmarshalTypeError)(nil); errors.As(err, &te) {
		return fmt.Sprintf("%s: want %s, got %s", te.Field, te.Type, te.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
