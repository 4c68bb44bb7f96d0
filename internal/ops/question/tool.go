package question

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client/view"
)

// tool is `ovn nbctl` or `ovn sbctl`.
func tool(name, database string) Question {
	return Question{
		Under: "ovn", Use: name, Args: []string{"ARGS..."}, Short: "Run ovn-" + name + " on the cluster's " + database + " database; the exit code is its own",
		Long:  " What stands behind\nthe first argument, or behind `--`, is its own.",
		Flags: endFlags(), Hands: true,
		Ask: func(ctx context.Context, a Asked) (view.Answer, error) {
			argv, err := toolArgs(ctx, a, name)
			if err != nil {
				return view.Answer{}, err
			}
			code, err := a.Hand(argv...)
			return view.Answer{Code: code}, err
		},
	}
}

// toolArgs is the command line of ovn-nbctl or ovn-sbctl for this cluster's database,
// with the files by which it is asked.
func toolArgs(ctx context.Context, a Asked, name string) ([]string, error) {
	find, flag := northOf, "nb"
	if name == "sbctl" {
		find, flag = southOf, "sb"
	}
	place, err := find(ctx, a)
	if err != nil {
		return nil, hint.On(fmt.Errorf("where the database of ovn-%s is, nobody tells: %w", name, err), "name it with --"+flag+" tcp:ADDRESS:PORT or ssl:ADDRESS:PORT")
	}
	if unshown(place) {
		return nil, hint.On(fmt.Errorf("%s is asked by TLS, and no files are named", place.Endpoint), "`kubectl -n "+a.Flags["install-namespace"]+" exec ds/fairlead-central -- fairlead ovn "+name+"` needs none; else give --private-key, --certificate and --ca-cert")
	}
	argv := append([]string{"ovn-" + name, "--db=" + place.Endpoint}, tlsArgs(place.TLS)...)
	if len(place.Members()) == 1 { // no other one is there to ask, whether it leads or not
		argv = append(argv, "--no-leader-only")
	}
	return append(argv, a.Args...), nil
}
