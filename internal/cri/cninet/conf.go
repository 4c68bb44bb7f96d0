package cninet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
)

// network is a configuration that pods can be attached by.
type network struct {
	file  string
	list  *libcni.NetworkConfigList
	stamp stamp
	// caps are the capabilities that some plugin of the list declares.
	caps map[string]bool
}

// stamp tells whether a file has changed.
type stamp struct {
	size     int64
	modified time.Time
}

// extensions of configurations; other files of the folder are none.
var extensions = []string{".conf", ".conflist", ".json"}

// errNone is why a folder gives no network.
var errNone = errors.New("no network configuration")

// choose gives the first valid configuration by name, and an error that says of
// each file before it what is wrong with it. old is given back for a file that
// has not changed, so that its plugins are not asked again.
func (n *Network) choose(ctx context.Context, old *network) (*network, error) {
	files, err := candidates(n.confDir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNone, err)
	}
	why := []error{fmt.Errorf("%w in %s", errNone, n.confDir)}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			why = append(why, err)
			continue
		}
		s := stamp{st.Size(), st.ModTime()}
		if old != nil && old.file == f && old.stamp == s {
			return old, nil
		}
		got, err := n.load(ctx, f)
		if err != nil {
			why = append(why, fmt.Errorf("%s: %w", f, err))
			continue
		}
		got.stamp = s
		return got, nil
	}
	return nil, errors.Join(why...)
}

// candidates are the folder's configurations in the order of their names' bytes.
func candidates(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries { // sorted
		if slices.Contains(extensions, filepath.Ext(e.Name())) && !strings.HasPrefix(e.Name(), ".") && !e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}

// load reads one file and asks its plugins for the version that it is written in.
func (n *Network) load(ctx context.Context, file string) (*network, error) {
	list, err := parse(file)
	if err != nil {
		return nil, err
	}
	if len(list.Plugins) == 0 {
		return nil, errors.New("no plugins")
	}
	if _, err := n.cni.ValidateNetworkList(ctx, list); err != nil {
		return nil, err
	}
	return &network{file: file, list: list, caps: capabilities(list)}, nil
}

func parse(file string) (*libcni.NetworkConfigList, error) {
	if filepath.Ext(file) == ".conflist" {
		return libcni.NetworkConfFromFile(file)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	conf, err := libcni.NetworkPluginConfFromBytes(b)
	if err != nil {
		return nil, err
	}
	if conf.Network.Type == "" {
		return nil, errors.New("no type; a list of plugins belongs into a .conflist")
	}
	return libcni.ConfListFromConf(conf) //nolint:staticcheck // the one way to read what nodes still have
}

func capabilities(list *libcni.NetworkConfigList) map[string]bool {
	out := map[string]bool{}
	for _, p := range list.Plugins {
		for c, on := range p.Network.Capabilities {
			out[c] = out[c] || on
		}
	}
	return out
}
