package engine

import (
	"context"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// Explain tells what is declared of a pod, by its name, from memory: of a pod that is not
// known as of one that asks for no further network. Errors are why its ADD is refused, or
// would be.
func (e *Engine) Explain(ctx context.Context, pod core.Pod) (resolve.Explained, error) {
	req := core.Request{Key: core.Key{IfName: "eth0"}, Pod: pod, Conf: core.Conf{Name: "fairlead", Type: "fairlead"}}
	return resolve.Explain(ctx, resolve.FromMemory{Source: e.Source}, e.input(req), e.carried)
}

// carried asks the drivers of a Want's NICs whether they can carry them out.
func (e *Engine) carried(w core.Want) error {
	carriers := e.Drivers.Carriers()
	return resolve.Carried(w, func(s *core.Spec, n *core.NIC) error {
		if c := carriers[n.Driver]; c != nil {
			return c.Carry(s, n)
		}
		return nil
	})
}

// blame notes which objects declare what an error refuses of an interface, "" for any.
func (a *addition) blame(err error, ifName string) error {
	var by []string
	for _, w := range a.wants {
		if ifName == "" || w.IfName == ifName {
			by = append(by, w.DeclaredBy...)
		}
	}
	slices.Sort(by)
	return core.Blame(err, slices.Compact(by)...)
}
