// Package doctor examines a machine: what Fairlead needs of the kernel, Open
// vSwitch, the CNI directories and the node, and what to do about what is
// missing. It also packs a support bundle. It needs no agent, changes nothing
// (probes happen in a network namespace that goes with them) and knows no
// flags, no environment and no way to start a process but the one it is given.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/install/runtimes"
)

// Agent is what the doctor asks a running agent; the caller's client is one.
type Agent interface {
	Status(ctx context.Context) (agent.Status, error)
	Nets(ctx context.Context) (agent.NetList, error)
	Subnets(ctx context.Context) (agent.SubnetList, error)
	Outward(ctx context.Context) (agent.Outward, error)
}

// Runner starts a program in the calling thread's network namespace with
// exactly this environment and gives its standard output. A program that is
// not installed is fs.ErrNotExist; another failure ends with the program's
// standard error.
type Runner func(ctx context.Context, c Command) ([]byte, error)

// Command is one process to start.
type Command struct {
	Argv  []string
	Env   []string // nothing else is inherited
	Stdin string
}

// Config says what to examine; the fields are the agent's flags.
type Config struct {
	Agent    Agent
	Run      Runner
	Socket   string
	StateDir string
	Objects  string
	OVSDB    string
	Bridge   string
	// OVN: OVN carries pods' networks. With Objects the controller is a part of the
	// agent, and NB is its northbound database ("" = the package's).
	OVN     bool
	NB      string
	ConfDir string
	// Sockets are where runtimes may serve CRI: what one that runs says counts most.
	Sockets []string
	// Runtimes are where the configurations of those may be that do not run, or do
	// not say; they count more than ConfDir and BinDirs. The zero value is nowhere.
	Runtimes runtimes.Places
	BinDirs  []string
	// Iface is the underlay interface, as encap.Find takes it: "" = that of the default route. Underlay
	// is the one that the agent has found; nil: Iface is looked for here.
	Iface    string
	Underlay *agent.Underlay
	MTU      int // bytes, 0 = the interface's less what tunnels take
	// Patience bounds each check, so that a dead server does not hide what the
	// others find; 0 = 10 s.
	Patience time.Duration
	// LoadObjects reads the folder Objects without an agent: what is wrong
	// with it, and the plugin types that its networks name.
	LoadObjects func(dir string, ovn bool) ([]agent.Problem, []string, error)
	// More has findings of what is not this machine's, as far as it is reached from here;
	// nil for none.
	More func(context.Context) []Finding
	// OnlyMore leaves this machine out.
	OnlyMore bool
}

// Verdict of one check.
type Verdict string

// Verdicts, as -o json shows them.
const (
	OK      Verdict = "ok"
	Warning Verdict = "warning" // works, with less
	Failed  Verdict = "failed"  // does not work; Next says what to do
)

// Finding is the outcome of one check.
type Finding struct {
	Group   string   `json:"group"`
	Name    string   `json:"name"`
	Verdict Verdict  `json:"verdict"`
	Reason  string   `json:"reason"`
	Details []string `json:"details,omitempty"`
	Next    string   `json:"next,omitempty"` // always there when Failed
}

// Report is what doctor found; OK without any Failed.
type Report struct {
	OK       bool      `json:"ok"`
	Findings []Finding `json:"findings"`
}

// outcome is a Finding without the name of its check.
type outcome struct {
	verdict Verdict
	reason  string
	details []string
	next    string
}

func good(format string, args ...any) outcome {
	return outcome{verdict: OK, reason: fmt.Sprintf(format, args...)}
}

func warn(next, format string, args ...any) outcome {
	return outcome{verdict: Warning, reason: fmt.Sprintf(format, args...), next: next}
}

func bad(next, format string, args ...any) outcome {
	return outcome{verdict: Failed, reason: fmt.Sprintf(format, args...), next: next}
}

// check is one row of the table: it may be run alone and in any order.
type check struct {
	group, name string
	run         func(context.Context, *machine) outcome
	local       bool // it looks at the caller's network namespace
	ovn         bool // it is about OVN
}

// patient is how long a check may take unless Config says otherwise.
const patient = 10 * time.Second

func (c Config) patience() time.Duration { return cmp.Or(c.Patience, patient) }

