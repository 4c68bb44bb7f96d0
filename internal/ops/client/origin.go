package client

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
)

// Choice is what decides who is asked, and where to look.
type Choice struct {
	query.Options        // whose Files are the kubeconfigs at hand
	Socket        string // of the agent
	Local         bool   // the agent is asked, whatever kubeconfigs there are
	Namespace     string // "": the context's; of an agent all
	All           bool   // all namespaces, whatever Namespace says
	// Names are the objects asked for, NAME or NAMESPACE/NAME.
	Names []string
}

// Origin is who answers an operator's questions, and where it looks: a cluster's
// API with the user's rights, or the agent of this node. Its questions have the
// same answers in both forms; what only one of them knows the other leaves out.
type Origin struct {
	query.Scope
	Agent *Client
	API   *query.Client // nil: the agent answers
	Fell  bool          // it does because nothing names a cluster
}

// Choose opens the origin: the agent where the choice is local or nothing names a
// cluster, else the cluster. Nothing is asked yet. Errors are the kubeconfigs'.
func Choose(c Choice) (Origin, error) {
	o := Origin{Agent: New(c.Socket), Scope: query.Scope{Namespace: c.Namespace}}
	if c.All {
		o.Namespace = ""
	}
	if c.Local || len(c.Files) == 0 && c.Context == "" {
		o.Fell = !c.Local
		return o, nil
	}
	var err error
	if o.API, err = query.New(c.Options); err != nil {
		return o, err
	}
	if c.Namespace == "" && !c.All {
		o.Namespace = namespaceOf(c.Names, o.API.Namespace())
	}
	if len(c.Names) == 1 {
		o.Name = path.Base(c.Names[0])
	}
	return o, nil
}

// namespaceOf is that of names of the form NAMESPACE/NAME, "" (all) where they
// are of several, and usual where they name none.
func namespaceOf(names []string, usual string) string {
	out := usual
	for i, name := range names {
		ns, _, named := strings.Cut(name, "/")
		if !named {
			ns = usual
		}
		if i > 0 && ns != out {
			return ""
		}
		out = ns
	}
	return out
}

// Place says, behind "nothing", where it was looked for; "" needs no saying.
func (o Origin) Place() string {
	switch {
	case o.Fell:
		return " on this node (nothing names a cluster: no --kubeconfig, $KUBECONFIG or ~/.kube/config)"
	case o.API == nil:
		return ""
	case o.Namespace == "":
		return " in the cluster"
	}
	return " in namespace " + o.Namespace
}

// Pods lists pods.
func (o Origin) Pods(ctx context.Context) (agent.PodList, error) {
	if o.API != nil {
		return o.API.Pods(ctx, o.Scope)
	}
	return o.Agent.Pods(ctx, o.Namespace)
}

// Nets lists networks; the default one is in every namespace, as all can name it.
func (o Origin) Nets(ctx context.Context) (agent.NetList, error) {
	if o.API != nil {
		return o.API.Nets(ctx, o.Scope)
	}
	list, err := o.Agent.Nets(ctx)
	list.Items = slices.DeleteFunc(list.Items, func(n agent.Net) bool {
		return o.Namespace != "" && !n.Default && path.Dir(n.Name) != o.Namespace
	})
	return list, err
}

// PodNetworks lists what PodNetworks declare, and the pods that they are about.
func (o Origin) PodNetworks(ctx context.Context) (agent.PodNetworkList, error) {
	if o.API != nil {
		return o.API.PodNetworks(ctx, o.Scope)
	}
	return o.Agent.PodNetworks(ctx, o.Namespace)
}

// Subnets lists the pools of addresses and their use.
func (o Origin) Subnets(ctx context.Context) (agent.SubnetList, error) {
	if o.API != nil {
		return o.API.Subnets(ctx)
	}
	return o.Agent.Subnets(ctx)
}

// IPs lists the addresses that are held.
func (o Origin) IPs(ctx context.Context) (agent.IPList, error) {
	if o.API != nil {
		return o.API.IPs(ctx, o.Namespace)
	}
	return o.Agent.IPs(ctx, o.Namespace)
}

// Pod describes one pod; one that is not known is core.ErrNotFound.
func (o Origin) Pod(ctx context.Context, pod core.Pod) (agent.Pod, error) {
	if o.API != nil {
		return o.API.Pod(ctx, pod)
	}
	return o.Agent.Pod(ctx, pod)
}

// Usual is the namespace of a pod that is named without one.
func (o Origin) Usual() string { return cmp.Or(o.Namespace, "default") }

// Who tells what an address means.
func (o Origin) Who(ctx context.Context, addr netip.Addr) (agent.Who, error) {
	if o.API != nil {
		return o.API.Who(ctx, addr, o.Namespace)
	}
	return o.Agent.Who(ctx, addr.String())
}

// PodNames lists the names of the pods that can be asked about.
func (o Origin) PodNames(ctx context.Context) (out []string, err error) {
	if o.API != nil {
		list, err := o.API.PodNames(ctx, o.Namespace)
		for _, p := range list {
			out = append(out, p.String())
		}
		return out, err
	}
	list, err := o.Agent.Pods(ctx, "")
	for _, p := range list.Items {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out, err
}

// Explain adds to the failure of an agent that it was asked for want of a
// kubeconfig.
func (o Origin) Explain(err error) error {
	if none := (*NoAgentError)(nil); o.Fell && errors.As(err, &none) {
		none.Fell = true
	}
	return err
}
