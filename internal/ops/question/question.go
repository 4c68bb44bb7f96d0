// Package question has the operator's commands about a cluster, as rows: how each is
// called, which flags it has, and what it asks of whom. It knows no command line, and
// starts programs only by the one way that it is given.
package question

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/ops/declaration"
	"github.com/fairlead/fairlead/internal/ops/doctor"
	"github.com/fairlead/fairlead/internal/ops/kubeovn"
	"github.com/fairlead/fairlead/internal/ops/wayout"
)

// Question is a command.
type Question struct {
	Under            string // the command that this one is a subcommand of; "": none
	Use, Short, Long string
	Args             []string // names of its arguments; those in brackets may be left out
	Flags            []Flag
	Hands            bool // its arguments are a program's: no flags of ours stand among them
	Ask              func(context.Context, Asked) (view.Answer, error)
}

// Takes refuses a number of arguments that the command does not take: [what is in
// brackets] may be left out, and of what ends in dots there may be more.
func (q Question) Takes(command string, n int) error {
	least, most := 0, len(q.Args)
	for _, name := range q.Args {
		if !strings.HasPrefix(name, "[") || !strings.HasSuffix(name, "]") {
			least++
		}
		if strings.HasSuffix(name, "...") {
			most = max(most, n)
		}
	}
	switch {
	case least <= n && n <= most:
		return nil
	case most == 0:
		return fmt.Errorf("%s takes no arguments", command)
	case len(q.Args) == 1 && !strings.HasSuffix(q.Args[0], "..."):
		return fmt.Errorf("%s needs one %s", command, q.Args[0])
	}
	return fmt.Errorf("%s needs %s", command, strings.Join(q.Args, " "))
}

// Flag is a flag of a command, a switch or with a value.
type Flag struct {
	Name, Letter, Default, Usage string
	Switch                       bool
}

// Asked is one call of a command.
type Asked struct {
	client.Origin
	Args  []string
	Flags map[string]string // a switch that is on is "true"
	Run   doctor.Runner
	Note  func(string)
	// Hand hands the caller's streams to a program that answers itself, and gives its
	// exit code.
	Hand func(argv ...string) (int, error)
	// The caller's streams.
	In  io.Reader
	Out io.Writer
	// relay leads to a database of a member of central ("nb", "sb"); nil: there is none.
	relay func(short string) (endpoint string, err error)
}

// On tells that a switch is on.
func (a Asked) On(flag string) bool { return a.Flags[flag] == "true" }

