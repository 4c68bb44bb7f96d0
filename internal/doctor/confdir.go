package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/internal/confexplain"
	"github.com/fairlead/fairlead/internal/hostruntime"
)

// choice is what a runtime makes of the folder, with the settings of its own
// configuration and from its folders of plugins, if it is on this machine.
func (m *machine) choice(ctx context.Context, d confexplain.Dialect) (confexplain.Choice, error) {
	n, err := m.cfg.Runtimes.Network(d)
	if err != nil {
		return confexplain.Choice{}, err
	}
	plugins := m.plugins
	if len(n.Files) > 0 {
		plugins = confexplain.NewPlugins(n.BinDirs, m.askPlugin)
	} else {
		n.Dir = m.cfg.ConfDir
	}
	n.CNI = hostruntime.Newest(ctx, d, m.cfg.Sockets)
	return confexplain.Explain(ctx, d, n.Settings, plugins)
}

func checkConfDockershim(ctx context.Context, m *machine) outcome {
	return m.conf(m.choice(ctx, confexplain.Dockershim))
}

func checkConfContainerd(ctx context.Context, m *machine) outcome {
	return m.conf(m.choice(ctx, confexplain.Containerd))
}

func checkConfCRIO(ctx context.Context, m *machine) outcome {
	return m.conf(m.choice(ctx, confexplain.CRIO))
}

// installNode puts our configuration where the runtime takes it.
const installNode = "fairlead install node"

// conf judges a choice.
func (m *machine) conf(c confexplain.Choice, err error) (o outcome) {
	if err != nil {
		return bad("repair the file, or ls -ld "+m.cfg.ConfDir, "%v", err)
	}
	dir := c.Dir
	won, stops, refused := c.Winner(), c.With(confexplain.Stops), c.With(confexplain.Refused)
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
func chain(n *confexplain.Network) string {
	types := make([]string, len(n.Plugins))
	for i, p := range n.Plugins {
		types[i] = p.Type
	}
	return strings.Join(types, ", ")
}
