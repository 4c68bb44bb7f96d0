package resolve

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/fairlead/fairlead/internal/network/resolve/element"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/defaultroute"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/override"
	"github.com/fairlead/fairlead/internal/network/whereabouts"
)

// Input is one call of Resolve.
type Input struct {
	Request core.Request
	// Files is the machine's root, from which network configurations are read
	// that a NAD or the runtime's configuration names; nil means that there are
	// none.
	Files fs.FS
	// ConfDir is the runtime's configuration directory. Where the configuration
	// names none, networks are looked up by name in Multus' own and in this.
	ConfDir string
	// Devices tells which devices the pod was given; nil means that this node
	// gives none. Only NADs that name a resource need it.
	Devices Devices
	// PFOf is the network device of the physical function of a virtual one, by its PCI
	// address; core.ErrNotFound: it is none. nil: nobody can tell, and none may be declared.
	PFOf func(device string) (string, error)
	// NodePorts bounds the ports of the node that annotations ask for.
	NodePorts NodePorts
	// OVN: a controller alone gives the addresses; interfaces of ours are in networks
	// that OVN carries (v1.Routed).
	OVN bool
	// Alone: without a cluster plugins' interfaces have theirs from this machine itself.
	Alone bool
	// Rank orders Subnets of which an interface may be in any, as for a namespace that has
	// several: the first of the lowest rank is taken. family is the only one of which it is
	// to have an address. nil: they are alike.
	Rank func(s core.Subnet, family core.Family) int
	// Declared tells what is declared of pods by their names; nil means that nothing is.
	Declared Declarer
	// Has tells by the key of its ip_address an interface of ours that has its address
	// already: what is declared of it is for the next pod. nil: none has.
	Has func(key string) bool
	// Inside tells that the agent carries out a call of a plugin itself. nil: of none.
	Inside func(core.Exec) bool
	// Log hears of files that were skipped; nil means nobody wants to know.
	Log *slog.Logger
}

