package migrate

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// Rollback gives the node back to Multus: its plugins, its configuration and
// the containers that it can detach, also those that were attached since. While
// there are others it refuses, unless forced; then they stay the agent's. It
// goes on with a rollback that was interrupted, and after one does nothing.
func (m *Migration) Rollback(ctx context.Context, force bool) (Report, error) {
	rep := Report{Done: []string{}, Containers: []agent.Adopted{}}
	unlock, err := m.lock()
	if err != nil {
		return rep, err
	}
	defer unlock()
	s, err := m.load()
	if err != nil || s.Phase == phaseNone {
		return rep, err
	}
	c, err := findMultus(nil, s)
	if err != nil {
		return rep, fmt.Errorf("state of the import: %w", err)
	}
	ask := agent.Multus{Config: c.raw, BinDirs: m.binDirs(c)}
	for _, step := range []func() error{
		func() error { return m.starts(c, s, force) },
		func() error { return m.restoreRecords(ctx, c, ask, &rep, force) },
		func() error {
			s.Phase = phaseBack
			return m.save(s)
		},
		func() error { return m.restoreFiles(c, s, &rep) },
		// What our plugin attached until now Multus does not know yet.
		func() error { return m.restoreRecords(ctx, c, ask, &rep, true) },
		func() error { return m.release(ctx, ask, &rep) },
		// Multus' daemon may have started, and seen ours, a moment before it went.
		func() error { return m.restoreConf(c, s, &rep) },
		func() error { return m.forget(&rep) },
	} {
		if err := step(); err != nil {
			return rep, err
		}
	}
	return rep, nil
}

// starts refuses while Multus' daemon has not written its file: it has chosen
// ours as the default network by then, and without it writes an empty one.
func (m *Migration) starts(c multusConf, s state, force bool) error {
	if force || exists(s.Conf) || len(m.running(c).Processes) == 0 {
		return nil
	}
	return BlockedError{Block{
		What: "Multus is about to write " + s.Conf + ", which would stay empty if " + ours + " went meanwhile",
		Next: "wait until the file is there; --force does not",
	}}
}

// forget ends the rollback, and says who has the node: a file of ours that was
// there before the import is the agent's to remove.
func (m *Migration) forget(rep *Report) error {
	fail.Here("rollback.released")
	if err := hostfile.Remove(filepath.Join(m.StateDir, stateName)); err != nil {
		return err
	}
	files, err := readConfs(m.ConfDir)
	if err != nil {
		return err
	}
	if winner(files).Whose == whoseOurs {
		rep.did("Multus' plugins and containers are its own again; the backup stays in %s", m.StateDir)
		rep.Todo = append(rep.Todo, fmt.Sprintf("the runtime takes %s still, which the import found there: end the agent's --cni-conf and remove it", files[0].path))
	} else {
		rep.did("Multus has the node; the backup stays in %s", m.StateDir)
	}
	if len(rep.Left) > 0 {
		rep.Todo = append(rep.Todo, "keep the agent until the pods above are deleted, then `fairlead gc`")
	}
	return nil
}

// restoreRecords puts where they belong the files by which Multus detaches the
// agent's containers. Those that it cannot detach are refused unless forced.
func (m *Migration) restoreRecords(ctx context.Context, c multusConf, ask agent.Multus, rep *Report, force bool) error {
	got, err := m.Agent.Export(ctx, ask)
	if err != nil && !force {
		return err
	}
	rep.Left = slices.DeleteFunc(slices.Clone(got.Items), func(e agent.Exported) bool { return e.Reason == "" })
	if len(rep.Left) > 0 && !force {
		e := rep.Left[0]
		return BlockedError{Block{
			What: fmt.Sprintf("Multus could not detach %d attachments, the first %s/%s %s: %s", len(rep.Left), e.Namespace, e.Pod, e.IfName, e.Reason),
			Next: "delete these pods first, or --force: then they need the agent until they are deleted",
		}}
	}
	if err := os.MkdirAll(filepath.Join(c.dir(), "results"), folderMode); err != nil {
		return fmt.Errorf("records of Multus: %w", err)
	}
	for _, e := range got.Items {
		for _, f := range e.Files {
			if err := m.restoreRecord(f); err != nil {
				return err
			}
		}
	}
	fail.Here("rollback.records")
	return nil
}

