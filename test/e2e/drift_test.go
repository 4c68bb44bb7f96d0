package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// driftNode has a pod on a subnet that masquerades.
func driftNode(t *testing.T) (*testbed.Node, *testbed.Agent, *testbed.Pod, string) {
	t.Helper()
	n := testbed.New(t)
	n.WriteObjects("all.yaml", together(
		subnetObject("ovn-default", map[string]any{"default": true, "natOutgoing": true, "cidrBlock": "10.16.0.0/16"}),
		podObject("default/p", map[string]string{"ovn.kubernetes.io/ingress_rate": "30"}),
	))
	a := n.Agent()
	a.WaitReady()
	p := n.NewPod("p")
	p.CNI("ADD", ownConf).Must()
	gw := n.OVS.Vsctl("--bare", "--columns=name", "find", "Interface", "external_ids:fairlead-gateway=ovn-default")
	require.NotEmpty(t, gw)
	require.NotContains(t, n.Fairlead("status"), "somebody else", "what a start finds is nobody's doing")
	return n, a, p, gw
}

// TestDriftComesBack: whatever somebody does to the node's side of a subnet or
// to a pod's port is undone, by events, and told.
func TestDriftComesBack(t *testing.T) {
	t.Parallel()
	n, a, p, gw := driftNode(t)
	host := hostIf(p, "eth0")
	for _, c := range []struct{ do, ask, was string }{
		{"nft flush set inet fairlead ovn40subnets-nat", "nft list set inet fairlead ovn40subnets-nat", "10.16.0.0/16"},
		{"nft delete table inet fairlead", "nft list set inet fairlead ovn40subnets-nat", "10.16.0.0/16"},
		{"nft chain inet fairlead filter-forward { policy drop; }", "nft list chain inet fairlead filter-forward", "policy accept"},
		{"ip addr flush dev " + gw, "ip -4 addr show " + gw, "inet 10.16.0.1/16"},
		{"ip link set " + gw + " down", "ip link show up dev " + gw, "state"},
		{"ip link set " + gw + " mtu 1200", "ip link show " + gw, "mtu 1400"},
		{"sysctl -qw net.ipv4.ip_forward=0", "sysctl net.ipv4.ip_forward", "= 1"},
		{"sysctl -qw net.ipv4.conf." + gw + ".forwarding=0", "sysctl net.ipv4.conf." + gw + ".forwarding", "= 1"},
		{"ovs-vsctl --no-wait del-port br-int " + gw, "ip -4 addr show " + gw, "inet 10.16.0.1/16"},
		{"ovs-vsctl --no-wait del-port br-int " + host, "ovs-vsctl get Interface " + host + " external_ids:container_id", p.ContainerID},
		{"ovs-vsctl --no-wait set Port " + host + " tag=77", "ovs-vsctl get Port " + host + " tag", "[]"},
		{"ovs-vsctl --no-wait clear Port " + host + " qos", "ovs-vsctl --bare --columns=other_config find QoS external_ids:port=" + host, "max-rate=30000000"},
	} {
		n.Run(strings.Fields(c.do)...)
		eventually(t, func() string {
			out, err := n.Try(strings.Fields(c.ask)...)
			if err != nil || !strings.Contains(out, c.was) {
				return fmt.Sprintf("after %q: %v %s", c.do, err, out)
			}
			return ""
		})
	}
	eventually(t, func() string {
		if err := p.Ping("10.16.0.1"); err != nil {
			return err.Error()
		}
		return ""
	})
	p.CNI("CHECK", ownConf).Must()
	a.WaitReady()
	status := n.Fairlead("status")
	require.Contains(t, status, "Changed by somebody else, put right")
	require.Contains(t, status, "gateway of subnet ovn-default")
	require.Contains(t, status, "rules of the packet filter")
	require.Contains(t, status, "port "+host+" of pod default/p")
	_, metrics, err := a.Get("/metrics")
	require.NoError(t, err)
	require.Contains(t, metrics, `fairlead_drift_repairs_total{part="gateway",result="success"}`)
	require.Contains(t, metrics, `fairlead_drift_repairs_total{part="port",result="success"}`)
	require.Contains(t, metrics, "fairlead_drift_unrepaired 0")
}

// TestDriftOfNobody: the port of a pod that is gone does not come back, nor does
// a stranger's.
func TestDriftOfNobody(t *testing.T) {
	t.Parallel()
	n, a, p, gw := driftNode(t)
	host := hostIf(p, "eth0")
	n.OVS.Vsctl("add-port", "br-int", "theirs", "--", "set", "Interface", "theirs", "type=internal")
	n.OVS.Vsctl("del-port", "br-int", "theirs")
	p.CNI("DEL", ownConf).Must()
	// What the agent hears is in order: when this one is back, it has heard of all.
	n.Run("ip", "addr", "flush", "dev", gw)
	eventually(t, func() string {
		if out := n.Run("ip", "addr", "show", gw); !strings.Contains(out, "10.16.0.1/16") {
			return out
		}
		return ""
	})
	ports := n.Run("ovs-vsctl", "list-ports", "br-int")
	require.NotContains(t, ports, host)
	require.NotContains(t, ports, "theirs")
	_, metrics, err := a.Get("/metrics")
	require.NoError(t, err)
	require.NotContains(t, metrics, `fairlead_drift_repairs_total{part="port"`)
}

