// Package ovs is the driver whose interfaces are ports of an Open vSwitch
// bridge: a veth pair with its far end made inside the pod, or an internal
// port of the switch. It knows one interface at a time, from its Spec; which
// pods should have which, it is told. All that it makes carries its mark: the
// container's id in OVSDB, a link group and the key as alias in the kernel.
package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/neigh"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/qdisc"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/lib/keylock"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/openflow"
)

// Groups of the links we make (`ip link set group`). A link in GroupLive
// belongs to an attachment; one in GroupTombstone is as good as deleted. Both
// fit 31 bits, the most that ip takes.
const (
	GroupLive      uint32 = 0x0FA1D001
	GroupTombstone        = tombstone.Group
)

// InternalPort is the NIC type of Spec that is an internal port of the switch;
// any other is a veth pair.
const InternalPort = "internal-port"

const (
	txQLen   = 1000 // packets, on both ends (sdn.md, section 2)
	maxAlias = 255  // bytes, IFALIASZ less the terminator
	loIndex  = 1    // of lo in every namespace

	manyNames  = 256
	remembered = time.Minute
)

// Config is what the driver works on.
type Config struct {
	OVS  *ovs.Client
	Host *netns.Handle // where the switch's devices are; nil = the process's own
	// UserspaceDatapath: the bridge is of type netdev, which reads frames as
	// they are, so pods must not leave checksums to hardware.
	UserspaceDatapath bool
	// Flows of the bridge keep pods to their own addresses (port security). nil:
	// somebody else makes the flows.
	Flows *openflow.Client
	// Conflict hears of each address of an underlay Subnet that another has; nil: nobody
	// asks.
	Conflict func(core.Conflict)
	// Delays is nil where the kernel can delay and lose packets (netem); nil: it can.
	Delays func() error
	// Reaper deletes what was detached, other drivers' links too; nil = one of
	// the driver's own. The driver runs it.
	Reaper *tombstone.Reaper
	// Patience ends the time in which Ready waits for the switch: on a node that
	// boots it may come later than the agent, and "try again later" at once would
	// have the runtime wait far longer before it does.
	Patience time.Time
	Log      *slog.Logger
}

// Driver is a driver.Driver for Open vSwitch ports. All methods may be called
// from many goroutines; those on one interface wait for each other.
type Driver struct {
	cfg   Config
	log   *slog.Logger
	host  *rtnl.Pool
	locks keylock.Queue

	mu       sync.Mutex
	attached map[string]bool      // by host interface: attached by this process and not detached since
	detached map[string]time.Time // by host interface: its port was deleted then, and OVS may not have acted yet
}

var (
	_ driver.Starter   = (*Driver)(nil)
	_ driver.Carrier   = (*Driver)(nil)
	_ driver.Dependent = (*Driver)(nil)
	_ driver.Sweeper   = (*Driver)(nil)
	_ driver.Guesser   = (*Driver)(nil)
	_ driver.Recoverer = (*Driver)(nil)
	_ driver.Finder    = (*Driver)(nil)
	_ driver.Repairer  = (*Driver)(nil)
)

// New makes the driver. Run must run for what was detached to disappear.
func New(cfg Config) *Driver {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Reaper == nil {
		cfg.Reaper = tombstone.New(cfg.Host, cfg.Log)
	}
	return &Driver{
		cfg: cfg, log: cfg.Log, host: rtnl.NewPool(cfg.Host),
		attached: map[string]bool{}, detached: map[string]time.Time{},
	}
}

// Ready implements driver.Dependent.
func (d *Driver) Ready(ctx context.Context) error {
	ctx, stop := context.WithDeadline(ctx, d.cfg.Patience)
	defer stop()
	if err := d.cfg.OVS.WaitReady(ctx); err != nil {
		return fmt.Errorf("the switch is not ready: %w", err)
	}
	return nil
}

// Running implements driver.Dependent.
func (d *Driver) Running(ctx context.Context) error {
	if err := d.cfg.OVS.Ready(); err != nil {
		return err
	}
	return d.cfg.OVS.Running(ctx)
}

