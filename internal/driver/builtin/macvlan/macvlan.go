// Package macvlan is CNI's plugins macvlan, ipvlan and vlan inside the agent: a
// link of the pod's own on a device of the host, with the addresses that an IPAM
// plugin gives. What it makes and answers is what containernetworking/plugins
// v1.9.1 make, so that each may check and remove what the other made. It knows
// no other plugin and keeps nothing itself.
package macvlan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/driver/builtin/vlanparent"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// The plugins' types.
const (
	Name       = "macvlan"
	NameIpvlan = "ipvlan"
	NameVLAN   = "vlan"
)

// undoLimit is how long a failed Add may take to clear up.
const undoLimit = 10 * time.Second

// kind is what tells the three from each other.
type kind struct {
	link     string
	keys     []string // beside those that all have
	settings []string // those of cniconf.Settings that it carries out
	modes    []mode   // the first one is the default
	chained  bool     // addresses and master may be those of an earlier plugin
	inPod    bool     // its master may be in the pod
	quiet    bool     // it does not tell neighbours of itself
}

type mode struct {
	name   string
	number uint32
}

// Plugin is macvlan, ipvlan or vlan; make it with New, NewIpvlan or NewVLAN.
type Plugin struct {
	kind   kind
	host   *rtnl.Pool
	reaper *tombstone.Reaper
	vlans  *vlanparent.Parents
}

var _ driver.PluginProver = (*Plugin)(nil)

// New makes the plugin macvlan for devices of the namespace host, nil for the
// agent's own. reaper deletes what Del puts aside; vlans has what declared VLANs
// stand on.
func New(host *netns.Handle, reaper *tombstone.Reaper, vlans *vlanparent.Parents) *Plugin {
	return &Plugin{host: rtnl.NewPool(host), reaper: reaper, vlans: vlans, kind: kind{
		link: rtnl.KindMacvlan, keys: []string{"mode", "mac", "bcqueuelen"}, settings: []string{"vlan"},
		modes: []mode{
			{"bridge", rtnl.MacvlanBridge}, {"private", rtnl.MacvlanPrivate},
			{"vepa", rtnl.MacvlanVEPA}, {"passthru", rtnl.MacvlanPassthru},
		},
	}}
}

// NewIpvlan is New for ipvlan.
func NewIpvlan(host *netns.Handle, reaper *tombstone.Reaper, vlans *vlanparent.Parents) *Plugin {
	return &Plugin{host: rtnl.NewPool(host), reaper: reaper, vlans: vlans, kind: kind{
		link: rtnl.KindIpvlan, keys: []string{"mode"}, settings: []string{"vlan"}, chained: true,
		modes: []mode{{"l2", rtnl.IpvlanL2}, {"l3", rtnl.IpvlanL3}, {"l3s", rtnl.IpvlanL3S}},
	}}
}

// NewVLAN is New for vlan, whose master has each VLAN once, wherever that is.
func NewVLAN(host *netns.Handle, reaper *tombstone.Reaper) *Plugin {
	return &Plugin{host: rtnl.NewPool(host), reaper: reaper, kind: kind{
		link: rtnl.KindVLAN, keys: []string{"vlanId"}, settings: []string{"mac"}, inPod: true, quiet: true,
		modes: []mode{{"", 0}},
	}}
}

// Add makes the link, asks for addresses and configures it.
func (p *Plugin) Add(ctx context.Context, call driver.PluginCall) (json.RawMessage, error) {
	c, err := read(call.Conf)
	if err != nil {
		return nil, err
	}
	pod, err := netns.Verify(call.Netns)
	if err != nil {
		return nil, inproc.Fail("failed to open netns", err)
	}
	defer func() { _ = pod.Close() }()
	if err := p.make(ctx, c, call, pod); err != nil {
		return nil, err
	}
	fail.Here("macvlan.linked")
	out, err := p.configure(ctx, c, call, pod)
	if err != nil {
		return nil, errors.Join(err, p.undo(ctx, c, call, pod))
	}
	return out, nil
}

