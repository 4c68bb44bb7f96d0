package driver

import (
	"context"
	"encoding/json"
	"net/netip"

	"github.com/fairlead/fairlead/internal/core"
)

// Plugin is a well-known CNI plugin as functions of the agent: the same
// configuration, the same state on the machine, no process. Whatever one has
// made the other can check and remove, so that it never matters which of the
// two ran before.
//
// Every method may be called again at any time, also after a crash half-way
// through. Errors are *core.Error with the code that the plugin would print.
type Plugin interface {
	// Accepts tells why this Plugin cannot do what conf (a plugin's standard
	// input) asks: nil when it knows every key of it. What it does not accept
	// is left to the program of the same name.
	Accepts(conf json.RawMessage) error
	// Add makes the attachment and returns the result in the configuration's
	// CNI version. After an error nothing of it is left. Where the interface is
	// there already it does nothing: core.ErrExists.
	Add(ctx context.Context, c PluginCall) (result json.RawMessage, err error)
	// Check proves that what the prevResult in c.Conf says is still so.
	Check(ctx context.Context, c PluginCall) error
	// Del removes it; nothing to remove is success. c.Netns.Path is empty when
	// the namespace is gone.
	Del(ctx context.Context, c PluginCall) error
	// GC frees what belongs to none of the attachments in the configuration's
	// cni.dev/valid-attachments.
	GC(ctx context.Context, c PluginCall) error
	// Status tells why Add could not work now.
	Status(ctx context.Context, c PluginCall) error
}

// PluginProver is a Plugin that can tell beforehand what Add would refuse. The
// driver of foreign plugins asks it in its own Prove.
type PluginProver interface {
	Plugin
	// Prove tells why Add of the configuration in c cannot succeed, whatever is
	// there on the machine: code 7 with key and value. Of c it has Conf, without
	// prevResult, Key and Args.
	Prove(c PluginCall) error
}

// PluginChanger is a Plugin that can change what a running pod has. The driver of
// foreign plugins asks it in its own Change.
type PluginChanger interface {
	Plugin
	// Change makes of what Add made what the configuration in c says, which differs from
	// former in keys that declarations may change (declared.Live); nothing that differs is
	// success. After an error with a reason (core.ReasonOf) former is in force again; after
	// others nothing is known, and Change is to be called again.
	Change(ctx context.Context, c PluginCall, former json.RawMessage) error
}

// PluginBare is a Plugin whose interface may be no network device. The driver of foreign
// plugins asks it in Check, where it finds none.
type PluginBare interface {
	Plugin
	// Bare tells that Add made none, as of a VF that programs use.
	Bare(c PluginCall) (bool, error)
}

// Keeper is an IPAM Plugin that keeps each address as a file. The driver of foreign
// plugins asks it in its own Kept.
type Keeper interface {
	Plugin
	// Kept are the addresses that the networks of these calls have, each once. Nothing
	// is changed, and what it tells may be over.
	Kept(calls []core.Exec) (kept []Kept, failed []error)
}

// Kept is an address that is kept on the node, and for whom: an interface, a
// container without one, or nobody.
type Kept struct {
	Network string
	Address netip.Addr
	File    string
	Owner   core.Key
	Still   func() bool // tells whether it is kept for the same one
}

// Perform calls the method of p that the command names, and gives Add's result.
// A command that no plugin has is core.CodeEnv.
func Perform(ctx context.Context, p Plugin, op core.Op, c PluginCall) (json.RawMessage, error) {
	switch op {
	case core.Add:
		return p.Add(ctx, c)
	case core.Check:
		return nil, p.Check(ctx, c)
	case core.Del:
		return nil, p.Del(ctx, c)
	case core.GC:
		return nil, p.GC(ctx, c)
	case core.Status:
		return nil, p.Status(ctx, c)
	}
	return nil, core.Errorf(core.CodeEnv, "unknown CNI_COMMAND: %s", op)
}

// PluginCall is one call of a Plugin: what a process would get as standard
// input and environment.
type PluginCall struct {
	Conf  json.RawMessage // with prevResult, where the CNI version hands one on
	Key   core.Key        // CNI_CONTAINERID, CNI_IFNAME
	Netns core.Netns      // verified: the path still leads to this namespace
	Args  string          // CNI_ARGS
	// Alone are addresses that the interface is to have to itself: where its network can be
	// asked, Add proves that nobody answers for one before it sets it.
	Alone []netip.Addr
	// IPAM calls the plugin that the configuration's ipam.type names, with the
	// same environment and the given command, and returns its standard output.
	IPAM func(ctx context.Context, op core.Op) (json.RawMessage, error)
	// Saw, unless it is nil, may be told by Add which MTU in bytes the pod's
	// interface has: that spares the caller a look into the pod.
	Saw func(mtu int)
	// Time is how the Plugin reports its inner steps.
	Time Timer
}
