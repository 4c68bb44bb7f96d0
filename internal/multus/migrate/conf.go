package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

type keys = map[string]json.RawMessage

// confFile is a file of the runtime's directory.
type confFile struct {
	path          string
	raw           []byte
	name, version string
	list          keys // of a list, nil for a plugin alone
	plugins       []keys
	types         []string
	err           error // why no runtime can use it
}

// readConfs reads what a runtime looks at, by name. A directory that is not
// there is empty.
func readConfs(dir string) ([]confFile, error) {
	paths, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	slices.Sort(paths)
	var out []confFile
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Multus' daemon replaces its file at any time
		}
		out = append(out, parseConf(path, raw, err))
	}
	return out, nil
}

func parseConf(path string, raw []byte, err error) confFile {
	f := confFile{path: path, raw: raw, err: err}
	if err != nil {
		return f
	}
	top := keys{}
	if f.err = json.Unmarshal(raw, &top); f.err != nil {
		return f
	}
	f.name, f.version = text(top["name"]), text(top["cniVersion"])
	f.plugins = []keys{top}
	if filepath.Ext(path) == ".conflist" {
		f.list, f.plugins = top, nil
		f.err = json.Unmarshal(top["plugins"], &f.plugins)
	}
	for _, p := range f.plugins {
		f.types = append(f.types, text(p["type"]))
	}
	if f.err == nil && (len(f.types) == 0 || f.types[0] == "") {
		f.err = errors.New("it has no `type`")
	}
	return f
}

func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s) // another type is no text
	return s
}

// calls is the first plugin of one of the types, -1 for none.
func (f confFile) calls(types ...string) int {
	return slices.IndexFunc(f.types, func(t string) bool { return slices.Contains(types, t) })
}

// given are the keys that a runtime gives to a plugin of the file.
func (f confFile) given(i int) keys {
	k := maps.Clone(f.plugins[i])
	k["name"], k["cniVersion"] = quote(f.name), quote(f.version)
	return k
}

// multusTypes are the names by which configurations call Multus: thin, thick.
var multusTypes = []string{"multus", "multus-shim"}

// multusConf is Multus' configuration.
type multusConf struct {
	file confFile
	at   int    // the plugin
	keys keys   // of the plugin, as it gets them
	raw  []byte // likewise
	conf core.Conf
	// nested: the file nests, as it was when it was read.
	nested bool
}

// errNoMultus says that no file calls Multus.
var errNoMultus = errors.New("no configuration calls Multus")

// findMultus picks Multus' configuration: the first that calls it, else the one
// that a take-over began with: Multus' daemon removes its own when it ends, and
// what it writes when it starts is about us.
func findMultus(files []confFile, s state) (multusConf, error) {
	i := slices.IndexFunc(files, func(f confFile) bool {
		return f.err == nil && f.calls(multusTypes...) >= 0 && (len(s.Content) == 0 || !f.nests())
	})
	var f confFile
	switch {
	case i >= 0:
		f = files[i]
	case len(s.Content) > 0:
		f = parseConf(s.Conf, s.Content, nil)
	default:
		return multusConf{}, errNoMultus
	}
	m := multusConf{file: f, at: f.calls(multusTypes...), nested: f.nests()}
	if m.at < 0 {
		return m, errNoMultus
	}
	m.keys = f.given(m.at)
	m.toHost()
	var err error
	m.raw, m.conf, err = parsed(m.keys)
	return m, err
}

func parsed(k keys) (raw []byte, conf core.Conf, err error) {
	if raw, err = json.Marshal(k); err == nil {
		conf, err = cniconf.Parse(raw)
	}
	return raw, conf, err
}

// nests tells that Multus' default network is our own file: the daemon when it
// starts, the thin one within a second, take the first file but those called
// 00-multus, unless they are told which (v4.3.0, findMasterPlugin, thin_entrypoint).
// By such a configuration Multus calls us, and both attach every network.
func (f confFile) nests() bool {
	i := f.calls(multusTypes...)
	if i < 0 {
		return false
	}
	if network := text(f.plugins[i]["clusterNetwork"]); strings.HasPrefix(network, "/") && filepath.Base(network) == ours {
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(f.path), ours))
		if err == nil {
			_, err = cniconf.ParseFile(ours, raw)
		}
		return err != nil // it is gone, or for all networks of a pod; else it is one like others
	}
	_, _, err := parsed(f.given(i))
	return errors.Is(err, cniconf.ErrNested)
}

