package uplink

import (
	"context"
	"log/slog"
	"sync"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/encap"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/gateway/uplink"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/source/cluster/underlay"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Parts are what an agent has of which a Node is made.
type Parts struct {
	Node, BootID string
	Datapath     string // of its bridges: "netdev" is the userspace one
	Switch       uplink.Switch
	Journal      uplink.Journal
	// Objects is asked what is declared, if it can tell (Declarer); otherwise the API
	// server that Login leads to, when there is one.
	Objects any
	// Used are the ways that NICs of this node's pods have.
	Used func(context.Context) []core.Way
	// OVN: the external gateway of the default Vpc is carried out.
	OVN   bool
	Login func() (login.Login, error)
	// Warn has an Event of the Node say something, where there is a cluster.
	Warn func(reason, note string)
	// Changed hears of each change of what the API server says. It must not block.
	Changed func()
	Log     *slog.Logger
}

// Declarer is a source that knows what is declared of physical networks.
type Declarer interface {
	Underlay() (declare.Underlay, error)
}

// Node is a Keeper with what it follows.
type Node struct {
	*Keeper
	follow func(context.Context)        // nil: somebody else does
	joins  func() (gateway, known bool) // nil: nobody can tell
}

// NewNode makes it; nothing is touched.
func NewNode(p Parts) *Node {
	c := Config{
		Node: p.Node, Log: p.Log.With("part", "uplinks"), Used: p.Used, Names: names, Warn: p.Warn,
		Transfers: uplink.New(uplink.Config{
			Switch: p.Switch, Journal: p.Journal, Node: p.Node, BootID: p.BootID, Userspace: p.Datapath == "netdev", Log: p.Log.With("part", "uplinks"),
		}),
	}
	n := &Node{}
	if objects, ok := p.Objects.(Declarer); ok {
		c.Underlay = objects.Underlay
	} else {
		api := underlay.New(underlay.Config{Login: p.Login, Node: p.Node, External: p.OVN, Changed: func() { n.Poke(); p.Changed() }, Log: p.Log})
		c.Underlay, c.Tell, n.follow, n.joins = api.Underlay, api.Tell, api.Run, api.Joins
	}
	n.Keeper = New(c)
	return n
}

// names are rules of this namespace's packet filter that name a NIC and not its bridge.
func names(ctx context.Context, nic, bridge string) (out []string, err error) {
	rules, err := netfilter.Names(ctx, nil, nic, bridge)
	for _, r := range rules {
		out = append(out, r.Where+": "+r.Text)
	}
	return out, err
}

// Run keeps the node's NICs where they should be until ctx ends.
func (n *Node) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if n.follow != nil {
		wg.Go(func() { n.follow(ctx) })
	}
	n.Keeper.Run(ctx)
}

// Joins tells that the node is a gateway to other clusters; known is false while nobody knows.
func (n *Node) Joins() (gateway, known bool) {
	if n.joins == nil {
		return false, false
	}
	return n.joins()
}

// Given are the NICs that were given to bridges, or are about to be. An error says that one
// could not be looked at.
func (n *Node) Given() (out []encap.Given, err error) {
	if len(n.cfg.Transfers.All()) == 0 {
		return nil, nil
	}
	all, err := n.cfg.Transfers.Show()
	if all == nil {
		return nil, err
	}
	for _, u := range all { // a record that cannot be read says nothing of where the NIC is
		if u.Now == "" && !u.Gone {
			return nil, err
		}
		out = append(out, encap.Given{Names: []string{u.NIC, u.Port}, Now: u.Now, Bridge: u.Bridge})
	}
	return out, nil
}
