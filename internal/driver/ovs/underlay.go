package ovs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/neigh"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// A NIC of an underlay Subnet under OVN: it needs the way from br-int to the provider
// network's bridge, its gateway is a machine beyond the node's NIC, and others there may
// have its address whatever a controller says.

const (
	patchPatience   = 15 * time.Second // for ovn-controller to join the bridges
	gatewayPatience = 15 * time.Second // for a physical gateway's answer
	gatewayPause    = time.Second
	// Three probes, and some time for the answer to the last (RFC 5227, 2.1.1).
	probePause = 1500 * time.Millisecond
	probeTime  = 3*probePause + 500*time.Millisecond
	fdbTime    = 2 * time.Second
)

// underlayOf is what stands behind a NIC of such a Subnet. ovn-controller names the patch
// port after the logical one.
func underlayOf(n *core.NICSpec, s core.Subnet) *core.Underlay {
	out := &core.Underlay{Network: s.Underlay, Patch: "patch-localnet." + s.Name + "-to-"}
	if !s.LogicalGateway && !s.Unchecked {
		out.Gateways = n.Gateways
	}
	return out
}

// mapped refuses a NIC whose provider network the node does not have.
func (d *Driver) mapped(s nic) error {
	if s.Underlay == nil {
		return nil
	}
	bridge, err := d.cfg.OVS.MappedBridge(s.Underlay.Network)
	if err == nil && bridge == "" {
		return &core.Error{
			Code: core.CodeTryAgain, Msg: "this node has no bridge of provider network " + s.Underlay.Network,
			Details: "the ProviderNetwork says which nodes have one, and its status whether this one is ready",
		}
	}
	return err
}

// patched waits until br-int leads to the provider network's bridge.
func (d *Driver) patched(ctx context.Context, t driver.Timer, s nic) (err error) {
	if s.Underlay == nil {
		return nil
	}
	done := t.Step("ovs.patch")
	defer func() { done(err) }()
	waiting, stop := context.WithTimeout(ctx, patchPatience)
	defer stop()
	err = d.cfg.OVS.WaitPatch(waiting, s.Underlay.Patch+d.cfg.OVS.Bridge())
	if err != nil && ctx.Err() == nil {
		return core.WithCode(core.CodeTryAgain, fmt.Sprintf("ovn-controller has not joined provider network %s to %s", s.Underlay.Network, d.cfg.OVS.Bridge()), err)
	}
	return err
}

// answered waits until the physical gateways answer, which proves the way there.
func (d *Driver) answered(ctx context.Context, t driver.Timer, s nic, mac core.MAC) (err error) {
	if s.Underlay == nil || len(s.Underlay.Gateways) == 0 {
		return nil
	}
	done := t.Step("ovs.gateway")
	defer func() { done(err) }()
	pod, err := netns.Verify(s.Netns)
	if err != nil {
		return err
	}
	defer func() { _ = pod.Close() }()
	waiting, stop := context.WithTimeout(ctx, gatewayPatience)
	defer stop()
	errs := make([]error, len(s.Underlay.Gateways))
	var wg sync.WaitGroup
	for i, gw := range s.Underlay.Gateways {
		wg.Go(func() {
			q := neigh.Question{IfName: s.Key.IfName, MAC: mac, For: gw}
			if at := slices.IndexFunc(s.Addrs, func(p netip.Prefix) bool { return p.Addr().Is4() == gw.Is4() }); at >= 0 {
				q.From = s.Addrs[at].Addr()
			}
			_, errs[i] = neigh.Who(waiting, pod, q, gatewayPause)
		})
	}
	wg.Wait()
	err = errors.Join(errs...)
	if errors.Is(err, core.ErrNotFound) && ctx.Err() == nil {
		return &core.Error{
			Code: core.CodeTryAgain, Err: err, Msg: fmt.Sprintf("the gateway of Subnet %s does not answer on VLAN %d of provider network %s", s.Subnet, s.VLAN, s.Underlay.Network),
			Details: fmt.Sprintf("%v; a Subnet with disableGatewayCheck does not wait for it", err),
		}
	}
	return err
}

// probe asks whether another has an address of a NIC that serves already, and tells.
func (d *Driver) probe(s nic, mac core.MAC) {
	if s.Underlay == nil || d.cfg.Conflict == nil {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), probeTime) //nolint:forbidigo // nobody waits for it: the NIC serves
	defer stop()
	d.ask(ctx, s, mac, d.cfg.Conflict)
}

// Others asks once, some 1.5 s long, whether others have addresses of an attached NIC of a
// Subnet, and gives those that answer. A NIC of no underlay Subnet has no others.
func (d *Driver) Others(ctx context.Context, s core.Spec, l core.Link, subnet core.Subnet) (out []core.Conflict) {
	n, err := nicOf(s)
	if err != nil || subnet.Underlay == "" {
		return nil
	}
	port := *n.OVSPort
	port.Underlay = underlayOf(n.NICSpec, subnet)
	n.OVSPort = &port
	ctx, stop := context.WithTimeout(ctx, probePause)
	defer stop()
	var mu sync.Mutex
	d.ask(ctx, n, l.MAC, func(c core.Conflict) {
		mu.Lock()
		defer mu.Unlock()
		out = append(out, c)
	})
	return out
}

// ask asks until ctx ends, and tells of each other who has an address of a NIC.
func (d *Driver) ask(ctx context.Context, s nic, mac core.MAC, tell func(core.Conflict)) {
	pod, err := netns.Verify(s.Netns)
	if err != nil {
		return // it is gone, and with it the question
	}
	defer func() { _ = pod.Close() }()
	var wg sync.WaitGroup
	for _, a := range s.Addrs {
		wg.Go(func() {
			other, err := neigh.Who(ctx, pod, neigh.Question{IfName: s.Key.IfName, MAC: mac, For: a.Addr()}, probePause)
			if err == nil {
				tell(d.conflict(s, a.Addr(), other))
			}
		})
	}
	wg.Wait()
}

// conflict is what there is to tell of another who has an address.
func (d *Driver) conflict(s nic, addr netip.Addr, other core.MAC) core.Conflict {
	ctx, stop := context.WithTimeout(context.Background(), fdbTime) //nolint:forbidigo // as in probe
	defer stop()
	c := core.Conflict{Pod: s.Pod, IfName: s.Key.IfName, Addr: addr, MAC: other, Network: s.Underlay.Network}
	c.Bridge, _ = d.cfg.OVS.MappedBridge(c.Network)
	c.Port, _ = d.cfg.OVS.Learnt(ctx, c.Bridge, other, s.VLAN) // without it MAC and bridge are told
	return c
}
