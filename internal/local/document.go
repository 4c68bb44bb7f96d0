package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
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

// chunk is the text of one YAML document and the line it starts at, from 1.
type chunk struct {
	text []byte
	line int
}

// split cuts a file at its document markers, so that a syntax error in one
// document leaves the others readable. A line that starts with "---" ends a
// document even inside a block scalar (YAML 1.2, section 9.1.2).
func split(data []byte) []chunk {
	var out []chunk
	cur := chunk{line: 1}
	line := 0
	for rest := data; len(rest) > 0; {
		line++
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			end = len(rest)
		}
		text := rest[:end]
		rest = rest[end:]
		if isMarker(text) {
			out = append(out, cur)
			cur = chunk{line: line}
		}
		cur.text = append(cur.text, text...)
	}
	return append(out, cur)
}

func isMarker(line []byte) bool {
	return bytes.HasPrefix(line, []byte("---")) && (len(line) == 3 || strings.IndexByte(" \t\r\n", line[3]) >= 0)
}

// parseYAML reads the chunk's one document; nil without a fault means that it
// is empty. Line numbers of the node are those of the chunk.
func (c chunk) parseYAML() (*yaml.Node, *fault) {
	d := yaml.NewDecoder(bytes.NewReader(c.text))
	var doc, next yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, c.syntax(err)
	}
	if err := d.Decode(&next); err == nil { // behind "..."
		return nil, faultf(c.line+next.Line-1, "a second document without a line \"---\" before it")
	} else if !errors.Is(err, io.EOF) {
		return nil, c.syntax(err)
	}
	if len(doc.Content) != 1 || doc.Content[0].ShortTag() == "!!null" {
		return nil, nil
	}
	return doc.Content[0], nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// syntax turns the parser's error into a fault. The parser tells the line only
// in its text.
func (c chunk) syntax(err error) *fault {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return faultf(c.line, "not YAML: %v", err)
	}
	line, convErr := strconv.Atoi(m[1])
	if convErr != nil {
		line = 1
	}
	return faultf(c.line+line-1, "not YAML: %s", m[2])
}

// tree is a document as JSON, and where in the file each field stands.
type tree struct {
	root *yaml.Node
	base int // line of the chunk
	json []byte
}

// newTree checks what YAML allows and JSON does not: a key twice, keys that
// are no text, tags of other types.
func newTree(root *yaml.Node, base int) (*tree, *fault) {
	t := &tree{root: root, base: base}
	c := converter{base: base}
	v := c.value(root, 0)
	if c.fault != nil {
		return t, c.fault
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return t, faultf(t.line(), "cannot be written as JSON: %v", err)
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

// line is where the document starts.
func (t *tree) line() int { return t.base + t.root.Line - 1 }

// lineOf is where the field of a path like "spec.excludeIps[1]" stands, or the
// nearest field above it that is there.
func (t *tree) lineOf(path string) int {
	n, line := t.root, t.line()
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		next, at := child(n, step)
		if next == nil {
			break
		}
		n, line = next, t.base+at-1
	}
	return line
}

// lineOfKey is where key stands in the mapping at path; keys may hold dots.
func (t *tree) lineOfKey(path, key string) int {
	if n, at := child(t.at(path), key); n != nil {
		return t.base + at - 1
	}
	return t.lineOf(path)
}

// at is the node of a path of plain keys, nil where there is none.
func (t *tree) at(path string) *yaml.Node {
	n := t.root
	for _, step := range strings.Split(path, ".") {
		if n, _ = child(n, step); n == nil {
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

// child finds a mapping's value by key, or a sequence's element by number, and
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

// decode fills to and reports every field that it does not know.
func (t *tree) decode(to any) []*fault {
	strict, err := kjson.UnmarshalStrict(t.json, to)
	if err != nil {
		if te := (*json.UnmarshalTypeError)(nil); errors.As(err, &te) {
			return []*fault{faultf(t.lineOf(te.Field), "%s: want %s, got %s", te.Field, te.Type, te.Value)}
		}
		return []*fault{faultf(t.line(), "%v", err)}
	}
	var out []*fault
	for _, e := range strict {
		line := t.line()
		if fe := (kjson.FieldError)(nil); errors.As(e, &fe) {
			line = t.lineOf(fe.FieldPath())
		}
		out = append(out, faultf(line, "%v", e))
	}
	return out
}
