package kubeovn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/fairlead/fairlead/internal/gateway/handover"
	"github.com/fairlead/fairlead/internal/gateway/uplink"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/former"
	"github.com/fairlead/fairlead/internal/ovs/rows"
)

// kept is what there was of Kube-OVN, as it is written down before anything is changed.
type kept struct {
	handover.Kept               // of the packet filter
	Switch        former.Switch // of Open vSwitch
	Links         []link        // the host's ends of pods' veth pairs
	// Applied: all is done. Without it an apply was killed, or failed.
	Applied bool
}

// link is what marks a device on the host.
type link struct {
	Name, Alias string
	Group       uint32
}

// atMost bounds an apply or a rollback: what it asks may hang.
const atMost = 5 * time.Minute

const start = "start the agent with --ovn and without --netfilter=nft: it takes them over; `fairlead import kube-ovn --rollback` gives them back"

// taking is one --apply under way.
type taking struct {
	node
	db   *rows.DB
	k    kept
	rep  Report
	news bool            // something is to be kept that was not
	pods []port          // Kube-OVN's ports of pods
	nics []uplink.Former // its bridges of provider networks
}

func (t *taking) did(format string, args ...any) {
	t.rep.Done = append(t.rep.Done, fmt.Sprintf(format, args...))
}

func (n node) apply(ctx context.Context) (Report, error) {
	t := taking{node: n, rep: Report{Done: []string{}, Todo: []string{}}}
	known, err := recordfile.Load(n.file(), &t.k)
	if err != nil {
		return Report{}, err
	}
	if pid := n.running("kube-ovn-daemon"); pid != "" {
		return Report{}, hint.On(fmt.Errorf("Kube-OVN's daemon runs (pid %s), and would write its rules again", pid),
			"take its DaemonSet off this node: `kubectl -n kube-system get daemonset kube-ovn-cni`")
	}
	if runs, err := n.agentRuns(ctx); runs || err != nil {
		if runs && known && t.k.Applied {
			return Report{Done: []string{}, Todo: []string{t.where()}}, nil
		}
		return Report{}, err
	}
	ctx, stop := context.WithTimeout(ctx, atMost)
	defer stop()
	if t.db, err = former.Open(ctx, n.ovsdb); err != nil {
		return Report{}, hint.On(err, "it has the pods' ports: start Open vSwitch, or name its database with --ovsdb")
	}
	defer t.db.Close()
	for _, step := range t.steps() {
		if err := step(ctx); err != nil {
			return Report{}, err
		}
	}
	t.rep.Todo = append(t.rep.Todo, start)
	if len(t.rep.Done) == 0 {
		t.rep.Todo[len(t.rep.Todo)-1] = t.where()
	}
	return t.rep, nil
}

// steps are those of an apply; whatever of one is so already costs nothing.
func (t *taking) steps() []func(context.Context) error {
	return []func(context.Context) error{t.look, t.keep, t.record, t.mark, t.finish}
}

func (t *taking) where() string {
	return "what was there at " + t.k.When.Format(time.DateTime) + " UTC is kept in " + t.file() + "; " + start
}

// agentRuns tells it, and with an error that it must not.
func (n node) agentRuns(ctx context.Context) (bool, error) {
	st, err := n.agent.Status(ctx)
	switch {
	case err == nil && !st.Settings.OVN:
		return true, hint.On(errors.New("the agent runs, without --ovn: so it serves none of Kube-OVN's pods"),
			"end it (`systemctl stop fairlead`, or take its DaemonSet off this node), then `fairlead import kube-ovn --apply`, then start it with --ovn")
	case err == nil:
		return true, hint.On(errors.New("the agent runs, and what is Kube-OVN's must be kept before it begins"),
			"end it (`systemctl stop fairlead`, or take its DaemonSet off this node), then `fairlead import kube-ovn --apply`")
	case !ended(err):
		return false, fmt.Errorf("whether the agent has ended cannot be told: %w", err)
	}
	return false, nil
}

// look reads what there is, beside what an earlier apply has kept of it, and refuses what
// cannot be taken over. It changes nothing.
func (t *taking) look(ctx context.Context) error {
	filter, err := t.filter(ctx)
	if err != nil {
		return err
	}
	now, err := former.Look(ctx, t.db)
	if err != nil {
		return err
	}
	k := kept{Kept: filter, Switch: t.before(now)}
	if t.nics, err = bridges(k.Switch); err != nil {
		return err
	}
	if err := t.findPods(k.Switch); err != nil {
		return err
	}
	if len(k.Sets)+len(k.Tables)+len(t.pods)+len(t.nics) == 0 && !t.known() {
		return errNothing
	}
	k.Links = t.links()
	if same(t.k, k) {
		return nil
	}
	t.k, t.news = k, true
	return nil
}

// filter is what the packet filter had of Kube-OVN before it was ours. A reboot takes that
// away, too: then it is what was kept.
func (t *taking) filter(ctx context.Context) (handover.Kept, error) {
	k, err := handover.Look(ctx, t.host)
	ours, none := errors.Is(err, handover.ErrOurs), errors.Is(err, handover.ErrNothing)
	switch {
	case (ours || none) && t.known():
		return t.k.Kept, nil
	case ours:
		return k, hint.On(err, "what they were is not known any more; where the agent has the node nothing is to be done")
	case none:
		return k, nil
	}
	return k, err
}

