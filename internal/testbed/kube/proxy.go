package kube

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// StartProxy starts kube-proxy, by nftables: what the node itself sends to a
// Service goes by it. It runs in a testbed node's network, which must have a
// Link and be registered under the name, with addresses. pods is a network of
// pods, one of each family: who is in none of them sends to a Service's cluster IP
// under the address of the port by which it leaves the node. It ends with the test.
func StartProxy(t testing.TB, c *Cluster, n *testbed.Node, name, pods string) {
	t.Helper()
	bin, err := program("kube-proxy")
	require.NoError(t, err)
	user := c.With(t).Kubeconfig(c.With(t).User("system:kube-proxy"))
	p := daemon(t, n, bin, bin, "--kubeconfig="+user, "--hostname-override="+name, "--proxy-mode=nftables", "--cluster-cidr="+pods,
		// The kernel's table of connections is the machine's, not a namespace's.
		"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0")
	t.Cleanup(func() {
		if err := p.ended(); err != nil {
			t.Error(err)
		}
		p.kill()
	})
}
