package folder

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// index finds the lines of a document's fields. It is made by another parser
// than the values, which knows where things stand; root nil: that one could not
// read the text, and nothing is known but where it begins.
type index struct {
	root *place
	base int // line of the text in its file
}

// place is where a value stands, and what is in it: what is kept of a node, which takes
// many times as much.
type place struct {
	line int32
	list bool // in has the elements of a sequence, and no keys
	in   []step
}

// step is a key of a mapping, or an element of a sequence, and its value. line is that of the
// key.
type step struct {
	key  string
	line int32
	to   *place
}

// indexOf is that of a text which begins at a line, of its first node, nil for none, which was
// checked. Aliases are the place that they stand for.
func indexOf(base int, root *yaml.Node) index {
	return index{placeOf(root, map[*yaml.Node]*place{}), base}
}

func placeOf(n *yaml.Node, made map[*yaml.Node]*place) *place {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || made[n] != nil {
		return made[n]
	}
	p := &place{line: int32(n.Line), list: n.Kind == yaml.SequenceNode} //nolint:gosec // of a file of 10 MiB at most
	made[n] = p
	switch n.Kind {
	case yaml.SequenceNode:
		p.in = make([]step, len(n.Content))
		for i, e := range n.Content {
			p.in[i] = step{line: int32(e.Line), to: placeOf(e, made)} //nolint:gosec // as above
		}
	case yaml.MappingNode:
		p.in = make([]step, 0, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			p.in = append(p.in, step{k.Value, int32(k.Line), placeOf(n.Content[i+1], made)}) //nolint:gosec // as above
		}
	}
	return p
}

// line is where the document's value begins.
func (x index) line() int {
	if x.root == nil {
		return x.base
	}
	return x.base + int(x.root.line) - 1
}

// steps takes a path like "spec.containers[1].image" apart.
func steps(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) })
}

// lineOf is where the field of a path stands, or the nearest one above it that
// is there.
func (x index) lineOf(path string) int {
	n, line := x.root, x.line()
	for _, step := range steps(path) {
		next, at := n.child(step)
		if next == nil {
			break
		}
		n, line = next, x.base+at-1
	}
	return line
}

// at is the place of a path, nil where there is none.
func (x index) at(path string) *place {
	n := x.root
	for _, step := range steps(path) {
		n, _ = n.child(step)
	}
	return n
}

// child finds a mapping's value by key or a sequence's element by number, and
// the line of its text to name for it; nil where there is none. Of a key that
// stands twice the last one counts. What is merged in stands where it comes from.
func (p *place) child(by string) (*place, int) {
	switch {
	case p == nil:
	case p.list:
		if i, err := strconv.Atoi(by); err == nil && i >= 0 && i < len(p.in) {
			return p.in[i].to, int(p.in[i].line)
		}
	default:
		for _, s := range slices.Backward(p.in) {
			if s.key == by {
				return s.to, int(s.line)
			}
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

// check finds what is beyond a limit in a text that begins at a line, and keys that stand
// twice in one mapping.
func check(base int, root *yaml.Node) (twice []*yaml.Node, fault *Fault) {
	if root == nil {
		return nil, nil
	}
	w := walker{seen: map[*yaml.Node]bool{}}
	if w.walk(root, 0); w.at != nil {
		return nil, &Fault{Line: base + w.at.Line - 1, Reason: w.reason}
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