// Connected implements driver.Dependent.
func (d *Driver) Connected() error { return d.cfg.OVS.Connected() }

// Attach makes the interface and returns when Open vSwitch forwards for it.
// core.ErrExists if a name is taken by somebody else, who is left alone;
// core.ErrNetnsGone, core.ErrUnavailable as their names say.
func (d *Driver) Attach(ctx context.Context, r driver.Run, s core.Spec) (core.Link, error) {
	l, settled, err := d.Start(ctx, r, s)
	if err == nil {
		err = settled(ctx)
	}
	if err != nil {
		return core.Link{}, err
	}
	return l, nil
}

// Start implements driver.Starter: what it leaves to settled is the wait for
// the OpenFlow port, which grows with the number of ports of the bridge.
func (d *Driver) Start(ctx context.Context, r driver.Run, s core.Spec) (core.Link, func(context.Context) error, error) {
	n, err := nicOf(s)
	if err != nil {
		return core.Link{}, nil, fmt.Errorf("attach %s: %w", s.Key, err)
	}
	defer d.locks.Hold(n.HostIf)()
	var l core.Link
	if err = d.mapped(n); err == nil {
		l, err = d.attach(ctx, r.Time, n)
	}
	if err != nil {
		return core.Link{}, nil, fmt.Errorf("attach %s: %w", s.Key, err)
	}
	return l, func(ctx context.Context) error { return d.settled(ctx, r.Time, n, l.MAC) }, nil
}

// settled waits until the switch forwards for the interface, and only what the pod
// sends as itself, and tells the neighbours.
func (d *Driver) settled(ctx context.Context, t driver.Timer, s nic, mac core.MAC) error {
	port, err := d.forwards(ctx, t, s.HostIf)
	if err == nil {
		err = d.secure(ctx, t, s, port)
	}
	if err == nil && behindRate(s.QoS) != (qdisc.Netem{}) {
		err = d.delay(s, &drift{})
	}
	if err == nil {
		err = d.patched(ctx, t, s)
	}
	if err != nil {
		return fmt.Errorf("attach %s: %w", s.Key, err)
	}
	// The answer need not wait for it. It costs the switch a frame to each of
	// its ports, and the userspace datapath a flow besides.
	if !s.Quiet {
		go func() {
			d.announce(s, mac)
			d.probe(s, mac)
		}()
	}
	if err := d.answered(ctx, t, s, mac); err != nil {
		return fmt.Errorf("attach %s: %w", s.Key, err)
	}
	return nil
}

// forwards waits for the port's OpenFlow number.
func (d *Driver) forwards(ctx context.Context, t driver.Timer, name string) (port int, err error) {
	done := t.Step("ovs.ofport")
	port, err = d.cfg.OVS.WaitPort(ctx, name)
	done(err)
	fail.Here("ovs.ofport")
	return port, err
}

func (d *Driver) attach(ctx context.Context, t driver.Timer, s nic) (core.Link, error) {
	if err := errors.Join(ctx.Err(), d.cfg.OVS.Connected()); err != nil {
		return core.Link{}, err
	}
	pod, err := netns.Verify(s.Netns)
	if err != nil {
		return core.Link{}, err
	}
	defer func() { _ = pod.Close() }()
	if st, ok := d.cfg.OVS.PortByName(s.HostIf); ok && !ownPort(st, s) {
		return core.Link{}, fmt.Errorf("port %s: %w: it belongs to %q", s.HostIf, core.ErrExists, st.Owner())
	}
	d.setAttached(s.HostIf)
	a := attachment{driver: d, time: t, spec: s, pod: pod}
	a.port, a.warnings = portFor(s)
	if s.Type == InternalPort {
		return a.internal(ctx)
	}
	return a.veth(ctx)
}

// nic is a Spec with the parts of a port of the switch. They are shared with
// other copies of the Spec and never changed.
type nic struct {
	core.Spec
	*core.NICSpec
	*core.OVSPort
}

