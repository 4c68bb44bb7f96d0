package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// RunPlugin starts a plugin with exactly this environment and standard input, and
// gives its standard output, also beside an error.
type RunPlugin func(ctx context.Context, path string, env []string, stdin string) ([]byte, error)

// Plugins finds plugins in folders and asks each once for its versions.
type Plugins struct {
	dirs  []string
	run   RunPlugin
	known map[string]Program
}

// NewPlugins looks into the folders in their order.
func NewPlugins(dirs []string, run RunPlugin) *Plugins {
	return &Plugins{dirs: dirs, run: run, known: map[string]Program{}}
}

// Program is what was found of a plugin.
type Program struct {
	Path     string   // "" where no folder has it: then Err is fs.ErrNotExist
	Versions []string // CNI versions it answers to
	Err      error    // why a runtime cannot run it
	// Untrusted is why it was not asked: a runtime starts it without that
	// question, so that Err does not tell.
	Untrusted error
}

// Find looks a type up as libcni does: the first folder with a plain file of
// that name counts, whatever it is.
func (p *Plugins) Find(ctx context.Context, kind string) Program {
	found, ok := p.known[kind]
	if !ok {
		found = p.find(ctx, kind)
		if ctx.Err() == nil {
			p.known[kind] = found
		}
	}
	return found
}

func (p *Plugins) find(ctx context.Context, kind string) Program {
	if kind == "" || strings.ContainsRune(kind, '/') {
		return Program{Err: fmt.Errorf("%q is not a plugin type", kind)}
	}
	for _, dir := range p.dirs {
		path := filepath.Join(dir, kind)
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		found := Program{Path: path}
		if info.Mode().Perm()&0o111 == 0 {
			found.Err = fmt.Errorf("%s is not executable", path)
			return found
		}
		if found.Untrusted = trusted(path); found.Untrusted == nil {
			found.Versions, found.Err = p.versions(ctx, path)
		}
		return found
	}
	return Program{Err: fmt.Errorf("%s is not in %s: %w", kind, strings.Join(p.dirs, ", "), fs.ErrNotExist)}
}

// trusted proves that only root can have written the program and its folder,
// also behind a link: we are about to start it (spec/reliability.md, Security).
func trusted(path string) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	return hostfile.OnlyRoot(filepath.Dir(path), filepath.Dir(target), target)
}

// dummies are what libcni gives a plugin beside the verb VERSION, which touches
// nothing.
var dummies = []string{"CNI_COMMAND=VERSION", "CNI_NETNS=dummy", "CNI_IFNAME=dummy", "CNI_PATH=dummy"}

// before020 is the answer of plugins that are older than the verb.
const before020 = "unknown CNI_COMMAND: VERSION"

func (p *Plugins) versions(ctx context.Context, path string) ([]string, error) {
	out, err := p.run(ctx, path, dummies, `{"cniVersion":"`+version.Current()+`"}`)
	if err != nil {
		var said types.Error
		if json.Unmarshal(out, &said) == nil && said.Error() == before020 {
			return []string{"0.1.0"}, nil
		}
		return nil, fmt.Errorf("%s does not answer VERSION: %w", path, err)
	}
	info, err := (&version.PluginDecoder{}).Decode(out)
	if err != nil {
		return nil, fmt.Errorf("%s does not answer VERSION as a CNI plugin does: %w", path, err)
	}
	return info.SupportedVersions(), nil
}

// check is libcni's ValidateNetworkList: every plugin is there and speaks the
// list's version.
func (p *Plugins) check(ctx context.Context, list *libcni.NetworkConfigList) error {
	want := list.CNIVersion
	if want == "" {
		want = "0.1.0"
	}
	var errs []string
	for _, c := range list.Plugins {
		kind := c.Network.Type
		found := p.Find(ctx, kind)
		switch {
		case found.Err != nil:
			errs = append(errs, found.Err.Error())
		case found.Untrusted == nil && !slices.Contains(found.Versions, want):
			errs = append(errs, fmt.Sprintf("%s does not speak cniVersion %s", kind, want))
		}
	}
	slices.Sort(errs)
	if errs = slices.Compact(errs); len(errs) > 0 {
		return errors.New(strings.Join(errs, "; "))
	}
	return nil
}