// make makes the link in the pod.
func (p *Plugin) make(ctx context.Context, c conf, call driver.PluginCall, pod *netns.Handle) error {
	u, err := p.upper(c, call)
	if err != nil {
		return err
	}
	host, err := p.host.Get()
	if err != nil {
		return inproc.Fail("host", err)
	}
	defer p.host.Put(host)
	where := host
	if c.LinkInContainer {
		if where, err = rtnl.Open(pod); err != nil {
			return inproc.Fail("failed to open netns", err)
		}
		defer func() { _ = where.Close() }()
	}
	lower, err := p.lower(where, c)
	if err == nil {
		err = p.soundMTU(c, lower)
	}
	if err == nil && c.Declared.VLAN != 0 {
		lower, err = p.tagged(ctx, host, lower, stand{c.Declared.VLAN, call.Key, pod})
	}
	if err != nil {
		return err
	}
	u.Lower, u.Netns = lower.Index, pod
	err = inproc.Fail("failed to create "+p.kind.link, distinct(where.NewUpper(u), u))
	if err != nil && c.Declared.VLAN != 0 {
		err = errors.Join(err, p.vlans.Leave(context.WithoutCancel(ctx), host, call.Key))
	}
	return err
}

// stand is a pod's place on a declared VLAN.
type stand struct {
	vlan  int
	owner core.Key
	pod   *netns.Handle
}

