package query

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
)

// Row is a logical port of OVN's northbound database that a controller made.
type Row struct {
	UUID, Name, Subnet string
	Pod                core.Pod // with the UID that the row says
	Keeper             string   // kind/name/UID
	Addresses          []netip.Addr
}

// Lost looks for IP objects and AddressLeases that are nobody's, pods that no IP object
// tells of, and rows that are nobody's. What is found in lists is asked again one by one: only
// what the server says now counts.
func (c *Client) Lost(ctx context.Context, of []Row) (out agent.LostList, err error) {
	s, err := c.census(ctx)
	if err != nil {
		return out, err
	}
	out.Items, out.Unseen = []agent.Lost{}, s.unseen()
	for _, r := range s.records {
		if r.state == agent.IPLeft {
			add(&out)(c.lostRecord(ctx, r))
		}
	}
	for _, h := range s.pods {
		if s.knowsRecords && len(h.unrecorded) > 0 && !s.known(h) {
			add(&out)(c.lostPod(ctx, h))
		}
	}
	if err := c.lostLeases(ctx, s, &out); err != nil || !s.knowsRecords {
		return out, err
	}
	for _, r := range of {
		if _, there := s.pods[r.Pod.Namespace+"/"+r.Pod.Name]; !there {
			add(&out)(c.lostRow(ctx, r))
		}
	}
	return out, nil
}

// unseen names the kinds that could not be listed.
func (c census) unseen() (out []string) {
	for i, seen := range []bool{c.knowsRecords, c.knowsSets, c.knowsNodes} {
		if !seen {
			what := []string{"IP objects", "StatefulSets", "nodes"}[i]
			out = append(out, unlisted(what))
		}
	}
	return out
}

func unlisted(what string) string {
	return what + ": they cannot be listed, and nothing is said that depends on them"
}

// add keeps a finding; what could not be asked again is told, and no finding.
func add(to *agent.LostList) func(found agent.Lost, is bool, err error) {
	return func(found agent.Lost, is bool, err error) {
		if err != nil {
			to.Unseen = append(to.Unseen, found.Kind+" "+found.Name+": "+err.Error())
		} else if is {
			to.Items = append(to.Items, found)
		}
	}
}

// lostRecord asks about one IP object.
func (c *Client) lostRecord(ctx context.Context, r record) (agent.Lost, bool, error) {
	out := agent.Lost{
		Kind: agent.LostObject, Name: r.Metadata.Name, Subnet: r.spec.Subnet, Addresses: r.ips,
		Next: "`fairlead ip leaks --fix`",
	}
	_, is, why, err := c.abandoned(ctx, r.Metadata.Name)
	out.Reason = why
	return out, is, err
}

// abandoned tells whether an IP object is nobody's, by what the server says of it
// now, of its pod or node, and of what would keep it. The object is as it was read.
func (c *Client) abandoned(ctx context.Context, name string) (o Object, is bool, why string, err error) {
	if o, err = c.Get(ctx, IPs, "", name); err != nil {
		return o, false, "", ignore(err)
	}
	r := readRecord(o)
	s := census{pods: map[string]holding{}, sets: map[string]Object{}, nodes: map[string]bool{}, knowsRecords: true, knowsSets: true, knowsNodes: true}
	if err := c.live(ctx, s, r.spec.Namespace, r.spec.PodName, keeperName(r.Metadata.Annotations[noteKeeper])); err != nil {
		return o, false, "", err
	}
	if node := r.spec.NodeName; r.ofNode() {
		_, err := c.Get(ctx, Nodes, "", node)
		if ignore(err) != nil {
			return o, false, "", err
		}
		s.nodes[node] = err == nil
	}
	s.judge(&r)
	return o, r.state == agent.IPLeft, left(s, r), nil
}

// live puts into a census what there is now of a pod and of the StatefulSet that
// would make it again.
func (c *Client) live(ctx context.Context, s census, namespace, name, keeper string) error {
	if namespace == "" || name == "" {
		return nil
	}
	o, err := c.Get(ctx, Pods, namespace, name)
	if ignore(err) != nil {
		return err
	}
	if err == nil {
		s.pods[namespace+"/"+name] = holding{pod: podOf(o)}
	}
	if keeper == "" {
		return nil
	}
	set, err := c.Get(ctx, StatefulSets, namespace, keeper)
	if err == nil {
		s.sets[namespace+"/"+keeper] = set
	}
	return ignore(err)
}