// nicOf refuses a Spec that is not one of ours, or not complete.
func nicOf(s core.Spec) (nic, error) {
	port := s.OVS()
	if port == nil {
		return nic{}, core.Errorf(core.CodeConfig, "incomplete spec: %s is no port of Open vSwitch", s.Key)
	}
	if port.HostIf == "" || s.Key.IfName == "" || s.Key.Container == "" {
		return nic{}, core.Errorf(core.CodeConfig, "incomplete spec: host interface %q, key %q", port.HostIf, s.Key)
	}
	return nic{s, s.NIC, port}, nil
}

// attachment is one Attach under way.
type attachment struct {
	driver   *Driver
	time     driver.Timer
	spec     nic
	pod      *netns.Handle
	port     ovs.Port // of the Spec
	warnings []string // what the port cannot do of it
}

func (a attachment) veth(ctx context.Context) (core.Link, error) {
	near, fresh, err := a.pair(ctx)
	if err != nil {
		return core.Link{}, err
	}
	// The switch and the pod have nothing to do with each other until the end.
	var wg sync.WaitGroup
	var swErr error
	wg.Go(func() { swErr = a.addPort(ctx) })
	far, podErr := a.configure(near.PeerIndex, fresh)
	wg.Wait()
	if err := errors.Join(swErr, podErr); err != nil {
		return core.Link{}, err
	}
	return a.link(far), nil
}

// pair makes the veth, or finds it made; a fresh one has nothing on it yet.
func (a attachment) pair(ctx context.Context) (l rtnl.Link, fresh bool, err error) {
	done := a.time.Step("ovs.veth")
	defer func() { done(err) }()
	c, err := a.driver.host.Get()
	if err != nil {
		return l, false, err
	}
	defer a.driver.host.Put(c)
	if err := a.settle(ctx, c); err != nil {
		return l, false, fmt.Errorf("link %s: %w", a.spec.HostIf, err)
	}
	l, err = c.NewVeth(a.wanted())
	fresh = err == nil
	if errors.Is(err, core.ErrExists) {
		l, err = a.again(c)
	}
	if err != nil {
		return l, false, err
	}
	fail.Here("ovs.veth")
	// One more request, and no more: each change wakes ovs-vswitchd.
	err = c.Apply(l.Index, rtnl.Change{Alias: Alias(a.spec.Key), Up: true, NoLinkLocal: true})
	fail.Here("ovs.alias")
	return l, fresh, err
}

// again is for a pair whose names are taken: by our own earlier attempt, which
// is completed, by a tombstone, which goes, or by a stranger, who is left alone.
func (a attachment) again(c *rtnl.Conn) (rtnl.Link, error) {
	old, err := c.LinkByName(a.spec.HostIf)
	switch {
	case errors.Is(err, core.ErrNotFound):
	case err != nil:
		return old, err
	case !ownLink(old, a.spec.Key):
		return old, fmt.Errorf("link %s: %w", a.spec.HostIf, core.ErrExists)
	case old.Group != GroupLive && old.Group != GroupTombstone: // ours by its alias
		if err := c.SetGroup(old.Index, GroupLive); err != nil {
			return old, err
		}
	}
	l, err := c.EnsureVeth(a.wanted())
	if errors.Is(err, core.ErrExists) && a.clearTombstone(c) {
		l, err = c.EnsureVeth(a.wanted())
	}
	return l, err
}

// settle makes sure that OVS has let go of an earlier device of that name: of
// the one just detached when a runtime tries again, or of one that vanished
// under its port. A name that was not used lately costs nothing.
func (a attachment) settle(ctx context.Context, c *rtnl.Conn) error {
	d, name := a.driver, a.spec.HostIf
	_, stale := d.cfg.OVS.PortByName(name)
	if !stale && !d.wasDetached(name) {
		return nil
	}
	if _, err := c.LinkByName(name); !errors.Is(err, core.ErrNotFound) {
		return err // the device is there: this is no new one
	}
	if stale {
		if err := d.cfg.OVS.DelPort(ctx, name); err != nil {
			return err
		}
		d.setDetached(name)
	}
	if err := d.cfg.OVS.Settle(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.detached, name)
	return nil
}

func (d *Driver) wasDetached(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, recent := d.detached[name]
	return recent
}

