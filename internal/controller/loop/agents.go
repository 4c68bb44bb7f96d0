package loop

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/source/cluster/share"
)

// ReasonUnled is the reason of events about Nodes whose agent does not run with --ovn.
const ReasonUnled = "AgentWithoutOVN"

// awaitAgents returns when no Node shows an agent that chooses addresses itself, as
// agents do that run without --ovn, or when ctx ends: such an agent knows nothing of what
// a controller gives, nor the controller, until its pod runs, of what the agent gives.
// Where there is none it returns at once.
func awaitAgents(ctx context.Context, w object.World, log *slog.Logger) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	news, err := agentNews(ctx, w)
	if err != nil {
		return err
	}
	said := map[string]string{}
	for {
		now := unled(w.Nodes.List(), w.Subnets.List())
		for _, n := range w.Nodes.List() {
			why := now[n.Name]
			if why != "" && why != said[n.Name] {
				err := w.Warn(ctx, object.Object{Key: object.Key{Kind: object.KindNode, Name: n.Name}, UID: n.UID}, object.Event{Reason: ReasonUnled, Message: why})
				log.Warn("no addresses are given yet: an agent chooses them itself", "node", n.Name, "why", why, "told", err == nil)
			}
		}
		if said = now; len(now) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}

// agentNews has a value when Nodes or Subnets have changed, until ctx ends. All objects
// are known when it returns.
func agentNews(ctx context.Context, w object.World) (<-chan struct{}, error) {
	news := make(chan struct{}, 1)
	err := w.Follow(ctx, func(k object.Key) {
		if k.Kind != object.KindNode && k.Kind != object.KindSubnet {
			return
		}
		select {
		case news <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the objects: %w", err)
	}
	return news, nil
}

// unled says of Nodes, by name, that their agents choose addresses, and what helps. A
// Node without an agent says nothing. That an agent without --ovn gives addresses of a
// Subnet its Node says before it gives the first one (share.Keeper); it may begin to at
// any time where it is alone, or has a block of its own of a Subnet.
func unled(nodes []object.Node, subnets []*v1.Subnet) map[string]string {
	var blocks []string
	for _, s := range subnets {
		if s.Annotations[v1.AnnAllocate] == v1.AllocateNodeBlock {
			blocks = append(blocks, s.Name)
		}
	}
	slices.Sort(blocks)
	const begin, next = "its agent runs without --ovn and ", ": the controller gives no address in this cluster until it runs with --ovn"
	out := map[string]string{}
	for _, n := range nodes {
		switch {
		case len(n.Gives) > 0:
			out[n.Name] = fmt.Sprintf("%sgives those of Subnet %s%s; if the node has no agent any more: kubectl annotate node %s %s-",
				begin, strings.Join(n.Gives, ", "), next, n.Name, share.Annotation)
		case n.Unled && len(blocks) > 0:
			out[n.Name] = fmt.Sprintf("%smay give those of its block of Subnet %s%s; if the node has no agent any more: kubectl annotate subnet %s %s-",
				begin, strings.Join(blocks, ", "), next, strings.Join(blocks, " "), v1.AnnAllocate)
		case n.Unled && len(nodes) == 1:
			out[n.Name] = begin + "may give those of any Subnet" + next
		}
	}
	return out
}
