// Package kubeovn takes over what Kube-OVN made: it says what Fairlead would do with a
// cluster, keeps what a node's packet filter has of Kube-OVN before the agent comes, and
// gives a node back. It must not know commands.
package kubeovn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/internal/controller/takeover"
	"github.com/fairlead/fairlead/internal/gateway/handover"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/lib/filelock"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/client/view"
)

// Help is of the command.
const Help = `

--plan, which is the default, asks a cluster: what runs of Kube-OVN, how Fairlead is
installed with the same networks, what users would see that is not as it was, and
what has no counterpart. It changes nothing.

--apply, on a node where Kube-OVN's daemon has ended and the agent has not begun, keeps
what the packet filter has of Kube-OVN's chains and sets; the agent, when it starts,
takes them over without a lost packet. --rollback, where the agent has ended, makes
them what they were. Rules of others stay. Both may be run again.`

// Report is what was done on a node. Its keys are an interface: -o json prints it.
type Report struct {
	Done []string `json:"done"` // what was so already is left out
	Todo []string `json:"todo"` // by the user
}

func (r Report) text(w io.Writer, _ view.Options) error {
	var b strings.Builder
	for _, d := range r.Done {
		fmt.Fprintln(&b, d)
	}
	if len(r.Done) == 0 {
		fmt.Fprintln(&b, "nothing to do")
	}
	for _, t := range r.Todo {
		fmt.Fprintln(&b, "  next: "+t)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Ask carries out what flags say: plan, apply or rollback.
func Ask(ctx context.Context, o client.Origin, flags map[string]string) (view.Answer, error) {
	n := node{agent: o.Agent, dir: flags["import-dir"], proc: "/proc"}
	apply, rollback := flags["apply"] == "true", flags["rollback"] == "true"
	switch {
	case apply && rollback, flags["plan"] == "true" && (apply || rollback):
		return view.Answer{}, hint.Usagef("give one of --plan, --apply and --rollback")
	case apply:
		return shown(n.locked(func() (Report, error) { return n.apply(ctx) }))
	case rollback:
		return shown(n.locked(func() (Report, error) { return n.rollback(ctx) }))
	case o.API == nil:
		return view.Answer{}, hint.On(fmt.Errorf("a cluster of Kube-OVN is asked of the Kubernetes API%s", o.Place()), "give --kubeconfig, or set KUBECONFIG; name the cluster's context")
	}
	p, err := takeover.Look(ctx, o.API)
	if err != nil {
		return view.Answer{}, err
	}
	return view.Answer{Value: p, Failed: !p.Clear(), Text: func(w io.Writer, _ view.Options) error { return p.Text(w) }}, nil
}

func shown(r Report, err error) (view.Answer, error) {
	return view.Answer{Value: r, Text: r.text}, err
}

// node is the one on which this runs.
type node struct {
	agent *client.Client
	dir   string // of what is kept
	proc  string
}

// Names in the folder.
const (
	keptName = "kube-ovn.json"
	lockName = "kube-ovn.lock"
	dirMode  = 0o700
)

func (n node) kept() string { return filepath.Join(n.dir, keptName) }

// locked does one thing at a time.
func (n node) locked(do func() (Report, error)) (Report, error) {
	if err := os.MkdirAll(n.dir, dirMode); err != nil {
		return Report{}, err
	}
	lock, err := filelock.Take(filepath.Join(n.dir, lockName), 0)
	if err != nil {
		return Report{}, err
	}
	defer lock.Release()
	return do()
}

func (n node) apply(ctx context.Context) (Report, error) {
	var k handover.Kept
	known, err := recordfile.Load(n.kept(), &k)
	if err != nil {
		return Report{}, err
	}
	if pid := n.running("kube-ovn-daemon"); pid != "" {
		return Report{}, hint.On(fmt.Errorf("Kube-OVN's daemon runs (pid %s), and would write its rules again", pid),
			"take its DaemonSet off this node: `kubectl -n kube-system get daemonset kube-ovn-cni`")
	}
	now, err := handover.Look(ctx, nil)
	switch {
	case known && (errors.Is(err, handover.ErrOurs) || err == nil && same(k, now)):
		return Report{Done: []string{}, Todo: []string{"what was there at " + k.When.Format(time.DateTime) + " UTC is kept in " + n.kept() + "; " + start}}, nil
	case errors.Is(err, handover.ErrOurs):
		return Report{}, hint.On(err, "what they were is not known any more; where the agent has the node nothing is to be done")
	case err != nil:
		return Report{}, err
	}
	if err := recordfile.Save(n.kept(), now); err != nil { // Kube-OVN may have written since an earlier one
		return Report{}, err
	}
	chains := 0
	for _, t := range now.Tables {
		chains += len(t.Chains)
	}
	return Report{Done: []string{fmt.Sprintf("%d chains and %d sets of Kube-OVN are kept in %s", chains, len(now.Sets), n.kept())}, Todo: []string{start}}, nil
}

// same tells that a node has what was kept.
func same(k, now handover.Kept) bool {
	now.When = k.When
	was, err := json.Marshal(k)
	is, failed := json.Marshal(now)
	return err == nil && failed == nil && bytes.Equal(was, is)
}

const start = "start the agent with --ovn and without --netfilter=nft: it takes them over; `fairlead import kube-ovn --rollback` gives them back"

func (n node) rollback(ctx context.Context) (Report, error) {
	var k handover.Kept
	known, err := recordfile.Load(n.kept(), &k)
	if err != nil || !known {
		return Report{Done: []string{}, Todo: []string{}}, err
	}
	switch _, err := n.agent.Status(ctx); {
	case err == nil:
		return Report{}, hint.On(errors.New("the agent runs, and would take them over again"), "end it: `systemctl stop fairlead`, or take its DaemonSet off this node")
	case !ended(err):
		return Report{}, fmt.Errorf("whether the agent has ended cannot be told, and it would take them over again: %w", err)
	}
	if err := k.Restore(ctx, nil, netfilter.OwnTable); err != nil {
		return Report{}, err
	}
	if err := os.Rename(n.kept(), n.kept()+".restored"); err != nil {
		return Report{}, err
	}
	return Report{
		Done: []string{"Kube-OVN's chains and sets are as they were at " + k.When.Format(time.DateTime) + " UTC"},
		Todo: []string{"start Kube-OVN's daemon: `kubectl -n kube-system get daemonset kube-ovn-cni`"},
	}, nil
}

// ended tells that nobody listens where an agent would.
func ended(err error) bool {
	var none *client.NoAgentError
	return errors.As(err, &none) && (errors.Is(none.Err, fs.ErrNotExist) || errors.Is(none.Err, syscall.ECONNREFUSED))
}

// running is the process of that name in this network namespace, "" for none.
func (n node) running(name string) string {
	here, _ := os.Readlink(filepath.Join(n.proc, "self", "ns", "net"))
	names, _ := filepath.Glob(filepath.Join(n.proc, "[0-9]*", "comm")) // the pattern is a good one
	for _, path := range names {
		if text, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(text)) == name {
			if there, _ := os.Readlink(filepath.Join(filepath.Dir(path), "ns", "net")); there != here {
				continue
			}
			return filepath.Base(filepath.Dir(path))
		}
	}
	return ""
}