func quote(s string) json.RawMessage {
	raw, _ := json.Marshal(s) // a string always can
	return raw
}

// toHost gives paths as the node has them.
func (m *multusConf) toHost() {
	path := text(m.keys["clusterNetwork"])
	if onNode, ok := cniconf.OnNode(path); ok && !exists(path) && exists(onNode) {
		m.keys["clusterNetwork"] = quote(onNode)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// named is the configuration under the name by which the runtime knows the
// network: GC is by it.
func (m multusConf) named(name string) (json.RawMessage, error) {
	k := maps.Clone(m.keys)
	k["name"] = quote(name)
	raw, err := json.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("configuration of Multus: %w", err)
	}
	return raw, nil
}

// leastVersion is the first in which runtimes read lists.
const leastVersion = "0.3.1"

// list is our configuration: the same network under the same name and version,
// with our type in Multus' place. What else a list says (disableCheck) stays too.
func (m multusConf) list(socket string) ([]byte, error) {
	p := maps.Clone(m.keys)
	for _, key := range append([]string{"name", "cniVersion", "daemonSocketDir"}, idle()...) {
		delete(p, key)
	}
	p["type"] = quote("fairlead")
	if socket != "" {
		p["socket"] = quote(socket)
	}
	plugins := slices.Clone(m.file.plugins)
	plugins[m.at] = p
	version := m.file.version
	if version == "" || version == "0.1.0" || version == "0.2.0" || version == "0.3.0" {
		version = leastVersion
	}
	raw, err := json.Marshal(plugins)
	if err != nil {
		return nil, fmt.Errorf("our configuration: %w", err)
	}
	whole := keys{}
	maps.Copy(whole, m.file.list)
	whole["cniVersion"], whole["name"], whole["plugins"] = quote(version), quote(m.file.name), raw
	b, err := json.MarshalIndent(whole, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("our configuration: %w", err)
	}
	if _, err := libcni.NetworkConfFromBytes(b); err != nil {
		return nil, fmt.Errorf("our configuration: %w", err)
	}
	return append(b, '\n'), nil
}

// effects are the keys that have one (docs/multi-network.md).
var effects = []string{
	"cniVersion", "name", "type", "capabilities", "runtimeConfig", "dns", "delegates", "clusterNetwork", "defaultNetworks",
	"systemNamespaces", "multusNamespace", "confDir", "namespaceIsolation", "globalNamespaces", "auxiliaryCNIChainName",
	"readinessindicatorfile", "binDir", "cniDir", "kubeconfig", "socket", "server_socket",
}

// without are keys of Multus that have no effect here, and why. idle ones are
// left out of our configuration.
var without = map[string]string{
	"logFile":             logNote,
	"logLevel":            logNote,
	"logToStderr":         logNote,
	"logOptions":          logNote,
	"retryDeleteOnError":  "a record always stays until its DEL has succeeded",
	"daemonSocketDir":     "our plugin asks our agent",
	"cniConfigDir":        generatorNote,
	"multusConfigFile":    generatorNote,
	"multusAutoconfigDir": generatorNote,
	"multusMasterCNI":     generatorNote,
	"forceCNIVersion":     generatorNote,
	"overrideNetworkName": generatorNote,
}

const (
	logNote       = "the agent has one log, on standard error"
	generatorNote = "it is for who writes the file; ours is `fairlead agent --cni-conf`"
)

func idle() []string { return slices.Sorted(maps.Keys(without)) }

// keyList judges every key.
func (m multusConf) keyList() []Key {
	out := []Key{}
	for _, name := range slices.Sorted(maps.Keys(m.keys)) {
		k := Key{Name: name, Effect: slices.Contains(effects, name)}
		switch note, known := without[name]; {
		case known:
			k.Note = note
		case name == "kubeconfig":
			k.Note = "unless the agent's flags say how the API server is reached"
		case !k.Effect:
			k.Note = "Multus has no such key"
		}
		out = append(out, k)
	}
	return out
}