// podOf is a pod of which no addresses are asked.
func podOf(o Object) (p pod) {
	p.Metadata.Namespace, p.Metadata.Name, p.Metadata.UID, p.Metadata.Annotations = o.Metadata.Namespace, o.Metadata.Name, o.Metadata.UID, o.Metadata.Annotations
	_ = Read(o.Spec, &p.Spec)
	_ = Read(o.Status, &p.Status) // one that cannot be read counts as a pod that lives
	return p
}

// ignore takes what is not there for an answer.
func ignore(err error) error {
	if errors.Is(err, core.ErrNotFound) {
		return nil
	}
	return err
}

// keeperName is the StatefulSet of kind/name/UID.
func keeperName(text string) string {
	parts := strings.Split(text, "/")
	if len(parts) != 3 || parts[0] != "StatefulSet" {
		return ""
	}
	return parts[1]
}

// left says why nobody has an IP object.
func left(s census, r record) string {
	if r.spec.Namespace == "" {
		return "there is no node " + r.spec.NodeName
	}
	pod := r.spec.Namespace + "/" + r.spec.PodName
	why := "there is no pod " + pod
	if p, there := s.pods[pod]; there {
		why = "pod " + pod + " is another one, of UID " + p.Metadata.UID
		if p.over() {
			why = "pod " + pod + " has ended"
		}
	}
	if k := keeperName(r.Metadata.Annotations[noteKeeper]); k != "" {
		why += ", and StatefulSet " + k + " wants it no more"
	}
	return why
}

// lostPod asks about one pod that no listed object tells of.
func (c *Client) lostPod(ctx context.Context, h holding) (agent.Lost, bool, error) {
	name := h.Metadata.Namespace + "/" + h.Metadata.Name
	out := agent.Lost{
		Kind: agent.LostPod, Name: name, Addresses: h.unrecorded,
		Reason: "it was told these addresses, and no IP object has them",
		Next:   "see that fairlead-controller runs (`fairlead doctor`): it makes the object",
	}
	now, err := c.Get(ctx, Pods, h.Metadata.Namespace, h.Metadata.Name)
	if err != nil || now.Metadata.UID != h.Metadata.UID {
		return out, false, ignore(err)
	}
	o, err := c.Get(ctx, IPs, "", h.Metadata.Name+"."+h.Metadata.Namespace)
	if err != nil {
		return out, errors.Is(err, core.ErrNotFound), ignore(err)
	}
	s := census{records: []record{readRecord(o)}}
	out.Reason = "it was told these addresses, and its IP object has others"
	return out, !s.known(h), nil
}

// lostRow asks about one row.
func (c *Client) lostRow(ctx context.Context, r Row) (agent.Lost, bool, error) {
	out := agent.Lost{
		Kind: agent.LostRow, Name: r.Name, Subnet: r.Subnet, Addresses: r.Addresses,
		Reason: fmt.Sprintf("there is neither a pod %s nor an IP object %s", r.Pod, r.Name), Next: "`fairlead ip leaks --fix`",
	}
	is, err := c.NobodysRow(ctx, r)
	return out, is, err
}

// NobodysRow tells that a row's pod is not there now, and neither an IP object nor a
// StatefulSet that keeps its addresses.
func (c *Client) NobodysRow(ctx context.Context, r Row) (bool, error) {
	_, err := c.Get(ctx, IPs, "", r.Name)
	if err == nil || ignore(err) != nil {
		return false, ignore(err)
	}
	s := census{pods: map[string]holding{}, sets: map[string]Object{}}
	keeper := keeperName(r.Keeper)
	if keeper == "" && r.Keeper != "" {
		return false, nil // what keeps it is not known here
	}
	if err := c.live(ctx, s, r.Pod.Namespace, r.Pod.Name, keeper); err != nil {
		return false, err
	}
	at := r.Pod.Namespace + "/" + r.Pod.Name
	set, kept := s.sets[at[:strings.LastIndexByte(at, '/')+1]+keeper]
	_, there := s.pods[at]
	kept = kept && keeps(set, r.Keeper[strings.LastIndexByte(r.Keeper, '/')+1:], r.Pod.Name)
	return !there && !kept, nil
}

// Free removes an IP object if it is nobody's now; else it says why it stays.
func (c *Client) Free(ctx context.Context, name string) (stays string, err error) {
	o, is, _, err := c.abandoned(ctx, name)
	switch {
	case err != nil:
		return "", err
	case !is:
		return "it is somebody's by now", nil
	}
	return "", c.Remove(ctx, IPs, o)
}
