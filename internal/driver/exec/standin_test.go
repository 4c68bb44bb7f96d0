package exec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// rules are all that filter and translate, without counters.
func rules(t *testing.T, ns *netns.Handle) string {
	t.Helper()
	return inside.Run(t, ns, "nft", "--stateless", "list", "ruleset")
}

// TestRulesGoWithoutTheNamespace: what upstream's plugins make outside of a pod
// goes also when the pod's namespace went first, by the recorded result and,
// where the ADD never got so far, by the rules themselves.
func TestRulesGoWithoutTheNamespace(t *testing.T) {
	dir := drivertest.Programs(t, "main/bridge", "main/ptp", "ipam/host-local", "meta/tuning")
	for name, plugin := range map[string]string{
		"bridge":             `{"type":"bridge","bridge":"cni7","isGateway":true,"ipMasq":true,IPAM}`,
		"bridge by nftables": `{"type":"bridge","bridge":"cni7","isGateway":true,"ipMasq":true,"ipMasqBackend":"nftables",IPAM}`,
		"bridge, MAC check":  `{"type":"bridge","bridge":"cni7","macspoofchk":true,IPAM}`,
		"ptp":                `{"type":"ptp","ipMasq":true,IPAM}`,
		"ptp by nftables":    `{"type":"ptp","ipMasq":true,"ipMasqBackend":"nftables",IPAM}`,
	} {
		t.Run(name, func(t *testing.T) {
			hostNS, d := host(t)
			dataDir := t.TempDir()
			conf := strings.Replace(`{"cniVersion":"1.0.0","name":"br","plugins":[`+plugin+`]}`, "IPAM",
				`"ipam":{"type":"host-local","dataDir":"`+dataDir+`","ranges":[[{"subnet":"10.88.0.0/24"}],[{"subnet":"fd00:88::/64"}]]}`, 1)
			attach := func() (core.Spec, func()) {
				ns, id := pod(t)
				s := spec(id, call(t, conf, 0, dir))
				l, err := d.Attach(t.Context(), driver.Run{}, s)
				require.NoError(t, err)
				s.Exec.Prev = l.CNIResult
				return s, func() { netnstest.Unbind(t, id.Path); require.NoError(t, ns.Close()) }
			}
			first, _ := attach() // tables and chains for all pods stay
			require.NoError(t, d.Detach(t.Context(), driver.Run{}, first))
			before := rules(t, hostNS)
			for what, result := range map[string]bool{"by the result": true, "by the rules": false} {
				s, end := attach()
				require.NotEqual(t, before, rules(t, hostNS), what)
				end()
				if !result {
					s.Exec.Prev = nil
				}
				require.NoError(t, d.Detach(t.Context(), driver.Run{}, s), what)
				require.Equal(t, before, rules(t, hostNS), what)
				require.NoError(t, d.Detach(t.Context(), driver.Run{}, s), what)
				require.Equal(t, before, rules(t, hostNS), what)
				require.Empty(t, leasesOf(t, dataDir+"/br"))
			}
		})
	}
}

// TestChainOfAKilledADD: an ADD of both families is killed when the chain of the
// second is made and nothing leads to it yet.
func TestChainOfAKilledADD(t *testing.T) {
	dir := drivertest.Programs(t, "main/bridge", "ipam/host-local")
	for _, program := range []string{"iptables", "ip6tables"} {
		t.Run(program, func(t *testing.T) {
			hostNS, d := host(t)
			conf := `{"cniVersion":"1.0.0","name":"br","plugins":[{"type":"bridge","bridge":"cni7","isGateway":true,"ipMasq":true,
				"ipam":{"type":"host-local","dataDir":"` + t.TempDir() + `","ranges":[[{"subnet":"10.88.0.0/24"}],[{"subnet":"fd00:88::/64"}]]}}]}`
			attach := func() (core.Spec, func()) {
				ns, id := pod(t)
				s := spec(id, call(t, conf, 0, dir))
				_, err := d.Attach(t.Context(), driver.Run{}, s)
				require.NoError(t, err)
				return s, func() { netnstest.Unbind(t, id.Path); require.NoError(t, ns.Close()) }
			}
			first, end := attach()
			end()
			require.NoError(t, d.Detach(t.Context(), driver.Run{}, first))
			before := rules(t, hostNS)
			s, end := attach()
			end()
			inside.Run(t, hostNS, program, "-t", "nat", "-F", "POSTROUTING")
			chain := strings.Fields(inside.Run(t, hostNS, "sh", "-ec", program+" -t nat -S | grep '^-N CNI-'"))[1]
			inside.Run(t, hostNS, program, "-t", "nat", "-F", chain)
			require.NoError(t, d.Detach(t.Context(), driver.Run{}, s))
			require.Equal(t, before, rules(t, hostNS))
		})
	}
}

// TestHostLocalByOtherWords: a plugin that reads what stands for host-local in its own way, as
// Calico's does, is done with when its DEL is.
func TestHostLocalByOtherWords(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "wordy"), []byte(`#!/bin/sh
[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.0.0"}'
`), 0o755)) //nolint:gosec // a program
	for _, ipam := range []string{`"subnet":"usePodCidr"`, `"ranges":[[{"subnet":"usePodCidr"}]]`, `"subnet":"10.1.0.0/24","rangeStart":"10.2.0.1"`} {
		_, d := agentHost(t)
		_, id := pod(t)
		s := spec(id, call(t, `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"wordy","ipam":{"type":"host-local",`+ipam+`}}]}`, 0, dir))
		_, err := d.Attach(t.Context(), driver.Run{}, s)
		require.NoError(t, err)
		require.NoError(t, d.Detach(t.Context(), driver.Run{}, s), ipam)
	}
}

// TestTuningOfAnInterfaceThatHasGone: our own interface at the head of its chain
// waits for no plugin; tuning's file goes all the same.
func TestTuningOfAnInterfaceThatHasGone(t *testing.T) {
	dir, files := drivertest.Programs(t, "meta/tuning"), t.TempDir()
	_, d := host(t)
	ns, id := pod(t)
	s := spec(id, call(t, `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"tuning","mtu":1300,"dataDir":"`+files+`"}]}`, 0, dir))
	s.Exec.Prev = []byte(`{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"` + id.Path + `"}]}`)
	ip(t, ns, "link", "add", "net1", "type", "veth", "peer", "name", "far")
	_, err := d.Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	kept, err := os.ReadDir(files)
	require.NoError(t, err)
	require.Len(t, kept, 1)
	ip(t, ns, "link", "del", "net1")
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, s))
	kept, err = os.ReadDir(files)
	require.NoError(t, err)
	require.Empty(t, kept)
}

// TestHostDevicesLeaseGoesWithoutTheNamespace: host-device does not call its IPAM
// plugin for DEL without a namespace.
func TestHostDevicesLeaseGoesWithoutTheNamespace(t *testing.T) {
	_, d := host(t)
	dataDir := t.TempDir()
	ns, id := pod(t)
	s := spec(id, call(t, `{"cniVersion":"1.0.0","name":"br","plugins":[{"type":"host-device","device":"m1",
		"ipam":{"type":"host-local","dataDir":"`+dataDir+`","subnet":"10.88.0.0/24"}}]}`, 0,
		drivertest.Programs(t, "main/host-device", "ipam/host-local")))
	l, err := d.Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	s.Exec.Prev = l.CNIResult
	require.Len(t, leases(t, dataDir), 1)
	netnstest.Unbind(t, id.Path)
	require.NoError(t, ns.Close())
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, s))
	require.Empty(t, leases(t, dataDir))
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, s))
}
