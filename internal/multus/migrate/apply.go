package migrate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/multus/records"
)

// Report is what was done. Its keys are an interface: `-o json` prints it.
type Report struct {
	Done []string `json:"done"` // in order; what was so already is left out
	// Containers are what the agent says of each that Multus attached.
	Containers []agent.Adopted `json:"containers"`
	// Left are attachments that only Fairlead can detach (Rollback).
	Left []agent.Exported `json:"left,omitempty"`
	Todo []string         `json:"todo,omitempty"` // by the user
}

func (r *Report) did(format string, args ...any) {
	r.Done = append(r.Done, fmt.Sprintf(format, args...))
}

// batch is how many containers one request is about: each has a CHECK.
const batch = 16

// Apply takes the node over, or goes on with a take-over that was interrupted.
// A BlockedError says that nothing was done.
func (m *Migration) Apply(ctx context.Context) (Report, error) {
	rep := Report{Done: []string{}, Containers: []agent.Adopted{}}
	unlock, err := m.lock()
	if err != nil {
		return rep, err
	}
	defer unlock()
	p, err := m.Plan(ctx)
	if err == nil && len(p.Blocks) > 0 {
		err = BlockedError{p.Blocks[0]}
	}
	if err == nil && p.Phase == phaseBack {
		err = BlockedError{Block{What: "a rollback was interrupted", Next: "fairlead import multus --rollback"}}
	}
	if err != nil {
		return rep, err
	}
	s, err := m.begin(p)
	if err != nil {
		return rep, err
	}
	for _, step := range []func(Plan, *Report) error{m.backUp, m.ownPlugin, m.writeConf, m.takePlugins, m.backUpRecords} {
		if err := step(p, &rep); err != nil {
			return rep, err
		}
	}
	fail.Here("import.files")
	if err := m.adopt(ctx, p, &rep); err != nil {
		return rep, err
	}
	s.Phase = phaseApplied
	if err := m.save(s); err != nil {
		return rep, err
	}
	m.todo(p, &rep)
	return rep, nil
}

// begin writes what the node does not show any more once we go on.
func (m *Migration) begin(p Plan) (state, error) {
	s := p.state
	if s.Phase == phaseNone {
		s = state{Started: time.Now().UTC(), Writes: p.Runtime.Writes != ""}
	}
	s.Phase, s.Conf, s.Content = phaseApplying, p.multus.file.path, p.multus.file.raw
	for _, b := range p.Binaries {
		if b.Type != "fairlead" && b.Is != whoseOurs && !slices.Contains(s.Types, b.Type) {
			s.Types = append(s.Types, b.Type)
		}
	}
	err := m.save(s)
	fail.Here("import.begun")
	return s, err
}

// backUp keeps the runtime's configurations and every plugin that goes. What is
// ours, or of Multus about us, is never kept in place of what was there before.
func (m *Migration) backUp(p Plan, rep *Report) error {
	files, err := readConfs(m.ConfDir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.path == m.ours() && p.Runtime.Writes != "" || f.nests() {
			continue
		}
		if err := m.keep(f.path, m.kept(keptConfs, filepath.Base(f.path)), rep); err != nil {
			return err
		}
	}
	fail.Here("import.confs-kept")
	for _, b := range p.Binaries {
		if b.Is == whoseOurs {
			continue
		}
		if err := m.keep(b.Path, m.kept(keptBins, b.Type), rep); err != nil {
			return err
		}
		fail.Here("import.plugin-kept")
	}
	return nil
}

func (m *Migration) keep(from, to string, rep *Report) error {
	changed, err := keep(from, to)
	if changed && err == nil {
		rep.did("%s is kept as %s", from, to)
	}
	return err
}

// ownPlugin comes before the configuration that calls it.
func (m *Migration) ownPlugin(_ Plan, rep *Report) error {
	return m.put("fairlead", false, rep)
}

func (m *Migration) put(name string, force bool, rep *Report) error {
	path := filepath.Join(m.BinDir, name)
	changed, err := hostfile.PutPlugin(m.Plugin, path, force)
	if changed && err == nil {
		rep.did("%s is Fairlead's plugin now", path)
	}
	fail.Here("import.plugin")
	return err
}

