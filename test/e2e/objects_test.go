package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// statusOf asks `fairlead status` as JSON.
func statusOf(t *testing.T, n *testbed.Node) (s agent.Status) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(n.Fairlead("status", "-o", "json")), &s))
	return s
}

// problemIn waits until the status has a problem in a file at a line.
func problemIn(t *testing.T, n *testbed.Node, file string, line int, says string) {
	t.Helper()
	eventually(t, func() string {
		problems := statusOf(t, n).Problems
		for _, p := range problems {
			if strings.HasSuffix(p.File, file) && p.Line == line && strings.Contains(p.Reason, says) {
				return ""
			}
		}
		return fmt.Sprintf("no problem at %s:%d with %q in %+v", file, line, says, problems)
	})
	require.Contains(t, n.Fairlead("status"), fmt.Sprintf("%s:%d: ", file, line))
}

func noProblems(t *testing.T, n *testbed.Node) {
	t.Helper()
	eventually(t, func() string {
		if p := statusOf(t, n).Problems; len(p) > 0 {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
}

// ipOf adds a pod, takes it away again unless it is to stay, and gives its
// first address.
func ipOf(n *testbed.Node, name string, stay bool) string {
	p, addrs := attached(n, name)
	if !stay {
		p.CNI("DEL", ownConf).Must()
		p.Delete()
	}
	return addrs[0]
}

const fixedPod = `apiVersion: v1
kind: Pod
metadata:
  name: fixed
  namespace: default
  annotations:
    ovn.kubernetes.io/ip_address: %s
    ovn.kubernetes.io/mac_address: 02:00:00:00:00:42
`

// TestBadFileKeepsTheLastGood: file, line and reason are told, everything else
// goes on, and what was good stays in force until something good replaces it.
func TestBadFileKeepsTheLastGood(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{
		"pod.yaml":    fmt.Sprintf(fixedPod, "10.16.0.50"),
		"subnet.yaml": "apiVersion: kubeovn.io/v1\nkind: Subnet\nmetadata:\n  name: ovn-default\nspec:\n  default: true\n  cidrBlock: 10.16.0.0/16\n",
	})
	noProblems(t, n)
	require.Equal(t, "10.16.0.50", ipOf(n, "fixed", false))

	n.WriteObjects("pod.yaml", fmt.Sprintf(fixedPod, "10.16.0"))
	problemIn(t, n, "pod.yaml", 7, "ovn.kubernetes.io/ip_address")
	require.Equal(t, "10.16.0.50", ipOf(n, "fixed", false), "the last good version")

	n.WriteObjects("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: [\n")
	problemIn(t, n, "pod.yaml", 4, "not YAML")
	require.Equal(t, "10.16.0.50", ipOf(n, "fixed", false))

	n.WriteObjects("subnet.yaml", "apiVersion: kubeovn.io/v1\nkind: Subnet\nmetadata:\n  name: ovn-default\nspec:\n  default: true\n  cidrBlock: 10.16.0.1/16\n")
	problemIn(t, n, "subnet.yaml", 7, "cidrBlock")
	require.True(t, strings.HasPrefix(ipOf(n, "other", false), "10.16."))
	require.Empty(t, n.CNI(cni.Request{Command: "STATUS", Config: []byte(ownConf)}).Err(), "a bad file is no reason to refuse pods")

	n.WriteObjects("new.yaml", podObject("default/new", map[string]string{"ovn.kubernetes.io/vlan_id": "many"}))
	problemIn(t, n, "new.yaml", 1, "vlan_id")
	e := n.NewPod("new").CNI("ADD", ownConf).MustCode(102)
	require.Contains(t, e.Msg+e.Details, "vlan_id", "never good: there is nothing to fall back to")

	n.WriteObjects("pod.yaml", fmt.Sprintf(fixedPod, "10.16.0.51"))
	n.WriteObjects("subnet.yaml", subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}))
	n.Run("rm", n.Objects()+"/new.yaml")
	noProblems(t, n)
	require.Equal(t, "10.16.0.51", ipOf(n, "fixed", false))
	p := n.NewPod("fixed")
	p.CNI("ADD", ownConf).Must()
	require.Contains(t, p.Run("ip", "link", "show", "eth0"), "02:00:00:00:00:42")
}

// TestADDReadsTheFolderAsItIs: an annotation that was changed just before, and
// a pod of which the folder knows nothing.
func TestADDReadsTheFolderAsItIs(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{"pod.yaml": fmt.Sprintf(fixedPod, "10.16.0.50")})
	for _, ip := range []string{"10.16.0.60", "10.16.0.61"} {
		n.WriteObjects("pod.yaml", fmt.Sprintf(fixedPod, ip))
		eventually(t, func() string {
			if got := ipOf(n, "fixed", false); got != ip {
				return "still " + got
			}
			return ""
		})
	}
	var result struct {
		Interfaces []struct{ Name string }
		Routes     []struct{ Dst, Gw string }
	}
	n.NewPod("nobody/knows-it").CNI("ADD", ownConf).Decode(&result)
	require.Equal(t, "10.16.0.1", result.Routes[0].Gw)
	bareContainer := n.NewPod("x")
	a := n.CNI(cni.Request{Command: "ADD", ContainerID: bareContainer.ContainerID, IfName: "eth0", Netns: bareContainer.Netns(), Config: []byte(ownConf)})
	require.NotEmpty(t, a.IPs(), "a container that is no pod")
}

