package cniconf

import "encoding/json"

// SettingsKey is the key of a plugin's configuration under which Settings stand.
const SettingsKey = "net.fairlead.io/settings"

// Settings are what is declared of a pod's interface and the plugin's own configuration has
// no key for: the plugins inside the agent carry them out, no program knows them.
type Settings struct {
	MAC  string `json:"mac,omitempty"`
	VLAN int    `json:"vlan,omitempty"` // the tag's id, 0 for none
}

// HasSettings tells whether a configuration has the key.
func HasSettings(conf json.RawMessage) bool {
	keys, err := Keys(conf)
	return err == nil && keys[SettingsKey] != nil
}
