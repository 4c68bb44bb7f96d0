package ovs

import (
	"context"

	"github.com/fairlead/fairlead/internal/core"
)

// internal attaches an internal port of the switch.
func (a attachment) internal(context.Context) (core.Link, error) {
	return core.Link{}, core.Errorf(core.CodeConfig, "pod_nic_type internal-port is not available yet")
}
