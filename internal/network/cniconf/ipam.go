package cniconf

import (
	"encoding/json"

	"github.com/fairlead/fairlead/internal/core"
)

// IPAMType is the `ipam.type` of a plugin's configuration, "" without one.
func IPAMType(conf json.RawMessage) (string, error) {
	var c struct {
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal(conf, &c); err != nil {
		return "", core.Errorf(core.CodeConfig, "key \"ipam\": %w", err)
	}
	return c.IPAM.Type, nil
}
