package nodeagent

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

func TestReservedPorts(t *testing.T) {
	o := Defaults(agent.Build{})
	for _, port := range []int{22, 53, 2379, 2380, 6081, 6443, 6641, 10250, 10257, 10259, 10665, 30000, 32767} {
		require.True(t, o.HostPorts.Reserved.Has(port), port)
	}
	for _, port := range []int{1, 80, 443, 8080, 8443, 29999, 32768, 65535} {
		require.False(t, o.HostPorts.Reserved.Has(port), port)
		require.True(t, o.HostPorts.Allowed.Has(port), port)
	}
}

func TestPortFlags(t *testing.T) {
	var ports annotation.NodePorts
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	portFlags(f, &ports)
	require.NoError(t, f.Parse([]string{"--host-ports=1024-2047,8443", "--reserved-host-ports="}))
	require.Equal(t, annotation.NodePorts{Allowed: annotation.Ports{{First: 1024, Last: 2047}, {First: 8443, Last: 8443}}, Reserved: annotation.Ports{}}, ports)
	require.ErrorContains(t, f.Parse([]string{"--host-ports=80-"}), `"80-" is neither a port`)
}
