package external

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/launcher"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/ports"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Annotations of a pod.
const (
	annEIP  = v1.DefaultProvider + v1.ProviderSuffix + v1.ExternalEIP
	annSNAT = v1.DefaultProvider + v1.ProviderSuffix + v1.ExternalSNAT
)

// Reasons of events.
const (
	ReasonRefused = "ExternalGatewayRefused"
	ReasonNoNode  = "NoGatewayNode"
	ReasonPod     = "ExternalAddressRefused"
)

// Config is what a Keeper is made of.
type Config struct {
	object.World
	Maps object.Maps
	DB   interface {
		Apply(ctx context.Context, set *ovn.Set) error
		Ports() ([]ovn.Port, error)
	}
	Log *slog.Logger
}

// Keeper keeps the gateway's rows, one time of leading after another.
type Keeper struct {
	Config
	*ports.Loop
	told map[object.Key]string

	seen object.Seen // what matters of objects that changed

	mu    sync.Mutex
	asked map[string]object.Key // pods that want addresses outside, by their IP objects; nil before they were looked for
}

// New makes a Keeper. Run has it work. The launcher pods of a virtual machine are one pod.
func New(c Config) *Keeper {
	c.World = launcher.World(c.World)
	return &Keeper{Config: c, Loop: ports.NewLoop(Owner, declare.ConfigExternal, c.Maps)}
}

// Run works until ctx ends. It is for who leads.
func (k *Keeper) Run(ctx context.Context) error {
	k.begin()
	return k.Lead(ctx, k.World, k.concerns, func(ctx context.Context, maps map[string]object.Map) error {
		err := k.once(ctx, maps)
		if err != nil && ctx.Err() == nil && !ports.Untaken(err) {
			k.Log.Warn("the external gateway is not as it should be yet; it is tried again", "err", err)
		}
		return err
	})
}

// begin forgets whom it told what while it led before: another may have led meanwhile.
func (k *Keeper) begin() {
	k.told = map[object.Key]string{}
	k.seen.Forget()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = nil
}

// concerns tells an object of which something changed that matters: with each pod counts of
// addresses do, and a look for that would make every pod cost what there is.
func (k *Keeper) concerns(of object.Key) bool {
	switch of.Kind {
	case object.KindPod:
		p, was := k.ask(of)
		return (was || asks(p)) && k.seen.Changed(of, wish(p))
	case object.KindIP:
		return k.wanted(of.Name) && k.seen.Changed(of, k.matters(of))
	case object.KindNode, object.KindSubnet:
		return k.seen.Changed(of, k.matters(of))
	}
	return false
}

// matters is what of an object makes rows, "" for one that is gone.
func (k *Keeper) matters(of object.Key) string {
	if n, ok := k.Nodes.Get("", of.Name); ok && of.Kind == object.KindNode {
		return fmt.Sprintln(n.Annotations[v1.AnnChassis], n.Labels[declare.LabelExternal], n.IPs)
	}
	if s, ok := k.Subnets.Get("", of.Name); ok && of.Kind == object.KindSubnet {
		return fmt.Sprintln(s.Spec.Vpc, s.Spec.Provider, s.Spec.Vlan, s.Spec.LogicalGateway)
	}
	if o, ok := k.IPs.Get("", of.Name); ok && of.Kind == object.KindIP {
		return fmt.Sprintln(o.Spec.Subnet, o.Spec.IPAddress)
	}
	return ""
}

// wish is what a pod wants outside, "" for nothing.
func wish(p object.Pod) string {
	if !asks(p) {
		return ""
	}
	return fmt.Sprintln(p.UID, p.Annotations[annEIP], p.Annotations[annSNAT], logical.Told(p.Annotations))
}

// asks tells that a pod wants an address outside.
func asks(p object.Pod) bool {
	return p.Annotations[annEIP]+p.Annotations[annSNAT] != "" && !p.Done && !p.Host
}

// ask notes whether a pod wants an address outside now, and tells that it did.
func (k *Keeper) ask(of object.Key) (p object.Pod, was bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, _ = k.Pods.Get(of.Namespace, of.Name) // all pods are looked for before this, or find it so
	name := ipName(of.Namespace, of.Name)
	_, was = k.asked[name]
	switch {
	case !asks(p):
		delete(k.asked, name)
	case k.asked != nil:
		k.asked[name] = of
	}
	return p, was
}

// wanted tells that an IP object's pod wants addresses outside.
func (k *Keeper) wanted(ip string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, is := k.asked[ip]
	return is
}

// wanting are the pods that want addresses outside. All pods are looked at once.
func (k *Keeper) wanting() []object.Key {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asked == nil {
		k.asked = map[string]object.Key{}
		for _, p := range k.Pods.List() {
			if asks(p) {
				k.asked[ipName(p.Namespace, p.Name)] = object.KindPod.Named(p.Namespace, p.Name)
			}
		}
	}
	return slices.Collect(maps.Values(k.asked))
}

// ipName is the IP object of a pod's address in the default Vpc.
func ipName(namespace, pod string) string { return pod + "." + namespace }

