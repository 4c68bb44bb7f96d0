package query

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead/fairlead/api/agent"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// head is what is read of an object's metadata.
type head struct {
	Metadata struct {
		Namespace   string            `json:"namespace"`
		Name        string            `json:"name"`
		UID         string            `json:"uid"`
		Annotations map[string]string `json:"annotations"`
		Created     time.Time         `json:"creationTimestamp"`
		Deleted     *time.Time        `json:"deletionTimestamp"`
	} `json:"metadata"`
}

// pod is what is read of a pod. Its metadata alone would do but for the node.
type pod struct {
	head
	Spec struct {
		NodeName    string `json:"nodeName"`
		HostNetwork bool   `json:"hostNetwork"`
	} `json:"spec"`
	Status struct {
		Phase      string               `json:"phase"`
		Conditions []agent.PodCondition `json:"conditions"`
	} `json:"status"`
}

// alive leaves out, at the server, pods that hold nothing any more.
const alive = "status.phase!=Succeeded,status.phase!=Failed"

// statuses are what network-status says.
func (h head) statuses() ([]agent.NetworkStatus, error) {
	text := h.Metadata.Annotations[v1.AnnStatus]
	if text == "" {
		return nil, nil
	}
	var out []agent.NetworkStatus
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("pod %s/%s: %s: %w", h.Metadata.Namespace, h.Metadata.Name, v1.AnnStatus, err)
	}
	return out, nil
}

// networks are the statuses; what cannot be read is noted and passed over.
func (c *Client) networks(h head) []agent.NetworkStatus {
	out, err := h.statuses()
	if err != nil {
		c.note(err.Error())
	}
	return out
}

func (p pod) state(has bool) string {
	switch {
	case p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed":
		return agent.PodEnded
	case p.Metadata.Deleted != nil:
		return agent.PodTerminating
	case p.Spec.HostNetwork:
		return agent.PodHost
	case has:
		return agent.PodAdded
	case p.Spec.NodeName == "":
		return agent.PodUnscheduled
	case p.Status.Phase == "Pending":
		return agent.PodPending
	}
	return agent.PodNoStatus
}

// Pods lists pods, by namespace and name.
func (c *Client) Pods(ctx context.Context, s Scope) (agent.PodList, error) {
	out := agent.PodList{Items: []agent.Pod{}}
	err := each(ctx, c, question{Kind: pods, Scope: s}, func(p pod) { out.Items = append(out.Items, c.shown(p)) })
	return out, err
}

// PodNames lists the pods of a namespace, "" for all.
func (c *Client) PodNames(ctx context.Context, namespace string) ([]core.Pod, error) {
	var out []core.Pod
	err := each(ctx, c, question{Kind: pods, Scope: Scope{Namespace: namespace}, heads: true}, func(h head) {
		out = append(out, core.Pod{Namespace: h.Metadata.Namespace, Name: h.Metadata.Name, UID: h.Metadata.UID})
	})
	return out, err
}

// shown is a pod in the operator's form.
func (c *Client) shown(p pod) agent.Pod {
	nets := c.networks(p.head)
	out := agent.Pod{
		Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, UID: p.Metadata.UID, Known: true,
		Node: p.Spec.NodeName, State: p.state(len(nets) > 0), Created: p.Metadata.Created, Attachments: []agent.Attachment{},
	}
	if len(nets) == 0 || out.State == agent.PodEnded {
		return out
	}
	// The status is published after the runtime has its answer.
	a := agent.Attachment{
		IfName: nets[0].Interface, Network: nets[0].Name, Phase: agent.Added, Delivered: true,
		Created: p.Metadata.Created, NetworkStatus: nets,
	}
	for _, n := range nets {
		a.Interfaces = append(a.Interfaces, iface(n))
	}
	out.Attachments = append(out.Attachments, a)
	return out
}

