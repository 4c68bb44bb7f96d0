package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// centralMember is one of central's members, on a machine of its own.
type centralMember struct {
	*ovn.Central
	addr   string
	starts int
}

// members makes machines for central, of which the site is the first.
func (o *ovnCluster) members(count int) []*centralMember {
	o.t.Helper()
	all := []*centralMember{{Central: o.central, addr: o.world.IP4}}
	var beside []string
	for range count - 1 {
		n := testbed.Bare(o.t)
		addr := o.under.Join(n).IP4
		o.c.Link(n.NetnsPath())
		all = append(all, &centralMember{Central: ovn.Over(o.t, n, addr), addr: addr})
		beside = append(beside, addr)
	}
	o.central.Beside(beside...)
	return all
}

// starts starts a member's program.
func (o *ovnCluster) starts(m *centralMember, all []*centralMember) {
	o.t.Helper()
	var addrs []string
	for _, one := range all {
		addrs = append(addrs, one.addr)
	}
	m.starts++
	p := m.Node.Start(fmt.Sprintf("central-%d", m.starts), testbed.Controller(o.t), "central", "--kubeconfig", o.account(fairlead.CentralAccount),
		"--address", m.addr, "--members", strings.Join(addrs, ","), "--dir", filepath.Join(m.Node.Dir, "disk/central"), "--run-dir", m.RunDir())
	m.By(p)
	o.t.Cleanup(func() {
		if p.Running() {
			p.Stop()
		}
	})
}

// ready waits until a member says that it is.
func (m *centralMember) ready(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		if out := served(m.Node, "10668", "/readyz"); !strings.Contains(out, " 200 OK") {
			return m.addr + " is not ready: " + out
		}
		return ""
	})
}

// leads is the member that leads a database; it waits for one.
func leads(t *testing.T, all []*centralMember, southbound bool) (leader *centralMember) {
	t.Helper()
	eventually(t, func() string {
		i := slices.IndexFunc(all, func(m *centralMember) bool { return m.Leads(southbound) })
		if i < 0 {
			return "no member leads"
		}
		leader = all[i]
		return ""
	})
	return leader
}

// TestCentralMembersKilled: machines of central's three members lose their power one after
// the other, those that lead first, while pods of two nodes talk and others come to a third
// one, all at once, and those of the time before go. No ping is lost, each ADD is served
// while the member is away, and no address is given twice. In make soak 15 die.
func TestCentralMembersKilled(t *testing.T) {
	t.Parallel()
	o := newOVNCentral(t, kube.Options{}, ovn.Over)
	o.nodes = make([]*ovnNode, 3)
	o.startSigner()
	all := o.members(3)
	for _, m := range all {
		o.starts(m, all)
	}
	for _, m := range all {
		m.ready(t)
	}
	o.central.Nbctl("set", "nb_global", ".", "nb_cfg=1") // as startCentral does
	o.enroll()
	o.controller("a", "127.0.0.1:10666")
	o.controller("b", "127.0.0.1:10667")
	for _, n := range o.nodes {
		n.joined()
		n.unavailable("False", "answers")
	}
	one, two, three := o.nodes[0], o.nodes[1], o.nodes[2]
	a, b, c := one.run("web/a"), two.run("web/b"), two.run("data/c")
	a.reaches(b)
	a.reaches(c)

	kills, count := 3, 6
	if soak() {
		kills, count = 15, 20
	}
	var pods []*ovnPod
	alive := slices.Clone(all) // of this round of all members
	for i := range kills {
		if len(alive) == 0 {
			alive = slices.Clone(all)
		}
		dies := leads(t, all, i%2 == 1)
		if !slices.Contains(alive, dies) {
			dies = alive[0]
		}
		alive = slices.DeleteFunc(alive, func(m *centralMember) bool { return m == dies })
		led := fmt.Sprintf("northbound led by it: %t, southbound: %t", dies.Leads(false), dies.Leads(true))
		pings := []*testbed.Pinger{a.StartPing(b.ips[0], 20*time.Millisecond), b.StartPing(a.ips[1], 20*time.Millisecond), c.StartPing(a.ips[0], 20*time.Millisecond)}
		dies.Die()
		began := time.Now()
		pods = three.burst(fmt.Sprintf("burst-%d", i), count, pods)
		took := time.Since(began)
		o.starts(dies, all)
		dies.ready(t)
		for _, g := range pings {
			g.Answers(10)
			answered, lost := g.Stop()
			require.Zero(t, lost, "pings lost while a member of central died (%s), %d answered", led, answered)
		}
		t.Logf("a member died (%s): %d pods were served within %s", led, count, took.Round(time.Millisecond))
		for _, p := range pods {
			p.reaches(a)
		}
		o.agrees()
	}
}

// burst makes pods and adds all at once, while others end.
func (n *ovnNode) burst(name string, count int, others []*ovnPod) (pods []*ovnPod) {
	n.o.t.Helper()
	for i := range count {
		pods = append(pods, n.pod(fmt.Sprintf("web/%s-%d", name, i)))
	}
	answers, ends := make([]testbed.Answer, count), make([]testbed.Answer, len(others))
	var wg sync.WaitGroup
	for i, p := range pods {
		wg.Go(func() { answers[i] = p.add() })
	}
	for i, p := range others {
		wg.Go(func() { ends[i] = p.call("DEL") })
	}
	wg.Wait()
	for i, p := range others {
		ends[i].Must()
		p.gone()
	}
	for i, p := range pods {
		p.added(answers[i])
	}
	return pods
}
