// Package callback lets foreign plugins call back into the operation that runs
// them. Such a plugin may have us as its IPAM plugin: what it asks for belongs to
// the record of that operation, its host, which holds the container's turn and
// waits for the plugin; so the call must not wait for that turn. The package
// knows tokens, processes and who may join; what a guest gets is the engine's to
// say.
package callback

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/internal/core"
)

// Host is an operation that runs foreign plugins, while it does so.
type Host struct {
	// Rec is the record of the operation. A joining call holds the lock while it
	// uses it, and so does the host where both could meet.
	sync.Mutex
	Rec *core.Record
	// Save makes Rec durable; nil where nothing new may be asked for (DEL, CHECK).
	Save func(context.Context) error
	// Timed runs something as a step of the operation; nil with Save.
	Timed func(step string, fn func() error) error
	// Annotations are those that the runtime told of the pod, nil for none: it
	// told them to the host alone.
	Annotations map[string]string
	// What does not change while the host works, set by Invite.
	Container string
	Pod       core.Pod
	Netns     core.Netns

	over bool
}

// Hosts are those that have guests. The zero value is ready for use.
type Hosts struct {
	byToken sync.Map // token -> *Host
	byGroup sync.Map // process group of a plugin that runs -> token
}

// ErrOver says that the operation a token stands for is over, so that nobody would
// ever free what the call asks for.
var ErrOver = &core.Error{
	Code: core.CodeTryAgain, Msg: "the operation that this call belongs to is over",
	Details: "its token came from the environment of a plugin that the agent ran", Err: core.ErrNotFound,
}

// Invite gives the token by which plugins find h. Call the function once they
// have ended: it waits for a call under way, and later ones are refused.
func (hs *Hosts) Invite(h *Host) (token string, end func()) {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand)
	token = hex.EncodeToString(raw[:])
	h.Container, h.Pod, h.Netns = h.Rec.Key.Container, h.Rec.Pod, h.Rec.Netns
	hs.byToken.Store(token, h)
	return token, func() {
		hs.byToken.Delete(token)
		hs.byGroup.Range(func(group, t any) bool {
			if t == token {
				hs.byGroup.Delete(group)
			}
			return true
		})
		h.Lock()
		h.over = true
		h.Unlock()
	}
}

// Runs notes that a plugin of the operation that token names runs in a process
// group of its own. It is to be told before the plugin can call.
func (hs *Hosts) Runs(token string, group int) { hs.byGroup.Store(group, token) }

// TokenOf is the token of a plugin that did not hand on its environment: that of
// the process group which pid or an ancestor of its is in. "" where there is
// none, or where the process cannot be looked at.
func (hs *Hosts) TokenOf(pid int) string {
	some := false
	hs.byGroup.Range(func(any, any) bool { some = true; return false })
	if !some {
		return ""
	}
	for range ancestors {
		parent, group, err := family(pid)
		if err != nil {
			return ""
		}
		if token, ok := hs.byGroup.Load(group); ok {
			return token.(string) //nolint:forcetypeassert // Runs stores nothing else
		}
		if pid = parent; pid <= 1 {
			return ""
		}
	}
	return ""
}

// Of is the operation that a call's token names.
func (hs *Hosts) Of(req core.Request) (*Host, error) {
	v, ok := hs.byToken.Load(req.Token)
	if !ok {
		return nil, ErrOver
	}
	h, _ := v.(*Host)
	if h.Container != req.Key.Container {
		return nil, core.Errorf(core.CodeEnv, "CNI_CONTAINERID is %q, but the plugin was run for %q", req.Key.Container, h.Container)
	}
	if !req.Conf.AddressesOnly() {
		return nil, core.Errorf(core.CodeConfig, "type %q cannot be the delegate of a delegate: name the network in the pod's annotation or in delegates[]", req.Conf.Type)
	}
	return h, nil
}

// Leased is the lease that the record has for key; the caller holds the lock.
// Where an interface of our own has it there is no second one to be had under
// that name. ErrOver once the host has ended.
func (h *Host) Leased(key core.Key, subnet string) (l core.Lease, ok bool, err error) {
	if h.over {
		return l, false, ErrOver
	}
	for _, s := range h.Rec.Specs {
		if s.Key == key && s.Kind() == core.KindNIC {
			return l, false, core.Errorf(core.CodeConflict, "interface %s has its addresses from network %s already", key.IfName, s.Network)
		}
	}
	i := slices.IndexFunc(h.Rec.Leases, func(l core.Lease) bool { return l.Owner.Key == key })
	if i < 0 {
		return l, false, nil
	}
	if l = h.Rec.Leases[i]; l.Subnet != subnet {
		return l, false, core.Errorf(core.CodeConflict, "interface %s has its addresses from subnet %s already, not %s", key.IfName, l.Subnet, subnet)
	}
	return l, true, nil
}

// Leases are those that the record has for key.
func (h *Host) Leases(key core.Key) ([]core.Lease, error) {
	h.Lock()
	defer h.Unlock()
	if h.over {
		return nil, ErrOver
	}
	mine := slices.DeleteFunc(slices.Clone(h.Rec.Leases), func(l core.Lease) bool { return l.Owner.Key != key })
	if len(mine) == 0 {
		return nil, core.Errorf(core.CodeUnknown, "container %s has no addresses for %s", key.Container, key.IfName)
	}
	return mine, nil
}