// Resolve decides what the pod of a request should get: its default network
// first, then the others in the order asked for. Everything is validated here,
// before anything runs; what Resolve returns can fail only on addresses that
// others hold and on the machine itself.
//
// Errors are *core.Error. 102: a bad value in an annotation, which the message
// names. 103: an address that its subnet cannot give. 104: a device that the
// network cannot use, or that kubelet did not give the pod. 105: declarations
// that contradict each other. 101: a NAD of a namespace that isolation forbids, a
// port of the node that annotations may not ask for.
// 7: the configuration or a NAD is wrong, which includes a NAD that does not
// exist: the runtime will ask again, and code 3 would tell it that the container
// is unknown. 6: a NAD's configuration is not JSON. 4: a bad value in CNI_ARGS.
// 11: the source or kubelet cannot answer now, or the source knows a pod of that
// name with another UID, and the runtime tells no annotations.
// An *annotation.UnallocatedError, with Input.OVN: the controller has yet to give an address.
//
// Annotations that the runtime tells are those of a pod that the source does not
// know. Without them such a pod gets the default network alone, as does a
// container that is no pod.
func Resolve(ctx context.Context, src Source, in Input) ([]core.Want, error) {
	r := newResolution(src, in)
	if err := r.readPod(ctx); err != nil {
		return nil, err
	}
	if err := r.readDeclared(ctx); err != nil {
		return nil, err
	}
	nets, err := r.networks(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.nameInterfaces(nets, r.claimNames(nets)); err != nil {
		return nil, err
	}
	if nets, err = r.declare(ctx, nets); err != nil {
		return nil, err
	}
	if err := r.handOut(ctx, nets); err != nil {
		return nil, err
	}
	if err := r.ofPFs(nets); err != nil {
		return nil, err
	}
	wants := make([]core.Want, 0, len(nets))
	for i := range nets {
		w, err := r.want(ctx, nets, i)
		if err != nil {
			return nil, core.Blame(err, nets[i].declaredBy()...)
		}
		wants = append(wants, w)
	}
	if err := agree(wants, nets); err != nil {
		return nil, err
	}
	return wants, nil
}

// resolution is one run of Resolve.
type resolution struct {
	src        Source
	in         Input
	conf       core.Conf
	pod        core.Pod
	notes      map[string]string // the pod's annotations
	controller string            // kind of what controls the pod, "" where that is not known
	machine    string            // virtual machine that it runs, "" for none
	subnets    []core.Subnet
	loaded     bool // subnets were read

	index        *declared.Index // nil: nothing is declared of any pod
	declarations []declared.Declaration
}

func newResolution(src Source, in Input) *resolution {
	if in.Log == nil {
		in.Log = slog.New(slog.DiscardHandler)
	}
	return &resolution{src: src, in: in, conf: in.Request.Conf, pod: in.Request.Pod}
}

// network is one network on its way to a Want.
type network struct {
	label    string // Want.Network
	nad      string // "namespace/name", "" for a network of the configuration
	chain    core.Chain
	behind   core.Chain // another chain's plugins that go on where chain ends
	elem     element.Element
	own      *core.Conf // configuration of our own plugin, the chain's first
	provider string     // of own
	ifName   string
	first    bool             // the pod's default network
	direct   bool             // the runtime's own configuration, not a delegate
	resource string           // that the NAD takes its devices from
	informed bool             // a plugin has the device information files already
	allowed  override.Allowed // that annotations may ask for; nil: all
	vf       override.Asking  // what they ask for of a virtual function
	lent     bool             // only addresses: a foreign plugin makes the interface
	declared *declared.Settings
	only     bool   // only a declaration names it
	subnet   string // that is declared for it, "" for none
	// configured are declared fields that the first plugin's configuration says, and written
	// is that without them, nil for one of our own.
	configured []string
	written    json.RawMessage
	domain     string            // of layer 2, as the NAD names it; "" where it does not
	ranges     *whereabouts.Conf // of which the interface gets addresses here; nil: it has none
}

// driver is that of our own NIC in the network: the network's type decides.
func (n *network) driver() string { return core.NICDriver(n.own.Type) }

// field says in messages what asked for the network.
func (n *network) field() string {
	if n.elem.Field != "" {
		return n.elem.Field
	}
	return "network " + n.label
}

// networks lists what the pod is to be attached to, the default network first.
func (r *resolution) networks(ctx context.Context) ([]network, error) {
	first, err := r.defaultNetwork(ctx)
	if err != nil {
		return nil, err
	}
	first.first, first.ifName = true, r.in.Request.Key.IfName
	if err := first.mayAsk(r.notes); err != nil {
		return nil, err
	}
	if !r.serves() {
		return []network{first}, nil
	}
	if first.behind, err = r.auxiliary(); err != nil {
		return nil, err
	}
	nets := []network{first}
	for _, also := range r.alwaysAlso() {
		n, err := also(ctx)
		if err != nil {
			return nil, err
		}
		nets = append(nets, n)
	}
	elems, err := element.Parse(v1.AnnNetworks, r.notes[v1.AnnNetworks], r.pod.Namespace)
	if err != nil {
		return nil, err
	}
	for _, e := range elems {
		n, err := r.fromNAD(ctx, e)
		if err != nil {
			return nil, err
		}
		nets = append(nets, n)
	}
	return nets, nil
}

// serves tells whether this call is for all of the pod's networks. It is for
// one only when we are called as Kube-OVN's plugin, or for the provider of a
// NAD: then a meta-plugin above us reads the networks annotation.
func (r *resolution) serves() bool {
	return core.MetaType(r.conf.Type) && (r.conf.Provider == "" || r.conf.Provider == v1.DefaultProvider)
}

func (r *resolution) defaultNetwork(ctx context.Context) (network, error) {
	if r.serves() {
		e, err := defaultElement(r.notes, r.multusNamespace())
		if err != nil {
			return network{}, err
		}
		if e != nil {
			return r.fromNAD(ctx, *e)
		}
	}
	return r.configured(ctx)
}

// fromChain takes a chain as it is; provider serves where our own plugin in it
// names none. Our plugin makes an interface, so it can only stand first: a
// later one would make the same interface again.
func fromChain(c core.Chain, provider string) (network, error) {
	n := network{label: c.Name, chain: c}
	for i, p := range c.Plugins {
		if !p.Own() {
			continue
		}
		if i > 0 {
			return n, core.Errorf(core.CodeConfig, "network %s: plugins[%d] of type %q must stand first", c.Name, i, p.Type)
		}
		raw, err := cniconf.PluginConf(c, p, cniconf.Inject{})
		if err != nil {
			return n, err
		}
		own, err := cniconf.Parse(raw)
		if err != nil {
			return n, core.WithCode(core.CodeConfig, fmt.Sprintf("network %s: plugin %q", c.Name, p.Type), err)
		}
		n.own, n.provider = &own, own.Provider
		if n.provider == "" {
			n.provider = provider
		}
	}
	return n, nil
}

// nameInterfaces gives every network its interface name: what was asked for,
// else net1, net2, ... leaving out the names that were asked for, and those in taken.
func (r *resolution) nameInterfaces(nets []network, taken map[string]string) error {
	taken[nets[0].ifName] = "the default network"
	for i := range nets[1:] {
		n := &nets[i+1]
		if n.elem.IfName == "" {
			if n.ifName != "" {
				taken[n.ifName] = n.elem.Field
			}
			continue
		}
		if by, ok := taken[n.elem.IfName]; ok {
			return annotation.Refused(core.CodeConflict, n.elem.Field+".interface", n.elem.IfName, "is already the interface of %s", by)
		}
		n.ifName = n.elem.IfName
		taken[n.ifName] = n.elem.Field
	}
	next := 1
	for i := range nets[1:] {
		n := &nets[i+1]
		for n.ifName == "" {
			name := fmt.Sprintf("net%d", next)
			if _, ok := taken[name]; !ok {
				n.ifName = name
			}
			next++
		}
	}
	return nil
}

// want turns one network into a Want.
func (r *resolution) want(ctx context.Context, nets []network, at int) (core.Want, error) {
	n := &nets[at]
	rc, err := r.runtimeConfig(n)
	if err == nil {
		err = r.fromRanges(n)
	}
	if err != nil {
		return core.Want{}, err
	}
	w := core.Want{
		Network: n.label, IfName: n.ifName, Default: n.first, Unasked: n.only, DeclaredBy: n.declaredBy(),
		Gateways: n.elem.Gateways, TakesDefault: n.elem.TakesDefault, Args: r.args(n),
	}
	if !n.direct {
		w.CNIVersion = n.chain.CNIVersion
	}
	if !n.first {
		w.Request = n.elem.Request
	}
	if n.declared != nil {
		w.Declared = n.declared.Fields()
	}
	for _, c := range n.calls() {
		p := c.plugin
		if p.Own() {
			nic, err := r.nic(ctx, nets, at, rc)
			if err != nil {
				return w, err
			}
			w.Steps = append(w.Steps, core.Step{NIC: nic})
			defaultroute.Own(&w, nic, n.first)
			continue
		}
		x, err := r.exec(n, c, rc)
		if err != nil {
			return w, err
		}
		x.Args = w.Args
		step := core.Step{Exec: x}
		if core.OwnType(ipamType(p)) {
			if step.Lent, err = r.provenAddresses(ctx, nets, at, x); err != nil {
				return w, core.WithCode(core.CodeConfig, fmt.Sprintf("%s: addresses for plugin %q", n.field(), p.Type), err)
			}
		}
		w.Steps = append(w.Steps, step)
	}
	w.Claims, err = r.claims(ctx, n, w.Steps)
	return w, err
}

// call is one plugin with the chain whose name and version it gets.
type call struct {
	chain  *core.Chain
	plugin core.Plugin
	first  bool // of all
}

// declaredBy are the objects that declare settings of n's interface.
func (n *network) declaredBy() []string {
	if n.declared == nil {
		return nil
	}
	return n.declared.Sources()
}

// calls are n's plugins in order, those behind its own chain included.
func (n *network) calls() []call {
	var out []call
	for _, c := range []*core.Chain{&n.chain, &n.behind} {
		for _, p := range c.Plugins {
			out = append(out, call{c, p, len(out) == 0})
		}
	}
	return out
}

// anyPlugin tells whether one of n's foreign plugins is such.
func (n *network) anyPlugin(is func(core.Plugin) bool) bool {
	return slices.ContainsFunc(n.calls(), func(c call) bool { return !c.plugin.Own() && is(c.plugin) })
}

// ipamType is the plugin that p calls for addresses, "" for none.
func ipamType(p core.Plugin) string {
	var conf struct {
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	if json.Unmarshal(p.Raw, &conf) != nil {
		return "" // an ipam of another form is the plugin's own affair
	}
	return conf.IPAM.Type
}