// All are the commands.
func All() []Question {
	return append(declarations(), []Question{{
		Use: "ip", Args: []string{"SUBNET"}, Short: "What becomes of each address of a Subnet",
		Long: " It tells who has which address, what is reserved, kept, excluded, or left, and\nwhat is free.",
		Ask:  addressMap,
	}, {
		Under: "ip", Use: "who", Args: []string{"ADDRESS"}, Short: "Which pod has this address, and where; who reserves or keeps it",
		Flags: []Flag{{Name: "namespace", Letter: "n", Usage: "look through the pods of this `namespace` only (Kubernetes API; default: all)"}},
		Ask:   who,
	}, {
		Under: "ip", Use: "leaks", Short: "Addresses that nobody who lives holds; exit code 1 when there are any",
		Long: leaksHelp, Flags: append([]Flag{{Name: "fix", Switch: true, Usage: "remove what is proven to be nobody's (Kubernetes API)"}}, endFlags()...),
		Ask: leaks,
	}, {
		Under: "describe", Use: "subnet", Args: []string{"NAME"}, Short: "All that is known of a Subnet: counts, who reaches it, the way out, conditions", Ask: subnet,
	}, {
		Under: "describe", Use: "node", Args: []string{"[NAME]"}, Short: "All that is known of a node's network: chassis, tunnels, certificate, conditions, pods; of this node the way out: rules, sets, routes and NICs",
		Flags: endFlags(), Ask: node,
	}, {
		Use: "explain", Args: []string{"[NAMESPACE/]POD"}, Short: "How a pod's packets leave: by which node, rule and gateway, and as whom the world sees them", Long: wayout.Help,
		Flags: []Flag{ofPod},
		Ask: func(ctx context.Context, a Asked) (view.Answer, error) {
			return wayout.Ask(ctx, a.Origin, a.Args[0], a.Flags["namespace"])
		},
	}, {
		Use: "trace", Args: []string{"[NAMESPACE/]POD", "DST", "[tcp:PORT|udp:PORT|icmp]"}, Short: "What becomes of a pod's packet: policies, Service, router, tunnel, node; the verdict last",
		Long: traceHelp, Ask: traced,
		Flags: append([]Flag{ofPod, {Name: "ipv6", Switch: true, Usage: "where DST has addresses of both families"}, {Name: "bridge", Default: "br-int", Usage: "this node's `bridge`"}}, endFlags()...),
	}, {
		Under: "import", Use: "kube-ovn", Short: "What Fairlead would make of a cluster of Kube-OVN, exit code 1 when something stands in the way; take this node's rules, ports and bridges over, or give them back",
		Long: kubeovn.Help, Ask: func(ctx context.Context, a Asked) (view.Answer, error) { return kubeovn.Ask(ctx, a.Origin, a.Flags) },
		Flags: []Flag{
			{Name: "plan", Switch: true, Usage: "look and change nothing (default)"},
			{Name: "apply", Switch: true, Usage: "take over what this node has of Kube-OVN, for the agent to go on with"},
			{Name: "rollback", Switch: true, Usage: "give it back"},
			{Name: "import-dir", Default: "/var/lib/fairlead/import", Usage: "`folder` of what is kept"},
			{Name: "state-dir", Default: defaultState, Usage: "this node's agent's `folder`"},
			{Name: "ovsdb", Default: defaultOVSDB, Usage: "this node's Open vSwitch `database`"},
			{Name: "cni-dir", Default: "/var/lib/cni", Usage: "`folder` in which the runtime keeps what plugins answered, by which pods' containers are known"},
		},
	}, tool("nbctl", "northbound"), tool("sbctl", "southbound"), {
		Under: "ovn", Use: "backup", Args: []string{"FILE"}, Short: "Write OVN's databases to a file, a tar archive of both; may be /dev/stdout",
		Long: " On a\nmember of central it needs no leader: what this member has is written.", Flags: endFlags(), Ask: backup,
	}, {
		Under: "ovn", Use: "connect", Args: []string{"nb|sb"}, Short: "Lead standard input and output to a database of the member of central that runs here",
		Long: " By it the\nother commands reach central through the API server (exec).", Flags: endFlags(), Hands: true, Ask: connect,
	}, {
		Under: "ovn", Use: "restore", Args: []string{"[FILE]"}, Short: "Begin OVN's databases anew, from a backup, on the member of central that runs here",
		Long: restoreHelp, Ask: restore,
		Flags: []Flag{{Name: "empty", Switch: true, Usage: "without a backup: the controllers write everything again"}, {Name: "central-dir", Default: defaultCentral, Usage: "`folder` of the member's databases"}},
	}}...)
}

// declarations are the commands about what is declared of pods.
func declarations() []Question {
	return []Question{{
		Under: "explain", Use: "pod", Args: []string{"[NAMESPACE/]NAME"}, Short: "What is declared of a pod from outside: each field, its source, what lost to it; exit code 1 where it is refused", Long: declaration.Help,
		Flags: []Flag{ofPod, {Name: "install-namespace", Default: defaultNamespace, Usage: "Fairlead's own `namespace`, whose ConfigMaps are about pods of all"}},
		Ask: func(ctx context.Context, a Asked) (view.Answer, error) {
			return declaration.Explain(ctx, a.Origin, a.Args[0], a.Flags)
		},
	}, {
		Under: "describe", Use: "podnetwork", Args: []string{"[NAMESPACE/]NAME"}, Short: "All that a PodNetwork declares, and which pods have it", Flags: []Flag{ofPod},
		Ask: func(ctx context.Context, a Asked) (view.Answer, error) {
			return declaration.Describe(ctx, a.Origin, a.Args[0], a.Flags["namespace"])
		},
	}}
}

var ofPod = Flag{Name: "namespace", Letter: "n", Usage: "`namespace` of a POD without one (default: the context's; without a cluster \"default\")"}

// Has tells that a command is one of them: who asks it asks an agent too, where there
// is no cluster.
func Has(under, use string) bool {
	return slices.ContainsFunc(All(), func(q Question) bool { return q.Under == under && q.Use == use })
}

// onlyAPI is for what no agent knows.
func onlyAPI(a Asked, what, instead string) error {
	if a.API != nil {
		return nil
	}
	return hint.On(fmt.Errorf("%s is asked of the Kubernetes API%s", what, a.Place()), "give --kubeconfig, or set KUBECONFIG; "+instead)
}

// shown is the answer that is v.
func shown[T any](a Asked, v T, text func(io.Writer, T, view.Options) error) view.Answer {
	return view.Answer{Value: v, Text: func(w io.Writer, o view.Options) error {
		o.Cluster = a.API != nil
		return text(w, v, o)
	}}
}

