package resolve

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/network/resolve/element"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/confdir"
)

// multusNamespace is Multus' own, where default networks are looked up.
const multusNamespace = "kube-system"

// Chains are the networks that a configuration gives to every pod, the default
// network first, and the auxiliary chain where it has plugins: whom STATUS and
// GC ask, which know no pod. drivers are those of our own NICs among them; our own
// default network has no chain. What could be told comes with the error about
// the rest.
func Chains(ctx context.Context, src Source, in Input) (chains []core.Chain, drivers []string, err error) {
	r := newResolution(src, in)
	var errs []error
	add := func(n network, err error) {
		if n.own != nil && !slices.Contains(drivers, n.driver()) {
			drivers = append(drivers, n.driver())
		}
		if err == nil && !n.direct {
			chains = append(chains, n.chain)
		}
		errs = append(errs, err)
	}
	add(r.configured(ctx))
	if r.serves() {
		for _, also := range r.alwaysAlso() {
			add(also(ctx))
		}
	}
	aux, err := r.auxiliary()
	if len(aux.Plugins) > 0 {
		chains = append(chains, aux)
	}
	return chains, drivers, errors.Join(append(errs, err)...)
}

// configured is the default network that the configuration names: the first
// delegate, clusterNetwork, or our own.
func (r *resolution) configured(ctx context.Context) (network, error) {
	switch {
	case !r.serves(): // somebody else named the other networks
	case len(r.conf.Delegates) > 0:
		return fromChain(r.conf.Delegates[0], v1.DefaultProvider)
	case r.conf.ClusterNetwork != "":
		return r.named(ctx, "clusterNetwork", r.conf.ClusterNetwork)
	}
	conf := r.conf
	n := network{
		label: conf.Name, own: &conf, provider: conf.Provider, direct: true,
		chain: core.Chain{Name: conf.Name, Plugins: []core.Plugin{{Type: "fairlead", Raw: conf.Raw}}},
	}
	if n.provider == "" {
		n.provider = v1.DefaultProvider
	}
	return n, nil
}

// alwaysAlso are the networks that every pod gets beside its default network:
// further delegates, or defaultNetworks, which pods of system namespaces lack.
func (r *resolution) alwaysAlso() []func(context.Context) (network, error) {
	var out []func(context.Context) (network, error)
	for i := 1; i < len(r.conf.Delegates); i++ {
		out = append(out, func(context.Context) (network, error) { return fromChain(r.conf.Delegates[i], v1.DefaultProvider) })
	}
	system := r.conf.SystemNamespaces
	if system == nil {
		system = []string{multusNamespace}
	}
	if slices.Contains(system, r.pod.Namespace) {
		return out
	}
	for _, name := range r.conf.DefaultNetworks {
		out = append(out, func(ctx context.Context) (network, error) { return r.named(ctx, "defaultNetworks", name) })
	}
	return out
}

// named finds the network that a value of clusterNetwork or defaultNetworks
// means, as Multus does: a NAD of the Multus namespace, a network of the
// configuration directory, a directory, a file. The node's administrator named
// it, so that isolation does not apply.
func (r *resolution) named(ctx context.Context, key, value string) (network, error) {
	if strings.HasPrefix(value, "/") {
		c, err := r.byPath(value)
		if err != nil {
			return network{}, core.WithCode(core.CodeConfig, key, err)
		}
		return fromChain(c, v1.DefaultProvider)
	}
	e := element.Element{Field: key, Name: value, Namespace: r.multusNamespace()}
	nad, err := r.promptNAD(e)
	if errors.Is(err, core.ErrNotFound) {
		c, fileErr := r.confs().ByName(value)
		if fileErr == nil {
			return fromChain(c, v1.DefaultProvider)
		}
		if !errors.Is(fileErr, core.ErrNotFound) {
			return network{}, core.WithCode(core.CodeConfig, key, fileErr)
		}
		nad, err = r.patientNAD(ctx, e)
		if errors.Is(err, core.ErrNotFound) {
			return network{}, &core.Error{
				Code: core.CodeTryAgain, Msg: key + ": network " + value + " does not exist", Err: core.ErrNotFound,
				Details: "there is no NetworkAttachmentDefinition " + e.Label() + ", and " + fileErr.Error(),
			}
		}
	}
	return r.ofNAD(e, nad, err)
}

