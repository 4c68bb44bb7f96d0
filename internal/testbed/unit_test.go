package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// chained is a pod network of foreign plugins, which inherit what the agent may.
const chained = `{"cniVersion":"1.1.0","name":"multi","type":"multus","delegates":[
	{"name":"bridged","cniVersion":"1.1.0","plugins":[
		{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"ipam":{"type":"host-local","subnet":"10.77.0.0/24"}},
		{"type":"portmap","capabilities":{"portMappings":true}},
		{"type":"bandwidth","ingressRate":1000000,"ingressBurst":1000000},
		{"type":"tuning","sysctl":{"net.ipv4.conf.IFNAME.arp_notify":"1"}}]}],
	"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]},
	"capabilities":{"portMappings":true}}`

// unitCapabilities reads what the systemd unit leaves to the agent.
func unitCapabilities(t *testing.T) string {
	t.Helper()
	root, err := Repository()
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(root, "deploy/systemd/fairlead.service"))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(b), "\nCapabilityBoundingSet=")
	require.True(t, ok, "the unit bounds nothing")
	line, _, _ := strings.Cut(rest, "\n")
	return "-all,+" + strings.ReplaceAll(strings.ToLower(strings.ReplaceAll(line, "CAP_", "")), " ", ",+")
}

// TestUnitCapabilitiesSuffice runs the agent with the systemd unit's bounding
// set: our own NIC and a chain of foreign plugins come and go.
func TestUnitCapabilitiesSuffice(t *testing.T) {
	t.Parallel()
	n := New(t)
	p, q := n.NewPod("p"), n.NewPod("q")
	daemon := n.Start("agent", "setpriv", "--bounding-set", unitCapabilities(t), "--no-new-privs",
		programs(t).fairlead, "agent", "--node-name", "node1", "--http", HTTPAddr)
	a := &Agent{daemon}
	a.WaitServing()
	a.WaitReady()
	require.NotEqual(t, capabilities(t, os.Getpid()), capabilities(t, a.PID()), "the bound is not in force")
	p.CNI("ADD", conf).Must()
	q.CNI("ADD", chained).Must()
	require.Contains(t, n.Run("nft", "list", "ruleset"), "8080")
	q.CNI("DEL", chained).Must()
	p.CNI("DEL", conf).Must()
}

func capabilities(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(b), "CapEff:")
	require.True(t, ok)
	return strings.Fields(rest)[0]
}
