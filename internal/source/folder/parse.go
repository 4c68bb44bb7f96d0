package folder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"
)

// Parse reads a text as kubectl reads a file; where is its name. It is pure.
//
// Where kubectl drops something without a word we do not: a document behind
// "..." is an error, and of a key that stands twice the last one counts, as with
// kubectl, but that is a warning. "--- {a: b}", at which kubectl gives up, is
// read as YAML has it.
func Parse(where string, data []byte, kinds []Kind) *File {
	p := parser{file: &File{Name: where}, kinds: kinds}
	for _, c := range split(bytes.TrimPrefix(data, bom)) {
		p.chunk(c)
	}
	if !p.found && len(p.file.Refused) == 0 {
		p.refuse(Refusal{}, &Fault{Reason: "is empty"})
	}
	return p.file
}

// bom may begin a text (Unicode 16.0, section 23.8).
var bom = []byte("\ufeff")

type parser struct {
	file  *File
	kinds []Kind
	found bool // some value, be it an empty list
}

// refuse notes why a document, of which r tells more, is no object.
func (p *parser) refuse(r Refusal, faults ...*Fault) {
	for _, f := range faults {
		r.Problem = Problem{Where: p.file.Name, Line: f.Line, Reason: f.Reason}
		if r.Object != nil {
			r.Problem = r.Object.Problem(p.file.Name, f)
		}
		p.file.Refused = append(p.file.Refused, r)
	}
}

func (p *parser) warn(line int, key string) {
	p.file.Warnings = append(p.file.Warnings, Problem{
		Where: p.file.Name, Line: line, Warning: true, Reason: fmt.Sprintf("key %q stands twice; the last one counts", key)})
}

// chunk is the text of one document, and the line of the file that it begins at,
// from 1. A marker belongs to it only where something stands behind it.
type chunk struct {
	text []byte
	line int
}

// split cuts a text at its document markers, so that a syntax error in one
// document leaves the others readable. A line that begins with "---" ends a
// document even inside a block scalar (YAML 1.2, section 9.1.2).
func split(data []byte) []chunk {
	var out []chunk
	cur := chunk{line: 1}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if isMarker(text) {
			out = append(out, cur)
			cur = chunk{line: line}
			if rest := bytes.TrimSpace(text[3:]); len(rest) == 0 || rest[0] == '#' {
				cur.line++
				continue
			}
		}
		cur.text = append(cur.text, text...)
	}
	return append(out, cur)
}

func isMarker(line []byte) bool {
	return bytes.HasPrefix(line, []byte("---")) && (len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0)
}

// chunk reads a document. Text that is JSON is read as such, for no YAML parser
// reads all of its escapes, and may be several values one behind the other.
func (p *parser) chunk(c chunk) {
	values, faults := c.jsonValues()
	for i, v := range values {
		fault := faults[i]
		if fault == nil {
			fault = p.single(v)
		}
		if fault != nil {
			p.refuse(Refusal{}, fault)
			continue
		}
		p.value(v)
	}
	if values != nil {
		return
	}
	v, fault := p.yamlValue(c)
	if fault != nil {
		p.refuse(Refusal{}, fault)
		return
	}
	p.value(v)
}

func (p *parser) value(v *Object) {
	if !isNull(v.JSON) {
		p.found = true
		p.object(v, Kind{})
	}
}

// jsonValues are the values of a text that is JSON, each with what is beyond a limit in it;
// nil when it is not.
func (c chunk) jsonValues() (out []*Object, faults []*Fault) {
	body := bytes.TrimPrefix(c.text, []byte("---"))
	if !utilyaml.IsJSONBuffer(body) {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		var raw json.RawMessage
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			return out, faults
		} else if err != nil {
			return nil, nil
		}
		begin := int(d.InputOffset()) - len(raw)
		var root *yaml.Node
		if nodes, err := nodesOf(raw); err == nil {
			root = nodes[0]
		}
		x := index{base: c.line + bytes.Count(body[:begin], []byte("\n"))}
		_, fault := check(x.base, root)
		if fault == nil {
			x = indexOf(x.base, root)
		}
		out, faults = append(out, &Object{JSON: raw, Line: x.line(), index: x}), append(faults, fault)
	}
}

// nodesOf are the YAML documents of a text, as far as the error: the first is the
// one that counts.
func nodesOf(text []byte) ([]*yaml.Node, error) {
	var out []*yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return out, err
		}
		if len(doc.Content) == 1 {
			out = append(out, doc.Content[0])
		}
	}
}

// yamlValue reads a document of YAML 1.1, as Kubernetes' library does.
func (p *parser) yamlValue(c chunk) (*Object, *Fault) {
	var root *yaml.Node
	nodes, badNode := nodesOf(c.text)
	if len(nodes) > 0 {
		root = nodes[0]
		if badNode != nil || len(nodes) > 1 {
			return nil, behind(c, nodes, badNode)
		}
	}
	twice, fault := check(c.line, root)
	if fault != nil {
		return nil, fault
	}
	x := indexOf(c.line, root)
	for _, key := range twice {
		p.warn(c.line+key.Line-1, key.Value)
	}
	raw, err := kyaml.YAMLToJSON(c.text)
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "yaml: "):
		return nil, syntax(c.line, err)
	case err != nil:
		return nil, &Fault{Line: x.line(), Reason: "cannot be written as JSON: " + err.Error()}
	}
	return &Object{JSON: raw, Line: x.line(), index: x}, nil
}

