package resolve

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// Addresses decides which addresses the interface gets that a foreign plugin
// makes and asks us about (spec/sdn.md, section 1: `ipam`): its Subnet is that
// of `ipam.provider`, else the default network's; fixed addresses come from the
// annotations of that provider, from the capability `ips` and from CNI_ARGS.
// Of the NIC it returns only subnet, addresses, MAC, routes and DNS count.
//
// An interface other than eth0 that names no provider shares the default
// network's Subnet and not its annotations: those are eth0's. Its own have the
// provider "ovn.<ifname>". Errors are those of Resolve.
func Addresses(ctx context.Context, src Source, in Input) (*core.NIC, error) {
	r := newResolution(src, in)
	if err := r.readPod(ctx); err != nil {
		return nil, err
	}
	return r.addresses(ctx)
}

func (r *resolution) addresses(ctx context.Context) (*core.NIC, error) {
	conf := r.conf
	n := network{
		label: conf.Name, own: &conf, provider: conf.Provider, ifName: r.in.Request.Key.IfName,
		first: true, direct: true, lent: true,
	}
	if n.provider == "" {
		n.provider = v1.DefaultProvider
	}
	return r.nic(ctx, []network{n}, 0, conf.RuntimeConfig)
}

// annotated is the provider whose annotations are n's.
func (n *network) annotated() string {
	if n.lent && n.provider == v1.DefaultProvider && n.ifName != defaultIfName {
		return n.provider + "." + n.ifName
	}
	return n.provider
}

// carriesDefault tells whether the pod's default route goes through n unless
// somebody says otherwise.
func (n *network) carriesDefault() bool {
	return n.first && (n.ifName == defaultIfName || n.provider == v1.DefaultProvider && !n.lent)
}

// defaultIfName is a pod's first interface, as all runtimes name it.
const defaultIfName = "eth0"

// provenAddresses is what a foreign plugin of nets[at] gets when it asks us for
// addresses. What it would be refused then is refused now: nothing is to be
// touched before that is known.
func (r *resolution) provenAddresses(ctx context.Context, nets []network, at int, x *core.Exec) (*core.NIC, error) {
	conf, err := cniconf.Parse(x.Conf)
	if err != nil {
		return nil, err
	}
	args, err := cniconf.ParseArgs(x.Args)
	if err != nil {
		return nil, err
	}
	ask := *r
	ask.conf = conf
	ask.in.Request.Key.IfName, ask.in.Request.Args = nets[at].ifName, args
	nic, err := ask.addresses(ctx)
	if err == nil {
		nic.IfaceID = r.ifaceID(nets, at, nic.Provider)
	}
	return nic, err
}

// lends tells whether the network's interface gets its addresses from us.
func (n *network) lends() bool { return slices.ContainsFunc(n.chain.Plugins, lentTo) }

// lentTo tells that a plugin asks us for its interface's addresses.
func lentTo(p core.Plugin) bool { return !p.Own() && core.OwnType(ipamType(p)) }

// ipamProvider is `ipam.provider` of a plugin, "" for none.
func ipamProvider(p core.Plugin) (provider string) {
	ipam, err := cniconf.Keys(p.Raw, "ipam")
	if err != nil || json.Unmarshal(ipam["provider"], &provider) != nil {
		return "" // an ipam of another form is the plugin's own affair
	}
	return provider
}

// uses tells that an interface of the network has addresses by a provider.
func (n *network) uses(provider string) bool {
	if n.own != nil {
		return n.provider == provider
	}
	return slices.ContainsFunc(n.chain.Plugins, func(p core.Plugin) bool {
		return lentTo(p) && cmp.Or(ipamProvider(p), v1.DefaultProvider) == provider
	})
}

// awaited is nil when the controller has given an interface its addresses and, for
// one of ours, OVN carries it. Without OVN nobody else gives any.
func (r *resolution) awaited(n *network, ann *annotation.Notes, a annotation.Requested) error {
	switch {
	case !r.in.OVN || n.lent && r.in.Alone:
		return nil
	case r.pod.IsZero():
		return core.Errorf(core.CodeConfig, "%s: a container that is no pod has no address here: the controller gives them to pods", n.field())
	case n.lent:
		return awaitedLent(n, ann, a)
	case !v1.Routed(n.provider):
		return core.Errorf(core.CodeConfig, "%s: provider %q of an interface of ours neither is %q nor ends in %q: OVN would not carry it",
			n.field(), n.provider, v1.DefaultProvider, "."+v1.DefaultProvider)
	}
	return ann.Unallocated(n.label, a)
}

// awaitedLent is awaited for an interface that a foreign plugin makes: what OVN has
// to do with it no annotation tells.
func awaitedLent(n *network, ann *annotation.Notes, a annotation.Requested) error {
	if n.annotated() != n.provider {
		return core.Errorf(core.CodeConfig, "%s: ipam.provider is missing: with a controller it names the provider of the Subnet "+
			"that gives interface %s its addresses, NAME.NAMESPACE", n.field(), n.ifName)
	}
	return ann.Unaddressed(n.label, a)
}
