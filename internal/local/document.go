package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead/fairlead/internal/yamldoc"
)

// Limits of one document: far above any object that Kubernetes would store,
// low enough that a file of aliases to aliases cannot exhaust memory.
const (
	maxFile  = 16 << 20 // bytes
	maxNodes = 100_000
	maxDepth = 64
)

// fault is a Problem that does not know its file yet.
type fault struct {
	line   int
	reason string
}

func (f *fault) Error() string { return fmt.Sprintf("line %d: %s", f.line, f.reason) }

func faultf(line int, format string, args ...any) *fault {
	return &fault{line: line, reason: fmt.Sprintf(format, args...)}
}

// chunk is the text of one YAML document.
type chunk struct{ yamldoc.Chunk }

// parseYAML reads the chunk's one document; nil without a fault means that it
// is empty. Line numbers of the node are those of the chunk.
func (c chunk) parseYAML() (*yaml.Node, *fault) {
	d := yaml.NewDecoder(bytes.NewReader(c.Text))
	var doc, next yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, c.syntax(err)
	}
	if err := d.Decode(&next); err == nil { // behind "..."
		return nil, faultf(c.Line+next.Line-1, "a second document without a line \"---\" before it")
	} else if !errors.Is(err, io.EOF) {
		return nil, c.syntax(err)
	}
	if len(doc.Content) != 1 || doc.Content[0].ShortTag() == "!!null" {
		return nil, nil
	}
	return doc.Content[0], nil
}

func (c chunk) syntax(err error) *fault {
	line, reason := c.Syntax(err)
	return &fault{line, reason}
}

// tree is a document as JSON, and where in the file each field stands.
type tree struct {
	yamldoc.Index
	json []byte
}

// newTree checks what YAML allows and JSON does not: a key twice, keys that
// are no text, tags of other types.
func newTree(root *yaml.Node, base int) (*tree, *fault) {
	t := &tree{Index: yamldoc.Index{Root: root, Base: base}}
	c := converter{base: base}
	v := c.value(root, 0)
	if c.fault != nil {
		return t, c.fault
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return t, faultf(t.Line(), "cannot be written as JSON: %v", err)
	}
	t.json = raw
	return t, nil
}

// converter turns nodes into values for encoding/json; the first fault stays.
type converter struct {
	base  int
	nodes int
	fault *fault
}

func (c *converter) refuse(n *yaml.Node, format string, args ...any) any {
	if c.fault == nil {
		c.fault = faultf(c.base+n.Line-1, format, args...)
	}
	return nil
}

func (c *converter) value(n *yaml.Node, depth int) any {
	c.nodes++
	switch {
	case c.fault != nil:
		return nil
	case c.nodes > maxNodes:
		return c.refuse(n, "the document has more than %d values", maxNodes)
	case depth > maxDepth:
		return c.refuse(n, "nested deeper than %d", maxDepth)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return c.value(n.Alias, depth+1)
	case yaml.MappingNode:
		return c.mapping(n, depth)
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, e := range n.Content {
			out = append(out, c.value(e, depth+1))
		}
		return out
	}
	return c.scalar(n)
}

func (c *converter) mapping(n *yaml.Node, depth int) any {
	out := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || (k.ShortTag() != "!!str" && k.ShortTag() != "!!merge") {
			return c.refuse(k, "key %q is not text; put it in quotes", k.Value)
		}
		if k.ShortTag() == "!!merge" {
			return c.refuse(k, "merge keys (<<) are not supported")
		}
		if _, twice := out[k.Value]; twice {
			return c.refuse(k, "key %q stands twice", k.Value)
		}
		out[k.Value] = c.value(n.Content[i+1], depth+1)
	}
	return out
}

func (c *converter) scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		return n.Value
	case "!!null":
		return nil
	case "!!int", "!!float", "!!bool":
		var v any
		if err := n.Decode(&v); err != nil {
			return c.refuse(n, "%q: %v", n.Value, err)
		}
		return v
	}
	return c.refuse(n, "values of type %s are not supported", n.Tag)
}

// lineOfKey is where key stands in the mapping at path; keys may hold dots.
func (t *tree) lineOfKey(path, key string) int {
	if n, at := yamldoc.Child(t.at(path), key); n != nil {
		return t.Base + at - 1
	}
	return t.LineOf(path)
}

// at is the node of a path of plain keys, nil where there is none.
func (t *tree) at(path string) *yaml.Node {
	n := t.Root
	for _, step := range strings.Split(path, ".") {
		if n, _ = yamldoc.Child(n, step); n == nil {
			return nil
		}
	}
	return n
}

// text is the scalar at a path, "" where there is none.
func (t *tree) text(path string) string {
	if n := t.at(path); n != nil && n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		return n.Value
	}
	return ""
}

// decode fills to and reports every field that it does not know.
func (t *tree) decode(to any) []*fault {
	strict, err := kjson.UnmarshalStrict(t.json, to)
	if err != nil {
		if te := (*json.UnmarshalTypeError)(nil); errors.As(err, &te) {
			return []*fault{faultf(t.LineOf(te.Field), "%s: want %s, got %s", te.Field, te.Type, te.Value)}
		}
		return []*fault{faultf(t.Line(), "%v", err)}
	}
	var out []*fault
	for _, e := range strict {
		line := t.Line()
		if fe := (kjson.FieldError)(nil); errors.As(e, &fe) {
			line = t.LineOf(fe.FieldPath())
		}
		out = append(out, faultf(line, "%v", e))
	}
	return out
}
