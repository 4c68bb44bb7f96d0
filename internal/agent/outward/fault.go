package outward

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
)

func (l *look) fault(part string, fatal bool, next, format string, args ...any) {
	l.out.Faults = append(l.out.Faults, agent.OutwardFault{Part: part, What: fmt.Sprintf(format, args...), Next: next, Fatal: fatal})
}

// differs tells what of the packet filter is not as it should be, and what of others
// decides before it.
func (l *look) differs(inv netfilter.Inventory) {
	for _, d := range inv.Found {
		l.fault(agent.PartRules, true, "the agent puts it right by itself; if it stays `fairlead status` says why not", "%s", d.Text)
	}
	for _, f := range inv.Above {
		l.fault(agent.PartRules, false, "have it come behind ours: `"+f.Remove+"`, then `"+f.AppendAgain+"`",
			"%s %s %s: %q of another program decides before %s does", family(f.V6), f.Table, f.Chain, f.Text, f.Hides)
	}
}

// lead tells of policy rules that lead nowhere, and of others before ours.
func (l *look) lead() {
	var others []agent.OutwardWay // the first of each rule
	of := map[agent.OutwardWay][]string{}
	for _, w := range l.out.Ways {
		switch {
		case w.Taken != "":
			l.fault(agent.PartWays, true, "have spec.policyRoutingTableID name a table that nobody else uses, or remove the route there (`ip route show table "+strconv.Itoa(w.Table)+"`)",
				"pods of Subnet %s do not leave by %s: %s", w.Subnet, w.Via, w.Taken)
		case w.Missing:
			l.fault(agent.PartWays, true, fmt.Sprintf("give the node a network that holds %s, or correct spec.externalEgressGateway (`ip route get %s`)", w.Via, w.Via),
				"Subnet %s: the rule for %s, or the route by %s in table %d, is missing", w.Subnet, w.From, w.Via, w.Table)
		case w.Writer == agent.WriterOthers && l.before(w):
			rule := agent.OutwardWay{From: w.From, Priority: w.Priority, Table: w.Table}
			if of[rule] = append(of[rule], w.Subnet); len(of[rule]) == 1 {
				others = append(others, rule)
			}
		}
	}
	for _, w := range others {
		l.fault(agent.PartWays, false, fmt.Sprintf("remove it: `ip rule del from %s priority %d`", w.From, w.Priority),
			"pods of Subnet %s leave as table %d says, by the rule of another program for %s", some(of[w]), w.Table, w.From)
	}
}