func addressMap(ctx context.Context, a Asked) (view.Answer, error) {
	if err := onlyAPI(a, "the map of a Subnet", "`fairlead get ips --node-local` lists what this node holds"); err != nil {
		return view.Answer{}, err
	}
	m, err := a.API.Map(ctx, a.Args[0])
	if errors.Is(err, core.ErrNotFound) {
		err = hint.On(fmt.Errorf("no Subnet %q is in force: %w", a.Args[0], core.ErrNotFound), "`fairlead get subnets` lists all; a note above says why one is not in force")
	}
	return shown(a, m, view.AddressMap), err
}

func who(ctx context.Context, a Asked) (view.Answer, error) {
	addr, err := netip.ParseAddr(a.Args[0])
	if err != nil {
		return view.Answer{}, hint.Usagef("%q is not an IP address", a.Args[0])
	}
	a.Namespace = a.Flags["namespace"]
	if a.API == nil && a.Namespace != "" {
		return view.Answer{}, hint.Usagef("the agent is asked about all namespaces: leave out -n")
	}
	found, err := a.Who(ctx, addr.Unmap())
	out := shown(a, found, view.Who)
	out.Unknown = len(found.Items) == 0
	return out, err
}

func subnet(ctx context.Context, a Asked) (view.Answer, error) {
	if err := onlyAPI(a, "a Subnet", "`fairlead get subnets --node-local` has what this node knows"); err != nil {
		return view.Answer{}, err
	}
	s, err := a.API.Subnet(ctx, a.Args[0])
	if errors.Is(err, core.ErrNotFound) {
		err = hint.On(fmt.Errorf("there is no Subnet %q: %w", a.Args[0], core.ErrNotFound), "`fairlead get subnets` lists all")
	}
	return shown(a, s, view.SubnetDetail), err
}

func node(ctx context.Context, a Asked) (view.Answer, error) {
	n, err := wayout.Node(ctx, a.Origin, append(a.Args, "")[0])
	switch {
	case err != nil:
		return view.Answer{}, err
	case a.API == nil:
		return shown(a, *n.Outward, view.Outward), nil
	}
	chassis(ctx, a, &n)
	return shown(a, n, view.NodeDetail), nil
}

const leaksHelp = `

Of a node: addresses that no living attachment holds, those of the agent's own
pools and those of host-local's folders for the networks that it knows. Each is
listed with the owner that is recorded, why it is left over, and the command that
frees it. Nothing is changed. Unproven is one whose owner the agent does not know.

Of a cluster: IP objects whose pod or node is gone and which nothing keeps,
AddressLeases of such pods, pods that were told an address of which no IP object
tells, and ports in OVN's northbound database of pods that are gone. --fix removes objects and ports that are
nobody's when the API server is asked about each once more.`

func leaks(ctx context.Context, a Asked) (view.Answer, error) {
	if a.API == nil {
		return leaksOfNode(ctx, a)
	}
	nb, rows := northRows(ctx, a)
	if nb != nil {
		defer nb.Close()
	}
	list, err := a.API.Lost(ctx, plain(rows))
	if err != nil {
		return view.Answer{}, err
	}
	if a.On("fix") {
		fix(ctx, a, nb, rows, &list)
	}
	out := shown(a, list, view.Lost)
	for _, l := range list.Items {
		out.Failed = out.Failed || !l.Removed
	}
	return out, nil
}

// leaksOfNode asks the agent.
func leaksOfNode(ctx context.Context, a Asked) (view.Answer, error) {
	if a.On("fix") {
		return view.Answer{}, hint.Usagef("--fix is for a cluster; on a node the command that frees an address stands below it")
	}
	for _, q := range view.Queries() {
		if q.Under == "ip" && q.Use == "leaks" {
			raw, err := a.Agent.Raw(ctx, q.Path)
			if err != nil {
				return view.Answer{}, err
			}
			return q.Read(raw)
		}
	}
	return view.Answer{}, errors.New("no such question")
}

// fix removes what is nobody's.
func fix(ctx context.Context, a Asked, nb *north, of []row, list *agent.LostList) {
	for i := range list.Items {
		l := &list.Items[i]
		var err error
		switch l.Kind {
		case agent.LostObject:
			l.Stays, err = a.API.Free(ctx, l.Name)
		case agent.LostLease:
			l.Stays, err = a.API.FreeLease(ctx, l.Name)
		case agent.LostRow:
			l.Stays, err = nb.free(ctx, a.API, of, l.Name)
		default:
			l.Stays = "there is nothing to remove"
		}
		if err != nil {
			l.Stays = strings.TrimPrefix(err.Error(), l.Name+": ")
		}
		l.Removed = l.Stays == ""
	}
}