// TestDriftFight: a program that undoes every repair is not raced against: the
// repairs become rare, and the status says who is fought.
func TestDriftFight(t *testing.T) {
	t.Parallel()
	n, a, _, gw := driftNode(t)
	fight := n.Cmd(t.Context(), "sh", "-c",
		"while :; do ip addr flush dev "+gw+"; sleep 0.05; done")
	require.NoError(t, fight.Start())
	t.Cleanup(func() {
		_ = fight.Process.Kill()
		_ = fight.Wait() // killed
	})
	eventually(t, func() string {
		if out, err := n.TryFairlead("status"); !strings.Contains(out, "it goes on") {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	require.NoError(t, fight.Process.Kill())
	_ = fight.Wait()
	eventually(t, func() string {
		if out := n.Run("ip", "addr", "show", gw); !strings.Contains(out, "10.16.0.1/16") {
			return out
		}
		return ""
	})
	a.WaitReady()
}

// TestReadyOnceHostPortsAreBack: when conf.db was lost, or somebody deleted a
// gateway's port, the gateway is back before host ports lead over it. Until they
// do the agent is not ready; and what somebody changes there later is put right.
func TestReadyOnceHostPortsAreBack(t *testing.T) {
	t.Parallel()
	f := newFaultNode(t)
	gw := f.OVS.Vsctl("--bare", "--columns=name", "find", "Interface", "external_ids:fairlead-gateway=storage")
	localnet := "net.ipv4.conf." + gw + ".route_localnet"
	h := holdNft(f, `case $(cat `+filepath.Join(f.Dir, "hold")+`) in
		port) ovs-vsctl --no-wait --timeout=5 port-to-br `+gw+` ;;
		device) [ "$(sysctl -n `+localnet+`)" = 0 ] && ip -o -4 addr show to 10.20.0.1 | grep -q . ;;
	esac`)
	for _, c := range []struct {
		until string
		lose  func()
	}{
		{"port", func() {
			f.OVS.KillServer()
			require.NoError(t, os.Remove(filepath.Join(f.Dir, "disk/ovs/conf.db")))
			h.until("port")
			f.OVS.StartServer()
		}},
		{"device", func() {
			h.until("device")
			f.OVS.Vsctl("--no-wait", "del-port", "br-int", gw)
		}},
	} {
		c.lose()
		h.await()
		status, body, err := f.agent.Get("/readyz")
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, status, "%s: %s", c.until, body)
		h.release()
		f.agent.WaitReady()
		f.requireWhole()
		require.Equal(t, "1", strings.TrimSpace(f.Run("sysctl", "-n", localnet)))
	}
	f.Run("sysctl", "-qw", localnet+"=0")
	f.Run("ip", "link", "set", gw, "txqueuelen", "999") // of a sysctl no event tells; whatever does has all looked at
	eventually(t, func() string {
		if out := strings.TrimSpace(f.Run("sysctl", "-n", localnet)); out != "1" {
			return out
		}
		return ""
	})
	f.Run("ip", "link", "set", gw, "txqueuelen", "1000")
	f.end()
}

// held is a node whose nft waits for the test.
type held struct {
	*faultNode
	order, waits string // files
}

// holdNft has the agent's questions about host ports wait where a shell command
// succeeds.
func holdNft(f *faultNode, where string) held {
	f.t.Helper()
	h := held{f, filepath.Join(f.Dir, "hold"), filepath.Join(f.Dir, "waits")}
	nft := strings.TrimSpace(f.Run("sh", "-c", "readlink -f $(command -v nft)"))
	program, script := filepath.Join(f.Dir, "nft"), filepath.Join(f.Dir, "nft.sh")
	f.Run("cp", nft, program)
	require.NoError(f.t, os.WriteFile(script, []byte(`#!/bin/sh
ask() { `+where+`; }
case "$*" in *fairlead-hostports*)
	if [ -e `+h.order+` ] && ask >/dev/null 2>&1; then
		touch `+h.waits+`
		while [ -e `+h.order+` ]; do sleep 0.05; done
	fi ;;
esac
exec `+program+` "$@"
`), 0o755)) //nolint:gosec // a program
	f.Run("mount", "--bind", script, nft)
	return h
}

func (h held) until(what string) {
	h.t.Helper()
	require.NoError(h.t, os.WriteFile(h.order, []byte(what), 0o600))
}

func (h held) await() {
	h.t.Helper()
	eventually(h.t, func() string {
		if _, err := os.Stat(h.waits); err != nil {
			return "nobody asks about host ports"
		}
		return ""
	})
}

func (h held) release() {
	h.t.Helper()
	require.NoError(h.t, os.Remove(h.waits))
	require.NoError(h.t, os.Remove(h.order))
}
