package folder

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"weak"

	"go.yaml.in/yaml/v3"
)

// index finds the lines of a document's fields. It is made by another parser
// than the values, which knows where things stand; without a tree, that one could not
// read the text, and nothing is known but where it begins.
type index struct {
	tree *tree
	base int // line of the text in its file
}

// tree is the text of a document as nodes. They take ten times the place of the text, and
// are asked for while it is read and when something is wrong with it: in between the
// garbage collector may have them, and they are made anew.
type tree struct {
	text []byte

	mu   sync.Mutex
	root weak.Pointer[yaml.Node]
}

// indexOf is that of a text which begins at a line, with nodes that were made of it, nil for
// none.
func indexOf(base int, text []byte, root *yaml.Node) index {
	if root == nil {
		return index{base: base}
	}
	return index{&tree{text: text, root: weak.Make(root)}, base}
}

// root is the document's first node, nil without a tree.
func (x index) root() *yaml.Node {
	if x.tree == nil {
		return nil
	}
	x.tree.mu.Lock()
	defer x.tree.mu.Unlock()
	if n := x.tree.root.Value(); n != nil {
		return n
	}
	nodes, _ := nodesOf(x.tree.text) // it has a first one, which it had before
	x.tree.root = weak.Make(nodes[0])
	return nodes[0]
}

// line is where the document's value begins.
func (x index) line() int {
	if n := x.root(); n != nil {
		return x.base + n.Line - 1
	}
	return x.base
}

// steps takes a path like "spec.containers[1].image" apart.
func steps(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) })
}

// lineOf is where the field of a path stands, or the nearest one above it that
// is there.
func (x index) lineOf(path string) int {
	n, line := x.root(), x.line()
	for _, step := range steps(path) {
		next, at := child(n, step)
		if next == nil {
			break
		}
		n, line = next, x.base+at-1
	}
	return line
}

// at is the node of a path, nil where there is none.
func (x index) at(path string) *yaml.Node {
	n := x.root()
	for _, step := range steps(path) {
		n, _ = child(n, step)
	}
	return n
}

// child finds a mapping's value by key or a sequence's element by number, and
// the line of its text to name for it; nil where there is none. Of a key that
// stands twice the last one counts. What is merged in stands where it comes from.
func child(n *yaml.Node, step string) (*yaml.Node, int) {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n == nil:
	case n.Kind == yaml.MappingNode:
		for i := len(n.Content) - 2; i >= 0; i -= 2 {
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

// Limits of one document: far above what is ever written, low enough that a file
// of aliases to aliases cannot exhaust memory.
const (
	maxValues = 1_000_000
	maxDepth  = 64
)

// walker goes through a document as its values will be, aliases taken for what
// they stand for.
type walker struct {
	values int
	seen   map[*yaml.Node]bool // mappings of which the keys were compared
	twice  []*yaml.Node        // keys that stand twice in one mapping
	at     *yaml.Node          // beyond a limit
	reason string
}

func (w *walker) walk(n *yaml.Node, depth int) {
	w.values++
	switch {
	case w.at != nil:
		return
	case w.values > maxValues:
		w.at, w.reason = n, "the document has more than "+strconv.Itoa(maxValues)+" values"
	case depth > maxDepth:
		w.at, w.reason = n, "nested deeper than "+strconv.Itoa(maxDepth)
	case n.Kind == yaml.AliasNode:
		w.walk(n.Alias, depth+1)
	case n.Kind == yaml.MappingNode:
		w.compare(n)
		for i := 1; i < len(n.Content); i += 2 {
			w.walk(n.Content[i], depth+1)
		}
	case n.Kind == yaml.SequenceNode:
		for _, e := range n.Content {
			w.walk(e, depth+1)
		}
	}
}

// check finds what is beyond a limit, and keys that stand twice in one mapping.
func (x index) check() (twice []*yaml.Node, fault *Fault) {
	root := x.root()
	if root == nil {
		return nil, nil
	}
	w := walker{seen: map[*yaml.Node]bool{}}
	if w.walk(root, 0); w.at != nil {
		return nil, &Fault{Line: x.base + w.at.Line - 1, Reason: w.reason}
	}
	return w.twice, nil
}

// compare notes the keys of a mapping that stand there twice.
func (w *walker) compare(n *yaml.Node) {
	if w.seen[n] {
		return
	}
	w.seen[n] = true
	keys := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" {
			continue
		}
		if keys[k.Value] {
			w.twice = append(w.twice, k)
		}
		keys[k.Value] = true
	}
}

// yamlLine finds the line that the parsers name only in their text.
var yamlLine = regexp.MustCompile(`yaml: (?:line (\d+): )?(?s:(.*))$`)

// syntax gives the line of the file and the words for a parser's error about a
// text that begins at base.
func syntax(base int, err error) *Fault {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return &Fault{Line: base, Reason: "not YAML: " + err.Error()}
	}
	line, convErr := strconv.Atoi(m[1])
	if convErr != nil {
		line = 1
	}
	return &Fault{Line: base + line - 1, Reason: "not YAML: " + m[2]}
}
