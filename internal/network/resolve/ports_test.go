package resolve

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

func TestPortLists(t *testing.T) {
	for text, want := range map[string]string{"": "", "22": "22", " 22, 30000-32767 ": "22,30000-32767", "5-5,1-65535": "5,1-65535"} {
		p, err := annotation.ParsePorts(text)
		require.NoError(t, err, text)
		require.NotNil(t, p)
		require.Equal(t, want, p.String())
	}
	for _, text := range []string{"0", "65536", "9-8", "ssh", "1-", "-1", "1-2-3", "22;23"} {
		_, err := annotation.ParsePorts(text)
		require.ErrorContains(t, err, "is neither a port", text)
	}
}

// TestNodePorts: which ports of the node an annotation may ask for, of our own
// NIC and of a foreign plugin, as default network and beside it. The runtime's
// are Kubernetes' own, and are not bound.
func TestNodePorts(t *testing.T) {
	allowed, err := annotation.ParsePorts("1024-65535")
	require.NoError(t, err)
	reserved, err := annotation.ParsePorts("6443,30000-32767")
	require.NoError(t, err)
	w := standard()
	const caps = `"capabilities":{"portMappings":true}`
	w.nad("default/second", `{"cniVersion":"1.0.0","type":"kube-ovn","provider":"second.default.ovn",`+caps+`}`)
	w.nad("kube-system/main", `{"cniVersion":"1.0.0","plugins":[{"type":"bridge"},{"type":"portmap",`+caps+`}]}`)
	ask := func(op core.Op, key, network, port string) error {
		clear(w.pods["default/p"].Annotations)
		w.note(key, `[{"name":"`+network+`","portMappings":[{"hostPort":8080,"containerPort":1},{"hostPort":`+port+`,"containerPort":22}]}]`)
		req := request()
		req.Op = op
		_, err := Resolve(t.Context(), w, Input{Request: req, NodePorts: NodePorts{Allowed: allowed, Reserved: reserved}})
		return err
	}
	for _, at := range []struct{ key, network string }{{networks, "second"}, {networks, "foreign"}, {"v1.multus-cni.io/default-network", "main"}} {
		for port, why := range map[string]string{
			"8443": "", "29999": "", "1024": "",
			"22":    `[0].portMappings[1].hostPort: "22" is not among the ports of this node that pods may ask for (--host-ports 1024-65535)`,
			"6443":  `"6443" is reserved on this node (--reserved-host-ports 6443,30000-32767)`,
			"32767": `"32767" is reserved on this node`,
		} {
			err := ask(core.Add, at.key, at.network, port)
			if why == "" {
				require.NoError(t, err)
				continue
			}
			require.Equal(t, core.CodeDenied, core.CodeOf(err))
			require.ErrorContains(t, err, "annotation "+at.key)
			require.ErrorContains(t, err, why)
			require.ErrorContains(t, err, "ask for another port")
			require.NoError(t, ask(core.Del, at.key, at.network, port), "what was given is given back")
		}
	}
	req := request()
	req.Conf.Capabilities = map[string]bool{"portMappings": true}
	req.Conf.RuntimeConfig = map[string]json.RawMessage{"portMappings": json.RawMessage(`[{"hostPort":22,"containerPort":22}]`)}
	clear(w.pods["default/p"].Annotations)
	wants, err := Resolve(t.Context(), w, Input{Request: req, NodePorts: NodePorts{Allowed: allowed, Reserved: reserved}})
	require.NoError(t, err)
	require.Equal(t, uint16(22), wants[0].Steps[0].NIC.Ports[0].HostPort)
	require.NoError(t, ask(core.Add, networks, "second", "8443"))
	_, err = Resolve(t.Context(), w, Input{Request: request(), NodePorts: NodePorts{Allowed: annotation.Ports{}}})
	require.ErrorContains(t, err, "is not among", "an empty list allows none")
}

// TestThousandsOfPorts: they are refused before each is compared with all others.
func TestThousandsOfPorts(t *testing.T) {
	req := request()
	req.Conf.Capabilities = map[string]bool{"portMappings": true}
	ask := func(count int) error {
		var list []map[string]int
		for i := range count {
			list = append(list, map[string]int{"hostPort": 1 + i, "containerPort": 80})
		}
		raw, err := json.Marshal(list)
		require.NoError(t, err)
		req.Conf.RuntimeConfig = map[string]json.RawMessage{"portMappings": raw}
		_, err = Resolve(t.Context(), standard(), Input{Request: req})
		return err
	}
	require.NoError(t, ask(1024))
	err := ask(12000)
	require.Equal(t, core.CodeValue, core.CodeOf(err))
	require.ErrorContains(t, err, "runtimeConfig.portMappings")
	require.ErrorContains(t, err, "more than 1024")
}
