package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// chassisKeys is where a node's agent keeps the chassis' key and certificates.
const chassisKeys = "/var/lib/fairlead/ovn"

// startCentral starts OVN's central part, over TLS, beside a controller that signs
// certificates, central's and the chassis', and reaches no database.
func (o *ovnCluster) startCentral() {
	o.t.Helper()
	o.startSigner()
	o.runCentral()
	// Chassis are let in when all rows are there; here there are none to wait for.
	o.central.Nbctl("set", "nb_global", ".", "nb_cfg=1")
}

// startSigner starts a controller that signs certificates, and reaches no database.
func (o *ovnCluster) startSigner() {
	o.t.Helper()
	o.signer = o.site.Start("controller-ca", o.controls("unix:/nowhere", "ca", "")...)
}

// centralDir is where central has its databases.
func (o *ovnCluster) centralDir() string { return filepath.Join(o.site.Dir, "disk/central") }

// runCentral starts the program and waits until it is ready, also for restored
// databases.
func (o *ovnCluster) runCentral(restore ...string) {
	o.t.Helper()
	o.centrals++
	p := o.site.Start(fmt.Sprintf("central-%d", o.centrals), testbed.Controller(o.t), "central", "--kubeconfig", o.account(fairlead.CentralAccount),
		"--address", o.world.IP4, "--members", o.world.IP4, "--dir", o.centralDir(), "--run-dir", o.central.RunDir())
	o.central.By(p)
	o.t.Cleanup(func() {
		if p.Running() { // its databases were not lost
			p.Stop()
		}
	})
	if len(restore) > 0 {
		eventually(o.t, func() string {
			text, err := os.ReadFile(p.Log)
			if err != nil || !strings.Contains(string(text), "the cluster of OVN_Northbound has begun already") {
				return "it does not say that its databases were there before"
			}
			return ""
		})
		o.site.Fairlead(append([]string{"ovn", "restore", "--central-dir", o.centralDir()}, restore...)...)
	}
	eventually(o.t, func() string {
		if out := o.asks("10668", "/readyz"); !strings.Contains(out, " 200 OK") {
			return "central is not ready: " + out
		}
		return ""
	})
}

// asks is what is answered for a path at a port of the site; 10668 is central's.
func (o *ovnCluster) asks(port, path string) string { return served(o.site, port, path) }

// served is that at a port of any machine.
func served(n *testbed.Node, port, path string) string {
	out, err := n.Try("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port+"; printf 'GET "+path+" HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3")
	if err != nil {
		return err.Error()
	}
	return out
}

// loseDatabases ends central and removes all that it has on disk.
func (o *ovnCluster) loseDatabases() {
	o.t.Helper()
	o.central.Program().Stop()
	require.NoError(o.t, os.RemoveAll(o.centralDir()))
}

// account is a kubeconfig of a service account, with the rights that the chart gives.
func (o *ovnCluster) account(name string) string {
	return o.c.Kubeconfig(o.c.ServiceAccountConfig("kube-system", name))
}

// policies counts flows of the bridge by the priority that policies of the router
// have.
func (n *ovnNode) policies(priority string) int {
	n.o.t.Helper()
	return strings.Count(n.Run("ovs-ofctl", "-O", "OpenFlow15", "dump-flows", ovn.Bridge), "priority="+priority+",")
}

// claimsLate proves that a node's pods have their way out although the southbound
// database took a while to answer ovn-controller's claim of the node's port, and it
// had read the flows in between. The node has no pods.
func (n *ovnNode) claimsLate() {
	t := n.o.t
	t.Helper()
	const inside, wayOut = "31000", "28900"
	flows := func(what string, good func() bool) {
		t.Helper()
		eventually(t, func() string {
			if !good() {
				return n.name + ": " + what
			}
			return ""
		})
	}
	n.agent.Kill()
	n.OVS.Vsctl("--timeout=20", "del-port", "ovn0")
	flows("flows are left of a router without ports", func() bool {
		// It forgets a router only when it computes all anew.
		n.Run("sh", "-c", "ovs-appctl -t /run/ovn/ovn-controller.*.ctl inc-engine/recompute")
		return n.policies(inside) == 0
	})
	n.o.central.Pause()
	n.agent = n.Agent(n.args...)
	flows("no flows of the router", func() bool { return n.policies(inside) > 0 })
	n.o.central.Resume()
	flows("no flows of the way out, of either family", func() bool { return n.policies(wayOut) == 2 })
}