// byPath reads a file or directory of the node, be it under the path that
// Multus' daemon has for it.
func (r *resolution) byPath(place string) (core.Chain, error) {
	c, err := r.confs().ByPath(place)
	if onNode, ok := cniconf.OnNode(place); ok && errors.Is(err, core.ErrNotFound) {
		if c, nerr := r.confs().ByPath(onNode); !errors.Is(nerr, core.ErrNotFound) {
			return c, nerr
		}
	}
	return c, err
}

// promptNAD is the NAD that e names, if it is known already: where there may be
// a file instead it would be a waste to wait for one that never comes.
func (r *resolution) promptNAD(e element.Element) (*NAD, error) {
	p, ok := r.src.(Prompt)
	if !annotation.IsName(e.Name) || !ok {
		return nil, core.ErrNotFound
	}
	return p.KnownNAD(e.Namespace, e.Name)
}

func (r *resolution) patientNAD(ctx context.Context, e element.Element) (*NAD, error) {
	if !annotation.IsName(e.Name) {
		return nil, core.ErrNotFound
	}
	return r.src.NAD(ctx, e.Namespace, e.Name)
}

func (r *resolution) multusNamespace() string {
	if r.conf.MultusNamespace != "" {
		return r.conf.MultusNamespace
	}
	return multusNamespace
}

// auxiliary is the chain of auxiliaryCNIChainName: the plugins of a folder that
// run behind the default network, whatever that is. Multus runs them apart,
// behind a plugin `passthru` of its own that gives them an empty result and on
// an interface that is not there; here they get the default network's result
// and interface, so that they can do what they do in its own chain. The folder
// stands beside the default network's file, or in a configuration directory.
func (r *resolution) auxiliary() (core.Chain, error) {
	c := core.Chain{Name: r.conf.AuxChain, CNIVersion: r.conf.CNIVersion}
	if c.Name == "" || !r.serves() || r.in.Files == nil {
		return c, nil
	}
	for _, dir := range r.auxDirs() {
		if err := r.confs().AppendFolder(&c, path.Join(dir, c.Name)); err != nil {
			return core.Chain{}, core.WithCode(core.CodeConfig, "auxiliaryCNIChainName", err)
		}
		if len(c.Plugins) > 0 {
			break
		}
	}
	for _, p := range c.Plugins {
		if p.Own() {
			return core.Chain{}, core.Errorf(core.CodeConfig, "auxiliaryCNIChainName: type %q makes an interface and cannot stand in %s", p.Type, c.Name)
		}
	}
	return c, nil
}

// auxDirs are where the folder of the auxiliary chain may stand.
func (r *resolution) auxDirs() []string {
	place := r.conf.ClusterNetwork
	if !strings.HasPrefix(place, "/") {
		return r.confDirs()
	}
	if r.confs().IsDir(place) {
		return []string{place}
	}
	return []string{path.Dir(place)}
}

// defaultConfDir is Multus' (multinet.md, Configuration).
const defaultConfDir = "/etc/cni/multus/net.d"

// confs reads network configurations. Where the configuration names no
// directory, names are looked up in Multus' own and in the runtime's.
func (r *resolution) confs() confdir.Reader {
	return confdir.Reader{Files: r.in.Files, Dirs: r.confDirs(), Log: r.in.Log}
}

func (r *resolution) confDirs() []string {
	if r.conf.ConfDir != "" {
		return []string{r.conf.ConfDir}
	}
	dirs := []string{defaultConfDir}
	if r.in.ConfDir != "" && r.in.ConfDir != defaultConfDir {
		dirs = append(dirs, r.in.ConfDir)
	}
	return dirs
}

// defaultElement reads the annotation that replaces the default network. Names
// without a namespace are meant in Multus' own (multinet.md, Annotations).
func defaultElement(all map[string]string, multusNamespace string) (*element.Element, error) {
	list, err := element.Parse(v1.AnnDefaultNetwork, all[v1.AnnDefaultNetwork], multusNamespace)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	if len(list) != 1 {
		return nil, annotation.Refused(core.CodeValue, v1.AnnDefaultNetwork, all[v1.AnnDefaultNetwork], "names %d networks, it must be one", len(list))
	}
	if list[0].IfName != "" {
		return nil, annotation.Refused(core.CodeValue, list[0].Field+".interface", list[0].IfName, "cannot be chosen for the default network")
	}
	return &list[0], nil
}
