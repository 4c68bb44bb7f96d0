package doctor

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

	"github.com/fairlead/fairlead/internal/core"
)

// confFile is one file of the configuration directory as libcni, which all
// runtimes use, reads it.
type confFile struct {
	name    string
	types   []string // of its plugins, in order
	named   []string // types that only its delegates name
	version string
	err     error // why no runtime can use it
}

// errNoType is what a list in a .conf looks like to libcni.
var errNoType = errors.New("no `type`: a list belongs into a .conflist")

var errNoPlugins = errors.New("the list has no plugins")

// readConfDir reads what a runtime looks at: *.conf, *.conflist and *.json, by
// name (runtime.md, section A). A directory that is not there is empty.
func readConfDir(dir string) ([]confFile, error) {
	names, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	slices.Sort(names)
	files := make([]confFile, len(names))
	for i, name := range names {
		files[i] = readConf(name)
	}
	return files, nil
}

func readConf(path string) confFile {
	f := confFile{name: filepath.Base(path)}
	list, err := loadConf(path)
	if err == nil && len(list.Plugins) == 0 {
		err = errNoPlugins
	}
	if err != nil {
		f.err = err
		return f
	}
	f.version = list.CNIVersion
	for _, p := range list.Plugins {
		f.types = append(f.types, p.Network.Type)
		f.named = append(f.named, Named(p.Bytes)...)
	}
	return f
}

func loadConf(path string) (*libcni.NetworkConfigList, error) {
	if strings.HasSuffix(path, ".conflist") {
		return libcni.ConfListFromFile(path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if head.Type == "" {
		return nil, errNoType
	}
	conf, err := libcni.NetworkPluginConfFromBytes(b)
	if err != nil {
		return nil, err
	}
	return &libcni.NetworkConfigList{CNIVersion: conf.Network.CNIVersion, Plugins: []*libcni.PluginConfig{conf}}, nil
}

// Named are the plugin types that a configuration names besides its own: its
// IPAM, and the delegates of a `multus`-style one.
func Named(conf []byte) (types []string) {
	type plugin struct {
		Type string `json:"type"`
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	var c struct {
		plugin
		Delegates []struct {
			plugin
			Plugins []plugin `json:"plugins"`
		} `json:"delegates"`
	}
	if json.Unmarshal(conf, &c) != nil {
		return nil // libcni has read it already; another shape names nothing that we know
	}
	add := func(p plugin) { types = append(types, p.Type, p.IPAM.Type) }
	types = append(types, c.IPAM.Type)
	for _, d := range c.Delegates {
		add(d.plugin)
		for _, p := range d.Plugins {
			add(p)
		}
	}
	return slices.DeleteFunc(types, func(t string) bool { return t == "" })
}

// ours tells that the file's networks are made by Fairlead.
func (f confFile) ours() bool { return slices.ContainsFunc(f.types, core.OwnType) }

// skipped is a file that a runtime passed over, or that stopped it.
type skipped struct{ name, why string }

func (s skipped) String() string { return s.name + ": " + s.why }

// choice is which file a runtime takes.
type choice struct {
	winner  *confFile
	skipped []skipped
	stopped bool // a broken file ended the search
}

// tolerant is the rule of dockershim and CRI-O: skip what cannot be parsed and
// what names a binary that is missing or speaks another version; the first
// that is left wins.
func (m *machine) tolerant(ctx context.Context) choice {
	var c choice
	for i, f := range m.confs {
		err := f.err
		if err == nil {
			err = m.runnable(ctx, f)
		}
		if err == nil {
			c.winner = &m.confs[i]
			return c
		}
		c.skipped = append(c.skipped, skipped{f.name, err.Error()})
	}
	return c
}

// strict is containerd's rule (go-cni, max_conf_num 1): only the first file
// counts, no binary is looked for, and a broken file ends it all.
func (m *machine) strict(context.Context) choice {
	if len(m.confs) == 0 {
		return choice{}
	}
	f := &m.confs[0]
	if f.err != nil {
		return choice{stopped: true, skipped: []skipped{{f.name, f.err.Error()}}}
	}
	return choice{winner: f}
}

func checkConfDockershim(ctx context.Context, m *machine) outcome {
	return m.conf(m.tolerant(ctx), "the first usable file wins")
}

func checkConfContainerd(ctx context.Context, m *machine) outcome {
	return m.conf(m.strict(ctx), "the first file wins, usable or not")
}

func checkConfCRIO(ctx context.Context, m *machine) outcome {
	return m.conf(m.tolerant(ctx), "the first usable file wins unless cni_default_network names another")
}

// ownConf is the least that a runtime needs to call us.
const ownConf = `{"cniVersion":"1.1.0","name":"fairlead","plugins":[{"type":"fairlead"}]}`

// conf judges a choice; rule says in words why it came out so.
func (m *machine) conf(c choice, rule string) (o outcome) {
	dir := m.cfg.ConfDir
	write := `echo '` + ownConf + `' > ` + filepath.Join(dir, "00-fairlead.conflist")
	switch {
	case m.confErr != nil && !errors.Is(m.confErr, fs.ErrNotExist):
		return bad("ls -ld "+dir, "%v", m.confErr)
	case c.stopped:
		o = bad("mv "+filepath.Join(dir, c.skipped[0].name)+" /root/", "a broken file disables all networking (%s)", rule)
	case c.winner == nil && len(c.skipped) > 0:
		o = bad("repair or remove the files above, or "+write, "no file in %s is usable", dir)
	case c.winner == nil:
		o = warn("mkdir -p "+dir+" && "+write, "%s holds no configuration: pods get no network", dir)
	case !c.winner.ours():
		o = warn("mv "+filepath.Join(dir, c.winner.name)+" /root/, or name ours so that it sorts first",
			"%s wins (%s): pods do not get Fairlead's networks; %s", c.winner.name, strings.Join(c.winner.types, ", "), rule)
	default:
		o = good("%s wins (%s): %s", c.winner.name, strings.Join(c.winner.types, ", "), rule)
	}
	for _, s := range c.skipped {
		o.details = append(o.details, "not usable: "+s.String())
	}
	return o
}
