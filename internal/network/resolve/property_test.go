package resolve

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/internal/network/resolve/element"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// TestInterfaceNames: whatever names are asked for, either there is an error
// that says which, or every network has a name, all differ, and those that
// were asked for are kept.
func TestInterfaceNames(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	pool := []string{"", "", "", "net1", "net2", "net3", "net10", "x", "eth0", "eth1"}
	for range 20_000 {
		nets := make([]network, 1+rnd.IntN(9))
		nets[0].ifName = "eth0"
		asked := map[string]int{"eth0": 1}
		for i := range nets[1:] {
			n := &nets[i+1]
			n.elem = element.Element{Field: fmt.Sprintf("f[%d]", i), IfName: pool[rnd.IntN(len(pool))]}
			if n.elem.IfName != "" {
				asked[n.elem.IfName]++
			}
		}
		clash := false
		for _, n := range asked {
			clash = clash || n > 1
		}
		err := (&resolution{}).nameInterfaces(nets, map[string]string{})
		require.Equal(t, clash, err != nil, "%v", asked)
		if err != nil {
			require.Equal(t, core.CodeConflict, core.CodeOf(err))
			continue
		}
		seen := map[string]bool{}
		for i, n := range nets {
			require.Empty(t, annotation.IfNameFault(n.ifName))
			require.False(t, seen[n.ifName], "%s twice", n.ifName)
			seen[n.ifName] = true
			if i > 0 && n.elem.IfName != "" {
				require.Equal(t, n.elem.IfName, n.ifName)
			}
		}
	}
}

func seedAnnotations(f *testing.F) {
	for _, s := range []string{
		"", "a", "a,b", "ns/a@x", ",", "@", "/", "[]", "[null]", "[{}]", "{", `"`,
		`[{"name":"second","ips":["10.20.0.9/24"],"mac":"02:00:00:00:00:01","interface":"x"}]`,
		`[{"name":"foreign","portMappings":[{"hostPort":1,"containerPort":2}],"cni-args":{"a":{}},"default-route":["10.0.0.1"]}]`,
		`[{"name":"second","bandwidth":{"ingressRate":1,"ingressBurst":1}},{"name":"second"}]`,
		`[{"name":"plain","deviceID":"x","infiniband-guid":"00:11:22:33:44:55:66:77","ipam-claim-reference":"c"}]`,
	} {
		f.Add(s)
	}
}

// FuzzNetworksAnnotation: no text panics; what is accepted names every network
// and interface validly, and what is refused has a code of ours.
func FuzzNetworksAnnotation(f *testing.F) {
	seedAnnotations(f)
	f.Fuzz(func(t *testing.T, text string) {
		w := standard()
		w.note(networks, text)
		wants, err := Resolve(t.Context(), w, Input{Request: request()})
		if err != nil {
			require.Contains(t, []uint{6, 7, 102, 103, 104, 105}, core.CodeOf(err), "%v", err)
			return
		}
		seen := map[string]bool{}
		for _, want := range wants {
			require.Empty(t, annotation.IfNameFault(want.IfName))
			require.False(t, seen[want.IfName])
			seen[want.IfName] = true
			require.NotEmpty(t, want.Network)
			for _, s := range want.Steps {
				require.True(t, (s.NIC == nil) != (s.Exec == nil))
			}
		}
		require.LessOrEqual(t, len(wants), element.MaxNetworks+1)
	})
}

// FuzzPodAnnotations: any value under any field key is either taken or refused
// with a message that names the key; Resolve and CheckAnnotations agree, and it
// is all the same whether the source or the runtime tells it.
func FuzzPodAnnotations(f *testing.F) {
	for field, value := range map[string]string{
		"ip_address": "10.16.0.9,fd00:10:16::9", "mac_address": "02:00:00:00:00:01", "cidr": "10.16.0.0/16", "gateway": "10.16.0.1",
		"logical_switch": "backend", "routes": `[{"dst":"10.0.0.0/8","gw":"10.16.0.3"}]`, "ingress_rate": "3", "egress_burst": "1",
		"latency": "1", "jitter": "1", "limit": "1", "loss": "1", "mirror": "true", "vlan_id": "7", "pod_nic_type": "veth-pair",
		"default_route": "false", "network_type": "vlan", "provider_network": "net1", "x": "\x00",
	} {
		f.Add(field, value)
	}
	f.Fuzz(func(t *testing.T, field, value string) {
		w := standard()
		key := "ovn.kubernetes.io/" + field
		w.note(key, value)
		wants, err := Resolve(t.Context(), w, Input{Request: request()})
		req := request()
		req.Pod.Name, req.Conf.Annotations = "told", w.pods["default/p"].Annotations
		told, toldErr := Resolve(t.Context(), w, Input{Request: req})
		require.Equal(t, core.CodeOf(err), core.CodeOf(toldErr))
		require.Equal(t, len(wants), len(told))
		early := CheckAnnotations("default", w.pods["default/p"].Annotations)
		if len(early) > 0 {
			require.Error(t, err, "refused early: %v", early)
		}
		if err != nil {
			require.Contains(t, err.Error(), "ovn.kubernetes.io/")
			require.Contains(t, []uint{102, 103, 105}, core.CodeOf(err), "%v", err)
			return
		}
		require.Len(t, wants, 1)
	})
}
