//go:build vm

package standalone_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

// TestKernelRatesOfANode: ingress_rate bounds what a node's gateway sends to pods, and
// egress_rate what pods send by it, each within 10 %.
func TestKernelRatesOfANode(t *testing.T) {
	b := newBed(t)
	j := joined()
	j.QoS = core.QoS{IngressMbps: 1, IngressBurstMbit: 1, EgressMbps: 1, EgressBurstMbit: 1}
	require.NoError(t, b.gw.Set(t.Context(), standalone.Wanted{Join: standalone.Behind("n1", j, nil, nil)}))
	s := subnet()
	s.Gateways = j.Gateways
	pod := b.pod("p", s, "100.64.0.9/16", "fd00:100:64::9/112")
	b.reaches(pod, "100.64.0.7")
	ovstest.RequireRate(t, b.sw.NS, pod, "100.64.0.9:7000", 1)
	ovstest.RequireRate(t, pod, b.sw.NS, "100.64.0.7:7000", 1)
}
