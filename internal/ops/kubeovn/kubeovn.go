// Package kubeovn takes over what Kube-OVN made: it says what Fairlead would do with a
// cluster; on a node it keeps what is Kube-OVN's before the agent comes, writes its pods'
// ports and provider bridges into the agent's journal, and gives all of it back. It must
// not know commands.
package kubeovn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/internal/controller/takeover"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/lib/filelock"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/client/view"
)

// Help is of the command.
const Help = `

--plan, which is the default, asks a cluster: what runs of Kube-OVN, how Fairlead is
installed with the same networks, what users would see that is not as it was, and
what has no counterpart. It changes nothing.

--apply, on a node where Kube-OVN's daemon has ended and the agent has not begun, keeps
what the packet filter and Open vSwitch have of Kube-OVN, and gives its pods' ports and
its provider networks' bridges to the agent, which goes on with them when it starts,
without a lost packet. --rollback, where the agent has ended, makes chains, sets, ports
and bridges what they were, and has the agent forget them. Rules of others stay. Both
may be run again, also after one that was killed.`

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
	n := node{
		agent: o.Agent, dir: flags["import-dir"], proc: "/proc",
		state: flags["state-dir"], ovsdb: flags["ovsdb"], results: filepath.Join(flags["cni-dir"], "results"),
	}
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
	agent   *client.Client
	host    *netns.Handle // its namespace; nil = current
	dir     string        // of what is kept
	proc    string
	state   string // the agent's folder
	ovsdb   string
	results string // folder of libcni's results (containernetworking/cni, libcni)
}

// Names in the folder.
const (
	keptName = "kube-ovn.json"
	lockName = "kube-ovn.lock"
	dirMode  = 0o700
)

func (n node) file() string { return filepath.Join(n.dir, keptName) }

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
