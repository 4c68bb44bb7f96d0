package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/install/explain"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// find looks a type up in the plugin directories. A program that others than
// root can replace is not started: the agent would not either (reliability.md,
// Security).
func (m *machine) find(ctx context.Context, kind string) explain.Program {
	b := m.plugins.Find(ctx, kind)
	if b.Err == nil {
		b.Err = b.Untrusted
	}
	return b
}

// askPlugin is package explain's RunPlugin.
func (m *machine) askPlugin(ctx context.Context, path string, env []string, stdin string) ([]byte, error) {
	return m.inside(ctx, Command{Argv: []string{path}, Env: env, Stdin: stdin})
}

const installNext = "make install, or copy bin/fairlead-cni to %s/fairlead (root, mode 0755)"

// checkPlugin proves that our own binary is what answers to type fairlead, and
// tells which of the other two types it answers to.
func checkPlugin(ctx context.Context, m *machine) outcome {
	dir := "/opt/cni/bin"
	if len(m.cfg.BinDirs) > 0 {
		dir = m.cfg.BinDirs[0]
	}
	next := fmt.Sprintf(installNext, dir)
	own := m.find(ctx, "fairlead")
	if own.Err != nil {
		return bad(next, "%v", own.Err)
	}
	if missing := lacks(own.Versions); len(missing) > 0 {
		return bad(next, "%s lacks CNI %s: it is another program, or an old one", own.Path, strings.Join(missing, ", "))
	}
	types := []string{"fairlead"}
	o := good("")
	for _, kind := range []string{"kube-ovn", "multus"} {
		b := m.find(ctx, kind)
		switch {
		case errors.Is(b.Err, fs.ErrNotExist):
			// Only wanted where a configuration names it; the checks of confs say so then.
		case b.Path != "" && same(own.Path, b.Path):
			types = append(types, kind)
		default:
			o.details = append(o.details, b.Path+" is another program")
		}
	}
	o.reason = fmt.Sprintf("%s answers to %s; CNI %s to %s", own.Path, strings.Join(types, ", "), own.Versions[0], own.Versions[len(own.Versions)-1])
	return o
}

func lacks(versions []string) (missing []string) {
	for _, v := range cniconf.Supported() {
		if !slices.Contains(versions, v) {
			missing = append(missing, v)
		}
	}
	return missing
}

// same tells that two paths hold the same program: a link, or a copy.
func same(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX != nil || errY != nil || x.Size() != y.Size() {
		return false
	}
	return os.SameFile(x, y) || equalContent(a, b)
}

func equalContent(a, b string) bool {
	x, errX := os.ReadFile(a)
	y, errY := os.ReadFile(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// checkDelegates looks for every foreign plugin that the winning configuration
// and the networks of the objects name.
func checkDelegates(ctx context.Context, m *machine) outcome {
	kinds := m.foreignTypes(ctx)
	var missing, present []string
	for _, kind := range kinds {
		if b := m.find(ctx, kind); b.Err != nil {
			missing = append(missing, b.Err.Error())
		} else {
			present = append(present, kind)
		}
	}
	switch {
	case len(missing) > 0:
		o := bad("install the CNI plugins 1.9.1 (containernetworking/plugins) to "+strings.Join(m.cfg.BinDirs, " or "),
			"%d of %d plugins that configurations name cannot be used", len(missing), len(kinds))
		o.details = missing
		return o
	case len(kinds) == 0:
		return good("no configuration names a foreign plugin")
	}
	return good("%s", strings.Join(present, ", "))
}

func (m *machine) foreignTypes(ctx context.Context) []string {
	var kinds []string
	for _, d := range []explain.Dialect{explain.Dockershim, explain.Containerd} {
		c, err := m.choice(ctx, d)
		if won := c.Winner(); err == nil && won != nil && won.Ours {
			for _, p := range won.Plugins {
				kinds = append(append(kinds, p.Type), p.Names...)
			}
		}
	}
	kinds = append(kinds, m.objectTypes(ctx)...)
	kinds = slices.DeleteFunc(kinds, core.OwnType)
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// objectTypes are the plugin types of the networks: the folder tells them all,
// the agent only those of the chains.
func (m *machine) objectTypes(ctx context.Context) (kinds []string) {
	if m.cfg.LoadObjects != nil && m.cfg.Objects != "" {
		// An error is checkObjects' to tell.
		_, kinds, _ = m.cfg.LoadObjects(m.cfg.Objects, m.cfg.OVN)
		return kinds
	}
	if !m.agentUp {
		return nil
	}
	nets, err := m.cfg.Agent.Nets(ctx)
	if err != nil {
		return nil // checkAgent tells what is wrong with the agent
	}
	for _, n := range nets.Items {
		kinds = append(kinds, n.Plugins...)
	}
	return kinds
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}
