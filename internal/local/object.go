package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"go.yaml.in/yaml/v3"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/resolve"
	"github.com/fairlead/fairlead/internal/yamldoc"
)

// Kinds that a folder may hold.
const (
	kindPod             = "Pod"
	kindNAD             = "NetworkAttachmentDefinition"
	kindSubnet          = "Subnet"
	kindVlan            = "Vlan"
	kindProviderNetwork = "ProviderNetwork"
	kindConfigMap       = "ConfigMap"
	kindSecret          = "Secret"
)

// id names an object; namespace is empty for the cluster-scoped kinds.
type id struct{ kind, namespace, name string }

func (i id) String() string {
	if i.namespace == "" {
		return i.kind + " " + i.name
	}
	return i.kind + " " + i.namespace + "/" + i.name
}

// object is one declaration that is right by itself. Its value holds only what
// decides networks: a resolve.Pod, a resolve.NAD, a subnet, the id of a Vlan,
// or nil.
type object struct {
	id    id
	file  string
	line  int
	value any
}

// document is what one YAML document gave: an object, or why not.
type document struct {
	id      id // zero where the document does not tell
	object  *object
	faults  []*fault
	defends bool // a refused Subnet that was to be the default one
	// name is all that a document of an unknown kind tells: it may be a
	// misspelt kind, and its object is held then.
	name string
}

// opaque tells a document that could declare any object of its file.
func (d *document) opaque() bool { return d.id == (id{}) && d.name == "" }

// maker reads and checks the objects of one kind.
type maker struct {
	apiVersion string
	namespaced bool
	make       func(*tree, id) (any, []*fault)
}

func makers() map[string]maker {
	const nad = "k8s.cni.cncf.io/v1"
	return map[string]maker{
		kindPod:             {"v1", true, makePod},
		kindConfigMap:       {"v1", true, makeConfigMap},
		kindSecret:          {"v1", true, makeSecret},
		kindNAD:             {nad, true, makeNAD},
		kindSubnet:          {v1.APIVersion, false, makeSubnet},
		kindVlan:            {v1.APIVersion, false, makeVlan},
		kindProviderNetwork: {v1.APIVersion, false, makeProviderNetwork},
	}
}

// parse reads all documents of a file. It is pure.
func parse(file string, data []byte) []document {
	var out []document
	for _, text := range yamldoc.Split(data) {
		c := chunk{text}
		root, f := c.parseYAML()
		if f != nil {
			out = append(out, document{faults: []*fault{f}})
		}
		if root != nil {
			out = append(out, parseObject(file, root, c.Line))
		}
	}
	return out
}

func parseObject(file string, root *yaml.Node, base int) document {
	t, f := newTree(root, base)
	d, m := identify(t)
	if f != nil {
		d.faults = []*fault{f}
	}
	if len(d.faults) == 0 {
		var v any
		if v, d.faults = m.make(t, d.id); len(d.faults) == 0 {
			d.object = &object{id: d.id, file: file, line: t.Line(), value: v}
		}
	}
	d.defends = d.object == nil && d.id.kind == kindSubnet &&
		(d.id.name == v1.DefaultSubnet || t.text("spec.default") == "true")
	return d
}

// identify tells which object a document declares, from the raw tree, so that
// an object with a fault inside is known by name too.
func identify(t *tree) (document, maker) {
	var d document
	kind := t.text("kind")
	m, known := makers()[kind]
	refuse := func(path, format string, args ...any) (document, maker) {
		d.faults = []*fault{faultf(t.LineOf(path), format, args...)}
		return d, m
	}
	if t.Root.Kind != yaml.MappingNode {
		return refuse("", "not an object")
	}
	if !known {
		if kind != "" {
			d.name = t.text("metadata.name")
		}
		return refuse("kind", "kind %q is not known here", kind)
	}
	i := id{kind: kind, name: t.text("metadata.name")}
	if m.namespaced {
		if i.namespace = t.text("metadata.namespace"); i.namespace == "" {
			i.namespace = metav1.NamespaceDefault
		}
	}
	switch {
	case i.name == "":
		return refuse("metadata", "metadata.name is missing")
	case len(validation.IsDNS1123Subdomain(i.name)) > 0:
		return refuse("metadata.name", "metadata.name: %q is not a DNS-1123 name", i.name)
	case m.namespaced && len(validation.IsDNS1123Label(i.namespace)) > 0:
		return refuse("metadata.namespace", "metadata.namespace: %q is not a DNS-1123 label", i.namespace)
	}
	d.id = i
	if got := t.text("apiVersion"); got != m.apiVersion {
		return refuse("apiVersion", "apiVersion: a %s is of %q, not of %q", kind, m.apiVersion, got)
	}
	return d, m
}