// checks is the whole examination, in the order of the report.
func checks() []check {
	return []check{
		{group: "Kernel", name: "privileges", run: checkPrivileges},
		{group: "Kernel", name: "network namespaces", run: checkNetns},
		{group: "Kernel", name: "netns cookie", run: checkCookie},
		{group: "Kernel", name: "veth", run: checkVeth},
		{group: "Kernel", name: "rate to pods (htb)", run: checkHTB},
		{group: "Kernel", name: "rate from pods (police)", run: checkPolice},
		{group: "Kernel", name: "delay of pods (netem)", run: checkNetem},
		{group: "Kernel", name: "nftables", run: checkNFT},
		{group: "Kernel", name: "datapath", run: checkDatapath},
		{group: "Kernel", name: "IPv4 forwarding", run: checkForwarding, local: true},
		{group: "Kernel", name: "forward filter", run: checkForward, local: true},
		{group: "Kernel", name: "IPv6", run: checkIPv6, local: true},
		{group: "Open vSwitch", name: "OVSDB", run: checkOVSDB},
		{group: "Open vSwitch", name: "ovs-vswitchd", run: checkVswitchd},
		{group: "Open vSwitch", name: "bridge", run: checkBridge},
		{group: "OVN", name: "chassis", run: checkChassis, ovn: true},
		{group: "OVN", name: "southbound database", run: checkSouth, ovn: true},
		{group: "OVN", name: "northbound database", run: checkNorth, ovn: true},
		{group: "CNI", name: "plugin", run: checkPlugin},
		{group: "CNI", name: "conf for dockershim", run: checkConfDockershim},
		{group: "CNI", name: "conf for containerd", run: checkConfContainerd},
		{group: "CNI", name: "conf for CRI-O", run: checkConfCRIO},
		{group: "CNI", name: "delegates", run: checkDelegates},
		{group: "Node", name: "agent", run: checkAgent},
		{group: "Node", name: "network namespace", run: checkPlace},
		{group: "Node", name: "socket", run: checkSocket},
		{group: "Node", name: "MTU", run: checkMTU, local: true},
		{group: "Node", name: "state directory", run: checkState},
		{group: "Node", name: "objects", run: checkObjects},
		outwardRow("rules and sets", agent.PartRules, soundRules),
		outwardRow("provider networks", agent.PartNetworks, soundNetworks),
		outwardRow("policy rules", agent.PartWays, soundWays),
		outwardRow("sysctls", agent.PartSysctls, soundSysctls),
	}
}

// Run examines the machine. It fails only when ctx ends; what was found by then is in
// the report.
func Run(ctx context.Context, cfg Config) (Report, error) {
	var r Report
	if !cfg.OnlyMore {
		var err error
		if r.Findings, err = here(ctx, cfg); err != nil {
			return r, err
		}
	}
	if cfg.More != nil {
		r.Findings = append(r.Findings, cfg.More(ctx)...)
	}
	r.OK = !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Verdict == Failed })
	return r, nil
}

// here examines this machine.
func here(ctx context.Context, cfg Config) (out []Finding, err error) {
	m := examine(ctx, cfg)
	defer m.close()
	for _, c := range checks() {
		if c.ovn && !cfg.OVN {
			continue
		}
		f := c.finding(ctx, m)
		if err := ctx.Err(); err != nil {
			return out, fmt.Errorf("examine %s: %w", c.name, err)
		}
		out = append(out, f)
	}
	return out, nil
}

func (c check) finding(ctx context.Context, m *machine) Finding {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.patience())
	defer cancel()
	o := c.run(ctx, m)
	if c.local {
		o = m.here(o)
	}
	return Finding{Group: c.group, Name: c.name, Verdict: o.verdict, Reason: o.reason, Details: o.details, Next: o.next}
}

// repeats tells that there is nothing to do about f that is not to do about
// the one before it.
func (f Finding) repeats(before Finding) bool {
	return f.Verdict != OK && f.Verdict == before.Verdict && f.Reason == before.Reason && f.Next == before.Next &&
		slices.Equal(f.Details, before.Details)
}

// marks are how a Verdict looks in the text.
var marks = map[Verdict]string{OK: "✓", Warning: "!", Failed: "✗"}

// Text writes the report for people: a line per check, below it what to do.
func (r Report) Text(w io.Writer) error {
	out, group, count := &strings.Builder{}, "", map[Verdict]int{}
	for i, f := range r.Findings {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(out, "%s\n", group)
		}
		count[f.Verdict]++
		if i > 0 && f.repeats(r.Findings[i-1]) {
			fmt.Fprintf(out, "  %s %-24s the same\n", marks[f.Verdict], f.Name)
			continue
		}
		fmt.Fprintf(out, "  %s %-24s %s\n", marks[f.Verdict], f.Name, f.Reason)
		for _, d := range f.Details {
			fmt.Fprintf(out, "      %s\n", d)
		}
		if f.Next != "" {
			fmt.Fprintf(out, "      next: %s\n", f.Next)
		}
	}
	fmt.Fprintf(out, "%d ✓  %d !  %d ✗\n", count[OK], count[Warning], count[Failed])
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
