// Package yamldoc knows where things stand in a file of YAML documents: where
// each begins, where a parser gave up, in which line a field is; and which text
// is YAML, which JSON. What the documents say is its callers'.
package yamldoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"
)

// Chunk is the text of one document, its marker's line included, and the line
// of the file that it starts at, from 1.
type Chunk struct {
	Text []byte
	Line int
}

// Split cuts a file at its document markers, so that a syntax error in one
// document leaves the others readable. A line that starts with "---" ends a
// document even inside a block scalar (YAML 1.2, section 9.1.2).
func Split(data []byte) []Chunk {
	var out []Chunk
	cur := Chunk{Line: 1}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if isMarker(text) {
			out = append(out, cur)
			cur = Chunk{Line: line} // what stands behind the marker belongs to it
		}
		cur.Text = append(cur.Text, text...)
	}
	return append(out, cur)
}

func isMarker(line []byte) bool {
	return bytes.HasPrefix(line, []byte("---")) && (len(line) == 3 || strings.IndexByte(" \t\r\n", line[3]) >= 0)
}

// Empty tells that there is nothing but comments.
func (c Chunk) Empty() bool {
	for text := range bytes.Lines(c.Text) {
		text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("---")))
		if len(text) > 0 && text[0] != '#' {
			return false
		}
	}
	return true
}

// JSON is the chunk's value. Text that is JSON stays as it is: no YAML parser
// reads all of its escapes. Other text is YAML 1.1, as Kubernetes reads it, and
// so is the short form {a: b}, which kubelet takes for bad JSON. The error is a
// parser's, for Syntax.
func (c Chunk) JSON() ([]byte, error) {
	text := bytes.TrimSpace(bytes.TrimPrefix(c.Text, []byte("---")))
	if json.Valid(text) {
		return text, nil
	}
	if bytes.HasPrefix(text, []byte("{")) {
		if err := c.ends(); err != nil {
			return nil, err
		}
	}
	return kyaml.YAMLToJSON(c.Text)
}

// ends refuses what stands behind the first value, such as one more JSON object:
// the parser would leave it out without a word.
func (c Chunk) ends() error {
	values := yaml.NewDecoder(bytes.NewReader(c.Text))
	var value yaml.Node
	if err := values.Decode(&value); err != nil {
		return err
	}
	if err := values.Decode(&value); !errors.Is(err, io.EOF) {
		return errors.New("yaml: something stands behind the end of the object")
	}
	return nil
}

// yamlLine finds the line that the parsers name only in their text.
var yamlLine = regexp.MustCompile(`(?:error converting YAML to JSON: )?yaml: (?:line (\d+): )?(?s:(.*))$`)

// Syntax gives the line of the file and the words for an error of a parser that
// read the chunk: go.yaml.in/yaml or sigs.k8s.io/yaml.
func (c Chunk) Syntax(err error) (line int, reason string) {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return c.Line, "not YAML: " + err.Error()
	}
	line, convErr := strconv.Atoi(m[1])
	if convErr != nil {
		line = 1
	}
	return c.Line + line - 1, "not YAML: " + m[2]
}

// Index finds the lines of a document's fields. Root nil: nothing is known but
// where the document begins.
type Index struct {
	Root *yaml.Node // of the chunk's text
	Base int        // line of the chunk in its file
}

// Line is where the document's value starts.
func (x Index) Line() int {
	if x.Root == nil {
		return x.Base
	}
	return x.Base + x.Root.Line - 1
}

// LineOf is where the field of a path like "spec.containers[1].image" stands,
// or the nearest one above it that is there.
func (x Index) LineOf(path string) int {
	n, line := x.Root, x.Line()
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		next, at := Child(n, step)
		if next == nil {
			break
		}
		n, line = next, x.Base+at-1
	}
	return line
}

// Child finds a mapping's value by key or a sequence's element by number, and
// the line of its chunk to name for it; nil where there is none.
func Child(n *yaml.Node, step string) (*yaml.Node, int) {
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
