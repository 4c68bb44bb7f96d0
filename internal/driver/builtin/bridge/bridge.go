// Package bridge is the CNI plugin of that name as functions of the agent: a
// Linux bridge of the node, one veth for each pod, and, as the configuration
// says, the addresses of an IPAM plugin and the pods' gateway on the bridge.
// What it leaves on the machine is what the program leaves
// (containernetworking/plugins v1.9.1, plugins/main/bridge), so that either can
// check and remove what the other made. It knows no pods, no other plugin, and
// keeps no state: an attachment is found by its namespace and interface.
package bridge

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/lib/keylock"
)

// Type is the plugin's type in a configuration.
const Type = "bridge"

const (
	portLimit = 2550 * time.Millisecond // for a port to forward, as the program waits
	undoLimit = 30 * time.Second        // for the IPAM plugin of an ADD that failed
	nameTries = 10
)

// Plugin is a driver.Plugin. All methods may be called from many goroutines.
type Plugin struct {
	ns     *netns.Handle
	host   *rtnl.Pool
	reaper *tombstone.Reaper
	turns  *keylock.Queue // by bridge: who gives it an address
}

var _ driver.PluginProver = (*Plugin)(nil)

// New makes the plugin; its bridges are in ns, nil = the process's own
// namespace. reaper deletes what was removed, in the same namespace; somebody
// else runs it.
func New(ns *netns.Handle, reaper *tombstone.Reaper) *Plugin {
	return &Plugin{ns: ns, host: rtnl.NewPool(ns), reaper: reaper, turns: keylock.New()}
}

// addition is one Add under way.
type addition struct {
	*Plugin
	call   driver.PluginCall
	conf   conf
	c      *rtnl.Conn    // of the host
	pod    *netns.Handle // of the pod
	bridge rtnl.Link     // as it was before the port came
	near   rtnl.Link     // the port
	asked  bool          // the IPAM plugin may hold an address
	result inproc.Result
}

// Add implements driver.Plugin.
func (p *Plugin) Add(ctx context.Context, call driver.PluginCall) (json.RawMessage, error) {
	c, err := forAdd(call.Conf, call.Args)
	if err != nil {
		return nil, err
	}
	pod, err := p.open(call.Netns)
	if err != nil {
		return nil, err
	}
	defer func() { _ = pod.Close() }()
	conn, err := p.host.Get()
	if err != nil {
		return nil, inproc.Fail("host", err)
	}
	defer p.host.Put(conn)
	a := &addition{Plugin: p, call: call, conf: c, c: conn, pod: pod}
	out, err := a.run(ctx)
	if err != nil {
		return nil, errors.Join(err, a.undo(ctx))
	}
	return out, nil
}

// open opens the pod's namespace, which must not be the host's.
func (p *Plugin) open(n core.Netns) (*netns.Handle, error) {
	pod, err := netns.Verify(n)
	if err != nil {
		return nil, inproc.Fail("namespace", err)
	}
	if p.ns != nil && p.ns.Same(pod) || p.ns == nil && netns.IsHost(pod) {
		_ = pod.Close()
		return nil, core.Errorf(core.CodeNetns, "namespace %s is the host's", n.Path)
	}
	return pod, nil
}

func (a *addition) run(ctx context.Context) (json.RawMessage, error) {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"bridge", a.ensureBridge},
		{"veth", a.pair},
		{"ipam", a.addresses},
		{"pod", a.configure},
		{"gateway", a.gateways},
		{"port", a.forwards},
	} {
		done := a.call.Time.Step("bridge." + step.name)
		err := step.do(ctx)
		done(err)
		if err != nil {
			return nil, inproc.Fail(step.name, err)
		}
	}
	out, err := a.result.Encode(a.conf.CNIVersion)
	return out, inproc.Fail("result", err)
}

// undo removes what a failed Add has made; the bridge stays, others may have
// ports there by now. The caller need not be there any more.
func (a *addition) undo(ctx context.Context) error {
	var err error
	if a.near.Index != 0 {
		err = a.c.DelLink(a.near.Index)
	}
	if a.asked {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer stop()
		_, ierr := a.call.IPAM(ctx, core.Del)
		err = errors.Join(err, ierr)
	}
	if err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}

// ensureBridge finds the bridge or makes it. Of several that come at once one
// makes it, the others find it; what is left of the settings anybody may make.
func (a *addition) ensureBridge(context.Context) error {
	br, err := a.c.PortByName(a.conf.Bridge)
	if errors.Is(err, core.ErrNotFound) {
		_, err = a.c.NewBridge(a.conf.Bridge, a.conf.MTU)
		if err == nil || errors.Is(err, core.ErrExists) {
			br, err = a.c.PortByName(a.conf.Bridge)
		}
	}
	if err != nil {
		return err
	}
	if br.Kind != rtnl.KindBridge {
		return fmt.Errorf("%q is there already and is no bridge", a.conf.Bridge)
	}
	if a.conf.PromiscMode && !br.Promisc {
		if err := a.c.SetPromisc(br.Index); err != nil {
			return err
		}
	}
	if err := a.refuseRA(br); err != nil {
		return err
	}
	if !br.Up {
		if err := a.c.SetUp(br.Index); err != nil {
			return err
		}
	}
	a.bridge = br.Link
	return nil
}

// noRA: the routes of a bridge and of its ports are ours, no neighbour's. A
// kernel without IPv6 has none.
func noRA(name string) inproc.Sysctl {
	return inproc.Sysctl{Path: "net/ipv6/conf/" + name + "/accept_ra", Value: "0"}
}

