package migrate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// Plan looks and changes nothing. An error is one of looking; what stands in
// the way of Apply is in the plan.
func (m *Migration) Plan(ctx context.Context) (Plan, error) {
	p := Plan{Keys: []Key{}, Networks: []Network{}, Records: []Record{}}
	var err error
	if p.state, err = m.load(); err != nil {
		return p, err
	}
	p.Phase = p.state.Phase
	files, err := readConfs(m.ConfDir)
	if err != nil {
		return p, err
	}
	p.multus, err = findMultus(files, p.state)
	m.runtime(&p, files, err)
	m.askAgent(ctx, &p)
	if errors.Is(err, errNoMultus) {
		p.Binaries = m.binaries(p.multus)
		p.conclude()
		return p, nil
	}
	p.Keys = p.multus.keyList()
	var broken []string
	p.Networks, broken = m.networks(p.multus)
	p.Binaries = m.binaries(p.multus)
	p.Kubeconfig = kubeconfig(p.multus.conf.Kubeconfig)
	p.Multus = m.running(p.multus)
	p.Records = m.records(p.multus)
	if p.multus.nested {
		broken = nil // was told already
	}
	for _, why := range broken {
		p.block("`fairlead agent --conf-dir`, or the path in "+p.multus.file.path+", is to be corrected", "a network is not there: %s", why)
	}
	m.note(&p)
	p.conclude()
	return p, nil
}

func (p *Plan) block(next, format string, args ...any) {
	p.Blocks = append(p.Blocks, Block{What: fmt.Sprintf(format, args...), Next: next})
}