// wanted is the pair. Where Open vSwitch forwards in user space the kernel sees
// what a pod sends too, and would answer its ARP requests for every address of
// the node: the pod's traffic would then leave the switch out. The switch would
// make the near end promiscuous itself, and then hear of the change as of any
// other's, which makes it look at all its ports once more.
func (a attachment) wanted() rtnl.Veth {
	s := a.spec
	return rtnl.Veth{
		Name: s.HostIf, MTU: s.MTU, TxQLen: txQLen, Group: GroupLive, NoARP: true, Promisc: true,
		Peer: a.pod, PeerName: s.Key.IfName, PeerMAC: s.MAC,
	}
}

// addPort commits the switch's port; the switch acts on a new one later, when
// it numbers it. Nothing tells when it has acted on a changed one, but Settle.
func (a attachment) addPort(ctx context.Context) error {
	_, existed := a.driver.cfg.OVS.PortByName(a.port.Name)
	done := a.time.Step("ovs.txn")
	err := a.driver.cfg.OVS.AddPort(ctx, a.port)
	fail.Here("ovs.txn")
	if err == nil && existed {
		err = a.driver.cfg.OVS.Settle(ctx)
	}
	done(err)
	return err
}

// announce is a courtesy to neighbours that knew the address elsewhere; the
// interface works without, so a failure is only logged.
func (d *Driver) announce(s nic, mac core.MAC) {
	pod, err := netns.Verify(s.Netns)
	if errors.Is(err, core.ErrNetnsGone) {
		return // and so is the interface
	}
	if err == nil {
		err = neigh.Announce(pod, s.Key.IfName, mac, s.Addrs)
		_ = pod.Close()
	}
	if err != nil && !errors.Is(err, core.ErrNotFound) {
		d.log.Warn("addresses not announced: neighbours may send to the former MAC until they ask again",
			"container", s.Key.Container, "ifname", s.Key.IfName, "err", err)
	}
}

// link is the result: what is there, as the kernel tells it.
func (a attachment) link(far rtnl.Link) core.Link {
	s := a.spec
	for _, w := range a.warnings {
		a.driver.log.Warn("request not met in full", "container", s.Key.Container, "ifname", s.Key.IfName, "reason", w)
	}
	l := core.Link{
		HostIf: s.HostIf, IfName: s.Key.IfName, Addrs: s.Addrs, Gateways: s.Gateways, PodSide: s.PodSide, Warnings: a.warnings,
	}
	l.MAC, l.MTU = far.MAC, far.MTU
	return l
}

func (d *Driver) setAttached(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attached[name] = true
}

// setDetached remembers names for a minute or so: far longer than OVS takes,
// and hardly any comes back.
func (d *Driver) setDetached(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.attached, name)
	if len(d.detached) > manyNames {
		maps.DeleteFunc(d.detached, func(_ string, at time.Time) bool { return time.Since(at) > remembered })
	}
	d.detached[name] = time.Now()
}

// isDetached tells that this process detached the interface and did not attach
// it again.
func (d *Driver) isDetached(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, recent := d.detached[name]
	return recent && !d.attached[name]
}

func (d *Driver) isAttached(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attached[name]
}

// Alias is the mark that says whose link it is.
func Alias(k core.Key) string { return k.String()[:min(len(k.String()), maxAlias)] }

// ownLink tells that a link on the host is the attachment's. Without alias it
// is one whose Attach died before it was set.
func ownLink(l rtnl.Link, k core.Key) bool {
	return l.Alias == Alias(k) || l.Alias == "" && (l.Group == GroupLive || l.Group == GroupTombstone)
}

// ownPort tells that a port is the attachment's. One without container id is
// so if it is the same logical port: Kube-OVN's daemon, which this agent
// replaces, writes none.
func ownPort(st ovs.PortState, s nic) bool {
	if c := st.ExternalIDs[ovs.KeyContainer]; c != "" {
		return c == s.Key.Container
	}
	return s.IfaceID != "" && st.ExternalIDs[ovs.KeyIfaceID] == s.IfaceID
}
