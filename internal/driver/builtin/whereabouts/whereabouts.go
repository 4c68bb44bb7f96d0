// Package whereabouts is the IPAM plugin of that name for interfaces that its program made
// and whose machine has the program no more. Addresses are chosen and leased before an
// interface is made, and set by plugin static; of this one there is only the end of what
// the program began. It knows no range and no lease.
package whereabouts

import (
	"context"
	"encoding/json"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/network/whereabouts"
)

// Name is the plugin's type.
const Name = whereabouts.Type

// Plugin is whereabouts.
type Plugin struct{}

var _ driver.Plugin = Plugin{}

// Accepts takes all: what a configuration asks was read before.
func (Plugin) Accepts(json.RawMessage) error { return nil }

// Add gives nothing. It is called where the program went away in the middle of an ADD, or
// where a plugin that is not the first of its network asks for addresses.
func (Plugin) Add(context.Context, driver.PluginCall) (json.RawMessage, error) {
	return nil, core.Errorf(core.CodeTryAgain, "only the first plugin of a network has addresses of whereabouts, and of this one its program is not installed any more")
}

// Check proves nothing: the interface's own plugin compares the addresses.
func (Plugin) Check(context.Context, driver.PluginCall) error { return nil }

// Del has nothing to free: an address that import whereabouts has adopted is given back when
// its pod is gone, and others are only in the program's own book.
func (Plugin) Del(context.Context, driver.PluginCall) error { return nil }

// GC has nothing to free.
func (Plugin) GC(context.Context, driver.PluginCall) error { return nil }

// Status is always well.
func (Plugin) Status(context.Context, driver.PluginCall) error { return nil }
