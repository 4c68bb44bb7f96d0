package question

import (
	"context"
	"io"

	"github.com/fairlead/fairlead/internal/controller/takeover"
	"github.com/fairlead/fairlead/internal/ops/client/view"
)

const importHelp = `

What runs of Kube-OVN, how Fairlead is installed with the same networks, what users
would see that is not as it was, and what has no counterpart. It changes nothing,
and nothing takes such a cluster over by itself.`

// takenOver is the plan for a cluster of Kube-OVN.
func takenOver(ctx context.Context, a Asked) (view.Answer, error) {
	if err := onlyAPI(a, "a cluster of Kube-OVN", "name the cluster's context"); err != nil {
		return view.Answer{}, err
	}
	p, err := takeover.Look(ctx, a.API)
	if err != nil {
		return view.Answer{}, err
	}
	out := shown(a, p, func(w io.Writer, p *takeover.Plan, _ view.Options) error { return p.Text(w) })
	out.Failed = !p.Clear()
	return out, nil
}
