package local_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/folder"
	"github.com/fairlead/fairlead/internal/source/local"
)

func machine(t *testing.T, text string) *local.Machine {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600))
	m, err := local.OpenMachine(dir, "n1", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return m
}

// TestOnlyWithOVN: what only OVN carries out is taken where it is there, and refused
// elsewhere.
func TestOnlyWithOVN(t *testing.T) {
	t.Parallel()
	const text = `
{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: s}, spec: {cidrBlock: 10.1.0.0/16, private: true, vpc: red}}
---
{apiVersion: kubeovn.io/v1, kind: Vpc, metadata: {name: red}}
---
{apiVersion: kubeovn.io/v1, kind: IPPool, metadata: {name: p}, spec: {subnet: s, ips: [10.1.0.9]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: np}, spec: {podSelector: {}}}
`
	m := machine(t, text)
	require.Empty(t, m.Problems())
	for _, i := range []folder.ID{{Kind: folder.Subnet, Name: "s"}, {Kind: folder.Vpc, Name: "red"}, {Kind: folder.IPPool, Name: "p"}, {Kind: folder.NetworkPolicy, Namespace: "default", Name: "np"}} {
		require.True(t, m.Declares(i), i)
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600))
	s, err := local.Open(dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Len(t, s.Problems(), 5, "private, vpc, and three kinds")
}

// TestRefusedServices: what kube-proxy or an API server does in a cluster, nobody
// does here, and it is said so.
func TestRefusedServices(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"clusterIP: 10.96.0.1, ports: [{port: 80}]": "",
		"clusterIP: None":                     "",
		"type: ExternalName, externalName: x": "",
		"clusterIPs: [10.96.0.1, 'fd00::1'], ports: [{port: 80, name: a}, {port: 81, name: b}]": "",
		"ports: [{port: 80}]":               "spec.clusterIP is missing",
		"clusterIP: x, ports: [{port: 80}]": "is no address",
		"clusterIP: 10.96.0.1, clusterIPs: [10.96.0.2], ports: [{port: 80}]": "is not the first one",
		"clusterIP: 10.96.0.1":                                                      "spec.ports is missing",
		"clusterIP: 10.96.0.1, ports: [{port: 80}, {port: 81}]":                     "each has a name of its own",
		"clusterIP: 10.96.0.1, ports: [{port: 70000}]":                              "is not from 1 to 65535",
		"clusterIP: 10.96.0.1, ports: [{port: 80, protocol: ICMP}]":                 "none of TCP, UDP, SCTP",
		"clusterIP: 10.96.0.1, ports: [{port: 80}], type: NodePort":                 "NodePort needs kube-proxy",
		"clusterIP: 10.96.0.1, ports: [{port: 80}], externalIPs: [192.0.2.1]":       "spec.externalIPs: needs kube-proxy",
		"clusterIP: 10.96.0.1, ports: [{port: 80}], publishNotReadyAddresses: true": "means nothing here",
		"clusterIP: 10.96.0.1, ports: [{port: 80}], nonsense: 1":                    "unknown field",
	} {
		m := machine(t, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {%s}}", spec))
		if want == "" {
			require.Empty(t, m.Problems(), spec)
			continue
		}
		require.NotEmpty(t, m.Problems(), spec)
		require.Contains(t, m.Problems()[0].Reason, want, spec)
	}
}

// TestRecall: a pod that was attached before the process began has the addresses
// that its record has, and waits for what the controller adds.
func TestRecall(t *testing.T) {
	t.Parallel()
	m := machine(t, "")
	pod := core.Pod{Namespace: "ns", Name: "p", UID: "u"}
	nic := &core.NICSpec{Subnet: "net", IfaceID: "p.ns.net.ns.ovn", OVS: &core.OVSPort{}}
	m.Recall(core.Request{Key: core.Key{Container: "c"}, Pod: pod, Conf: core.Conf{Annotations: map[string]string{"k": "v"}}}, []core.Spec{{NIC: nic}})
	found, err := m.Pod(t.Context(), pod)
	require.NoError(t, err)
	require.Equal(t, "v", found.Annotations["k"])
	require.Equal(t, "net", found.Annotations["net.ns.ovn.kubernetes.io/logical_switch"])
	require.Equal(t, "true", found.Annotations["net.ns.ovn.kubernetes.io/allocated"])
	done := make(chan error, 1)
	go func() { done <- m.Differs(t.Context(), pod, found.Annotations) }()
	require.NoError(t, m.Annotate(pod, map[string]string{"new": "1"}))
	require.NoError(t, <-done)
	m.Leave("c", pod)
	require.ErrorIs(t, m.Differs(t.Context(), pod, nil), core.ErrNotFound)
}