// small is a subnet with five addresses for pods: .2 to .6.
func small(extra map[string]any) string {
	spec := map[string]any{"default": true, "cidrBlock": "10.55.0.0/29"}
	for k, v := range extra {
		spec[k] = v
	}
	return subnetObject("small", spec)
}

// TestAddressesComeBack: a pod name gets its former address while it is free,
// others get it last, and when nothing is left the error says where.
func TestAddressesComeBack(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.WriteObjects("small.yaml", small(nil))
	a := n.Agent()
	a.WaitReady()
	require.Equal(t, "10.55.0.2", ipOf(n, "s", false))
	require.Equal(t, "10.55.0.3", ipOf(n, "b", true), "a released address is reused last")
	require.Equal(t, "10.55.0.2", ipOf(n, "s", false), "but its pod gets it back")
	a.Kill()
	a = n.Agent()
	a.WaitReady()
	require.Equal(t, "10.55.0.2", ipOf(n, "s", false), "also after a restart")
	require.Equal(t, "10.55.0.4", ipOf(n, "c", true))
	require.Equal(t, "10.55.0.5", ipOf(n, "d", true))
	require.Equal(t, "10.55.0.6", ipOf(n, "e", true))
	require.Equal(t, "10.55.0.2", ipOf(n, "f", true), "the released one, for nothing else is left")
	p := n.NewPod("s")
	e := p.CNI("ADD", ownConf).MustCode(103)
	require.Contains(t, e.Msg+e.Details, "small")
	require.Contains(t, e.Msg+e.Details, "no free address")
	p.CNI("DEL", ownConf).Must()
	out, err := n.TryFairlead("describe", "pod", "default/s")
	require.NoError(t, err)
	require.Contains(t, out, "no free address")
	a.Stop()
}

// TestFixedAddresses: what a pod names it gets, excluded addresses too; what
// another holds it does not get, and the holder is named.
func TestFixedAddresses(t *testing.T) {
	t.Parallel()
	fixed := func(name, ip, mac string) string {
		notes := map[string]string{"ovn.kubernetes.io/ip_address": ip}
		if mac != "" {
			notes["ovn.kubernetes.io/mac_address"] = mac
		}
		return podObject("default/"+name, notes)
	}
	n := startNode(t, map[string]string{
		"small.yaml": small(map[string]any{"excludeIps": []string{"10.55.0.2..10.55.0.3", "10.55.0.5"}}),
		"pods.yaml": together(fixed("excluded", "10.55.0.3", "02:00:00:00:00:03"), fixed("rival", "10.55.0.3", ""),
			fixed("gateway", "10.55.0.1", ""), fixed("samemac", "10.55.0.6", "02:00:00:00:00:03")),
	})
	require.Equal(t, "10.55.0.4", ipOf(n, "first", true), "excluded addresses are nobody's by chance")
	owner, addrs := attached(n, "excluded")
	require.Equal(t, []string{"10.55.0.3"}, addrs)
	require.Contains(t, owner.Run("ip", "link", "show", "eth0"), "02:00:00:00:00:03")

	rival := n.NewPod("rival")
	e := rival.CNI("ADD", ownConf).MustCode(103)
	require.Contains(t, e.Msg+e.Details, "10.55.0.3")
	require.Contains(t, e.Msg+e.Details, "default/excluded")
	e = n.NewPod("samemac").CNI("ADD", ownConf).MustCode(103)
	require.Contains(t, e.Msg+e.Details, "02:00:00:00:00:03")
	require.Contains(t, e.Msg+e.Details, "default/excluded")
	e = n.NewPod("gateway").CNI("ADD", ownConf).MustCode(103)
	require.Contains(t, e.Msg+e.Details, "gateway")

	require.Equal(t, "10.55.0.6", ipOf(n, "second", true))
	e = n.NewPod("third").CNI("ADD", ownConf).MustCode(103)
	require.Contains(t, e.Msg+e.Details, "small")

	owner.CNI("DEL", ownConf).Must()
	require.Equal(t, []string{"10.55.0.3"}, []string{bare(rival.CNI("ADD", ownConf).Must().IPs()[0])})
	owner2 := n.NewPod("excluded")
	e = owner2.CNI("ADD", ownConf).MustCode(103)
	require.Contains(t, e.Msg+e.Details, "default/rival")
}
