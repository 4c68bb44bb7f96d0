package probes

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPorts: a probe's port has a number, or a name in its own container; one of another
// host, or without a port, is none of the pod's.
func TestPorts(t *testing.T) {
	t.Parallel()
	var o probed
	require.NoError(t, json.Unmarshal([]byte(`{"spec": {
		"initContainers": [{"startupProbe": {"tcpSocket": {"port": 7000}}}],
		"containers": [
			{"ports": [{"name": "web", "containerPort": 8080}], "livenessProbe": {"httpGet": {"port": "web"}}, "readinessProbe": {"httpGet": {"port": "8081"}}},
			{"ports": [{"containerPort": 9000}], "livenessProbe": {"httpGet": {"port": "web"}}, "readinessProbe": {"grpc": {"port": 9000}}, "startupProbe": {"tcpSocket": {"port": 7000}}},
			{"livenessProbe": {"httpGet": {"port": 80, "host": "192.0.2.1"}}, "readinessProbe": {"exec": {}}, "startupProbe": {"httpGet": {"port": 70000}}}
		]}}`), &o))
	require.Equal(t, []uint16{7000, 8080, 8081, 9000}, o.ports())
}