// pod is strict where networks are decided; what a container runs is not ours
// to judge, and its API grows with every release.
type pod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   json.RawMessage `json:"spec,omitempty"`
	Status json.RawMessage `json:"status,omitempty"`
}

func makePod(t *tree, i id) (any, []*fault) {
	var p pod
	if faults := t.texts("metadata.annotations"); faults != nil {
		return nil, faults
	}
	if faults := t.decode(&p); faults != nil {
		return nil, faults
	}
	var faults []*fault
	for _, err := range resolve.CheckAnnotations(i.namespace, p.Annotations) {
		line := t.LineOf("metadata.annotations")
		if ae := (*resolve.AnnotationError)(nil); errors.As(err, &ae) {
			// An element's path stands behind the key: "key[0].mac".
			key, _, _ := strings.Cut(ae.Key, "[")
			line = t.lineOfKey("metadata.annotations", key)
		}
		faults = append(faults, faultf(line, "%v", err))
	}
	out := resolve.Pod{
		Pod:         core.Pod{Namespace: i.namespace, Name: i.name, UID: string(p.UID)},
		Annotations: p.Annotations,
	}
	if owner := metav1.GetControllerOfNoCopy(&p.ObjectMeta); owner != nil {
		out.Controller = owner.Kind
	}
	return out, faults
}

// texts finds values of a mapping that are not text: `vlan_id: 100` is the
// commonest slip with annotations, and "want string, got number" without the
// key would not help.
func (t *tree) texts(path string) []*fault {
	n := t.at(path)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	var out []*fault
	for i := 0; i+1 < len(n.Content); i += 2 {
		if v := n.Content[i+1]; v.Kind != yaml.ScalarNode || v.ShortTag() != "!!str" {
			out = append(out, faultf(t.Base+n.Content[i].Line-1, "annotation %s: the value must be text; put it in quotes", n.Content[i].Value))
		}
	}
	return out
}

// configMap is accepted for the node loop, which has it in pods; nothing of it
// is kept here.
type configMap struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Data       map[string]string `json:"data,omitempty"`
	BinaryData map[string][]byte `json:"binaryData,omitempty"`
	Immutable  *bool             `json:"immutable,omitempty"`
}

func makeConfigMap(t *tree, _ id) (any, []*fault) {
	var c configMap
	return nil, t.decode(&c)
}

// secret is accepted as configMap is.
type secret struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Type       string            `json:"type,omitempty"`
	Data       map[string][]byte `json:"data,omitempty"`
	StringData map[string]string `json:"stringData,omitempty"`
	Immutable  *bool             `json:"immutable,omitempty"`
}

func makeSecret(t *tree, _ id) (any, []*fault) {
	var s secret
	return nil, t.decode(&s)
}

func makeNAD(t *tree, i id) (any, []*fault) {
	var n nadv1.NetworkAttachmentDefinition
	if faults := t.texts("metadata.annotations"); faults != nil {
		return nil, faults
	}
	if faults := t.decode(&n); faults != nil {
		return nil, faults
	}
	if strings.TrimSpace(n.Spec.Config) != "" {
		if _, err := cniconf.ParseChain([]byte(n.Spec.Config), i.name); err != nil {
			return nil, []*fault{faultf(t.LineOf("spec.config"), "spec.config: %v", err)}
		}
	}
	return resolve.NAD{Namespace: i.namespace, Name: i.name, Annotations: n.Annotations, Config: n.Spec.Config}, nil
}

func makeProviderNetwork(t *tree, _ id) (any, []*fault) {
	var p v1.ProviderNetwork
	if faults := t.decode(&p); faults != nil {
		return nil, faults
	}
	for n, c := range p.Spec.CustomInterfaces {
		if c.Interface == "" {
			path := fmt.Sprintf("spec.customInterfaces[%d]", n)
			return nil, []*fault{faultf(t.LineOf(path), "%s.interface is missing", path)}
		}
	}
	return nil, nil
}
