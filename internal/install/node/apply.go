package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// BlockedError says that nothing was done, and why.
type BlockedError struct{ Block }

func (e BlockedError) Error() string { return e.What }

// Hint is the next step.
func (e BlockedError) Hint() string { return e.Next }

// again is how long to wait between two questions to the runtime.
const again = 200 * time.Millisecond

// Install does what Plan says, and waits until the runtime has our network. A
// BlockedError comes before anything was changed; ctx bounds the wait.
func (n *Node) Install(ctx context.Context) (Report, error) {
	r, err := n.Plan(ctx)
	if err != nil {
		return r, err
	}
	if !r.OK() {
		return r, BlockedError{r.Blocks[0]}
	}
	unlock, err := n.lock()
	if err != nil {
		return r, err
	}
	defer unlock()
	if err := n.write(r); err != nil {
		return r, err
	}
	r.Done = true
	if err := n.await(ctx, &r, func(l runtimes.Live) error { return l.Why(pluginType) }); err != nil {
		return r, err
	}
	if err := n.prove(ctx, &r); err != nil {
		return r, err
	}
	if err := n.tryPod(ctx, &r); err != nil {
		return r, err
	}
	err = n.orphaned(ctx, &r)
	return r, err
}

// tryPod has the runtime attach a pod and detach it: that it has loaded our
// configuration does not tell that it takes our plugin's answers.
func (n *Node) tryPod(ctx context.Context, r *Report) error {
	err := runtimes.Prove(ctx, n.Socket)
	switch {
	case errors.Is(err, runtimes.ErrNoPods):
		r.Notes = append(r.Notes, "that a pod gets its network is not proven: "+err.Error())
	case err != nil:
		return fmt.Errorf("the files are in place, but a pod gets no network (fairlead uninstall node puts back what was there): %w", err)
	default:
		r.Proven = true
	}
	return nil
}

// prove asks the folders themselves what was foreseen from copies: the plugin
// may lie where nothing can be executed.
func (n *Node) prove(ctx context.Context, r *Report) (err error) {
	r.After, err = n.explain(ctx, *r, r.network.Dir, r.network.BinDirs)
	if err != nil {
		return err
	}
	switch won := r.After.Winner(); {
	case won == nil || won.File != n.Name:
		return fmt.Errorf("the files are in place, but somebody has changed %s meanwhile: %s", r.network.Dir, r.After.Why)
	case len(won.Problems) > 0:
		return fmt.Errorf("the files are in place, but pods would fail: %s", strings.Join(won.Problems, "; "))
	}
	return nil
}