// some names a few.
func some(names []string) string {
	const most = 3
	text := strings.Join(names[:min(len(names), most)], ", ")
	if n := len(names) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// before tells that no rule of ours for the Subnet comes earlier.
func (l *look) before(w agent.OutwardWay) bool {
	return !slices.ContainsFunc(l.out.Ways, func(o agent.OutwardWay) bool {
		return o.Writer == agent.WriterOurs && o.Subnet == w.Subnet && o.From.Addr().Is4() == w.From.Addr().Is4() && o.Priority <= w.Priority
	})
}

// served tells of provider networks without a NIC.
func (l *look) served() {
	for _, n := range l.out.Networks {
		switch {
		case n.Gone:
			l.fault(agent.PartNetworks, true, "put it back; or give another one its addresses and name it for this node (spec.customInterfaces), or leave the node out (spec.excludeNodes)",
				"NIC %s of provider network %s is gone: its Subnets have no way out by this node", n.NIC, n.Name)
		case n.Reason != "":
			l.fault(agent.PartNetworks, true, "put right what it says; it is tried again by itself (docs/underlay.md)", "provider network %s: %s", n.Name, n.Reason)
		case n.Phase != string(core.Taken):
			l.fault(agent.PartNetworks, false, "wait: it is finished, or taken back, within a minute", "NIC %s of provider network %s is under way (%s)", n.NIC, n.Name, n.Phase)
		}
	}
}

// passed tells of rules that name a NIC which was given away: its packets come and go by
// the bridge, and pass them by.
func (l *look) passed(ctx context.Context) error {
	var errs []error
	for _, n := range l.out.Networks {
		if n.Phase != string(core.Taken) || n.Port != "" || n.Gone {
			continue
		}
		rules, err := netfilter.Names(ctx, l.Host, n.NIC, n.Bridge)
		errs = append(errs, err)
		for _, r := range rules {
			l.fault(agent.PartRules, false, fmt.Sprintf("have it name %s too, or set spec.exchangeLinkName, by which the bridge is called %s", n.Bridge, n.NIC),
				"%s: %q names %s, whose packets come and go by %s of provider network %s: the rule does not see them", r.Where, r.Text, n.NIC, n.Bridge, n.Name)
		}
	}
	return errors.Join(errs...)
}

// sysctls tells of those that keep packets from their way. It runs in the node's namespace.
func (l *look) sysctls() error {
	if err := l.forwards(); err != nil {
		return err
	}
	for _, w := range l.out.Ways {
		if w.Device == "" || w.Device == l.first[0] || w.From.Addr().Is6() || w.Writer != agent.WriterOurs {
			continue
		}
		strict, err := strict(w.Device)
		if err != nil {
			return err
		}
		if strict {
			l.fault(agent.PartSysctls, true, "sysctl -w "+reverse(w.Device)+"=2",
				"rp_filter of %s is strict: answers to pods of Subnet %s come by it, the node's default route leads elsewhere, and the kernel drops them", w.Device, w.Subnet)
		}
	}
	return nil
}

// forwards tells where the node forwards nothing for a family that pods have.
func (l *look) forwards() error {
	for _, f := range []struct {
		name string
		v6   bool
	}{{"net.ipv4.ip_forward", false}, {"net.ipv6.conf.all.forwarding", true}} {
		if !l.has(f.v6) {
			continue
		}
		value, err := sysfs.ReadSysctl(f.name)
		if err != nil && !sysfs.SysctlMissing(err) {
			return err
		}
		if value != "1" {
			l.fault(agent.PartSysctls, true, "sysctl -w "+f.name+"=1, and have nothing turn it off again (/etc/sysctl.d)", "%s is off: the node forwards no %s of pods", f.name, family(f.v6))
		}
	}
	return nil
}

// has tells that pods have addresses of a family.
func (l *look) has(v6 bool) bool {
	for _, s := range l.out.Subnets {
		for _, c := range s.CIDRs {
			if c.Addr().Is6() == v6 {
				return true
			}
		}
	}
	return false
}

// strict tells that the kernel drops what comes by a link to whose source it would not
// send by it: the larger of two sysctls counts, 1 is strict, 2 loose (ip-sysctl.rst).
func strict(link string) (bool, error) {
	most := "0"
	for _, name := range []string{"all", link} {
		value, err := sysfs.ReadSysctl(reverse(name))
		if err != nil {
			return false, err
		}
		most = max(most, value)
	}
	return most == "1", nil
}

// reverse is the sysctl's name of a link, which may have a dot in its own.
func reverse(link string) string { return "net/ipv4/conf/" + link + "/rp_filter" }

// probes tells of probed ports of pods in Vpcs of their own.
func (l *look) probes() {
	var fault string
	if l.out.Probes, fault = l.Probes(); fault != "" {
		l.fault(agent.PartRules, true, fmt.Sprintf("have the other program give the port back (`ss -ltnp sport = :%d`)", rules.ProbePort),
			"--enable-tproxy: kubelet's probes do not reach pods of other Vpcs: %s", fault)
	}
	for _, p := range l.out.Probes {
		if p.Why != "" {
			l.fault(agent.PartRules, false, "give the pod another address, or another port", "probes of pod %s at %s do not reach it: %s", p.Pod, p.To, p.Why)
		}
	}
}

// So many repairs of one thing, of which the last was no longer ago, tell that somebody
// works against us.
const (
	often  = 3
	recent = time.Hour
)

// repairs tells of what is changed again and again.
func (l *look) repairs() {
	for _, r := range l.out.Repairs {
		next := "find out who does it: `nft monitor`, or whether Kube-OVN's daemon still runs on the node; until then it is put right more and more rarely"
		switch {
		case r.Error != "":
			l.fault(agent.PartRules, true, "fairlead status", "%s could not be put right (%s): %s", r.What, r.Found, r.Error)
		case r.Next.After(time.Now()):
			l.fault(agent.PartRules, true, next, "%s was put right %d times, and is not as it should be before %s: %s", r.What, r.Times, r.Next.UTC().Format(time.TimeOnly), r.Found)
		case r.Times >= often && time.Since(r.When) < recent:
			l.fault(agent.PartRules, false, next, "%s was put right %d times, last at %s: %s", r.What, r.Times, r.When.UTC().Format(time.DateTime), r.Found)
		}
	}
}
