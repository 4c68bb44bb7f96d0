package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types020 "github.com/containernetworking/cni/pkg/types/020"
	types040 "github.com/containernetworking/cni/pkg/types/040"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// TestEveryCNIVersion: each version gets a result in its own format, read with
// upstream's types for that version, unknown keys refused.
func TestEveryCNIVersion(t *testing.T) {
	t.Parallel()
	subnet := subnetObject("dual", map[string]any{
		"default": true, "protocol": "Dual", "cidrBlock": "10.16.0.0/16,fd00:10:16::/112",
	})
	n := startNode(t, map[string]string{"subnet.yaml": subnet})
	before := n.Inventory()
	for version, read := range map[string]func(*testing.T, *testbed.Pod, []byte){
		"0.1.0": read020, "0.2.0": read020,
		"0.3.0": read040, "0.3.1": read040, "0.4.0": read040,
		"1.0.0": read100, "1.1.0": read100,
	} {
		t.Run(version, func(t *testing.T) {
			p := n.NewPod("p")
			conf := fmt.Sprintf(`{"cniVersion":%q,"name":"net","type":"fairlead"}`, version)
			answer := p.CNI("ADD", conf).Must()
			var head struct {
				CNIVersion string `json:"cniVersion"`
			}
			answer.Decode(&head)
			require.Equal(t, version, head.CNIVersion)
			read(t, p, answer.Stdout)
			p.CNI("DEL", conf).Must()
			p.Delete()
		})
	}
	n.RequireNoLeaks(before)
}

// TestConfWithoutVersion: no cniVersion means 0.1.0 (CNI spec 0.2.0).
func TestConfWithoutVersion(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	p := n.NewPod("p")
	conf := `{"name":"net","type":"fairlead"}`
	var r types020.Result
	answer := p.CNI("ADD", conf)
	exactly(t, answer.Must().Stdout, &r)
	require.Equal(t, "0.1.0", r.CNIVersion)
	p.CNI("DEL", conf).Must()
}

// TestVersion asks the plugin which versions it knows, in each of them.
func TestVersion(t *testing.T) {
	t.Parallel()
	n := testbed.Bare(t)
	p := n.NewPod("p")
	for _, version := range []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		var answer struct {
			CNIVersion        string   `json:"cniVersion"`
			SupportedVersions []string `json:"supportedVersions"`
		}
		exactly(t, p.CNI("VERSION", fmt.Sprintf(`{"cniVersion":%q}`, version)).Must().Stdout, &answer)
		require.Equal(t, version, answer.CNIVersion)
		require.Equal(t, []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}, answer.SupportedVersions)
	}
}

// TestUnknownVersion is refused with code 1, and nothing happens.
func TestUnknownVersion(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	p := n.NewPod("p")
	before := n.Inventory()
	for _, version := range []string{"0.0.9", "0.5.0", "2.0.0", "one"} {
		e := p.CNI("ADD", fmt.Sprintf(`{"cniVersion":%q,"name":"net","type":"fairlead"}`, version)).Err()
		require.NotNil(t, e)
		require.Contains(t, []uint{1, 7}, e.Code, "%s: %s", version, e.Msg)
		require.Contains(t, e.Msg, "cniVersion")
	}
	n.RequireNoLeaks(before)
}

// exactly reads JSON that may hold no other keys than v's.
func exactly(t *testing.T, raw []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(v), "%s", raw)
}

// read020: one address per family, no interfaces.
func read020(t *testing.T, p *testbed.Pod, raw []byte) {
	t.Helper()
	var r types020.Result
	exactly(t, raw, &r)
	require.Equal(t, addresses(t, p, "eth0"), []string{r.IP4.IP.String(), r.IP6.IP.String()})
	require.Equal(t, "10.16.0.1", r.IP4.Gateway.String())
	require.Equal(t, "fd00:10:16::1", r.IP6.Gateway.String())
	require.Equal(t, "0.0.0.0/0", r.IP4.Routes[0].Dst.String())
	require.Equal(t, "::/0", r.IP6.Routes[0].Dst.String())
}

// read040: interfaces, addresses with a version, routes.
func read040(t *testing.T, p *testbed.Pod, raw []byte) {
	t.Helper()
	var r types040.Result
	exactly(t, raw, &r)
	require.Len(t, r.Interfaces, 2)
	require.Equal(t, hostIf(p, "eth0"), r.Interfaces[0].Name)
	require.Equal(t, types040.Interface{Name: "eth0", Mac: linkOf(t, p, "eth0")["address"].(string), Sandbox: p.Netns()}, *r.Interfaces[1])
	var got []string
	for i, ip := range r.IPs {
		require.Equal(t, []string{"4", "6"}[i], ip.Version)
		require.Equal(t, 1, *ip.Interface)
		got = append(got, ip.Address.String())
	}
	require.Equal(t, addresses(t, p, "eth0"), got)
	requireDefaults(t, r.Routes)
}

// read100: as 0.4.0 without the addresses' version; the MTU came with 1.1.0.
func read100(t *testing.T, p *testbed.Pod, raw []byte) {
	t.Helper()
	var r types100.Result
	exactly(t, raw, &r)
	require.Len(t, r.Interfaces, 2)
	mtu := 0
	if r.CNIVersion == "1.1.0" {
		mtu = 1400
	}
	require.Equal(t, types100.Interface{
		Name: "eth0", Mac: linkOf(t, p, "eth0")["address"].(string), Sandbox: p.Netns(), Mtu: mtu,
	}, *r.Interfaces[1])
	var got []string
	for _, ip := range r.IPs {
		require.Equal(t, 1, *ip.Interface)
		got = append(got, ip.Address.String())
	}
	require.Equal(t, addresses(t, p, "eth0"), got)
	requireDefaults(t, r.Routes)
}

func requireDefaults(t *testing.T, routes []*types.Route) {
	t.Helper()
	require.Len(t, routes, 2)
	require.Equal(t, "0.0.0.0/0 10.16.0.1", routes[0].Dst.String()+" "+routes[0].GW.String())
	require.Equal(t, "::/0 fd00:10:16::1", routes[1].Dst.String()+" "+routes[1].GW.String())
}
