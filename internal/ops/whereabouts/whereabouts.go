// Package whereabouts adopts, as AddressLeases, the addresses that the program of the IPAM
// plugin whereabouts has given to living pods, and leaves them to it again. It asks the
// Kubernetes API with the operator's own rights; it knows no command line.
package whereabouts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/ops/question"
	"github.com/fairlead/fairlead/internal/source/cluster/lease"
)

// Question is the command.
func Question() question.Question {
	return question.Question{
		Under: "import", Use: "whereabouts", Short: "Adopt the addresses that the program whereabouts has given to living pods, or leave them to it", Long: help, Ask: answer,
		Flags: []question.Flag{
			{Name: "plan", Switch: true, Usage: "look and change nothing (default)"},
			{Name: "apply", Switch: true, Usage: "adopt them"},
			{Name: "rollback", Switch: true, Usage: "leave them to the program"},
		},
	}
}

const help = `

After --apply each of them has an AddressLease, so that agents give none of them to
another pod; each goes when its pod is gone. --plan, which is the default, says what
there is and changes nothing: exit code 1 when something is in the way. --apply may be
killed at any instant and run again; --rollback deletes these leases, but for those that
pods have got from an agent since. IPPools stay as they are.`

// States of an address that the program has given.
const (
	StateFound   = "found"   // to be adopted
	StateAdopted = "adopted" // there is a lease of it for this pod
	StateGone    = "gone"    // its pod is no more: nobody has it
	StateStale   = "stale"   // its pod has another address by now
	StateHeld    = "held"    // there is a lease of it for another pod
	StateBroken  = "broken"  // the IPPool, or who has it, cannot be understood
	StateLeft    = "left"    // to the program, by --rollback
)

// Given is an address that the program has given.
type Given struct {
	Pool      string `json:"pool"`
	Address   string `json:"address,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Interface string `json:"interface,omitempty"`
	Lease     string `json:"lease,omitempty"`
	State     string `json:"state"`
	Why       string `json:"why,omitempty"`
}

// inTheWay tells that the address is left as it is although a pod may have it.
func (g Given) inTheWay() bool { return g.State == StateHeld || g.State == StateBroken }

func answer(ctx context.Context, a question.Asked) (view.Answer, error) {
	apply, rollback := a.On("apply"), a.On("rollback")
	if apply && rollback || a.On("plan") && (apply || rollback) {
		return view.Answer{}, hint.Usagef("give one of --plan, --apply and --rollback")
	}
	if a.API == nil {
		return view.Answer{}, hint.On(errors.New("IPPools of whereabouts are objects of a cluster, and nothing names one"), "give --kubeconfig, or set KUBECONFIG")
	}
	leases, err := lease.NewClient(a.API.Config())
	if err != nil {
		return view.Answer{}, err
	}
	var all []Given
	if rollback {
		all, err = leave(ctx, leases)
	} else {
		i := &imported{api: a.API, leases: leases, apply: apply}
		all, err = i.run(ctx)
	}
	failed := false
	for _, g := range all {
		failed = failed || g.inTheWay()
	}
	return view.Answer{Value: all, Failed: failed, Text: func(w io.Writer, _ view.Options) error { return text(w, all) }}, err
}

// leave deletes what --apply has made.
func leave(ctx context.Context, leases *lease.Client) ([]Given, error) {
	all, err := leases.Adopted(ctx)
	out := []Given{}
	for _, l := range all {
		g := Given{Address: l.Claim.Addr.String(), Pod: l.Owner.String(), Interface: l.Holder.Key.IfName, Lease: l.Name, State: StateLeft}
		done, failed := leases.Leave(ctx, l.Name)
		if failed != nil {
			return out, failed
		}
		if !done {
			g.State, g.Why = StateAdopted, "an agent has given it since"
		}
		out = append(out, g)
	}
	return out, err
}

func text(w io.Writer, all []Given) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "ADDRESS\tPOD\tINTERFACE\tSTATE\tLEASE\tIPPOOL\tWHY")
	for _, g := range all {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Address, g.Pod, g.Interface, g.State, g.Lease, g.Pool, g.Why)
	}
	return t.Flush()
}