func (p *Plan) noted(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// runtime judges which configuration wins; broken is why Multus' cannot be used.
func (m *Migration) runtime(p *Plan, files []confFile, broken error) {
	r := winner(files)
	r.Dir = m.ConfDir
	if !errors.Is(broken, errNoMultus) {
		r.Multus, r.Name = p.multus.file.path, p.multus.file.name
	}
	p.network = r.Name
	began := p.state.Phase == phaseApplying || p.state.Phase == phaseApplied
	if r.Whose != whoseOurs || began && p.state.Writes {
		r.Writes = m.ours()
	} else {
		p.network = files[0].name
	}
	p.Runtime = r
	switch {
	case r.Whose == whoseBroken:
		p.block("mv "+files[0].path+" /root/", "%s comes first and cannot be used: %v", files[0].path, files[0].err)
	case errors.Is(broken, errNoMultus):
		p.block("name the folder with --conf-dir, or `fairlead install-cni` where there is no Multus", "no file in %s calls Multus", m.ConfDir)
	case p.multus.nested:
		p.block("name the cluster's own network to Multus (multusMasterCNI in its daemon-config.json, --multus-master-cni-file-name), and restart it",
			"Multus' default network in %s is %s, which calls Fairlead", r.Multus, ours)
	case broken != nil:
		p.block("correct "+p.multus.file.path, "Multus' configuration cannot be used: %v", broken)
	case r.Whose == whoseOther:
		p.block("mv "+files[0].path+" "+filepath.Dir(m.ConfDir)+"/, if its pods are to get Multus' networks",
			"%s (%s) wins over %s: pods do not come to Multus", files[0].path, r.Type, filepath.Base(r.Multus))
	}
}

// Values of Runtime.Whose and Binary.Is.
const (
	whoseMultus = "multus"
	whoseOurs   = "fairlead"
	whoseOther  = "other"
	whoseBroken = "broken"
	whoseNone   = "none"
	isAbsent    = "absent"
)

// winner is the file that a runtime takes: the first (containerd; others pass
// over what they cannot use).
func winner(files []confFile) Runtime {
	if len(files) == 0 {
		return Runtime{Whose: whoseNone}
	}
	first := files[0]
	r := Runtime{Winner: filepath.Base(first.path), Whose: whoseOther}
	if len(first.types) > 0 {
		r.Type = first.types[0]
	}
	switch {
	case first.err != nil:
		r.Whose = whoseBroken
	case first.calls(multusTypes...) >= 0:
		r.Whose = whoseMultus
	case first.calls("fairlead") >= 0:
		r.Whose = whoseOurs
	}
	return r
}

// askAgent wants an agent whose journal works. Others of its conditions are
// about what a node with foreign networks may do without.
func (m *Migration) askAgent(ctx context.Context, p *Plan) {
	s, err := m.Agent.Status(ctx)
	p.Agent = Answer{Socket: s.Settings.Socket, OK: err == nil, Version: s.Version}
	if err != nil {
		p.Agent.Why = err.Error()
		next := "systemctl start fairlead"
		if h := interface{ Hint() string }(nil); errors.As(err, &h) {
			next = h.Hint()
		}
		p.block(next, "the agent does not answer: %v", err)
		return
	}
	for _, c := range s.Conditions {
		switch {
		case c.OK:
		case c.Name == agent.CheckJournal:
			p.Agent.OK, p.Agent.Why = false, c.Reason
			p.block("fairlead doctor", "the agent's journal does not work: %s", c.Reason)
		case c.Name == agent.CheckAPI:
			p.Agent.OK, p.Agent.Why = false, c.Reason
			p.block("fairlead status", "the agent does not know the API server's objects yet: %s", c.Reason)
		default:
			p.noted("the agent says of %s: %s", c.Name, c.Reason)
		}
	}
}

// note says what Apply does not decide.
func (m *Migration) note(p *Plan) {
	m.notePlugins(p)
	if p.Kubeconfig != nil && !p.Kubeconfig.Usable {
		p.noted("%s cannot be used (%s): give the agent --kubeconfig, or run it in the cluster", p.Kubeconfig.Path, p.Kubeconfig.Why)
	}
	if p.Runtime.Writes == "" {
		p.noted("%s is Fairlead's already and stays as it is: its networks, not those of %s, are what new pods get",
			p.Runtime.Winner, filepath.Base(p.Runtime.Multus))
	}
	if dir := text(p.multus.keys["daemonSocketDir"]); dir != "" {
		p.noted("%s sends plugins to %s: where a runtime must go on with that file, give the agent --compat-socket %s once Multus, which empties that folder, runs no more",
			p.Runtime.Multus, dir, filepath.Join(dir, "agent.sock"))
	}
	if slices.Contains(p.multus.file.types, "multus-shim") {
		p.noted("settings that stand in Multus' daemon-config.json alone are not in %s: give them to the agent by --config, in a file of their own", p.Runtime.Multus)
	}
	if p.Multus.Here() {
		p.noted("Multus runs: remove its DaemonSet after the import, else it puts its plugin back when it restarts (`kubectl get daemonsets -A` names it)")
	}
}

func (m *Migration) notePlugins(p *Plan) {
	if !hostfile.OwnPlugin(m.Plugin) {
		p.block("name it with --from", "%s is not Fairlead's plugin", m.Plugin)
	}
	for _, b := range p.Binaries {
		if b.Type == "fairlead" && b.Is != whoseOurs && b.Is != isAbsent {
			p.block("mv "+b.Path+" /root/", "%s is another program", b.Path)
		}
	}
	for _, n := range p.Networks {
		if len(n.Missing) > 0 {
			p.noted("network %s: %s has no file for the plugins %s; Multus cannot attach it, Fairlead only where its agent needs none (docs/multi-network.md)",
				n.Name, m.BinDir, strings.Join(n.Missing, ", "))
		}
	}
}

// left tells that Apply would put something in its place.
func (p *Plan) left() bool {
	return p.Runtime.Writes != "" && p.Runtime.Whose != whoseOurs ||
		slices.ContainsFunc(p.Binaries, func(b Binary) bool { return b.Then != thenKeep && b.Is != whoseOurs })
}

// Values of Binary.Then.
const (
	thenKeep    = "keep"
	thenInstall = "install"
	thenReplace = "replace"
)

// conclude sums up.
func (p *Plan) conclude() {
	p.Next = "fairlead import multus --apply"
	switch {
	case len(p.Blocks) > 0:
		p.Verdict, p.Next = "it cannot be done yet: "+p.Blocks[0].What, p.Blocks[0].Next
	case p.Phase == phaseApplying:
		p.Verdict = "an import was interrupted: it goes on where it was"
	case p.Phase == phaseBack:
		p.Verdict, p.Next = "a rollback was interrupted: it goes on where it was", "fairlead import multus --rollback"
	case p.Phase == phaseNone:
		p.Verdict = fmt.Sprintf("it can be done: %d of %d containers become Fairlead's", p.adoptable(), len(p.Records))
	case p.left():
		p.Verdict = "something of Multus came back after the import"
	case p.Multus.Here():
		p.Verdict, p.Next = "Fairlead has the node; Multus still runs", "kubectl get daemonsets -A | grep -i multus"
	default:
		p.Verdict, p.Next = "Fairlead has the node", "fairlead get pods --node-local"
	}
}

func (p *Plan) adoptable() (n int) {
	for _, r := range p.Records {
		if r.Adoptable {
			n++
		}
	}
	return n
}

// BlockedError says why nothing was done.
type BlockedError struct{ Block }

func (e BlockedError) Error() string { return e.What }

// Hint is the next command.
func (e BlockedError) Hint() string { return e.Next }
