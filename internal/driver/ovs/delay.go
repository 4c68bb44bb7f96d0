package ovs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/qdisc"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// Open vSwitch gives a port one QoS. Where a pod has a rate that is linux-htb, and what
// delays or loses packets stands behind it: a netem in the class of the kernel's that
// Open vSwitch makes of Queue 0. It keeps that class, and what is in it, when a rate
// changes and when ovs-vswitchd is started anew, and never looks what that is.
const firstQueue = 0x1_0001 // 1:1, netdev-linux of Open vSwitch

// netemLimit is how many packets netem holds where nobody says: as many as Open vSwitch
// gives it.
const netemLimit = 1000

// behindRate is the netem behind a pod's rate, the zero value for none.
func behindRate(q core.QoS) qdisc.Netem {
	if q.IngressMbps == 0 || len(netem(q)) == 0 {
		return qdisc.Netem{}
	}
	n := qdisc.Netem{
		Latency: time.Duration(q.LatencyMs) * time.Millisecond, Jitter: time.Duration(q.JitterMs) * time.Millisecond,
		Limit: q.LimitPackets, Loss: q.LossPercent,
	}
	if n.Limit == 0 {
		n.Limit = netemLimit
	}
	return n
}

// shaped tells a port that has, or may have, a netem behind its rate. The kernel of
// others has none to give, or no class (an internal port's device is the pod's).
func (d *Driver) shaped(s nic) bool {
	return s.Type != InternalPort && s.QoS.IngressMbps > 0 && (d.cfg.Delays == nil || d.cfg.Delays() == nil)
}

// delay has the kernel delay and lose what waits for the pod's rate, as the Spec says.
// Open vSwitch has made the class. diff gets what was not so.
func (d *Driver) delay(s nic, diff *drift) error {
	if !d.shaped(s) {
		return nil
	}
	l, have, err := d.delayNow(s)
	want := behindRate(s.QoS)
	if err != nil || l.Index == 0 || have == want {
		return err
	}
	diff.delay(s.HostIf, have, want)
	err = qdisc.Set(d.cfg.Host, l.Index, firstQueue, want)
	return err
}

// delayNow is what the kernel has; the zero Link for a device that is gone.
func (d *Driver) delayNow(s nic) (l rtnl.Link, n qdisc.Netem, err error) {
	c, err := d.host.Get()
	if err != nil {
		return l, n, err
	}
	defer d.host.Put(c)
	if l, err = c.LinkByName(s.HostIf); err == nil {
		n, err = qdisc.Of(d.cfg.Host, l.Index, firstQueue)
	}
	if errors.Is(err, core.ErrNotFound) {
		return rtnl.Link{}, n, nil
	}
	return l, n, err
}

// checkDelay compares what the kernel has with the Spec.
func (d *Driver) checkDelay(s nic, diff *drift) error {
	if !d.shaped(s) {
		return nil
	}
	l, have, err := d.delayNow(s)
	if want := behindRate(s.QoS); l.Index != 0 && have != want {
		diff.delay(s.HostIf, have, want)
	}
	return err
}

func (d *drift) delay(link string, have, want qdisc.Netem) {
	if have != want {
		d.add("netem behind the rate of link %s is %+v, not %+v", link, have, want)
	}
}

// delayAll is delay for all Specs that want one, when the switch has acted on their ports.
func (d *Driver) delayAll(ctx context.Context, specs []core.Spec) error {
	var errs []error
	settled := false
	for _, spec := range specs {
		s, err := nicOf(spec)
		if err != nil || !d.shaped(s) || behindRate(s.QoS) == (qdisc.Netem{}) {
			continue
		}
		if !settled {
			if err := d.settleFor(ctx); err != nil {
				return err
			}
			settled = true
		}
		unlock := d.locks.Hold(s.HostIf)
		if err := d.delay(s, &drift{}); err != nil {
			errs = append(errs, fmt.Errorf("resync %s: %w", s.Key, err))
		}
		unlock()
	}
	return errors.Join(errs...)
}

// settleFor waits for the switch, for as long as a sweep may.
func (d *Driver) settleFor(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, securesAll)
	defer stop()
	return d.cfg.OVS.Settle(ctx)
}