// once makes all as it should be.
func (k *Keeper) once(ctx context.Context, maps map[string]object.Map) error {
	saying := map[object.Key]fault{}
	say := func(o object.Object, reason, text string) { saying[o.Key] = fault{o, reason + "\x00" + text} }
	set := &ovn.Set{Owner: Owner}
	m := maps[declare.ConfigExternal]
	e, data, faults, err := k.read(m)
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		say(m.Object(), ReasonRefused, text(faults))
	}
	pods := k.pods()
	switch nodes := k.gateways(e); {
	case e == nil && len(faults) > 0:
		return k.tell(ctx, saying) // what is there, if anything is, stays
	case e == nil:
		for _, p := range pods {
			say(p.Object, ReasonPod, "annotations "+annEIP+" and snat: ConfigMap "+declare.ConfigNamespace+"/"+declare.ConfigExternal+" enables no external gateway")
		}
	default:
		if len(nodes)+len(faults) == 0 {
			say(m.Object(), ReasonNoNode, fmt.Sprintf("no gateway node is a chassis of OVN: data.external-gw-nodes is %q, and no other Node has label %s=true", m.Data["external-gw-nodes"], declare.LabelExternal))
		}
		var wrong []fault
		set, wrong = rows(*e, data, nodes, pods, k.nodes())
		for _, f := range wrong {
			say(f.of, ReasonPod, f.text)
		}
	}
	err = k.DB.Apply(ctx, set)
	if errors.As(err, new(*ovn.TakenError)) || errors.As(err, new(*ovn.UnsupportedError)) {
		say(m.Object(), ReasonRefused, err.Error()) // of a Subnet of this name, for one
	}
	return errors.Join(err, k.tell(ctx, saying))
}

// read gives what is to be carried out, and the data that says it: of a ConfigMap with faults
// what was carried out last, since pods come and go.
func (k *Keeper) read(m object.Map) (e *declare.External, data map[string]string, faults []declare.Fault, err error) {
	e, faults = declare.ReadExternal(m.Data)
	if len(faults) == 0 {
		return e, m.Data, nil, nil
	}
	e, data, err = k.carriedOut()
	return e, data, faults, err
}

// carriedOut is what the database's rows were made of last, by whoever led then, nil where
// there are none.
func (k *Keeper) carriedOut() (e *declare.External, data map[string]string, err error) {
	ports, err := k.DB.Ports()
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(ports, func(p ovn.Port) bool { return p.Name == localnet && p.Owner == Owner })
	if i < 0 || !json.Valid([]byte(ports[i].ExternalIDs[noteData])) { // an older version wrote none
		return nil, nil, nil
	}
	if err := json.Unmarshal([]byte(ports[i].ExternalIDs[noteData]), &data); err != nil {
		return nil, nil, fmt.Errorf("data of port %s: %w", localnet, err)
	}
	e, faults := declare.ReadExternal(data)
	if len(faults) > 0 {
		return nil, nil, nil // by an older version
	}
	return e, data, nil
}

// nodes are the addresses of all nodes.
func (k *Keeper) nodes() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, n := range k.Nodes.List() {
		for _, ip := range n.IPs {
			out[ip] = true
		}
	}
	return out
}

func (k *Keeper) gateways(e *declare.External) []object.Node {
	if e == nil {
		return nil
	}
	return ports.Gateways(k.Nodes.List(), e.Nodes, e.IsGateway)
}

func text(faults []declare.Fault) string {
	var out []string
	for _, f := range faults {
		out = append(out, f.String())
	}
	return strings.Join(out, "; ")
}

// pods are those that ask for addresses outside and have some inside, the oldest first: who
// had one keeps it.
func (k *Keeper) pods() (out []Pod) {
	born := map[object.Key]time.Time{}
	for _, key := range k.wanting() {
		p, _ := k.Pods.Get(key.Namespace, key.Name)
		if !asks(p) {
			continue // there will be news of it
		}
		o := Pod{Object: object.Object{Key: key, UID: p.UID}, EIP: p.Annotations[annEIP], SNAT: p.Annotations[annSNAT]}
		has := logical.Told(p.Annotations) // all at once
		switch ip, ok := k.IPs.Get("", ipName(p.Namespace, p.Name)); {
		case ok:
			o.IPs, o.Elsewhere = k.addresses(ip)
		case len(has) > 0 && !slices.Contains(has, v1.DefaultProvider):
			o.Elsewhere = "its default network is not of provider " + v1.DefaultProvider
		default:
			continue // it is told when it has an address
		}
		born[o.Key] = p.Born
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b Pod) int {
		return cmp.Or(born[a.Key].Compare(born[b.Key]), strings.Compare(a.Key.String(), b.Key.String()))
	})
	return out
}

// addresses are a pod's in the default Vpc, by its IP object, which no tenant writes; else
// elsewhere says why the gateway outside does not see what it sends.
func (k *Keeper) addresses(ip *v1.IP) (out []netip.Addr, elsewhere string) {
	s, ok := k.Subnets.Get("", ip.Spec.Subnet)
	switch {
	case !ok:
		return nil, "there is no Subnet " + ip.Spec.Subnet
	case s.Spec.Vpc != "" && s.Spec.Vpc != v1.DefaultVpc:
		return nil, "Subnet " + s.Name + " is in Vpc " + s.Spec.Vpc
	case !v1.Routed(s.Spec.Provider):
		return nil, "OVN does not carry Subnet " + s.Name
	case s.Spec.Vlan != "" && !s.Spec.LogicalGateway:
		return nil, "what it sends leaves by the physical gateway of Subnet " + s.Name
	}
	for text := range strings.SplitSeq(ip.Spec.IPAddress, ",") {
		if a, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			out = append(out, a)
		}
	}
	return out, ""
}

// tell tells objects what is wrong with them, each thing once.
func (k *Keeper) tell(ctx context.Context, saying map[object.Key]fault) (err error) {
	for key, f := range saying {
		if k.told[key] == f.of.UID+f.text {
			continue
		}
		reason, message, _ := strings.Cut(f.text, "\x00")
		if failed := k.Warn(ctx, f.of, object.Event{Reason: reason, Message: message}); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		k.told[key] = f.of.UID + f.text
	}
	for key := range k.told {
		if _, still := saying[key]; !still {
			delete(k.told, key)
		}
	}
	return err
}
