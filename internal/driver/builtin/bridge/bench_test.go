package bridge_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// BenchmarkAddDel is what the plugin itself costs: the IPAM plugin answers at
// once.
func BenchmarkAddDel(b *testing.B) {
	n := newNode(b)
	a := attachment{pod: n.pod("c1"), conf: network("1.1.0", `"isGateway":true,"mtu":1400,`+v4+`,"routes":[{"dst":"0.0.0.0/0"}]}`)}
	call := n.call(a, n.conf(a.conf))
	call.IPAM = func(context.Context, core.Op) (json.RawMessage, error) {
		return json.RawMessage(`{"cniVersion":"1.1.0","ips":[{"address":"10.20.0.9/24","gateway":"10.20.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}`), nil
	}
	for b.Loop() {
		_, err := n.plugin.Add(b.Context(), call)
		require.NoError(b, err)
		require.NoError(b, n.plugin.Del(b.Context(), call))
	}
}
