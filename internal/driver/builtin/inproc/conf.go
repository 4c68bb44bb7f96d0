package inproc

import (
	"context"
	"encoding/json"
	"time"

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

// IPAM calls the plugin that a configuration's ipam.type names.
type IPAM = func(ctx context.Context, op core.Op) (json.RawMessage, error)

// Ask hands a command on to the IPAM plugin, if the configuration names one.
func (c Conf) Ask(ctx context.Context, ipam IPAM, op core.Op) error {
	if c.IPAM.Type == "" {
		return nil
	}
	_, err := ipam(ctx, op)
	return err
}

// releaseLimit is how long Release may take.
const releaseLimit = 10 * time.Second

// Release gives back what a failed Add was given, whose caller may have given up.
func Release(ctx context.Context, ipam IPAM) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer stop()
	_, err := ipam(ctx, core.Del)
	return err
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