// writeConf puts our configuration before Multus'. That one stays: it is valid
// all the time, and Multus' daemon may remove it whenever it likes.
func (m *Migration) writeConf(p Plan, rep *Report) error {
	if p.Runtime.Writes == "" {
		return nil
	}
	want, err := p.multus.list(m.Socket)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(m.ours())
	if err == nil && slices.Equal(have, want) {
		return hostfile.Touch(m.ours(), want) // the runtime may have missed it
	}
	if err := hostfile.Announce(m.ours(), want, 0o644); err != nil {
		return err
	}
	rep.did("%s is the runtime's configuration now, with network %s as it was", m.ours(), p.multus.file.name)
	fail.Here("import.conf")
	return nil
}

// takePlugins has our plugin answer where Multus was called: by runtimes that
// still have the former configuration, and where ours is removed.
func (m *Migration) takePlugins(p Plan, rep *Report) error {
	for _, b := range p.Binaries {
		if b.Type == "fairlead" {
			continue
		}
		if err := m.put(b.Type, true, rep); err != nil {
			return err
		}
	}
	return nil
}

// backUpRecords keeps Multus' files, which go with the DEL of their containers.
func (m *Migration) backUpRecords(p Plan, _ *Report) error {
	for _, r := range p.Records {
		for _, f := range m.recordFiles(p.multus, r.Container) {
			if _, err := keep(f.from, f.to); err != nil {
				return err
			}
		}
	}
	return nil
}

// keptFile is a file and its place in the backup.
type keptFile struct{ from, to string }

// recordFiles are Multus' files of a container.
func (m *Migration) recordFiles(c multusConf, id string) []keptFile {
	out := []keptFile{{filepath.Join(c.dir(), id), m.kept(keptFiles, id)}}
	results, _ := filepath.Glob(filepath.Join(c.dir(), "results", "*-"+id+"-*")) // an id has no wild card
	for _, path := range results {
		out = append(out, keptFile{path, m.kept(keptFiles, filepath.Join("results", filepath.Base(path)))})
	}
	return out
}

// adopt has the agent take the containers into its journal, those too that
// Multus attached while we were at it.
func (m *Migration) adopt(ctx context.Context, p Plan, rep *Report) error {
	ids, err := records.Folder{Dir: p.multus.dir()}.Containers()
	if err != nil {
		return err
	}
	slices.Sort(ids)
	conf, err := p.multus.named(p.network)
	if err != nil {
		return err
	}
	failed := 0
	for part := range slices.Chunk(ids, batch) {
		got, err := m.Agent.Adopt(ctx, agent.Multus{Config: conf, BinDirs: m.binDirs(p.multus), Containers: part})
		if err != nil {
			return err
		}
		rep.Containers = append(rep.Containers, got.Items...)
		fail.Here("import.adopted")
	}
	slices.SortStableFunc(rep.Containers, func(a, b agent.Adopted) int {
		return strings.Compare(podName(a.Namespace, a.Pod), podName(b.Namespace, b.Pod))
	})
	for _, c := range rep.Containers {
		if c.State == agent.AdoptedFailed {
			failed++
		}
	}
	if failed > 0 {
		return BlockedError{Block{
			What: fmt.Sprintf("%d of %d containers are not in the journal yet (all else is done)", failed, len(rep.Containers)),
			Next: "fairlead import multus --apply",
		}}
	}
	return nil
}

func (m *Migration) todo(p Plan, rep *Report) {
	if m.running(p.multus).Here() {
		rep.Todo = append(rep.Todo, "remove Multus' DaemonSet, which puts its plugin back when it restarts: `kubectl get daemonsets -A | grep -i multus` names it")
	}
	for _, c := range rep.Containers {
		if len(c.Differences) > 0 {
			rep.Todo = append(rep.Todo, fmt.Sprintf("`fairlead check %s/%s`: it differs from what Multus made", c.Namespace, c.Pod))
		}
	}
	rep.Todo = append(rep.Todo, "`fairlead import multus --rollback` gives the node back to Multus; what that needs is in "+m.StateDir)
}
