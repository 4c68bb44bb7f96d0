// Package runtimes knows the container runtimes of a machine: which socket
// each serves, where its configuration files say that CNI configurations and
// plugins are, and what a running one says about its network. It changes nothing.
//
// Sources: containerd 2.3 (docs/man, internal/cri/config), crio.conf(5), CRI v1.
package runtimes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/fairlead/fairlead/internal/install/explain"
)

// The folders that runtimes use unless they are told others.
const (
	DefaultConfDir = "/etc/cni/net.d"
	DefaultBinDir  = "/opt/cni/bin"
)

// Network is what a runtime is configured to do about networks.
type Network struct {
	explain.Settings
	BinDirs []string
	// Files are those that were read, in order; none: these are the defaults.
	Files []string
}

// Places are where the runtimes' configuration files are.
type Places struct {
	Containerd string // config.toml
	CRIO       string // crio.conf
	CRIODir    string // its *.conf, by name, count after it
}

// Usual are the places of a machine.
func Usual() Places {
	return Places{Containerd: "/etc/containerd/config.toml", CRIO: "/etc/crio/crio.conf", CRIODir: "/etc/crio/crio.conf.d"}
}

// Network reads what a runtime's files say. Files that are not there say nothing.
func (p Places) Network(d explain.Dialect) (Network, error) {
	n := Network{Settings: explain.Settings{Dir: DefaultConfDir, MaxConfNum: 1}, BinDirs: []string{DefaultBinDir}}
	var err error
	switch d {
	case explain.Containerd:
		err = n.containerd(p.Containerd, map[string]bool{})
	case explain.CRIO:
		err = n.crio(p)
	}
	return n, err
}

// containerdCNI is the table cni of containerd's CRI plugin.
type containerdCNI struct {
	ConfDir    *string  `toml:"conf_dir"`
	BinDir     *string  `toml:"bin_dir"` // to containerd 2.0
	BinDirs    []string `toml:"bin_dirs"`
	MaxConfNum *int     `toml:"max_conf_num"`
}

type containerdFile struct {
	Imports []string `toml:"imports"`
	Plugins map[string]struct {
		CNI containerdCNI `toml:"cni"`
	} `toml:"plugins"`
}

// criPlugins are the names of the CRI plugin in the versions 1, 2 and 3 of the
// configuration.
var criPlugins = []string{"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"}

// containerd reads a file, then those that it imports, which count more.
func (n *Network) containerd(path string, seen map[string]bool) error {
	if seen[path] {
		return nil
	}
	seen[path] = true
	var f containerdFile
	if ok, err := n.read(path, &f); err != nil || !ok {
		return err
	}
	for _, name := range criPlugins {
		n.takeContainerd(f.Plugins[name].CNI)
	}
	for _, pattern := range f.Imports {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(path), pattern)
		}
		matches, err := filepath.Glob(pattern) // sorted
		if err != nil {
			return fmt.Errorf("imports of %s: %w", path, err)
		}
		for _, m := range matches {
			if err := n.containerd(m, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Network) takeContainerd(c containerdCNI) {
	if c.ConfDir != nil && *c.ConfDir != "" {
		n.Dir = *c.ConfDir
	}
	if c.BinDir != nil && *c.BinDir != "" {
		n.BinDirs = []string{*c.BinDir}
	}
	if len(c.BinDirs) > 0 {
		n.BinDirs = c.BinDirs
	}
	if c.MaxConfNum != nil {
		n.MaxConfNum = *c.MaxConfNum
	}
}

// crioNetwork is the table crio.network.
type crioNetwork struct {
	Default    *string  `toml:"cni_default_network"`
	NetworkDir *string  `toml:"network_dir"`
	PluginDir  *string  `toml:"plugin_dir"` // deprecated; added to the others
	PluginDirs []string `toml:"plugin_dirs"`
}

type crioFile struct {
	Crio struct {
		Network crioNetwork `toml:"network"`
	} `toml:"crio"`
}

func (n *Network) crio(p Places) error {
	var more []string
	if p.CRIODir != "" {
		var err error
		if more, err = filepath.Glob(filepath.Join(p.CRIODir, "*")); err != nil { // sorted
			return err
		}
	}
	for _, path := range append([]string{p.CRIO}, more...) {
		if info, err := os.Stat(path); err == nil && info.IsDir() || strings.HasPrefix(filepath.Base(path), ".") {
			continue
		}
		var f crioFile
		if ok, err := n.read(path, &f); err != nil {
			return err
		} else if !ok {
			continue
		}
		n.takeCRIO(f.Crio.Network)
	}
	return nil
}

func (n *Network) takeCRIO(has crioNetwork) {
	if has.Default != nil {
		n.Default = *has.Default
	}
	if has.NetworkDir != nil && *has.NetworkDir != "" {
		n.Dir = *has.NetworkDir
	}
	if len(has.PluginDirs) > 0 {
		n.BinDirs = slices.Clone(has.PluginDirs)
	}
	if has.PluginDir != nil && *has.PluginDir != "" {
		n.BinDirs = append(n.BinDirs, *has.PluginDir)
	}
}

// read decodes a file, and tells whether it is there.
func (n *Network) read(path string, into any) (bool, error) {
	if path == "" {
		return false, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := toml.Unmarshal(b, into); err != nil {
		if at := (*toml.DecodeError)(nil); errors.As(err, &at) {
			row, _ := at.Position()
			return false, fmt.Errorf("read %s: line %d: %w", path, row, err)
		}
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	n.Files = append(n.Files, path)
	return true, nil
}
