// Package declaration tells what is declared of pods from outside of them: of one pod
// what counts of each field and from where it comes, and the PodNetworks with the pods
// that have them. It asks the node's agent, or the Kubernetes API with the user's rights
// and concludes as the agent does. It changes nothing, and must not know commands.
package declaration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/source/catalog"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
)

// Help is of the command.
const Help = `

PodNetworks and labelled ConfigMaps declare it, by the pod's name: the pod need not
be there. Each field is shown with its value and the object that says it; below it
what another object, an annotation of the pod or the network's own configuration
says, which does not count. A refusal is what the pod's ADD fails with, or would. A cluster is asked with
your rights; of what the nodes' own configuration says nothing is known then.`

// Explain tells what is declared of a pod, [NAMESPACE/]NAME. Flag namespace is that of a
// name without one, install-namespace Fairlead's own, whose ConfigMaps are about pods of
// all.
func Explain(ctx context.Context, o client.Origin, name string, flags map[string]string) (view.Answer, error) {
	pod, err := client.ParsePod(name, cmp.Or(flags["namespace"], o.Usual()))
	if err != nil {
		return view.Answer{}, err
	}
	var out agent.PodSettings
	if o.API == nil {
		out, err = o.Agent.Settings(ctx, pod)
	} else {
		out, err = explain(ctx, o.API, pod, flags["install-namespace"])
	}
	return view.Answer{
		Value: out, Text: func(w io.Writer, v view.Options) error { return view.PodSettings(w, out, v) }, Failed: out.Refusal != nil,
	}, err
}

// explain asks the API server. What it refuses to show is an error, but for what a note
// can stand for.
func explain(ctx context.Context, api API, pod core.Pod, common string) (agent.PodSettings, error) {
	from := &objects{api: api, common: common}
	found, err := from.Pod(ctx, pod)
	if err != nil && !errors.Is(err, core.ErrNotFound) {
		return agent.PodSettings{}, err
	}
	if err := from.read(ctx, pod); err != nil {
		return agent.PodSettings{}, err
	}
	in := resolve.Input{
		Request:  core.Request{Key: core.Key{IfName: "eth0"}, Pod: pod, Conf: core.Conf{Name: agent.DefaultNet, Type: "fairlead"}},
		Declared: from, Alone: true,
	}
	x, refusal := resolve.Explain(ctx, from, in, carried)
	if from.failed != nil {
		return agent.PodSettings{}, from.failed
	}
	out := catalog.Settings(pod, found != nil, x, refusal)
	out.Notes = from.notes
	return out, nil
}

// carried asks our own driver, which decides without a machine.
func carried(w core.Want) error {
	carriers := driver.Set{core.DriverOVS: ovs.New(ovs.Config{})}.Carriers()
	return resolve.Carried(w, func(s *core.Spec, n *core.NIC) error {
		if c := carriers[n.Driver]; c != nil {
			return c.Carry(s, n)
		}
		return nil
	})
}

// Describe tells all of a PodNetwork, [NAMESPACE/]NAME; core.ErrNotFound without one.
func Describe(ctx context.Context, o client.Origin, name, namespace string) (view.Answer, error) {
	named, err := client.ParsePod(name, cmp.Or(namespace, o.Usual()))
	if err != nil {
		return view.Answer{}, err
	}
	o.Scope = query.Scope{Namespace: named.Namespace}
	list, err := o.PodNetworks(ctx)
	if err != nil {
		return view.Answer{}, err
	}
	i := slices.IndexFunc(list.Items, func(n agent.PodNetwork) bool { return n.Name == named.Name })
	if i < 0 {
		return view.Answer{}, hint.On(fmt.Errorf("there is no PodNetwork %s: %w", named, core.ErrNotFound), "`fairlead get podnetworks -A` lists all")
	}
	out := list.Items[i]
	return view.Answer{Value: out, Text: func(w io.Writer, v view.Options) error { return view.PodNetwork(w, out, v) }}, nil
}
