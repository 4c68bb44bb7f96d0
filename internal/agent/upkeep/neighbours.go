package upkeep

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
)

// questions are how many pods are asked for at a time.
const questions = 8

// Neighbours finds others who have taken an address of a pod on a VLAN while it runs: a
// question for each address and round. Who has it from the start its ADD tells.
type Neighbours struct {
	Records func() []core.Record
	Subnets func(ctx context.Context) ([]core.Subnet, error)
	// Others asks once who else has addresses of an attached interface of a Subnet.
	Others func(ctx context.Context, s core.Spec, l core.Link, subnet core.Subnet) []core.Conflict
	Tell   func(core.Conflict) // once, until the other has gone
	told   map[string]bool
}

// Run makes a round at each tick until ctx ends.
func (n *Neighbours) Run(ctx context.Context, tick <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			n.round(ctx)
		}
	}
}

func (n *Neighbours) round(ctx context.Context) {
	subnets, err := n.Subnets(ctx)
	if err != nil {
		return // not known yet
	}
	physical := map[string]core.Subnet{}
	for _, s := range subnets {
		if s.Underlay != "" {
			physical[s.Name] = s
		}
	}
	if len(physical) == 0 {
		return
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		found []core.Conflict
	)
	turns := make(chan struct{}, questions)
	for _, r := range n.Records() {
		if r.Phase != core.Added || r.Orphan {
			continue
		}
		for i, s := range r.Specs[:min(len(r.Specs), len(r.Links))] {
			subnet, on := on(s, physical)
			if !on || ctx.Err() != nil {
				continue
			}
			turns <- struct{}{}
			wg.Go(func() {
				defer func() { <-turns }()
				others := n.Others(ctx, s, r.Links[i], subnet)
				mu.Lock()
				defer mu.Unlock()
				found = append(found, others...)
			})
		}
	}
	wg.Wait()
	n.tell(found)
}

// on is the Subnet of a NIC, if it is one of these.
func on(s core.Spec, some map[string]core.Subnet) (subnet core.Subnet, is bool) {
	if s.NIC != nil {
		subnet, is = some[s.NIC.Subnet]
	}
	return subnet, is
}

func (n *Neighbours) tell(found []core.Conflict) {
	now := map[string]bool{}
	for _, c := range found {
		what := fmt.Sprint(c.Pod, c.IfName, c.Addr, c.MAC)
		if now[what] = true; !n.told[what] {
			n.Tell(c)
		}
	}
	n.told = now
}
