package wayout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Help is of the command.
const Help = `

It tells by which node what the pod sends to no pod leaves, under which address the
world sees it, and which gateway, policy rule, NIC, chain and set have it so. With a
cluster at hand the Subnet's gatewayType and gateway nodes are told; of the pod's own
node its agent tells the rest, and what is in the way: run it there. Nothing is sent.`

// Ask reads what there is to know of a pod, [NAMESPACE/]NAME, and explains it;
// core.ErrNotFound without one.
func Ask(ctx context.Context, o client.Origin, name, namespace string) (view.Answer, error) {
	pod, err := client.ParsePod(name, cmp.Or(namespace, o.Usual()))
	if err != nil {
		return view.Answer{}, err
	}
	var f Facts
	if f.Pod, err = o.Pod(ctx, pod); err != nil {
		if errors.Is(err, core.ErrNotFound) {
			err = hint.On(fmt.Errorf("pod %s is not known%s: %w", pod, o.Place(), core.ErrNotFound), "`fairlead get pods` lists what is")
		}
		return view.Answer{}, err
	}
	here, err := o.Agent.Outward(ctx)
	switch {
	case err == nil && (o.API == nil || here.Node == f.Pod.Node):
		f.Here, f.Pod.Node = &here, here.Node
	case o.API == nil:
		return view.Answer{}, err
	}
	if err := f.subnets(ctx, o); err != nil {
		return view.Answer{}, err
	}
	out := Explain(f)
	return view.Answer{Value: out, Text: func(w io.Writer, v view.Options) error { return view.WayOut(w, out, v) }}, nil
}

// subnets reads the pod's Subnets, and the nodes that they name, where there is a cluster.
func (f *Facts) subnets(ctx context.Context, o client.Origin) error {
	if o.API == nil {
		return nil
	}
	f.About, f.Nodes = map[string]agent.SubnetDetail{}, map[string][]netip.Addr{}
	all, err := o.API.Subnets(ctx)
	if err != nil {
		return err
	}
	f.Place(all.Items)
	f.external(ctx, o)
	for _, i := range f.Interfaces() {
		if _, known := f.About[i.Subnet]; known || i.Subnet == "" {
			continue
		}
		s, err := o.API.Subnet(ctx, i.Subnet)
		if err != nil {
			f.Unknown = append(f.Unknown, "Subnet "+i.Subnet+": "+err.Error())
			continue
		}
		f.About[i.Subnet] = s
		for _, name := range f.By(s) {
			n, err := o.API.Node(ctx, name)
			if err != nil {
				f.Unknown = append(f.Unknown, "node "+name+": "+err.Error())
			}
			f.Nodes[name] = n.Addresses
		}
	}
	return nil
}

// external reads the external gateway of the default Vpc, where the pod asks for an address
// there.
func (f *Facts) external(ctx context.Context, o client.Origin) {
	if f.outside() == "" {
		return
	}
	m, err := o.API.Get(ctx, query.ConfigMaps, declare.ConfigNamespace, declare.ConfigExternal)
	if err != nil && !errors.Is(err, core.ErrNotFound) {
		f.Unknown = append(f.Unknown, "ConfigMap "+declare.ConfigExternal+": "+err.Error())
		return
	}
	data := map[string]string{}
	for key, value := range m.Data {
		data[key] = fmt.Sprint(value)
	}
	gw, faults := declare.ReadExternal(data)
	if gw != nil && len(faults) == 0 {
		f.External = gw
	}
}

// Node tells of a node what the Kubernetes API knows, and of this one what its agent does;
// "" is this one. Without a cluster there is the agent's part alone. core.ErrNotFound
// without such a node.
func Node(ctx context.Context, o client.Origin, name string) (agent.NodeDetail, error) {
	here, err := o.Agent.Outward(ctx)
	name = cmp.Or(name, here.Node)
	if o.API == nil {
		if err == nil && name != here.Node {
			err = hint.On(fmt.Errorf("this is node %s, and of %s nothing is known here: %w", here.Node, name, core.ErrNotFound), "give --kubeconfig, or ask there")
		}
		return agent.NodeDetail{Name: name, Outward: &here}, err
	}
	if name == "" {
		return agent.NodeDetail{}, hint.Usagef("no agent answers here: name the node")
	}
	n, errAPI := o.API.Node(ctx, name)
	if errors.Is(errAPI, core.ErrNotFound) {
		errAPI = hint.On(fmt.Errorf("there is no node %q: %w", name, core.ErrNotFound), "`kubectl get nodes` lists all")
	}
	if err == nil && here.Node == name {
		n.Outward = &here
	}
	return n, errAPI
}