// refuseRA is noRA for a bridge, which most often has it.
func (a *addition) refuseRA(br rtnl.Port) error {
	if br.NoRA {
		return nil
	}
	return a.set(noRA(br.Name))
}

// set writes sysctls of the host's namespace.
func (p *Plugin) set(settings ...inproc.Sysctl) error {
	return p.ns.Do(func() error { return inproc.Set(settings) })
}

// pair makes the veth where it belongs, its near end as a port of the bridge.
func (a *addition) pair(context.Context) error {
	near, err := a.newPair()
	if err != nil {
		return err
	}
	a.near = near
	fail.Here("bridge.linked")
	if err := a.set(noRA(near.Name)); err != nil {
		return err
	}
	if a.conf.HairpinMode || a.conf.PortIsolation {
		return a.c.SetPort(near.Index, a.conf.HairpinMode, a.conf.PortIsolation)
	}
	return nil
}

// newPair looks for a name that is free on the host.
func (a *addition) newPair() (rtnl.Link, error) {
	for try := 1; ; try++ {
		name := randomName()
		l, err := a.c.NewVeth(rtnl.Veth{
			// The queue is as the program's netlink library leaves it.
			Name: name, MTU: a.conf.MTU, Master: a.bridge.Index, Up: true, NoQueue: true,
			Peer: a.pod, PeerName: a.call.Key.IfName, PeerMAC: a.conf.mac,
		})
		if !errors.Is(err, core.ErrExists) || try == nameTries {
			return l, err
		}
		if _, there := a.c.LinkByName(name); there != nil {
			return rtnl.Link{}, fmt.Errorf("make veth: interface %q in the pod: %w", a.call.Key.IfName, err)
		}
	}
}

// randomName is the program's: "veth" and eight hexadecimal digits.
func randomName() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "veth" + hex.EncodeToString(b[:])
}

// addresses asks the IPAM plugin.
func (a *addition) addresses(ctx context.Context) error {
	if !a.conf.layer3() {
		return nil
	}
	a.asked = true
	out, err := a.call.IPAM(ctx, core.Add)
	fail.Here("bridge.ipam")
	if err != nil {
		return err
	}
	got, err := inproc.Parse(out, a.conf.CNIVersion)
	if err != nil {
		return err
	}
	if len(got.IPs) == 0 {
		return errors.New("the IPAM plugin gave no address")
	}
	a.result = inproc.Result{IPs: got.IPs, Routes: got.Routes, DNS: got.DNS}
	a.plan()
	return nil
}

// configure makes the pod's end what the result says. Without addresses it is
// brought up, unless the configuration says not even that.
func (a *addition) configure(ctx context.Context) error {
	var settings []inproc.Sysctl
	if a.conf.layer3() {
		settings = append(a.manners(), a.result.Sysctls(a.call.Key.IfName)...)
	}
	c, err := inproc.Enter(a.pod, settings)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	fail.Here("bridge.sysctl")
	switch {
	case a.conf.layer3():
		_ = c.AnnounceIPv4(a.near.PeerIndex) // the program passes a failure over, too
		err = a.result.Configure(ctx, c, a.near.PeerIndex)
	case !a.conf.NoPodInterface:
		err = c.SetUp(a.near.PeerIndex)
	}
	if err != nil {
		return err
	}
	fail.Here("bridge.pod")
	far, err := c.LinkByIndex(a.near.PeerIndex)
	if err == nil && a.call.Saw != nil {
		a.call.Saw(far.MTU)
	}
	a.result.Interfaces = []inproc.Interface{
		{Name: a.conf.Bridge}, {Name: a.near.Name},
		{Name: a.call.Key.IfName, MAC: far.MAC.String(), Sandbox: a.call.Netns.Path},
	}
	return err
}

// manners: whether the pod proves that its IPv6 addresses are its alone.
func (a *addition) manners() []inproc.Sysctl {
	of := func(key, value string) inproc.Sysctl {
		return inproc.Sysctl{Path: "net/ipv6/conf/" + a.call.Key.IfName + "/" + key, Value: value}
	}
	if a.conf.EnableDAD {
		return []inproc.Sysctl{of("enhanced_dad", "1"), of("accept_dad", "1")}
	}
	return []inproc.Sysctl{of("accept_dad", "0")}
}

// forwards waits until the bridge forwards for the port, and completes the
// result: the bridge's MAC may have changed with the first port.
func (a *addition) forwards(ctx context.Context) error {
	var port rtnl.Port
	err := inproc.Await(ctx, portLimit, func() (up bool, err error) {
		port, err = a.c.PortByIndex(a.near.Index)
		return a.conf.NoPodInterface || port.State == rtnl.OperUp, err
	})
	if err != nil {
		return fmt.Errorf("port %s in operational state %d: %w", a.near.Name, port.State, err)
	}
	fail.Here("bridge.port")
	br, err := a.c.LinkByName(a.conf.Bridge)
	a.result.Interfaces[0].MAC = br.MAC.String()
	a.result.Interfaces[1].MAC = port.MAC.String()
	if a.conf.hasDNS() {
		a.result.DNS = a.conf.DNS
	}
	return err
}

// hasDNS tells that the configuration's own DNS settings count, not IPAM's.
func (c conf) hasDNS() bool {
	return c.DNS.Nameservers != nil || c.DNS.Search != nil || c.DNS.Options != nil || c.DNS.Domain != ""
}
