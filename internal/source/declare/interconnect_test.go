package declare_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/source/declare"
)

// TestReadInterconnect: what is wrong with the interconnection is named by its key.
func TestReadInterconnect(t *testing.T) {
	good := map[string]string{"enable-ic": "true", "az-name": "az1", "ic-db-host": "192.0.2.1, 2001:db8::1", "gw-nodes": "n2, n1,n2", "auto-route": "true", "ic-nb-port": "7645"}
	i, faults := declare.ReadInterconnect(good)
	require.Empty(t, faults)
	require.Equal(t, &declare.Interconnect{
		Zone: "az1", NB: "tcp:192.0.2.1:7645,tcp:[2001:db8::1]:7645", SB: "tcp:192.0.2.1:6646,tcp:[2001:db8::1]:6646", Nodes: []string{"n2", "n1"}, Routes: true,
	}, i)
	require.True(t, i.IsGateway("n1", nil))
	require.True(t, i.IsGateway("n9", map[string]string{"ovn.kubernetes.io/ic-gw": "true"}))
	require.False(t, i.IsGateway("n9", map[string]string{"ovn.kubernetes.io/ic-gw": "false"}))
	for key, bad := range map[string][]string{
		"enable-ic": {"yes"}, "az-name": {"", "a b", `a"`, "-a"}, "ic-db-host": {"", "db.example", "ssl:192.0.2.1", "192.0.2.1:6645"},
		"gw-nodes": {"n1,-"}, "auto-route": {"maybe"}, "ic-nb-port": {"0", "x", "65536"}, "ic-sb-port": {"-1"},
	} {
		for _, value := range bad {
			data := maps.Clone(good)
			data[key] = value
			_, faults := declare.ReadInterconnect(data)
			require.True(t, slices.ContainsFunc(faults, func(f declare.Fault) bool { return f.Path == "data."+key }), "%s: %q: %v", key, value, faults)
		}
	}
	for _, off := range []string{"", "false"} {
		i, faults = declare.ReadInterconnect(map[string]string{"enable-ic": off, "auto-route": "x"})
		require.Nil(t, i)
		require.Empty(t, faults)
	}
}