func iface(n agent.NetworkStatus) agent.Interface {
	out := agent.Interface{Name: n.Interface, Network: n.Name, Default: n.Default, MAC: n.MAC, MTU: n.MTU}
	for _, ip := range addresses(n.IPs) {
		out.Addresses = append(out.Addresses, netip.PrefixFrom(ip, ip.BitLen()))
	}
	out.Gateways = addresses(n.Gateway)
	if d := n.DNS; len(d.Nameservers)+len(d.Search)+len(d.Options) > 0 || d.Domain != "" {
		out.DNS = &d
	}
	return out
}

// addresses reads what others may have written, with or without prefix lengths.
func addresses(texts []string) (out []netip.Addr) {
	for _, text := range texts {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				continue
			}
			ip = p.Addr()
		}
		out = append(out, ip.Unmap())
	}
	return out
}

// Pod is all that the API knows of one pod's networks; core.ErrNotFound without
// one.
func (c *Client) Pod(ctx context.Context, id core.Pod) (agent.Pod, error) {
	if err := segments(id.Namespace, id.Name); err != nil {
		return agent.Pod{}, err
	}
	var p pod
	err := read(ctx, c.rest.Get().AbsPath(append(pods.path(id.Namespace), id.Name)...), &p)
	if apierrors.IsNotFound(err) {
		return agent.Pod{}, fmt.Errorf("pod %s: %w: %w", id, core.ErrNotFound, err)
	}
	if err != nil {
		return agent.Pod{}, c.explain(err, "get", pods, id.Namespace)
	}
	out := c.shown(p)
	out.Requested, out.Conditions = requested(p.Metadata.Annotations), p.Status.Conditions
	out.Events, err = c.events(ctx, out)
	if _, err := c.lacking(err, "events are not shown"); err != nil {
		return agent.Pod{}, err
	}
	return out, nil
}

// event is what is read of an event; those of the old API have the fields that
// are called deprecated.
type event struct {
	head
	EventTime time.Time `json:"eventTime"`
	Series    struct {
		Count int       `json:"count"`
		Last  time.Time `json:"lastObservedTime"`
	} `json:"series"`
	Type                string `json:"type"`
	Reason              string `json:"reason"`
	Note                string `json:"note"`
	ReportingController string `json:"reportingController"`
	Source              struct {
		Component string `json:"component"`
	} `json:"deprecatedSource"`
	Last      time.Time `json:"deprecatedLastTimestamp"`
	Count     int       `json:"deprecatedCount"`
	Regarding struct {
		UID string `json:"uid"`
	} `json:"regarding"`
}

// reasons of events about a pod's networks, whoever reports them: ours (also
// Multus'), and kubelet's about the sandbox.
var reasons = []string{
	"AddedInterface", "NoNetworkFound", "FailedAttachment",
	"FailedCreatePodSandBox", "FailedKillPod", "SandboxChanged", "NetworkNotReady",
}

// events are those about the networks of this pod, not of one that had its name
// before; the oldest first.
func (c *Client) events(ctx context.Context, p agent.Pod) ([]agent.PodEvent, error) {
	q := question{Kind: events, Scope: Scope{Namespace: p.Namespace}, fields: "regarding.kind=Pod,regarding.name=" + p.Name}
	var out []agent.PodEvent
	err := each(ctx, c, q, func(e event) {
		reporter := cmp.Or(e.ReportingController, e.Source.Component)
		ours := reporter == "fairlead" || slices.Contains(reasons, e.Reason)
		if !ours || e.Regarding.UID != "" && e.Regarding.UID != p.UID {
			return
		}
		shown := agent.PodEvent{When: e.last(), Type: e.Type, Reason: e.Reason, Note: e.Note, Reporter: reporter}
		if n := max(e.Series.Count, e.Count); n > 1 {
			shown.Count = n
		}
		out = append(out, shown)
	})
	slices.SortStableFunc(out, func(a, b agent.PodEvent) int { return a.When.Compare(b.When) })
	return out, err
}

// last is when the event was seen last.
func (e event) last() time.Time {
	return slices.MaxFunc([]time.Time{e.Series.Last, e.Last, e.EventTime}, time.Time.Compare)
}