func (m *Migration) restoreRecord(f agent.ExportedFile) error {
	switch {
	case len(f.Data) > 0:
		return hostfile.Write(f.Path, f.Data, 0o600)
	case exists(f.Path):
		return nil
	}
	name := filepath.Base(f.Path)
	if dir := filepath.Base(filepath.Dir(f.Path)); dir == "results" {
		name = filepath.Join(dir, name)
	}
	return putBack(m.kept(keptFiles, name), f.Path, 0o600)
}

// restoreFiles brings plugins and configuration back: Multus' configuration is
// there, and its plugin behind it, before ours goes.
func (m *Migration) restoreFiles(c multusConf, s state, rep *Report) error {
	fail.Here("rollback.begun")
	for _, t := range s.Types {
		if err := m.restorePlugin(t, rep); err != nil {
			return err
		}
		fail.Here("rollback.plugin")
	}
	if err := m.restoreConf(c, s, rep); err != nil {
		return err
	}
	fail.Here("rollback.conf")
	if s.Writes && exists(m.ours()) {
		if err := hostfile.Remove(m.ours()); err != nil {
			return err
		}
		rep.did("%s is removed", m.ours())
	}
	fail.Here("rollback.files")
	return nil
}

// restoreConf puts Multus' configuration back where none can be used: its daemon
// removes it when it ends, has ours as the default network in it when it was
// started beside ours, and leaves it empty when ours went while it started. What
// it wrote otherwise stays. It follows ours until it is started again.
func (m *Migration) restoreConf(c multusConf, s state, rep *Report) error {
	raw, err := os.ReadFile(s.Conf)
	have := parseConf(s.Conf, raw, err)
	if have.err == nil && !have.nests() || err == nil && slices.Equal(raw, s.Content) {
		return nil
	}
	if err := hostfile.Announce(s.Conf, s.Content, 0o600); err != nil {
		return err
	}
	rep.did("%s is as it was before the import", s.Conf)
	todo := "restart Multus' DaemonSet, which took " + ours + " for its default network: `kubectl get daemonsets -A | grep -i multus` names it"
	if m.running(c).Here() && !slices.Contains(rep.Todo, todo) {
		rep.Todo = append(rep.Todo, todo)
	}
	return nil
}

// restorePlugin leaves one alone that is not ours: Multus has put it there since.
func (m *Migration) restorePlugin(t string, rep *Report) error {
	path, from := filepath.Join(m.BinDir, t), m.kept(keptBins, t)
	if is := whose(path); is != whoseOurs && is != isAbsent {
		return nil
	}
	if !exists(from) {
		return hostfile.Remove(path) // there was none
	}
	if err := putBack(from, path, 0o755); err != nil {
		return err
	}
	rep.did("%s is Multus' again", path)
	return nil
}

// putBack copies out of the backup; what it does not have was not there.
func putBack(from, to string, mode fs.FileMode) error {
	if !exists(from) {
		return nil
	}
	return hostfile.Copy(from, to, mode)
}

// release has the agent forget what Multus can detach now.
func (m *Migration) release(ctx context.Context, ask agent.Multus, rep *Report) error {
	got, err := m.Agent.Export(ctx, ask)
	if err != nil { // it was forced, or the agent was there a moment ago
		return BlockedError{Block{
			What: fmt.Sprintf("Multus' plugins and configuration are back, but the agent has its containers still, and Multus does not know those "+
				"that were attached since the import: %v", err),
			Next: "start the agent, then `fairlead import multus --rollback`, which goes on; without it remove " + m.StateDir + " and delete these pods",
		}}
	}
	for _, e := range got.Items {
		if e.Reason == "" {
			ask.Containers = append(ask.Containers, e.Container)
		}
	}
	ask.Containers = slices.Compact(ask.Containers)
	for part := range slices.Chunk(ask.Containers, batch) {
		ask.Containers = part
		gone, err := m.Agent.Release(ctx, ask)
		if err != nil {
			return err
		}
		rep.Containers = append(rep.Containers, gone.Items...)
	}
	return nil
}
