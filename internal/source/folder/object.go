package folder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	v1 "github.com/fairlead/fairlead/api/v1"
)

// Kinds of objects.
const (
	Pod                         = "Pod"
	ConfigMap                   = "ConfigMap"
	Secret                      = "Secret"
	NetworkAttachmentDefinition = "NetworkAttachmentDefinition"
	Subnet                      = "Subnet"
	Vlan                        = "Vlan"
	ProviderNetwork             = "ProviderNetwork"
	PodNetwork                  = "PodNetwork"
	NodeVFPolicy                = "NodeVFPolicy"
)

// Kinds of objects that only OVN carries out.
const (
	Namespace     = "Namespace"
	NetworkPolicy = "NetworkPolicy"
	Service       = "Service"
	EndpointSlice = "EndpointSlice"
	Vpc           = "Vpc"
	IPPool        = "IPPool"
	SecurityGroup = "SecurityGroup"
)

// Kind is a kind of objects that files may hold.
type Kind struct {
	Name, APIVersion string
	Namespaced       bool
}

// Kinds are those of these names, or all that mean something on any machine.
func Kinds(names ...string) []Kind {
	all := []Kind{
		{Pod, "v1", true},
		{ConfigMap, "v1", true},
		{Secret, "v1", true},
		{NetworkAttachmentDefinition, "k8s.cni.cncf.io/v1", true},
		{Subnet, v1.APIVersion, false},
		{Vlan, v1.APIVersion, false},
		{ProviderNetwork, v1.APIVersion, false},
		{PodNetwork, v1alpha1.APIVersion, true},
		{NodeVFPolicy, v1alpha1.APIVersion, false},
	}
	if len(names) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(k Kind) bool { return !slices.Contains(names, k.Name) })
}

// KindsOVN are all that mean something on a machine with OVN.
func KindsOVN() []Kind {
	return append(Kinds(),
		Kind{Namespace, "v1", false},
		Kind{NetworkPolicy, "networking.k8s.io/v1", true},
		Kind{Service, "v1", true},
		Kind{EndpointSlice, "discovery.k8s.io/v1", true},
		Kind{Vpc, v1.APIVersion, false},
		Kind{IPPool, v1.APIVersion, false},
		Kind{SecurityGroup, v1.APIVersion, false},
	)
}

// ID names an object; Namespace is empty for the cluster-scoped kinds.
type ID struct{ Kind, Namespace, Name string }

func (i ID) String() string {
	if i.Namespace == "" {
		return i.Kind + " " + i.Name
	}
	return i.Kind + " " + i.Namespace + "/" + i.Name
}

// File is what one file holds.
type File struct {
	Name    string
	Objects []*Object // in their order
	// Refused are the documents, and items of lists, that are no objects.
	Refused  []Refusal
	Warnings []Problem
}

// Of are the objects of some kinds.
func (f *File) Of(kinds ...string) []*Object {
	return slices.DeleteFunc(slices.Clone(f.Objects), func(o *Object) bool { return !slices.Contains(kinds, o.ID.Kind) })
}

// Refusal is why a document is no object.
type Refusal struct {
	Problem
	// Object is the one that the document would be; nil where it does not tell.
	Object *Object
	// Name is that of an object of an unknown kind, which may be a misspelt one.
	Name string
}

// Problems are all of the file, by line.
func (f *File) Problems() []Problem {
	var out []Problem
	for _, r := range f.Refused {
		out = append(out, r.Problem)
	}
	out = append(out, f.Warnings...)
	SortProblems(out)
	return out
}

// MayDeclare tells of an object that the file declared before, and does not now,
// that one of the refused documents may be meant to declare it: what was good of
// it stays in force then.
func (f *File) MayDeclare(id ID) bool {
	return slices.ContainsFunc(f.Refused, func(r Refusal) bool {
		if r.Object != nil {
			return r.Object.ID == id
		}
		return r.Name == "" || r.Name == id.Name
	})
}

