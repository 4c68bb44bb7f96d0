package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// TestNodeOfOVNLosesAll: pods of two nodes talk by vxlan. A node whose Open vSwitch lost
// its database is a chassis again by itself, with the ports of its pods and what OVN is
// told of them; one that was booted anew has its pods' addresses for them. Tunnels and
// patch ports, which ovn-controller makes, are no drift.
func TestNodeOfOVNLosesAll(t *testing.T) {
	t.Parallel()
	o := newOVNCentral(t, kube.Options{}, ovn.Over)
	o.tunnel = "vxlan"
	o.populate()
	one, two := o.nodes[0], o.nodes[1]
	o.controller("a", "127.0.0.1:10666")
	for _, n := range o.nodes {
		n.joined()
		n.unavailable("False", "answers")
	}
	a, b, c := one.run("web/a"), two.run("web/b"), one.run("data/c")
	pairs := [][2]*ovnPod{{a, b}, {b, a}, {c, b}, {b, c}, {a, c}}
	talk := func() {
		t.Helper()
		for _, pair := range pairs {
			pair[0].talks(pair[1]) // a switch that has just begun drops what goes to a node whose MAC it must ask for
			pair[0].reaches(pair[1])
		}
	}
	talk()
	encap := o.central.Sbctl("--bare", "--columns=type", "list", "Encap")
	require.Equal(t, []string{"vxlan", "vxlan"}, strings.Fields(encap))
	for _, n := range o.nodes {
		n.undisturbed()
	}

	one.gives("60")
	ping := a.StartPing(c.ips[0], 20*time.Millisecond)
	was, ids := one.bindings(), one.ids()
	one.OVS.LoseConfDB()
	one.at.Address()
	eventually(t, func() string {
		if now := one.ids(); now != ids {
			return fmt.Sprintf("external_ids: %s, before: %s", now, ids)
		}
		if now := one.bindings(); now != was {
			return fmt.Sprintf("ports: %s, before: %s", now, was)
		}
		return ""
	})
	one.settle()
	o.central.Sync()
	ping.Answers(10)
	answered, lost := ping.Stop()
	t.Logf("Open vSwitch's database lost: %d pings lost between two pods of the node, %d answered, one each 20ms", lost, answered)
	talk()
	one.shaped("ceil 60Mbit")
	one.gives("80")
	one.gives("")
	two.undisturbed()
	one.run("web/late").reaches(b)
	for _, p := range []*ovnPod{a, b, c} {
		p.call("CHECK").Must()
	}

	booted := one.BootID()
	one.Reboot()
	require.NotEqual(t, booted, one.BootID())
	o.c.Link(one.NetnsPath())
	one.chassis = ovn.NewHost(t, one.Node, ovn.Keys(chassisKeys)...)
	one.agent = one.Agent(one.args...)
	one.settle()
	for _, p := range []*ovnPod{a, c} {
		ips := p.ips
		p.Pod, p.ips = one.NewPod(p.Namespace+"/"+p.Name), nil
		require.Equal(t, ips, p.added(p.add()).ips)
	}
	talk()
	for _, n := range o.nodes {
		n.undisturbed()
	}
	o.agrees()
}

// gives has the node's gateway send pods so many Mbit/s, "" for what it can.
func (n *ovnNode) gives(rate string) {
	n.o.t.Helper()
	note, ceil := "null", ""
	if rate != "" {
		note, ceil = fmt.Sprintf("%q", rate), "ceil "+rate+"Mbit"
	}
	_, err := n.o.c.Client().CoreV1().Nodes().Patch(n.o.t.Context(), n.name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{"ovn.kubernetes.io/ingress_rate":%s}}}`, note), metav1.PatchOptions{})
	require.NoError(n.o.t, err)
	n.shaped(ceil)
}

// shaped waits until the kernel limits what leaves by the node's gateway; "" is not at all.
func (n *ovnNode) shaped(ceil string) {
	n.o.t.Helper()
	eventually(n.o.t, func() string {
		now := n.Run("tc", "class", "show", "dev", "ovn0")
		if !strings.Contains(now, ceil) || ceil == "" && now != "" {
			return "ovn0 has class " + now
		}
		return ""
	})
}

// bindings are the node's ports of OVN, as Open vSwitch tells ovn-controller of them.
func (n *ovnNode) bindings() string {
	n.o.t.Helper()
	var all []string
	for _, row := range columns(func(args ...string) string { return n.OVS.Vsctl(append([]string{"--timeout=20"}, args...)...) }, "Interface", "name", "external_ids") {
		for id := range strings.FieldsSeq(row[1]) {
			if strings.HasPrefix(id, "iface-id=") {
				all = append(all, row[0]+" "+id)
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// ids are what makes the node a chassis.
func (n *ovnNode) ids() (all string) {
	n.o.t.Helper()
	for _, key := range []string{"system-id", "ovn-remote", "ovn-encap-type", "ovn-encap-ip", "ovn-encap-csum", "ovn-bridge", "ovn-bridge-datapath-type", "ovn-ofctrl-wait-before-clear"} {
		all += key + "=" + n.id(key) + "\n"
	}
	return all
}

// undisturbed proves that the agent took nothing of the node for changed by somebody.
func (n *ovnNode) undisturbed() {
	n.o.t.Helper()
	_, metrics, err := n.agent.Get("/metrics")
	require.NoError(n.o.t, err)
	require.NotContains(n.o.t, metrics, "fairlead_drift_repairs_total{")
	require.Contains(n.o.t, metrics, "fairlead_drift_unrepaired 0")
}
