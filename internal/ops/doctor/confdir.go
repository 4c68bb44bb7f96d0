package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/install/explain"
	"github.com/fairlead/fairlead/internal/install/runtimes"
)

// look is what a runtime makes of its folder.
type look struct {
	explain.Choice
	live *runtimes.Live // the one that runs, nil where none answers
	from string         // who told where the folder is; "" for whoever called us
}

// choice is what a runtime makes of its folder, with its own settings and from its
// own folders of plugins: those that the running one tells, else those of its
// configuration files, if it is on this machine.
func (m *machine) choice(ctx context.Context, d explain.Dialect) (look, error) {
	var l *runtimes.Live
	if at := slices.IndexFunc(m.runtimes, func(l runtimes.Live) bool { return l.Dialect == d }); at >= 0 {
		l = &m.runtimes[at]
	}
	n, from, err := m.network(d, l)
	if err != nil {
		return look{live: l}, err
	}
	if l == nil && m.runtimesErr != nil {
		from += fmt.Sprintf(" (%v)", m.runtimesErr)
	}
	plugins := m.plugins
	if len(n.Files) > 0 || l != nil && l.Network != nil {
		plugins = explain.NewPlugins(n.BinDirs, m.askPlugin)
	}
	if l != nil {
		n.CNI = l.CNI
	}
	c, err := explain.Explain(ctx, d, n.Settings, plugins)
	return look{Choice: c, live: l, from: from}, err
}

// network are a runtime's settings, and who told them.
func (m *machine) network(d explain.Dialect, l *runtimes.Live) (runtimes.Network, string, error) {
	if l != nil && l.Network != nil {
		return *l.Network, "as " + l.Name + " on " + l.Socket + " says", nil
	}
	n, err := m.cfg.Runtimes.Network(d)
	if err != nil {
		return n, "", err
	}
	from := "its defaults"
	if len(n.Files) > 0 {
		from = strings.Join(n.Files, ", ")
	} else {
		n.Dir = m.cfg.ConfDir
	}
	switch {
	case l != nil:
		from = l.Name + " on " + l.Socket + " does not tell its folders: by " + from
	case len(m.cfg.Sockets) > 0:
		from = "none of it answers: by " + from
	default:
		from = "" // the caller named the folders
	}
	return n, from, nil
}

func checkConfDockershim(ctx context.Context, m *machine) outcome {
	return m.conf(m.choice(ctx, explain.Dockershim))
}

func checkConfContainerd(ctx context.Context, m *machine) outcome {
	return m.conf(m.choice(ctx, explain.Containerd))
}

func checkConfCRIO(ctx context.Context, m *machine) outcome {
	return m.conf(m.choice(ctx, explain.CRIO))
}

// conf judges a choice by the folder, then by what the running runtime has loaded.
func (m *machine) conf(c look, err error) outcome {
	o := m.folder(c.Choice, err)
	if c.live != nil {
		o = loaded(o, *c.live)
	}
	if c.from != "" {
		o.details = append(o.details, c.from)
	}
	return o
}

// loaded is the outcome for a runtime that runs. What it has loaded counts: a
// folder that is in order helps nobody before it is read.
func loaded(o outcome, l runtimes.Live) outcome {
	err := l.Fault
	if err == nil {
		err = lacksOurs(l)
	}
	switch {
	case err != nil && o.verdict == OK:
		next := "restart it, or see its log"
		failed := bad(next, "%v, although %s", err, o.reason)
		failed.details = o.details
		return failed
	case err != nil:
		o.details = append(o.details, err.Error())
	case o.verdict != OK:
		o.details = append(o.details, "by now it gives pods Fairlead's networks all the same, from what it loaded before")
	}
	return o
}

// lacksOurs is why pods do not get a network of ours from a runtime, whichever of
// our types it calls; nil when they do, as far as it tells.
func lacksOurs(l runtimes.Live) (err error) {
	for _, kind := range []string{"multus", "kube-ovn", "fairlead"} {
		if err = l.Why(kind); err == nil {
			return nil
		}
	}
	return err
}

// installNode puts our configuration where the runtime takes it.
const installNode = "fairlead install node"

// folder judges what a folder holds.
func (m *machine) folder(c explain.Choice, err error) (o outcome) {
	if err != nil {
		return bad("repair the file, or ls -ld "+m.cfg.ConfDir, "%v", err)
	}
	dir := c.Dir
	won, stops, refused := c.Winner(), c.With(explain.Stops), c.With(explain.Refused)
	switch {
	case len(stops) > 0:
		o = bad("mv "+filepath.Join(dir, stops[0].Name)+" /root/", "a broken file disables all networking: %s", c.Why)
	case won == nil && len(c.Networks) > 0:
		o = bad("take cni_default_network out of crio.conf, and restart CRI-O", "%s", c.Why)
	case won == nil && len(refused) > 0:
		o = bad("repair or remove the files above, or "+installNode, "no file in %s is usable", dir)
	case won == nil:
		o = warn(installNode, "%s holds no configuration: pods get no network", dir)
	case len(won.Problems) > 0: // which a runtime that nobody uses may have
		o = warn("repair "+filepath.Join(dir, won.File)+", or what it needs", "%s wins (%s), and pods fail: %s", won.File, chain(won), strings.Join(won.Problems, "; "))
	case !won.Ours:
		o = warn(installNode,
			"%s wins (%s): pods do not get Fairlead's networks; %s", won.File, chain(won), c.Why)
	default:
		o = good("%s wins (%s): %s", won.File, chain(won), c.Why)
	}
	for _, f := range append(stops, refused...) {
		o.details = append(o.details, fmt.Sprintf("not usable: %s: %s", f.Name, f.Why))
	}
	return o
}

// chain is a network's plugins in words.
func chain(n *explain.Network) string {
	types := make([]string, len(n.Plugins))
	for i, p := range n.Plugins {
		types[i] = p.Type
	}
	return strings.Join(types, ", ")
}
