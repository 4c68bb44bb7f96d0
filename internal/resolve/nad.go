package resolve

import (
	"context"
	"errors"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/resolve/annotation"
)

// fromNAD finds the network that an element names.
func (r *resolution) fromNAD(ctx context.Context, e element) (network, error) {
	if err := r.allowed(&e); err != nil {
		return network{}, err
	}
	nad, err := r.src.NAD(ctx, e.namespace, e.name)
	if errors.Is(err, core.ErrNotFound) {
		return network{}, &core.Error{
			Code: core.CodeConfig, Msg: e.field + ": NetworkAttachmentDefinition " + e.label() + " does not exist",
			Details: "create it or correct the annotation; `fairlead get nets` lists what exists", Err: core.ErrNotFound,
		}
	}
	return r.ofNAD(e, nad, err)
}

// label is the network's name as Want.Network has it.
func (e *element) label() string { return e.namespace + "/" + e.name }

// ofNAD makes the network of what a source answered.
func (r *resolution) ofNAD(e element, nad *NAD, err error) (network, error) {
	what := e.field + ": NetworkAttachmentDefinition " + e.label()
	if err != nil {
		return network{}, core.WithCode(core.CodeTryAgain, what, err)
	}
	chain, err := r.nadChain(nad)
	if err != nil {
		return network{}, core.WithCode(core.CodeConfig, what, err)
	}
	n, err := fromChain(chain, e.name+"."+e.namespace+"."+v1.DefaultProvider)
	n.label, n.nad, n.elem, n.resource = e.label(), e.label(), e, nad.Annotations[v1.AnnResourceName]
	return n, err
}

// allowed holds a pod to NADs of its own and of the global namespaces when the
// configuration isolates namespaces. "default" is global unless a list is given.
func (r *resolution) allowed(e *element) error {
	global := r.conf.GlobalNamespaces
	if global == nil {
		global = []string{"default"}
	}
	if !r.conf.NamespaceIsolation || e.namespace == r.pod.Namespace || slices.Contains(global, e.namespace) {
		return nil
	}
	return annotation.Refused(core.CodeDenied, e.field+".namespace", e.namespace,
		"is neither the pod's namespace nor global, and namespaceIsolation is on")
}

// nadChain reads spec.config, or finds the file of the configuration directory
// whose network has the NAD's name.
func (r *resolution) nadChain(nad *NAD) (core.Chain, error) {
	if strings.TrimSpace(nad.Config) != "" {
		c, err := cniconf.ParseChain([]byte(nad.Config), nad.Name)
		return c, core.WithCode(core.CodeConfig, "spec.config", err)
	}
	c, err := r.confs().ByName(nad.Name)
	if errors.Is(err, core.ErrNotFound) { // the NAD is there
		return c, core.Errorf(core.CodeConfig, "spec.config is empty and %v", err)
	}
	return c, core.WithCode(core.CodeConfig, "spec.config is empty", err)
}
