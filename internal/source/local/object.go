package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// object is one declaration that is right by itself. Its value holds only what
// decides networks: a resolve.Pod, a resolve.NAD, a subnet, a vlan, a
// v1.ProviderNetwork, a *v1alpha1.PodNetwork, a settings, a vfpolicy.Policy, or nil.
type object struct {
	id    folder.ID
	file  string
	line  int
	value any
	whole any // as a controller has it; nil without OVN
}

// document is what one object of a file gave: a declaration, or why not.
type document struct {
	*folder.Object
	object  *object
	faults  []*folder.Fault
	defends bool // a refused Subnet that was to be the default one
}

// withWhole is a value with what a controller has of the object.
type withWhole struct{ value, whole any }

// maker reads and checks an object. Its value may be a withWhole.
type maker func(*folder.Object) (value any, faults []*folder.Fault)

// makers are those of each kind that the agent subscribes to. Secrets are the node
// loop's, as are ConfigMaps without the label that makes them settings of pods.
func makers() map[string]maker {
	return map[string]maker{
		folder.Pod:                         makePod,
		folder.NetworkAttachmentDefinition: makeNAD,
		folder.Subnet:                      makeSubnet,
		folder.Vlan:                        makeVlan,
		folder.ProviderNetwork:             makeProviderNetwork,
		folder.PodNetwork:                  makePodNetwork,
		folder.ConfigMap:                   makeConfigMap,
		folder.NodeVFPolicy:                makeVFPolicy,
	}
}

// understand checks the objects of a file. It is pure.
func understand(f *folder.File, objects []*folder.Object, by map[string]maker) file {
	out := file{File: f}
	for _, o := range objects {
		d := document{Object: o}
		var v any
		if v, d.faults = by[o.ID.Kind](o); len(d.faults) == 0 {
			d.object = &object{id: o.ID, file: f.Name, line: o.Line, value: v}
			if both, ok := v.(withWhole); ok {
				d.object.value, d.object.whole = both.value, both.whole
			}
		} else {
			d.defends = claimsDefault(o)
		}
		out.docs = append(out.docs, d)
	}
	return out
}

// claimsDefault tells a Subnet that says it is the default one.
func claimsDefault(o *folder.Object) bool {
	return o.ID.Kind == folder.Subnet && (o.ID.Name == v1.DefaultSubnet || o.Is("spec", "default"))
}

// decode fills to and reports every field that it does not know.
func decode(o *folder.Object, to any) []*folder.Fault {
	unknown, wrong := o.Decode(to)
	if wrong != nil {
		return []*folder.Fault{wrong}
	}
	return unknown
}

// pod is strict where networks are decided; what a container runs is not ours
// to judge, and its API grows with every release.
type pod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   json.RawMessage `json:"spec,omitempty"`
	Status json.RawMessage `json:"status,omitempty"`
}

func makePod(o *folder.Object) (any, []*folder.Fault) {
	var p pod
	if faults := decode(o, &p); faults != nil {
		return nil, faults
	}
	var faults []*folder.Fault
	for _, err := range resolve.CheckAnnotations(o.ID.Namespace, p.Annotations) {
		f := o.Faultf("metadata.annotations", "%v", err)
		if ae := (*resolve.AnnotationError)(nil); errors.As(err, &ae) {
			// An element's path stands behind the key: "key[0].mac".
			key, _, _ := strings.Cut(ae.Key, "[")
			f.Line = o.LineOfKey("metadata.annotations", key)
		}
		faults = append(faults, f)
	}
	out := resolve.Pod{
		Pod:         core.Pod{Namespace: o.ID.Namespace, Name: o.ID.Name, UID: string(p.UID)},
		Annotations: p.Annotations,
	}
	if owner := metav1.GetControllerOfNoCopy(&p.ObjectMeta); owner != nil {
		out.Controller = owner.Kind
	}
	return out, faults
}

func makeNAD(o *folder.Object) (any, []*folder.Fault) {
	var n nadv1.NetworkAttachmentDefinition
	if faults := decode(o, &n); faults != nil {
		return nil, faults
	}
	if strings.TrimSpace(n.Spec.Config) != "" {
		if _, err := cniconf.ParseChain([]byte(n.Spec.Config), o.ID.Name); err != nil {
			return nil, []*folder.Fault{o.Faultf("spec.config", "spec.config: %v", err)}
		}
	}
	return resolve.NAD{Namespace: o.ID.Namespace, Name: o.ID.Name, Annotations: n.Annotations, Config: n.Spec.Config}, nil
}

func makeProviderNetwork(o *folder.Object) (any, []*folder.Fault) {
	var p v1.ProviderNetwork
	if faults := decode(o, &p); faults != nil {
		return nil, faults
	}
	if name := o.ID.Name; len(name) > v1.ProviderNetworkNameLimit {
		return nil, []*folder.Fault{o.Faultf("metadata.name", "metadata.name: %s has more than %d characters: its bridge, br-%s, would have more than 15", name, v1.ProviderNetworkNameLimit, name)}
	}
	for n, c := range p.Spec.CustomInterfaces {
		if c.Interface == "" {
			path := fmt.Sprintf("spec.customInterfaces[%d]", n)
			return nil, []*folder.Fault{o.Faultf(path, "%s.interface is missing", path)}
		}
	}
	p.Name = o.ID.Name
	return p, nil
}
