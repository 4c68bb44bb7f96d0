package resolve

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/network/resolve/element"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/override"
)

// fromNAD finds the network that an element names.
func (r *resolution) fromNAD(ctx context.Context, e element.Element) (network, error) {
	if err := r.allowed(&e); err != nil {
		return network{}, err
	}
	nad, err := r.src.NAD(ctx, e.Namespace, e.Name)
	if errors.Is(err, core.ErrNotFound) {
		return network{}, &core.Error{
			Code: core.CodeConfig, Msg: e.Field + ": NetworkAttachmentDefinition " + e.Label() + " does not exist",
			Details: "create it or correct the annotation; `fairlead get nets` lists what exists", Err: core.ErrNotFound,
		}
	}
	n, err := r.ofNAD(e, nad, err)
	if err == nil {
		err = errors.Join(r.reaches(&n), n.mayAsk(r.notes))
	}
	return n, err
}

// ofNAD makes the network of what a source answered.
func (r *resolution) ofNAD(e element.Element, nad *NAD, err error) (network, error) {
	what := e.Field + ": NetworkAttachmentDefinition " + e.Label()
	if err != nil {
		return network{}, core.WithCode(core.CodeTryAgain, what, err)
	}
	chain, err := r.nadChain(nad)
	if err != nil {
		return network{}, core.WithCode(core.CodeConfig, what, err)
	}
	n, err := fromChain(chain, e.Name+"."+e.Namespace+"."+v1.DefaultProvider)
	n.label, n.nad, n.elem, n.resource = e.Label(), e.Label(), e, nad.Annotations[v1.AnnResourceName]
	n.domain = nad.Annotations[v1alpha1.AnnL2Domain]
	if err == nil {
		n.allowed, err = override.Confine(nad.Annotations, firstType(chain))
		err = core.WithCode(core.CodeConfig, what, err)
	}
	return n, err
}

// allowed holds a pod to NADs of its own and of the global namespaces when the
// configuration isolates namespaces. "default" is global unless a list is given.
func (r *resolution) allowed(e *element.Element) error {
	if r.open(e.Namespace) {
		return nil
	}
	return annotation.Refused(core.CodeDenied, e.Field+".namespace", e.Namespace,
		"is neither the pod's namespace nor global, and namespaceIsolation is on")
}

// open tells whether isolation lets the pod use networks of a namespace.
func (r *resolution) open(namespace string) bool {
	global := r.conf.GlobalNamespaces
	if global == nil {
		global = []string{"default"}
	}
	return !r.conf.NamespaceIsolation || namespace == r.pod.Namespace || slices.Contains(global, namespace)
}

// reaches holds a network to Subnets of these namespaces too: the provider of a
// NAD may be that of another one, whose Subnet then gives the addresses.
func (r *resolution) reaches(n *network) error {
	providers := []string{n.provider}
	for _, p := range n.chain.Plugins {
		if provider := ipamProvider(p); provider != "" {
			providers = append(providers, provider)
		}
	}
	for _, p := range providers {
		_, namespace, ok := cutLast(strings.TrimSuffix(p, "."+v1.DefaultProvider))
		if ok && !r.open(namespace) {
			return &core.Error{
				Code:    core.CodeDenied,
				Msg:     n.field() + ": NetworkAttachmentDefinition " + n.nad + " has provider " + p + ", a network of namespace " + namespace,
				Details: "it is neither the pod's namespace nor global, and namespaceIsolation is on: name that namespace in globalNamespaces, or leave provider out",
			}
		}
	}
	return nil
}

// cutLast cuts NAME.NAMESPACE, where NAME may have dots.
func cutLast(s string) (name, namespace string, ok bool) {
	at := strings.LastIndexByte(s, '.')
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+1:], true
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
