package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/source/cluster/condition"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/source/cluster/share"
)

const (
	// shareManager owns what is applied to the node's own Node object.
	shareManager = "fairlead-subnets"
	messageLimit = 1024 // of its condition
)

// self is what is kept of the node's own Node object.
type self struct {
	uid    string
	blocks []netip.Prefix
	told   map[string]condition.Condition // as the object has them
	join   core.Join
	notes  map[string]string // annotations of OVN's, and labels with provider networks' MTUs
}

// nodeHeard has the Subnets looked at again: which of them this node serves
// depends on what the others claim, and its way to pods on who they are.
func (s *Source) nodeHeard(_ id, before, now *share.Node) {
	if before == nil || now == nil || before.IPs != now.IPs || before.Claims.String() != now.Claims.String() {
		s.pools.poke()
	}
}

func readSelf(o metav1.Object) self {
	out := self{uid: string(o.GetUID()), told: map[string]condition.Condition{}}
	out.join, _ = annotation.ReadJoin(o.GetAnnotations())
	out.join.Labels = o.GetLabels()
	out.notes = share.Notes(o.GetAnnotations(), o.GetLabels())
	raw, ok := o.(*object)
	if !ok {
		return out
	}
	var spec struct {
		PodCIDR  string   `json:"podCIDR"`
		PodCIDRs []string `json:"podCIDRs"`
	}
	var status patchStatus
	_, _ = decode(raw.Spec, &spec), decode(raw.Status, &status) // the server has checked them
	out.blocks = share.ParseBlocks(spec.PodCIDR, spec.PodCIDRs)
	for _, c := range status.Conditions {
		out.told[c.Type] = c
	}
	return out
}

// Join is what this node has in OVN's network of nodes, the zero value for nothing
// yet; core.ErrUnavailable until the Nodes were read, and while this one is not among them:
// kubelet registers again a Node that was deleted. A change is told as one of Subnets is.
func (s *Source) Join() (core.Join, error) {
	own, there := s.self.get(id{Name: s.Node})
	v := sharing{s}.View()
	if v.Unknown == nil && !there {
		v.Unknown = fmt.Errorf("there is no Node %s now: %w", s.Node, core.ErrUnavailable)
	}
	own.join.Nodes, own.join.Own = v.Others(), v.Own()
	return own.join, v.Unknown
}

// Shares is the node's part in the Subnets of its cluster.
type Shares struct{ *share.Keeper }

// NewShares makes it; held are the addresses of a Subnet that this node has given
// and not taken back. ovn: a controller gives those of all Subnets, and held are ones
// that it may not know of (Strays).
func NewShares(src *Source, held func(subnet string) []netip.Addr, ovn bool) Shares {
	src.pools.ovn = ovn
	k := share.NewKeeper(sharing{src}, held, src.Log)
	for _, passed := range []*func(){&src.nodes.passed, &src.self.passed, &src.pools.passed} {
		before := *passed
		*passed = func() { before(); k.Stir() }
	}
	if ovn {
		src.gone = k.Stir
	}
	src.whole = k.Stir // whichever kind is known last: no Subnet is in force before
	return Shares{k}
}

// Strays gives the addresses of a Subnet, by its name, that some of its leases have whose pods
// are no more: they end, or the API server's database forgot them. Of a Subnet that OVN
// carries there are none: it lets nothing pass for such a pod.
func (s *Source) Strays(leases func(subnet string) []core.Lease) func(subnet string) []netip.Addr {
	return func(subnet string) (out []netip.Addr) {
		for _, l := range leases(subnet) {
			if _, err := s.Known(l.Owner.Pod); !l.Owner.Pod.IsZero() && errors.Is(err, core.ErrNotFound) {
				out = append(out, l.IPs...)
			}
		}
		// Asked last: all Subnets are gone through, for each of them at each change.
		if len(out) > 0 && !slices.ContainsFunc(s.pools.inForce(), func(n core.Subnet) bool { return n.Name == subnet && !v1.Routed(n.Provider) }) {
			return nil
		}
		return out
	}
}

// sharing is a share.Site over the Kubernetes API.
type sharing struct{ src *Source }

// View implements share.Site.
func (h sharing) View() share.View {
	v := share.View{Self: h.src.Node, OVN: h.src.pools.ovn, Unknown: errors.Join(h.src.nodes.unsynced(), h.src.self.unsynced()), Nodes: map[string]share.Node{}}
	v.Soon = v.Unknown != nil && h.src.nodes.trouble() == nil && h.src.self.trouble() == nil
	for i, n := range h.src.nodes.all() {
		v.Nodes[i.Name] = n
	}
	own, _ := h.src.self.get(id{Name: h.src.Node})
	v.Blocks = own.blocks
	return v
}

