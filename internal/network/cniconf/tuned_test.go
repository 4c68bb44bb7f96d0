package cniconf

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestTunedMTU: where `tuning` has its MTU from, in the runtime's own list.
func TestTunedMTU(t *testing.T) {
	for raw, want := range map[string]int{
		`{"mtu":1300}`: 1300,
		`{}`:           0,
		`{"mtu":1300,"args":{"cni":{"mtu":1200}}}`: 1200,
		`{"args":{"cni":{"mtu":1200}}}`:            1200,
		`{"mtu":1300,"args":{"cni":{"mtu":0}}}`:    0,
		`{"mtu":1300,"args":{"cni":{"mac":"x"}}}`:  1300,
		`{"mtu":1300,"args":null}`:                 1300,
		`{"mtu":1300,"args":{"cni":null}}`:         1300,
	} {
		chains := []core.Chain{{Name: "other"}, {Name: "ours", Plugins: []core.Plugin{
			{Type: "tuning", Raw: []byte(`{"mtu":1}`)}, {Type: "fairlead"}, {Type: "tuning", Raw: []byte(raw)}, {Type: "portmap", Raw: []byte(`{"mtu":2}`)},
		}}}
		require.Equal(t, want, TunedMTU(chains, core.Conf{Name: "ours", Type: "fairlead"}), raw)
	}
}
