package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
)

// binary is a plugin's program as a runtime would find it.
type binary struct {
	path     string
	versions []string // CNI versions it answers to
	err      error
}

// find looks a type up in the plugin directories and asks for its versions.
func (m *machine) find(ctx context.Context, kind string) binary {
	b, ok := m.binaryOf[kind]
	if !ok {
		b = m.ask(ctx, kind)
		m.binaryOf[kind] = b
	}
	return b
}

func (m *machine) ask(ctx context.Context, kind string) binary {
	if kind == "" || strings.ContainsRune(kind, '/') {
		return binary{err: fmt.Errorf("%q is not a plugin type", kind)}
	}
	for _, dir := range m.cfg.BinDirs {
		path := filepath.Join(dir, kind)
		info, err := os.Stat(path)
		if err != nil || info.IsDir() {
			continue
		}
		b := binary{path: path}
		if b.err = trusted(path); b.err == nil {
			b.versions, b.err = m.versions(ctx, path)
		}
		return b
	}
	return binary{err: fmt.Errorf("%s is not in %s: %w", kind, strings.Join(m.cfg.BinDirs, ", "), fs.ErrNotExist)}
}

// trusted proves that only root can have written the program and its
// directory: we are about to start it, and so is the agent (reliability.md,
// Security).
func trusted(path string) error {
	for _, p := range []string{path, filepath.Dir(path)} {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || st.Uid != 0 || info.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf("%s must be owned by root and writable by nobody else (mode %v)", p, info.Mode())
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("%s is not executable", path)
	}
	return nil
}

// versions is the CNI verb VERSION, which touches nothing.
func (m *machine) versions(ctx context.Context, path string) ([]string, error) {
	out, err := m.inside(ctx, Command{
		Argv: []string{path}, Env: []string{"CNI_COMMAND=VERSION"}, Stdin: `{"cniVersion":"1.1.0"}`,
	})
	if err != nil {
		return nil, fmt.Errorf("%s does not answer VERSION: %w", path, err)
	}
	var v struct {
		SupportedVersions []string `json:"supportedVersions"`
	}
	if err := json.Unmarshal(out, &v); err != nil || len(v.SupportedVersions) == 0 {
		return nil, fmt.Errorf("%s does not answer VERSION as a CNI plugin does", path)
	}
	return v.SupportedVersions, nil
}

// runnable proves that every plugin of a file is there and speaks its version,
// as libcni's ValidateNetworkList does.
func (m *machine) runnable(ctx context.Context, f confFile) error {
	for _, kind := range f.types {
		b := m.find(ctx, kind)
		switch {
		case b.err != nil:
			return b.err
		case f.version != "" && !slices.Contains(b.versions, f.version):
			return fmt.Errorf("%s does not speak cniVersion %s", kind, f.version)
		}
	}
	return nil
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
	if own.err != nil {
		return bad(next, "%v", own.err)
	}
	if missing := lacks(own.versions); len(missing) > 0 {
		return bad(next, "%s lacks CNI %s: it is another program, or an old one", own.path, strings.Join(missing, ", "))
	}
	types := []string{"fairlead"}
	o := good("")
	for _, kind := range []string{"kube-ovn", "multus"} {
		b := m.find(ctx, kind)
		switch {
		case errors.Is(b.err, fs.ErrNotExist):
			// Only wanted where a configuration names it; runnable says so then.
		case b.path != "" && same(own.path, b.path):
			types = append(types, kind)
		default:
			o.details = append(o.details, b.path+" is another program")
		}
	}
	o.reason = fmt.Sprintf("%s answers to %s; CNI %s to %s", own.path, strings.Join(types, ", "), own.versions[0], own.versions[len(own.versions)-1])
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
		if b := m.find(ctx, kind); b.err != nil {
			missing = append(missing, b.err.Error())
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
	for _, c := range []choice{m.tolerant(ctx), m.strict(ctx)} {
		if c.winner != nil && c.winner.ours() {
			kinds = append(kinds, c.winner.types...)
			kinds = append(kinds, c.winner.named...)
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
		_, kinds, _ = m.cfg.LoadObjects(ctx, m.cfg.Objects)
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