// Subnets implements share.Site.
func (h sharing) Subnets() (all []core.Subnet, declared map[string]bool, err error) {
	if err := h.src.unsynced(); err != nil {
		return nil, nil, err
	}
	declared = map[string]bool{}
	for i := range h.src.pools.subnets.all() {
		declared[i.Name] = true
	}
	return h.src.pools.inForce(), declared, nil
}

// Patient implements share.Site.
func (h sharing) Patient(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return h.src.health.Patient(ctx, limit, downPatience)
}

// Down implements share.Site.
func (h sharing) Down() error { return h.src.health.Down() }

// nodePatch is the part of a Node that is applied.
type nodePatch struct {
	metav1.TypeMeta
	Metadata struct {
		Name        string            `json:"name"`
		UID         string            `json:"uid"` // the server refuses it for a successor
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Status *patchStatus `json:"status,omitempty"`
}

// Write implements share.Site.
func (h sharing) Write(ctx context.Context, claims share.Claims, told *share.Summary) error {
	own, there := h.src.self.get(id{Name: h.src.Node})
	node, registered := h.src.nodes.get(id{Name: h.src.Node})
	if !there || !registered {
		return nil // the watches will tell of it
	}
	next, news := condition.Condition{}, own.told[share.Condition] != (condition.Condition{})
	if told != nil {
		next, news = h.src.next(own, share.Condition, *told)
	}
	if node.Fault == nil && claims.String() == node.Claims.String() && !news {
		return nil
	}
	body := nodePatch{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	body.Metadata.Name, body.Metadata.UID = h.src.Node, own.uid
	if text := claims.String(); text != "" {
		body.Metadata.Annotations = map[string]string{share.Annotation: text}
	}
	if told != nil {
		body.Status = &patchStatus{Conditions: []condition.Condition{next}}
	}
	_, err := h.src.applyNode(ctx, shareManager, body)
	return err
}

// next is a condition of the node as it should be, written now, and whether the object
// does not have it.
func (s *Source) next(own self, kind string, told share.Summary) (next condition.Condition, news bool) {
	next, now := own.told[kind], metav1.NewTime(time.Now().Truncate(time.Second))
	if next.Status != told.Status {
		next.LastTransitionTime = now
	}
	next.Type, next.Status, next.Reason, next.Message = kind, told.Status, told.Reason, core.Clip(s.Shell.In(told.Message), messageLimit)
	news = next != own.told[kind]
	next.LastHeartbeatTime = now
	return next, news
}

// Note is an annotation of this node that is OVN's business, or a label with a provider
// network's MTU.
func (s *Source) Note(key string) string {
	own, _ := s.self.get(id{Name: s.Node})
	return own.notes[key]
}

// Annotate sets an annotation of the node itself, unless it is so already. One
// manager has one.
func (s *Source) Annotate(ctx context.Context, manager, key, value string) error {
	own, there := s.self.get(id{Name: s.Node})
	if !there || own.notes[key] == value {
		return s.self.unsynced() // the watch will tell of it
	}
	body := nodePatch{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	body.Metadata.Name, body.Metadata.UID, body.Metadata.Annotations = s.Node, own.uid, map[string]string{key: value}
	_, err := s.applyNode(ctx, manager, body)
	return err
}

// Tell sets a condition of the node itself, and has an event say so, unless it is so
// already. The part of Fairlead that tells it is named by manager.
func (p *Publisher) Tell(ctx context.Context, manager, kind string, told share.Summary) error {
	s := p.src
	own, there := s.self.get(id{Name: s.Node})
	next, news := s.next(own, kind, told)
	if !there || !news {
		return s.self.unsynced() // the watch will tell of it
	}
	body := nodePatch{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, Status: &patchStatus{Conditions: []condition.Condition{next}}}
	body.Metadata.Name, body.Metadata.UID = s.Node, own.uid
	wrote, err := s.applyNode(ctx, manager, body)
	if wrote {
		p.events.condition(kind, told)
	}
	return err
}

// applyNode tells whether it wrote: a node that is gone or was replaced is no error.
func (s *Source) applyNode(ctx context.Context, manager string, body nodePatch) (wrote bool, err error) {
	c := s.clients.Load()
	if c == nil {
		return false, s.unreachable(nil)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return false, fmt.Errorf("apply node %s: %w", s.Node, err)
	}
	ctx, stop := context.WithTimeout(ctx, writeLimit)
	defer stop()
	force := true
	_, err = c.meta.Resource(nodeResource).Patch(ctx, s.Node, types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: manager, Force: &force, FieldValidation: unchecked}, "status")
	s.health.Note(err)
	s.denied.Note("nodes/status", err)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return err == nil, nil // gone or replaced, which the watch will tell
	case !login.Refused(err):
		return false, s.unreachable(err)
	}
	return false, fmt.Errorf("apply node %s: %w", s.Node, err)
}

// HasNode tells that there is such a Node, or that this is not known.
func (s *Source) HasNode(name string) bool {
	_, is := s.nodes.get(id{Name: name})
	return is || s.nodes.unsynced() != nil
}
