package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/internal/confexplain"
)

// choice is what a runtime with its default settings makes of the folder; the
// folder is read once for each.
func (m *machine) choice(ctx context.Context, d confexplain.Dialect) (confexplain.Choice, error) {
	return confexplain.Explain(ctx, d, confexplain.Settings{Dir: m.cfg.ConfDir, MaxConfNum: 1}, m.plugins)
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

// ownConf is the least that a runtime needs to call us.
const ownConf = `{"cniVersion":"1.1.0","name":"fairlead","plugins":[{"type":"fairlead"}]}`

// conf judges a choice.
func (m *machine) conf(c confexplain.Choice, err error) (o outcome) {
	dir := m.cfg.ConfDir
	write := `echo '` + ownConf + `' > ` + filepath.Join(dir, "00-fairlead.conflist")
	if err != nil {
		return bad("ls -ld "+dir, "%v", err)
	}
	won, stops, refused := c.Winner(), c.With(confexplain.Stops), c.With(confexplain.Refused)
	switch {
	case len(stops) > 0:
		o = bad("mv "+filepath.Join(dir, stops[0].Name)+" /root/", "a broken file disables all networking: %s", c.Why)
	case won == nil && len(refused) > 0:
		o = bad("repair or remove the files above, or "+write, "no file in %s is usable", dir)
	case won == nil:
		o = warn("mkdir -p "+dir+" && "+write, "%s holds no configuration: pods get no network", dir)
	case len(won.Problems) > 0:
		o = bad("repair "+filepath.Join(dir, won.File)+", or what it needs", "%s wins (%s), and pods fail: %s", won.File, chain(won), strings.Join(won.Problems, "; "))
	case !won.Ours:
		o = warn("mv "+filepath.Join(dir, won.File)+" /root/, or name ours so that it sorts first",
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
