package logical

import (
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// TestLinks: no two Subnets' links have a name, and none has a node's or a pod's.
func TestLinks(t *testing.T) {
	names := []string{"a", "b", "c", "a-b", "b-c", "a-b-c", "a-ovn", "cluster", "node", "node-x", "p.x", v1.DefaultVpc}
	switches, routers := map[string]bool{"p.x-ovn-cluster": true, "p.a-b": true}, map[string]bool{}
	for _, node := range append([]string{"x-ovn-cluster"}, names...) {
		switches[core.NodePort(node)] = true
	}
	for _, subnet := range names {
		for _, vpc := range names {
			here, there := link(subnet, vpc)
			require.False(t, switches[here], "%s of Subnet %s and Vpc %s", here, subnet, vpc)
			require.False(t, routers[there], "%s of Subnet %s and Vpc %s", there, subnet, vpc)
			switches[here], routers[there] = true, true
		}
	}
	here, there := link("web", v1.DefaultVpc)
	require.Equal(t, []string{"web-ovn-cluster", "ovn-cluster-web"}, []string{here, there}, "as the reference has them")
}
