// Package leasing has the operator's commands about leases of addresses and MACs. They ask
// the Kubernetes API with the operator's own rights; it knows no command line.
package leasing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/ops/question"
	"github.com/fairlead/fairlead/internal/source/cluster/lease"
)

// Questions are the subcommands of `lease`.
func Questions() []question.Question {
	return []question.Question{{
		Under: "lease", Use: "list", Short: "Which declared addresses and MACs are leased, to which pod, where", Ask: list,
	}, {
		Under: "lease", Use: "describe", Args: []string{"ADDRESS"}, Short: "All of the leases of an address, a MAC or a name",
		Ask: func(ctx context.Context, a question.Asked) (view.Answer, error) {
			return found(ctx, a, func(w io.Writer, l agent.LeaseList, _ view.Options) error { return view.Lease(w, l) })
		},
	}, {
		Under: "lease", Use: "steal", Args: []string{"ADDRESS"}, Short: "Take a lease from a holder that is not proved dead, so that another pod may have the address",
		Long: stealHelp, Ask: steal,
		Flags: []question.Flag{{Name: "reason", Usage: "`why`; it stands in the lease and in an event, with your name"}, {Name: "domain", Usage: "`domain` of layer 2, where the address has leases in several"}},
	}}
}

const stealHelp = ` Do so only
when you know that the holder is off the network: nothing else keeps two pods from
having one address then. If its node is alive after all, it keeps the address as
long as its pod runs, and tells of the conflict.`

func client(a question.Asked) (*lease.Client, error) {
	if a.API == nil {
		return nil, hint.On(errors.New("leases are objects of a cluster, and nothing names one"), "give --kubeconfig; on a machine without a cluster `fairlead get pods -o wide` tells who has what")
	}
	return lease.NewClient(a.API.Config())
}

func list(ctx context.Context, a question.Asked) (view.Answer, error) {
	c, err := client(a)
	if err != nil {
		return view.Answer{}, err
	}
	all, err := c.All(ctx)
	return view.Answer{Value: all, Text: func(w io.Writer, o view.Options) error {
		if len(all.Items) == 0 {
			a.Note("no leases" + a.Place())
			return nil
		}
		return view.Leases(w, all, o)
	}}, err
}

func found(ctx context.Context, a question.Asked, text func(io.Writer, agent.LeaseList, view.Options) error) (view.Answer, error) {
	c, err := client(a)
	if err != nil {
		return view.Answer{}, err
	}
	some, err := c.Find(ctx, a.Args[0])
	if errors.Is(err, core.ErrNotFound) {
		return view.Answer{Value: some, Unknown: true, Text: func(io.Writer, view.Options) error { a.Note(err.Error()); return nil }}, nil
	}
	return view.Answer{Value: some, Text: func(w io.Writer, o view.Options) error { return text(w, some, o) }}, err
}

func steal(ctx context.Context, a question.Asked) (view.Answer, error) {
	reason := strings.TrimSpace(a.Flags["reason"])
	if reason == "" {
		return view.Answer{}, hint.Usagef("--reason is missing: it is what others read who wonder where the address went")
	}
	c, err := client(a)
	if err != nil {
		return view.Answer{}, err
	}
	some, err := c.Find(ctx, a.Args[0])
	if err != nil {
		return view.Answer{}, err
	}
	one, err := choose(some, a.Flags["domain"])
	if err != nil {
		return view.Answer{}, err
	}
	now, err := c.Steal(ctx, one.Name, reason)
	if lease.IsFree(err) {
		return view.Answer{}, fmt.Errorf("%s: %w", one.Name, err)
	}
	return view.Answer{Value: now, Text: func(w io.Writer, _ view.Options) error {
		_, err := fmt.Fprintf(w, "%s was taken from pod %s/%s on node %s; the next pod that it is declared for gets it\n", one.Name, one.Namespace, one.Pod, one.Node)
		return err
	}}, err
}

// choose is the one lease that is meant.
func choose(some agent.LeaseList, domain string) (agent.Lease, error) {
	var fit []agent.Lease
	var domains []string
	for _, l := range some.Items {
		if domain == "" || domain == l.Domain {
			fit = append(fit, l)
		}
		domains = append(domains, l.Domain)
	}
	if len(fit) == 1 {
		return fit[0], nil
	}
	return agent.Lease{}, hint.Usagef("leases of it are in %s: choose one with --domain", strings.Join(domains, ", "))
}