// Object is one object of a file: a document, or an item of a list.
type Object struct {
	ID   ID
	JSON []byte
	Line int // where it begins

	index index
	path  string // in its document; "" for the whole
}

// Fault is what is wrong with an object, without its file.
type Fault struct {
	Line   int
	Path   string // of the field; "" where none is to blame
	Reason string
}

// Faultf is a Fault of the field at a path.
func (o *Object) Faultf(path, format string, args ...any) *Fault {
	return &Fault{Line: o.LineOf(path), Path: path, Reason: fmt.Sprintf(format, args...)}
}

// LineOf is where the field of a path like "spec.containers[1].image" stands, or
// the nearest one above it that is there.
func (o *Object) LineOf(path string) int { return o.index.lineOf(o.path + "." + path) }

// LineOfKey is where a key, which may hold dots, stands in the mapping at a path.
func (o *Object) LineOfKey(path, key string) int {
	if n, at := o.index.at(o.path + "." + path).child(key); n != nil {
		return o.index.base + at - 1
	}
	return o.LineOf(path)
}

// Problem is what a fault of the object is to those who know its file alone.
func (o *Object) Problem(where string, f *Fault) Problem {
	return Problem{Where: where, Line: f.Line, Reason: o.ID.String() + ": " + f.Reason}
}

// Decode fills into. unknown are fields of the object that into does not have;
// wrong, nil for none, is why it cannot be filled.
func (o *Object) Decode(into any) (unknown []*Fault, wrong *Fault) {
	strict, err := kjson.UnmarshalStrict(o.JSON, into)
	if err != nil {
		if te := (*json.UnmarshalTypeError)(nil); errors.As(err, &te) {
			return nil, o.Faultf(te.Field, "%s: want %s, got %s", te.Field, te.Type, te.Value)
		}
		return nil, o.Faultf("", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	for _, e := range strict {
		path := ""
		if fe := (kjson.FieldError)(nil); errors.As(e, &fe) {
			path = fe.FieldPath()
		}
		unknown = append(unknown, o.Faultf(path, "%v", e))
	}
	return unknown, nil
}

// field is the JSON at a path of keys; nil where there is none.
func (o *Object) field(path ...string) []byte {
	raw := o.JSON
	for _, key := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil {
			return nil
		}
		raw = fields[key]
	}
	return raw
}

// text is the text at a path, "" where there is none.
func (o *Object) text(path ...string) (string, *Fault) {
	raw := o.field(path...)
	if raw == nil || isNull(raw) {
		return "", nil
	}
	var out string
	if json.Unmarshal(raw, &out) != nil {
		at, why := strings.Join(path, "."), ""
		if raw[0] == 't' || raw[0] == 'f' {
			why = " (YAML reads y, n, yes, no, on and off as true and false)"
		}
		return "", o.Faultf(at, "%s is not text%s; put it in quotes", at, why)
	}
	return out, nil
}

func isNull(raw []byte) bool { return bytes.Equal(bytes.TrimSpace(raw), []byte("null")) }

// Is tells that the field at a path of keys is true.
func (o *Object) Is(path ...string) bool {
	return bytes.Equal(bytes.TrimSpace(o.field(path...)), []byte("true"))
}

// texts finds values of a mapping that are not text: `vlan_id: 100` is the
// commonest slip with annotations, and "want string, got number" without the key
// would not help.
func (o *Object) texts(what string, path ...string) []*Fault {
	var values map[string]json.RawMessage
	if json.Unmarshal(o.field(path...), &values) != nil {
		return nil // Decode tells what it is instead
	}
	var out []*Fault
	at := strings.Join(path, ".")
	for key, raw := range values {
		if raw = bytes.TrimSpace(raw); raw[0] == '"' || isNull(raw) {
			continue
		}
		f := o.Faultf(at, "%s %s: the value must be text; put it in quotes", what, key)
		f.Line = o.LineOfKey(at, key)
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *Fault) int { return strings.Compare(a.Reason, b.Reason) })
	return out
}
