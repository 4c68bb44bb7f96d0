package exec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

// What sbr made went with the namespace, without which its DEL fails.
func TestDetachOfSourceRoutingWithoutNamespace(t *testing.T) {
	_, d := host(t)
	ns, id := pod(t)
	specs, _ := attachChain(t, d, id, `{"cniVersion":"1.0.0","name":"s","plugins":[{"type":"macvlan","master":"m0",
	 "ipam":{"type":"static","addresses":[{"address":"10.1.1.5/24","gateway":"10.1.1.1"}]}},{"type":"sbr"}]}`, upstreamDir(t))
	require.Contains(t, ip(t, ns, "rule"), "from 10.1.1.5 ")
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, specs[1]))
	require.NotContains(t, ip(t, ns, "rule"), "from 10.1.1.5 ")
	netnstest.Unbind(t, id.Path)
	require.NoError(t, ns.Close())
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, specs[1]))
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, specs[0]))
}
