package kube

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// StartProxy starts kube-proxy, in the mode that flags say: what the node
// itself sends to a Service goes by it. It runs in a testbed node's network, which must have a
// Link and be registered under the name, with addresses. Of flags --cluster-cidr are networks
// of pods, one of each family: who is in none of them sends to a Service's cluster IP
// under the address of the port by which it leaves the node. It ends by stop or with the
// test, and its rules stay.
func StartProxy(t testing.TB, c *Cluster, n *testbed.Node, name string, flags ...string) (stop func()) {
	t.Helper()
	bin, err := program("kube-proxy")
	require.NoError(t, err)
	user := c.With(t).Kubeconfig(c.With(t).User("system:kube-proxy"))
	p := daemon(t, n, bin, append([]string{
		bin, "--kubeconfig=" + user, "--hostname-override=" + name,
		// The kernel's table of connections is the machine's, not a namespace's.
		"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
	}, flags...)...)
	stop = sync.OnceFunc(func() {
		if err := p.ended(); err != nil {
			t.Error(err)
		}
		p.kill()
	})
	t.Cleanup(stop)
	return stop
}
