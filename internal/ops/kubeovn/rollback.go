package kubeovn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	driver "github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
	"github.com/fairlead/fairlead/internal/network/record"
	"github.com/fairlead/fairlead/internal/ovs/former"
	"github.com/fairlead/fairlead/internal/ovs/rows"
)

// giving is one --rollback under way.
type giving struct {
	node
	k    kept
	db   *rows.DB
	j    *journal.Journal
	back []core.Record // that Kube-OVN can detach
	rep  Report
}

func (n node) rollback(ctx context.Context) (rep Report, err error) {
	g := giving{node: n, rep: Report{Done: []string{}, Todo: []string{}}}
	known, err := recordfile.Load(n.file(), &g.k)
	if err != nil || !known {
		return g.rep, err
	}
	switch _, err := n.agent.Status(ctx); {
	case err == nil:
		return Report{}, hint.On(errors.New("the agent runs, and would take them over again"), "end it: `systemctl stop fairlead`, or take its DaemonSet off this node")
	case !ended(err):
		return Report{}, fmt.Errorf("whether the agent has ended cannot be told, and it would take them over again: %w", err)
	}
	ctx, stop := context.WithTimeout(ctx, atMost)
	defer stop()
	for _, step := range []func(context.Context) error{g.ports, g.filter} {
		if err := step(ctx); err != nil {
			return Report{}, err
		}
	}
	if err := os.Rename(n.file(), n.file()+".restored"); err != nil {
		return Report{}, err
	}
	g.rep.Todo = append(g.rep.Todo, "start Kube-OVN's daemon: `kubectl -n kube-system get daemonset kube-ovn-cni`")
	return g.rep, nil
}

func (g *giving) did(format string, args ...any) {
	g.rep.Done = append(g.rep.Done, fmt.Sprintf(format, args...))
}

// filter makes the packet filter what it was.
func (g *giving) filter(ctx context.Context) error {
	if err := g.k.Restore(ctx, g.host, netfilter.OwnTable); err != nil {
		return err
	}
	fail.Here("kubeovn.filter")
	g.did("Kube-OVN's chains and sets are as they were at %s UTC", g.k.When.Format(time.DateTime))
	return nil
}

// ports makes ports and bridges what they were, and then has the journal forget them: what
// carries our marks without a record is swept away by an agent.
func (g *giving) ports(ctx context.Context) (err error) {
	if len(g.k.Switch.Ports) == 0 && !exists(filepath.Join(g.state, journalName)) {
		return nil
	}
	db, err := former.Open(ctx, g.ovsdb)
	if err != nil {
		return hint.On(err, "it has the pods' ports: start Open vSwitch, or name its database with --ovsdb")
	}
	defer db.Close()
	g.db = db
	if g.j, err = journal.Open(g.state, journal.Options{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.j.Close()) }()
	for _, step := range g.steps() {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// steps are those of ports.
func (g *giving) steps() []func(context.Context) error {
	return []func(context.Context) error{g.sort, g.unmarkLinks, g.restore, g.release, g.forget}
}

// restore makes the switch's rows what they were.
func (g *giving) restore(ctx context.Context) error {
	_, err := g.k.Switch.Restore(ctx, g.db, former.Strip{IDs: driver.Marks(), Of: g.gives})
	fail.Here("kubeovn.restored")
	return err
}

// journalName is the journal's file in the agent's folder.
const journalName = "agent.db"

func exists(name string) bool {
	_, err := os.Stat(name)
	return !errors.Is(err, fs.ErrNotExist) // what cannot be looked at may be there
}

// sort finds the records that go. What is half done stays the agent's, which alone can end
// it: a NIC that is on its way is reason to do nothing at all.
func (g *giving) sort(context.Context) error {
	for _, u := range g.j.Uplinks() {
		if u.Phase != core.Taken {
			return hint.On(fmt.Errorf("NIC %s of provider network %s is on its way", u.NIC, u.Network), "start the agent, which ends that, and end it again; then `fairlead import kube-ovn --rollback`")
		}
	}
	for _, r := range g.j.Records() {
		if foreign(r) {
			g.rep.Todo = append(g.rep.Todo, fmt.Sprintf("pod %s stays the agent's, whose journal says how to remove it (%s): delete the pod while the agent runs", r.Pod, r.Phase))
			continue
		}
		g.back = append(g.back, r)
	}
	return nil
}

// foreign tells a record that Kube-OVN can make nothing of: of what is no port, or is not
// whole.
func foreign(r core.Record) bool {
	return r.Phase != core.Added || r.Orphan || len(r.Parts) > 0 ||
		slices.ContainsFunc(record.AllSpecs(r), func(s core.Spec) bool { return s.OVS() == nil || s.OVS().Type == driver.InternalPort })
}

// gives tells that a port goes back.
func (g *giving) gives(name string) bool {
	return slices.ContainsFunc(g.back, func(r core.Record) bool {
		return slices.ContainsFunc(r.Specs, func(s core.Spec) bool { return s.OVS().HostIf == name })
	})
}

// unmarkLinks has the pods' devices carry what they carried before.
func (g *giving) unmarkLinks(context.Context) error {
	c, err := rtnl.Open(g.host)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	links, err := c.Links()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Group != driver.GroupLive || !g.gives(l.Name) {
			continue
		}
		was := g.k.link(l.Name)
		if err := errors.Join(c.SetAlias(l.Index, was.Alias), c.SetGroup(l.Index, was.Group)); err != nil && !errors.Is(err, core.ErrNotFound) {
			return err
		}
		fail.Here("kubeovn.unlinked")
	}
	return nil
}

// release has the journal forget the provider networks.
func (g *giving) release(ctx context.Context) error {
	t, err := g.transfers(g.j, g.k.Switch)
	if err != nil {
		return err
	}
	for _, u := range t.All() {
		if err := t.Release(ctx, u.Network); err != nil {
			return err
		}
		g.did("bridge %s of provider network %s, with NIC %s, is Kube-OVN's", u.Bridge, u.Network, u.Port)
		fail.Here("kubeovn.released")
	}
	return nil
}

// forget has the journal forget the pods.
func (g *giving) forget(ctx context.Context) error {
	for _, r := range g.back {
		if err := g.j.Forget(ctx, r.Key, nil); err != nil {
			return err
		}
		fail.Here("kubeovn.forgotten")
	}
	if len(g.back) > 0 {
		g.did("%d pods are Kube-OVN's", len(g.back))
	}
	return nil
}
