package inproc

import (
	"encoding/json"

	"github.com/fairlead/fairlead/internal/core"
)

// Conf is what every plugin that makes an interface reads of its standard
// input; embed it.
type Conf struct {
	CNIVersion string `json:"cniVersion"`
	IPAM       struct {
		Type string `json:"type"` // "" = no addresses
	} `json:"ipam"`
	DNS           core.DNS        `json:"dns"`
	PrevResult    json.RawMessage `json:"prevResult"`
	RuntimeConfig struct {
		MAC string `json:"mac"`
	} `json:"runtimeConfig"`
}

// Keys gives a plugin's own keys with those that any configuration may have.
// What stands below args, runtimeConfig and ipam and is not ours is for other
// plugins; a device is of whoever asks with one, and of no effect.
func Keys(own ...string) []string {
	return append([]string{
		"cniVersion", "name", "type", "capabilities", "ipam", "dns", "prevResult", "args", "runtimeConfig",
		"cni.dev/valid-attachments", "cni.dev/attachments", "deviceID", "pciBusID",
	}, own...)
}