// behind refuses what stands behind the end of the first value: the parser would
// leave it out without a word.
func behind(c chunk, nodes []*yaml.Node, err error) *Fault {
	const words = "not YAML: something stands behind the end of the object"
	if err == nil {
		return &Fault{Line: c.line + nodes[1].Line - 1, Reason: words}
	}
	f := syntax(c.line, err)
	f.Reason = words + " (" + strings.TrimPrefix(f.Reason, "not YAML: ") + ")"
	return f
}

// object takes in one value; inherited is the kind of an item whose list tells
// it. A value with items is a list, as with kubectl.
func (p *parser) object(o *Object, inherited Kind) {
	if len(o.JSON) == 0 || bytes.TrimSpace(o.JSON)[0] != '{' {
		p.refuse(Refusal{}, o.Faultf("", "not an object"))
		return
	}
	kind, badKind := o.text("kind")
	version, badVersion := o.text("apiVersion")
	if badKind != nil || badVersion != nil {
		p.refuse(Refusal{}, slices.DeleteFunc([]*Fault{badKind, badVersion}, func(f *Fault) bool { return f == nil })...)
		return
	}
	if items := o.field("items"); items != nil || kind == "List" || kind == "PodList" {
		p.list(o, items, Kind{Name: strings.TrimSuffix(kind, "List"), APIVersion: version})
		return
	}
	if kind == "" && version == "" {
		kind, version = inherited.Name, inherited.APIVersion
	}
	if r, faults := p.identify(o, kind, version); len(faults) > 0 {
		p.refuse(r, faults...)
		return
	}
	p.file.Objects = append(p.file.Objects, o)
}

// single leaves the last one of keys that stand twice in JSON. A number beyond 64
// bits is changed where there are such keys.
func (p *parser) single(o *Object) *Fault {
	var v any
	strict, err := kjson.UnmarshalStrict(o.JSON, &v, kjson.DisallowDuplicateFields)
	if err != nil {
		return o.Faultf("", "not JSON: %v", err)
	}
	if len(strict) == 0 {
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return o.Faultf("", "cannot be written as JSON: %v", err)
	}
	for _, e := range strict {
		if fe := (kjson.FieldError)(nil); errors.As(e, &fe) {
			p.warn(o.LineOf(fe.FieldPath()), fe.FieldPath())
		}
	}
	o.JSON = raw
	return nil
}

func (p *parser) list(o *Object, raw []byte, kind Kind) {
	var items []json.RawMessage
	if raw != nil && json.Unmarshal(raw, &items) != nil {
		p.refuse(Refusal{}, o.Faultf("items", "items: want a list"))
		return
	}
	for i, item := range items {
		path := fmt.Sprintf("%s.items[%d]", o.path, i)
		p.object(&Object{JSON: item, Line: o.index.lineOf(path), index: o.index, path: path}, kind)
	}
}

// identify tells which object a value is.
func (p *parser) identify(o *Object, kind, version string) (Refusal, []*Fault) {
	name, badName := o.text("metadata", "name")
	namespace, badNamespace := o.text("metadata", "namespace")
	at := slices.IndexFunc(p.kinds, func(k Kind) bool { return k.Name == kind })
	switch {
	case at < 0 && kind == "":
		return Refusal{}, []*Fault{o.Faultf("kind", "kind \"\" is not known here")}
	case at < 0:
		return Refusal{Name: name}, []*Fault{o.Faultf("kind", "kind %q is not known here", kind)}
	case badName != nil:
		return Refusal{}, []*Fault{badName}
	case name == "":
		return Refusal{}, []*Fault{o.Faultf("metadata", "metadata.name is missing")}
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return Refusal{}, []*Fault{o.Faultf("metadata.name", "metadata.name: %q is not a DNS-1123 name", name)}
	}
	o.ID = ID{Kind: kind, Name: name}
	if p.kinds[at].Namespaced {
		if o.ID.Namespace = namespace; namespace == "" {
			o.ID.Namespace = "default"
		}
		if badNamespace != nil {
			return Refusal{}, []*Fault{badNamespace}
		}
		if len(validation.IsDNS1123Label(o.ID.Namespace)) > 0 {
			return Refusal{}, []*Fault{o.Faultf("metadata.namespace", "metadata.namespace: %q is not a DNS-1123 label", namespace)}
		}
	}
	if want := p.kinds[at].APIVersion; version != want {
		return Refusal{Object: o}, []*Fault{o.Faultf("apiVersion", "apiVersion: a %s is of %q, not of %q", kind, want, version)}
	}
	return Refusal{Object: o}, append(o.texts("annotation", "metadata", "annotations"), o.texts("label", "metadata", "labels")...)
}
