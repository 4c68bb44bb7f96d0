//go:build vm

package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/testbed"
)

// Tests named TestKernel need what a kernel may lack; test/vm runs them.

// TestKernelInternalPort: the kernel's datapath would lose the device of an
// internal port with the next port that comes: the pod gets a veth pair, which
// stays, and the operator is told so.
func TestKernelInternalPort(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{
		"pod.yaml": podObject("default/internal", map[string]string{"ovn.kubernetes.io/pod_nic_type": "internal-port"}),
	})
	p, _ := attached(n, "internal")
	_, qa := attached(n, "q") // the switch looks at all its ports
	reaches(t, p, qa...)
	p.CNI("CHECK", ownConf).Must()
	require.Equal(t, "veth", kind(linkOf(t, p, "eth0")))
	require.Equal(t, "veth-pair", attachment(t, n, "default/internal").Interfaces[0].NICType)
	p.CNI("DEL", ownConf).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, p))
}

// TestKernelDatapath: where the kernel has Open vSwitch, the agent takes its
// datapath, says so, and packets go through it.
func TestKernelDatapath(t *testing.T) {
	n := startNode(t, nil)
	require.Equal(t, "system", column(n, "Bridge", "br-int", "datapath_type"))
	var status agent.Status
	require.NoError(t, json.Unmarshal([]byte(n.Fairlead("status", "-o", "json")), &status))
	require.Equal(t, "system", status.Settings.Datapath)
	found := examine(t, n, 0)
	for _, name := range []string{"datapath", "rate from pods (police)", "bridge"} {
		require.Equal(t, "ok", found[name].Verdict, "%s: %+v", name, found)
	}
	// Not a whole inventory, which is a hundred processes.
	held := func() string {
		return n.Run("sh", "-c", "ls /sys/class/net; ovs-vsctl list-ports br-int; ovs-dpctl show | grep 'port '; ovs-vsctl list QoS")
	}
	before := held()
	p, _ := attached(n, "p")
	q, qa := attached(n, "q")
	reaches(t, p, qa...)
	require.Contains(t, n.Run("ovs-dpctl", "show"), hostIf(p, "eth0"), "a port of the kernel's datapath")
	require.Contains(t, n.Run("ovs-dpctl", "dump-flows"), "eth_type(0x0800)", "packets went through it")
	notPastTheSwitch(t, n, p, "10.16.0.1")
	for _, pod := range []*testbed.Pod{p, q} {
		pod.CNI("CHECK", ownConf).Must()
		pod.CNI("DEL", ownConf).Must()
		pod.Delete()
	}
	eventually(t, func() string {
		if left := held(); left != before {
			return "not " + before + "but " + left
		}
		return ""
	})
}