// write puts the plugin in place, then the configuration that calls it. A file
// that is as it should be is only told to the runtime once more.
func (n *Node) write(r Report) error {
	s, err := n.load()
	if err != nil {
		return err
	}
	for _, f := range r.Files {
		put := n.putConf
		if f.Path == n.pluginPath(r) {
			put = n.putPlugin
		}
		if err := put(&s, r, f); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) putPlugin(s *state, _ Report, f File) error {
	if f.Action == Keep {
		return nil
	}
	content, err := os.ReadFile(n.Plugin)
	if err != nil {
		return err
	}
	if err := n.remember(s, f.Path, "plugin", sum(content)); err != nil {
		return err
	}
	_, err = hostfile.PutPlugin(n.Plugin, f.Path, n.Replace)
	return err
}

func (n *Node) putConf(s *state, r Report, f File) error {
	if f.Action == Keep {
		return hostfile.Touch(f.Path, r.conf)
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
		return err
	}
	if err := n.remember(s, f.Path, "conf", sum(r.conf)); err != nil {
		return err
	}
	return hostfile.Announce(f.Path, r.conf, 0o644)
}

// await asks the runtime until nothing of it is wanted any more.
func (n *Node) await(ctx context.Context, r *Report, lacks func(runtimes.Live) error) error {
	tick := time.NewTicker(again)
	defer tick.Stop()
	for {
		live, err := runtimes.Query(ctx, n.Socket)
		if err == nil {
			r.Runtime.Ready, r.Runtime.Reason = live.Ready, live.Reason
			if err = lacks(live); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the files are in place, but %w", err)
		case <-tick.C:
		}
	}
}

// orphaned tells of pods that others attached and whose DEL comes to us now.
func (n *Node) orphaned(ctx context.Context, r *Report) error {
	running, err := runtimes.Sandboxes(ctx, n.Socket)
	if err != nil {
		return err
	}
	list, err := n.Agent.Pods(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range list.Items {
		for _, a := range p.Attachments {
			running = slices.DeleteFunc(running, func(id string) bool { return id == a.Container })
		}
	}
	if len(running) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d pods with a network of their own run without Fairlead's: they keep what they have until they are restarted", len(running)))
	}
	return nil
}

// Uninstall puts back what was there before Install. What somebody else has
// written since is left alone, and said. With pods on our network it refuses,
// unless force: their DEL could come to nobody.
func (n *Node) Uninstall(ctx context.Context, force, dry bool) (Report, error) {
	if !dry {
		unlock, err := n.lock()
		if err != nil {
			return Report{}, err
		}
		defer unlock()
	}
	s, err := n.load()
	if err != nil {
		return Report{}, err
	}
	r, err := n.look(ctx)
	if err != nil {
		return r, err
	}
	if !force {
		n.attached(ctx, &r)
	}
	if len(s.Files) == 0 {
		r.Notes = append(r.Notes, "nothing of an installation is recorded in "+n.StateDir)
	}
	if !r.OK() && !dry {
		return r, BlockedError{r.Blocks[0]}
	}
	if err := n.putBack(&r, s, dry); err != nil || dry {
		return r, err
	}
	return n.gone(ctx, r)
}

// putBack takes the configuration first: nobody calls the plugin then.
func (n *Node) putBack(r *Report, s state, dry bool) error {
	for _, k := range slices.Backward(s.Files) {
		f, err := n.undo(k, dry)
		if err != nil {
			return err
		}
		r.Files = append(r.Files, f)
	}
	return nil
}

// attached blocks while pods have our network by the runtime.
func (n *Node) attached(ctx context.Context, r *Report) {
	const next = "move the pods away (kubectl drain), or uninstall with --force"
	list, err := n.Agent.Pods(ctx, "")
	if err != nil {
		r.block("start the agent, or uninstall with --force", "whether pods have Fairlead's network is not known: %s", err)
		return
	}
	running, err := runtimes.Sandboxes(ctx, n.Socket)
	if err != nil {
		r.block(next, "whether pods have Fairlead's network is not known: %s", err)
		return
	}
	count := 0
	for _, p := range list.Items {
		for _, a := range p.Attachments {
			if slices.Contains(running, a.Container) {
				count++
			}
		}
	}
	if count > 0 {
		r.block(next, "%d pods have Fairlead's network", count)
	}
}

// undo puts one file back.
func (n *Node) undo(k kept, dry bool) (File, error) {
	f := File{Path: k.Path}
	have, err := contentOf(k.Path)
	if err != nil {
		return f, err
	}
	before, err := n.before(k)
	if err != nil {
		return f, err
	}
	switch {
	case have == before:
		f.Action, f.Note = Keep, "it is as it was"
		return f, nil
	case !slices.Contains(k.Wrote, have) && !hostfile.OwnPlugin(k.Path):
		f.Action, f.Note = Leave, "somebody else has written or removed it since"
		return f, nil
	case before == "":
		f.Action = Remove
		if !dry {
			err = hostfile.Remove(k.Path)
		}
		return f, err
	}
	f.Action = Restore
	if !dry {
		err = n.restore(k)
	}
	return f, err
}

func (n *Node) restore(k kept) error {
	if k.Link != "" {
		if err := hostfile.Remove(k.Path); err != nil {
			return err
		}
		return os.Symlink(k.Link, k.Path)
	}
	b, err := os.ReadFile(filepath.Join(n.StateDir, k.Backup))
	if err != nil {
		return err
	}
	if hostfile.OwnPlugin(k.Path) { // a program that may run is not written to
		return hostfile.Write(k.Path, b, k.Mode)
	}
	return hostfile.Announce(k.Path, b, k.Mode)
}

// gone forgets the installation, and tells what the runtime has by now. That it
// has no network is no error: so it may have been.
func (n *Node) gone(ctx context.Context, r Report) (Report, error) {
	if err := os.RemoveAll(n.StateDir); err != nil {
		return r, err
	}
	r.Done = true
	after, err := n.explain(ctx, r, r.network.Dir, r.network.BinDirs)
	if err != nil {
		return r, err
	}
	r.After = after
	if after.Ready && !after.Winner().Ours {
		err := n.await(ctx, &r, others)
		return r, err
	}
	live, err := runtimes.Query(ctx, n.Socket)
	if err != nil {
		return r, errors.Join(errors.New("the files are back"), err)
	}
	r.Runtime.Ready, r.Runtime.Reason = live.Ready, live.Reason
	return r, nil
}

// others wants a runtime to be ready, and by another network than ours as far as
// it tells.
func others(l runtimes.Live) error {
	if !l.Ready {
		return l.Why(pluginType)
	}
	if l.Told && l.Gives(pluginType) {
		return fmt.Errorf("%s has loaded our network still", l.Name)
	}
	return nil
}
