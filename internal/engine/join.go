package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/exec"
	"github.com/fairlead/fairlead/internal/fail"
	"github.com/fairlead/fairlead/internal/plan"
	"github.com/fairlead/fairlead/internal/resolve"
)

// host is an operation that runs foreign plugins, while it does so. Such a
// plugin may have us as its IPAM plugin: what it asks for joins the host's
// record. The host has the container's turn and waits for the plugin, so that
// the call must not wait for that turn.
type host struct {
	mu   sync.Mutex // held by a joining call, and by the host where both could meet
	over bool
	rec  *core.Record
	// save makes rec durable; nil where nothing new may be asked for (DEL, CHECK).
	save  func(context.Context) error
	trace *trace
	// What does not change while the host works.
	container string
	pod       core.Pod
	netns     core.Netns
}

// errNoHost: the operation that a token stands for is over, so that nobody
// would ever free what the call asks for.
var errNoHost = &core.Error{
	Code: core.CodeTryAgain, Msg: "the operation that this call belongs to is over",
	Details: "its token came from the environment of a plugin that the agent ran", Err: core.ErrNotFound,
}

// invite has the plugins that run under the context it returns find h. Call the
// function once they have ended: it waits for a call under way, and later ones
// are refused.
func (e *Engine) invite(ctx context.Context, h *host) (context.Context, func()) {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand)
	token := hex.EncodeToString(raw[:])
	h.container, h.pod, h.netns = h.rec.Key.Container, h.rec.Pod, h.rec.Netns
	e.hosts.Store(token, h)
	return exec.WithCaller(ctx, exec.Caller{Token: token, Socket: e.Socket}), func() {
		e.hosts.Delete(token)
		h.mu.Lock()
		h.over = true
		h.mu.Unlock()
	}
}

// inviteNobody is invite for an operation on a container that has no record:
// plugins that call back have nothing to join, and wait for nothing.
func (e *Engine) inviteNobody(ctx context.Context, key core.Key) (context.Context, func()) {
	return e.invite(ctx, &host{rec: &core.Record{Key: key}})
}

// hostOf is the operation that a call's token names.
func (e *Engine) hostOf(req core.Request) (*host, error) {
	v, ok := e.hosts.Load(req.Token)
	if !ok {
		return nil, errNoHost
	}
	h, _ := v.(*host)
	if h.container != req.Key.Container {
		return nil, core.Errorf(core.CodeEnv, "CNI_CONTAINERID is %q, but the plugin was run for %q", req.Key.Container, h.container)
	}
	if !req.Conf.AddressesOnly() {
		return nil, core.Errorf(core.CodeConfig, "type %q cannot be the delegate of a delegate: name the network in the pod's annotation or in delegates[]", req.Conf.Type)
	}
	return h, nil
}

// join answers ADD of a plugin that runs for one of our own ADDs: the addresses
// are in the record of that ADD, and on the disk, before they are told. They go
// with that record, whatever becomes of the plugin.
func (e *Engine) join(ctx context.Context, req core.Request) ([]byte, error) {
	h, err := e.hostOf(req)
	if err != nil {
		return nil, err
	}
	if h.save == nil {
		return nil, core.Errorf(core.CodeConfig, "ADD for addresses comes out of a DEL or CHECK of container %s", h.container)
	}
	req.Pod = h.pod
	nic, err := resolve.Addresses(ctx, e.Source, e.input(req))
	if err != nil {
		return nil, err
	}
	var s core.Spec
	err = h.trace.timed("ipam.join", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		s, err = e.enter(ctx, h, req, nic)
		return err
	})
	if err != nil {
		return nil, err
	}
	return cniconf.Addresses(lentLink(s), req.Conf.CNIVersion)
}

// enter leases the addresses of req's interface into the host's record; the
// caller holds h.mu. What it has entered already is what it gets again. A lease
// whose record could not be written stays in it all the same: the disk may have
// it, and the host's roll-back frees it.
func (e *Engine) enter(ctx context.Context, h *host, req core.Request, nic *core.NIC) (core.Spec, error) {
	if h.over {
		return core.Spec{}, errNoHost
	}
	l, known, err := h.leased(req.Key, nic.Subnet.Name)
	if err != nil {
		return core.Spec{}, err
	}
	if !known {
		if l, err = e.loan(nic, core.Owner{Key: req.Key, Pod: h.pod}); err != nil {
			return core.Spec{}, err
		}
		fail.Here("join.leased")
	}
	s, err := plan.Lent(core.Spec{Key: req.Key, Pod: h.pod, Netns: h.netns}, nic, l)
	if err != nil && !known {
		e.IPAM.Cancel(l)
	}
	if err != nil || known {
		return s, err
	}
	h.rec.Leases = append(h.rec.Leases, l)
	err = h.save(ctx)
	fail.Here("join.recorded")
	return s, err
}

// leased is the lease that the record has for key. Where an interface of our
// own has it there is no second one to be had under that name.
func (h *host) leased(key core.Key, subnet string) (l core.Lease, ok bool, err error) {
	for _, s := range h.rec.Specs {
		if s.Key == key && s.HostIf != "" {
			return l, false, core.Errorf(core.CodeConflict, "interface %s has its addresses from network %s already", key.IfName, s.Network)
		}
	}
	i := slices.IndexFunc(h.rec.Leases, func(l core.Lease) bool { return l.Owner.Key == key })
	if i < 0 {
		return l, false, nil
	}
	if l = h.rec.Leases[i]; l.Subnet != subnet {
		return l, false, core.Errorf(core.CodeConflict, "interface %s has its addresses from subnet %s already, not %s", key.IfName, l.Subnet, subnet)
	}
	return l, true, nil
}

// joinCheck answers CHECK of a plugin that runs for one of our own CHECKs.
func (e *Engine) joinCheck(req core.Request) error {
	h, err := e.hostOf(req)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return errNoHost
	}
	var mine []core.Lease
	for _, l := range h.rec.Leases {
		if l.Owner.Key == req.Key {
			mine = append(mine, l)
		}
	}
	if len(mine) == 0 {
		return core.Errorf(core.CodeUnknown, "container %s has no addresses for %s", req.Key.Container, req.Key.IfName)
	}
	return checkError(about(req.Key.IfName, e.checkLeases(mine)))
}

// checkLeases proves that the addresses of a record are its own.
func (e *Engine) checkLeases(leases []core.Lease) error {
	for _, l := range leases {
		for _, ip := range l.IPs {
			holds := func(held core.Lease) bool { return held.Subnet == l.Subnet && held.Owner.Key == l.Owner.Key }
			if !slices.ContainsFunc(e.IPAM.Who(ip), holds) {
				return core.Difference(fmt.Sprintf("address %s of subnet %s is not leased to it", ip, l.Subnet))
			}
		}
	}
	return nil
}
