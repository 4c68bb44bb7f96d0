package conf

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"

	"github.com/fairlead/fairlead/internal/core"
)

// withFolder puts the plugins of the folder that has the network's name behind
// those of the list (CNI spec 1.1). Runtimes with libcni 1.3 would read them
// themselves, when they read the list; older ones know no such folder, and none
// hears of a change in it. So they stand in the list, which says that they do,
// and every runtime does the same with it.
func withFolder(content []byte, dir string) ([]byte, error) {
	l, err := libcni.NetworkConfFromBytes(content)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(dir, l.Name)
	more, err := libcni.NetworkPluginConfsFromFiles(dir, l.Name)
	if err != nil {
		return nil, fmt.Errorf("plugins of %s: %w", folder, err)
	}
	if len(more) == 0 {
		return content, nil
	}
	doc := map[string]json.RawMessage{}
	var plugins []json.RawMessage
	if err := json.Unmarshal(content, &doc); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(doc["plugins"], &plugins); err != nil {
		return nil, err
	}
	for _, p := range more {
		if core.OwnType(p.Network.Type) {
			return nil, fmt.Errorf("plugins of %s: type %q makes an interface and cannot stand there", folder, p.Network.Type)
		}
		plugins = append(plugins, p.Bytes)
	}
	if doc["plugins"], err = json.Marshal(plugins); err != nil {
		return nil, err
	}
	doc["loadOnlyInlinedPlugins"] = json.RawMessage("true")
	b, err := json.MarshalIndent(doc, "", "  ")
	return append(b, '\n'), err
}