// errNothing is why there is nothing to take over.
var errNothing = errors.New("the node has nothing of Kube-OVN: neither chains and sets of the packet filter, nor pods' ports, nor bridges of provider networks")

// known tells that an earlier apply has kept something.
func (t *taking) known() bool { return !t.k.When.IsZero() }

// before is what the switch had of Kube-OVN before anything of it was ours: as it is now, as
// long as it carries no mark of ours, and else as it was kept.
func (t *taking) before(now former.Switch) former.Switch {
	out := former.Switch{IDs: now.IDs}
	if t.known() {
		out.IDs = maps.Clone(t.k.Switch.IDs)
		for _, list := range []string{former.Mappings, former.ChassisMACs} {
			delete(out.IDs, list)
			if value, has := now.IDs[list]; has {
				out.IDs[list] = value
			}
		}
	}
	for _, b := range now.Bridges {
		if b, theirs := t.bridgeBefore(b, integration(now)); theirs {
			out.Bridges = append(out.Bridges, b)
		}
	}
	for _, p := range now.Ports {
		_, whole := out.Bridge(p.Bridge)
		if p, theirs := t.portBefore(p, whole && p.Bridge != integration(now)); theirs {
			out.Ports = append(out.Ports, p)
		}
	}
	return out
}

// bridgeBefore is a bridge as it was; theirs tells that it is one of Kube-OVN's.
func (t *taking) bridgeBefore(now former.Bridge, integration string) (was former.Bridge, theirs bool) {
	marked := now.IDs[ovs.KeyUplink] != ""
	if was, had := t.k.Switch.Bridge(now.Name); had && (marked || now.Name == integration) {
		return was, true
	}
	return now, !marked && (now.IDs[ovs.KeyVendor] == ovs.Vendor || now.Name == integration)
}

// portBefore is a port as it was. Of a whole bridge all ports are Kube-OVN's.
func (t *taking) portBefore(now former.Port, whole bool) (was former.Port, theirs bool) {
	marked := now.IDs[ovs.KeyContainer]+now.IDs[ovs.KeyGateway] != ""
	if was, had := t.k.Switch.Port(now.Name); had && marked {
		return was, true
	}
	return now, !marked && (whole || now.IDs[ovs.KeyVendor] == ovs.Vendor || now.IDs[ovs.KeyIfaceID] != "")
}

// integration is the name of OVN's bridge.
func integration(s former.Switch) string { return cmp.Or(s.IDs["ovn-bridge"], "br-int") }

// same tells that a node has what was kept.
func same(was, is kept) bool {
	is.When, is.Applied = was.When, was.Applied
	a, err := json.Marshal(was)
	b, failed := json.Marshal(is)
	return err == nil && failed == nil && bytes.Equal(a, b)
}

// keep writes down what there is.
func (t *taking) keep(context.Context) error {
	if !t.news {
		return nil
	}
	if err := recordfile.Save(t.file(), t.k); err != nil {
		return err
	}
	fail.Here("kubeovn.kept")
	chains := 0
	for _, table := range t.k.Tables {
		chains += len(table.Chains)
	}
	t.did("%d chains and %d sets of Kube-OVN are kept in %s", chains, len(t.k.Sets), t.file())
	return nil
}

// record writes ports and bridges into the agent's journal. A port is recorded before it
// carries a mark: one that does without a record is swept away by an agent.
func (t *taking) record(ctx context.Context) (err error) {
	if len(t.pods)+len(t.nics) == 0 {
		return nil
	}
	j, err := journal.Open(t.state, journal.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	pods, err := t.recordPods(ctx, j)
	if err != nil {
		return err
	}
	if pods > 0 {
		t.did("%d pods of Kube-OVN are in the agent's journal, in %s", pods, t.state)
	}
	uplinks, err := t.transfers(j, t.k.Switch)
	if err != nil {
		return err
	}
	for _, b := range t.nics {
		news, err := uplinks.Adopt(ctx, b)
		if err != nil {
			return err
		}
		fail.Here("kubeovn.bridge")
		if news {
			t.did("bridge %s of provider network %s, with NIC %s, is in the agent's journal", b.Bridge, b.Network, b.Port)
		}
	}
	return nil
}

// mark has the ports and their devices carry what the agent's do.
func (t *taking) mark(ctx context.Context) error {
	ids := map[string]map[string]string{}
	for _, p := range t.pods {
		ids[p.Name] = p.ids
	}
	changed, err := former.Mark(ctx, t.db, ids)
	if err != nil {
		return err
	}
	fail.Here("kubeovn.marked")
	links, err := t.markLinks()
	if changed || links {
		t.did("%d ports of pods are the agent's", len(t.pods))
	}
	return err
}

// finish notes that all is done.
func (t *taking) finish(context.Context) error {
	if t.k.Applied && !t.news {
		return nil
	}
	t.k.Applied = true
	return recordfile.Save(t.file(), t.k)
}