// tagged gives the link of a declared VLAN, for the pod's to stand on.
func (p *Plugin) tagged(ctx context.Context, host *rtnl.Conn, lower rtnl.Link, s stand) (rtnl.Link, error) {
	conn, err := rtnl.Open(s.pod)
	if err != nil {
		return lower, inproc.Fail("failed to open netns", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.LinkByName(s.owner.IfName); err == nil { // whose place on the VLAN is kept
		return lower, fmt.Errorf("interface %s: %w", s.owner.IfName, core.ErrExists)
	}
	l, err := p.vlans.Take(ctx, host, lower, s.vlan, s.owner)
	if err != nil {
		return lower, core.Errorf(inproc.CodeOther, "VLAN %d of %s: %v", s.vlan, lower.Name, err)
	}
	fail.Here("vlanparent.taken")
	return l, nil
}

// distinct tells a VLAN that its master has already from a name that is taken.
func distinct(err error, u rtnl.Upper) error {
	if u.Kind != rtnl.KindVLAN || !errors.Is(err, core.ErrExists) {
		return err
	}
	conn, failed := rtnl.Open(u.Netns)
	if failed != nil {
		return failed
	}
	defer func() { _ = conn.Close() }()
	if _, here := conn.LinkByName(u.Name); here == nil {
		return err
	}
	return fmt.Errorf("the master has VLAN %d already, here or in another pod: %w", u.VLAN, unix.EEXIST)
}

// undo removes the link of a failed Add, whose caller may have given up.
func (p *Plugin) undo(ctx context.Context, c conf, call driver.PluginCall, pod *netns.Handle) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer stop()
	err := unlink(ctx, pod, call.Key.IfName)
	if err == nil {
		err = p.leave(ctx, c, call.Key)
	}
	return err
}

// leave gives up what a declared VLAN stands on. The pod's link is gone by then, or put
// aside.
func (p *Plugin) leave(ctx context.Context, c conf, owner core.Key) error {
	if c.Declared.VLAN == 0 {
		return nil
	}
	host, err := p.host.Get()
	if err != nil {
		return inproc.Fail("host", err)
	}
	defer p.host.Put(host)
	return inproc.Fail("leave VLAN", p.vlans.Leave(ctx, host, owner))
}

// configure gives the link its addresses and answers. After an error the IPAM
// plugin holds nothing.
func (p *Plugin) configure(ctx context.Context, c conf, call driver.PluginCall, pod *netns.Handle) (out json.RawMessage, err error) {
	res, leased, err := p.addresses(ctx, c, call)
	if leased {
		defer func() {
			if err != nil {
				err = errors.Join(err, inproc.Release(ctx, call.IPAM))
			}
		}()
	}
	if err != nil {
		return nil, err
	}
	fail.Here("macvlan.leased")
	conn, err := inproc.Enter(pod, p.settings(c, res, call.Key.IfName))
	if err != nil {
		return nil, inproc.Fail("failed to configure "+call.Key.IfName, err)
	}
	defer func() { _ = conn.Close() }()
	l, err := p.address(ctx, c, call, pod, conn, res)
	if err != nil {
		return nil, err
	}
	fail.Here("macvlan.configured")
	if call.Saw != nil {
		call.Saw(l.MTU)
	}
	res.Interfaces = []inproc.Interface{{Name: call.Key.IfName, MAC: l.MAC.String(), Sandbox: call.Netns.Path}}
	res.DNS = c.DNS
	if out, err = res.Encode(c.CNIVersion); err != nil {
		return nil, core.Errorf(inproc.CodeOther, "%w", err) // versions before 0.3.0 need an address
	}
	return out, nil
}

// address gives the link its addresses, once nobody else answers for those that are to be
// its alone.
//
//nolint:revive // six values of one call; a struct would only rename them
func (p *Plugin) address(ctx context.Context, c conf, call driver.PluginCall, pod *netns.Handle, conn *rtnl.Conn, res inproc.Result) (rtnl.Link, error) {
	l, err := conn.LinkByName(call.Key.IfName)
	if err == nil && p.layer3(c) && !p.kind.quiet {
		_ = conn.AnnounceIPv4(l.Index) // the program passes a failure over, too
	}
	if err == nil && p.kind.link == rtnl.KindMacvlan { // ipvlans have one MAC with the master: an answer tells nothing
		if err = inproc.Alone(ctx, pod, conn, l, call.Alone); core.ReasonOf(err) != "" {
			return l, err
		}
	}
	if err == nil {
		err = res.Configure(ctx, conn, l.Index)
	}
	return l, inproc.Fail("failed to configure "+call.Key.IfName, err)
}

// settings are the sysctls of the link: it tells its neighbours of itself, of
// its IPv4 addresses too (rtnl.Conn.AnnounceIPv4).
func (p *Plugin) settings(c conf, res inproc.Result, name string) []inproc.Sysctl {
	if !p.layer3(c) {
		return nil
	}
	if p.kind.quiet {
		return res.Sysctls(name)
	}
	return append([]inproc.Sysctl{
		{Path: "net/ipv6/conf/" + name + "/ndisc_notify", Value: "1"},
	}, res.Sysctls(name)...)
}

// layer3 tells that the link must have an address.
func (p *Plugin) layer3(c conf) bool { return c.IPAM.Type != "" || p.kind.link != rtnl.KindMacvlan }

// addresses asks the IPAM plugin, or takes those of an earlier plugin (ipvlan).
// leased tells that the IPAM plugin was asked with success.
func (p *Plugin) addresses(ctx context.Context, c conf, call driver.PluginCall) (res inproc.Result, leased bool, err error) {
	if !p.layer3(c) {
		return inproc.Result{}, false, nil
	}
	if c.IPAM.Type == "" && len(c.PrevResult) > 0 {
		if res, err = inproc.Parse(c.PrevResult, c.CNIVersion); err != nil {
			return res, false, err
		}
	}
	if len(res.IPs) == 0 {
		out, err := call.IPAM(ctx, core.Add)
		if err != nil {
			return res, false, err
		}
		if res, err = inproc.Parse(out, c.CNIVersion); err != nil {
			return res, true, err
		}
		leased = true
	}
	if len(res.IPs) == 0 {
		return res, leased, core.Errorf(inproc.CodeOther, "IPAM plugin returned missing IP config")
	}
	first := 0
	for i := range res.IPs {
		res.IPs[i].Interface = &first
	}
	return res, leased, nil
}

// Del removes the link, then frees the addresses: whoever gets them next must
// not meet the pod that still has them.
func (p *Plugin) Del(ctx context.Context, call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err != nil {
		return err
	}
	if call.Netns.Path != "" {
		if err := p.bury(ctx, call); err != nil {
			return err
		}
		fail.Here("macvlan.unlinked")
	}
	if err := p.leave(ctx, c, call.Key); err != nil {
		return err
	}
	err = c.Ask(ctx, call.IPAM, core.Del)
	fail.Here("macvlan.released")
	return err
}

// bury puts the pod's link aside, also one that was to get its name, and has it
// deleted meanwhile: an address that is freed, and a record that is written,
// take about as long as the kernel's grace period.
func (p *Plugin) bury(ctx context.Context, call driver.PluginCall) error {
	pod, err := netns.Verify(call.Netns)
	if errors.Is(err, core.ErrNetnsGone) {
		return nil
	}
	if err == nil {
		defer func() { _ = pod.Close() }()
		err = ctx.Err()
	}
	if err != nil {
		return inproc.Fail("failed to open netns", err)
	}
	conn, err := rtnl.Open(pod)
	if err != nil {
		return inproc.Fail("failed to delete "+call.Key.IfName, err)
	}
	for _, name := range []string{call.Key.IfName, rtnl.Draft(call.Key.IfName)} {
		if err := buryLink(conn, name); err != nil {
			return inproc.Fail("failed to delete "+name, errors.Join(err, conn.Close()))
		}
	}
	p.reaper.ReapElsewhere(conn) // also those of an earlier Del that was cut short
	return nil
}

// buryLink puts a link aside. A macvlan that has its master for itself is
// deleted at once, as a VLAN: while it is there, no other can be made. An ipvlan gives its
// addresses back at once: while it has them, its master lets no other have them.
func buryLink(conn *rtnl.Conn, name string) error {
	l, mode, err := conn.UpperByName(name)
	switch {
	case errors.Is(err, core.ErrNotFound):
		return nil
	case err != nil:
		return err
	case l.Kind == rtnl.KindMacvlan && mode == rtnl.MacvlanPassthru, l.Kind == rtnl.KindVLAN:
		return conn.DelLink(l.Index)
	case l.Kind == rtnl.KindIpvlan:
		addrs, err := conn.Addrs(l.Index)
		for _, a := range addrs {
			err = errors.Join(err, conn.DelAddr(l.Index, a.Prefix))
		}
		if err != nil && !errors.Is(err, core.ErrNotFound) { // else it is gone
			return err
		}
	}
	return tombstone.Bury(conn, l.Index)
}

// unlink deletes the pod's link of that name, also one that was to get it; none
// is success.
func unlink(ctx context.Context, pod *netns.Handle, name string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	conn, err := rtnl.Open(pod)
	if err != nil {
		return inproc.Fail("failed to delete "+name, err)
	}
	defer func() { _ = conn.Close() }()
	for _, link := range []string{name, rtnl.Draft(name)} {
		l, err := conn.LinkByName(link)
		if errors.Is(err, core.ErrNotFound) {
			continue
		}
		if err == nil {
			err = conn.DelLink(l.Index)
		}
		if err != nil {
			return inproc.Fail("failed to delete "+link, err)
		}
	}
	return nil
}

// GC does nothing, as the program: links go with the pods' namespaces.
func (p *Plugin) GC(context.Context, driver.PluginCall) error { return nil }

// Status asks the IPAM plugin.
func (p *Plugin) Status(ctx context.Context, call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err != nil {
		return err
	}
	return c.Ask(ctx, call.IPAM, core.Status)
}
