package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// kubeOVNRequest is what Kube-OVN's plugin posts for a pod.
func kubeOVNRequest(p *testbed.Pod, more map[string]any) map[string]any {
	req := map[string]any{
		"cni_type": "kube-ovn", "pod_name": p.Name, "pod_namespace": p.Namespace,
		"container_id": p.ContainerID, "net_ns": p.Netns(), "if_name": "eth0", "provider": "ovn",
	}
	maps.Copy(req, more)
	return req
}

func addKubeOVN(t *testing.T, n *testbed.Node, req map[string]any) cni.KubeOVNResponse {
	t.Helper()
	status, body := post(t, n, cni.PathKubeOVNAdd, req)
	require.Equal(t, http.StatusOK, status, "%s", body)
	var answer cni.KubeOVNResponse
	strictly(t, body, &answer)
	return answer
}

// TestKubeOVNProviders: Multus calls Kube-OVN's plugin once per network of the
// pod; each call is for one NIC, whatever the networks annotation says.
func TestKubeOVNProviders(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{"all.yaml": together(ownNetwork("storage", "10.20.0.0/24,fd00:20::/112"),
		podObject("p", map[string]string{
			networksKey: "storage,storage",
			"storage.default.ovn.kubernetes.io/mac_address":      "02:00:00:00:00:31",
			"storage.default.ovn.net2.kubernetes.io/ip_address":  "10.20.0.32",
			"storage.default.ovn.net2.kubernetes.io/mac_address": "02:00:00:00:00:32",
		}))}, "--compat-socket", kubeOVNSocket)
	p := n.NewPod("p")
	before := n.Inventory()
	eth0 := kubeOVNRequest(p, map[string]any{"dns": map[string]any{"nameservers": []string{"10.96.0.10"}}})
	net1 := kubeOVNRequest(p, map[string]any{"if_name": "net1", "provider": "storage.default.ovn",
		"routes": []map[string]string{{"dst": "172.30.0.0/16", "gw": "10.20.0.9"}}})
	net2 := kubeOVNRequest(p, map[string]any{"if_name": "net2", "provider": "storage.default.ovn"})

	first := addKubeOVN(t, n, eth0)
	require.Equal(t, []string{"10.96.0.10"}, first.DNS.Nameservers)
	require.Equal(t, "eth0", first.PodNicName)
	require.Equal(t, []string{"eth0", "lo"}, linkNames(t, p), "only the NIC that was asked for")

	second := addKubeOVN(t, n, net1)
	require.Equal(t, "net1", second.PodNicName)
	require.Equal(t, "02:00:00:00:00:31", second.MacAddress)
	require.Len(t, second.IPs, 2)
	require.Equal(t, []string{"IPv4", "IPv6"}, []string{second.IPs[0].Protocol, second.IPs[1].Protocol})
	require.Equal(t, "10.20.0.0/24", second.IPs[0].CIDR)
	require.Empty(t, second.IPs[0].Gateway, "not the default route's NIC")
	require.Equal(t, []cni.KubeOVNRoute{{Destination: "172.30.0.0/16", Gateway: "10.20.0.9"}}, second.Routes)
	require.Contains(t, p.Run("ip", "route", "show", "172.30.0.0/16"), "via 10.20.0.9 dev net1")

	third := addKubeOVN(t, n, net2)
	require.Equal(t, "10.20.0.32", third.IPs[0].IP)
	require.Equal(t, "02:00:00:00:00:32", third.MacAddress)
	require.Equal(t, []string{"default via 10.16.0.1 dev eth0"}, trimProto(defaultRoutes(p, "-4")))
	require.Equal(t, []string{"eth0", "lo", "net1", "net2"}, linkNames(t, p))

	status, body := post(t, n, cni.PathKubeOVNAdd, net1)
	require.Equal(t, http.StatusInternalServerError, status, "a duplicate: %s", body)

	for _, req := range []map[string]any{net2, net1, eth0} {
		status, body := post(t, n, cni.PathKubeOVNDel, req)
		require.Equal(t, http.StatusNoContent, status, "%s", body)
	}
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	n.RequireNoLeaks(before)
}

// TestKubeOVNProviderWithInterface: the same NAD twice may be told apart in the
// provider itself; the suffix is not part of the Subnet's (sdn.md, section 2).
func TestKubeOVNProviderWithInterface(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{"all.yaml": ownNetwork("storage", "10.20.0.0/24")}, "--compat-socket", kubeOVNSocket)
	p := n.NewPod("p")
	before := n.Inventory()
	req := kubeOVNRequest(p, map[string]any{"if_name": "net1", "provider": "storage.default.ovn.net1"})
	require.Equal(t, "10.20.0.0/24", addKubeOVN(t, n, req).IPs[0].CIDR)
	status, _ := post(t, n, cni.PathKubeOVNDel, req)
	require.Equal(t, http.StatusNoContent, status)
	n.RequireNoLeaks(before)
}

// TestKubeOVNDelWithoutNetns removes what the reference leaves behind: there a
// del with an empty net_ns does nothing.
func TestKubeOVNDelWithoutNetns(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil, "--compat-socket", kubeOVNSocket)
	before := n.Inventory()
	p := n.NewPod("p")
	addKubeOVN(t, n, kubeOVNRequest(p, nil))
	p.Delete()
	status, body := post(t, n, cni.PathKubeOVNDel, kubeOVNRequest(p, map[string]any{"net_ns": ""}))
	require.Equal(t, http.StatusNoContent, status, "%s", body)
	n.RequireNoLeaks(before)
}

// TestKubeOVNShortID: ids below 12 characters are taken whole, also as names of
// ports; the reference panics.
func TestKubeOVNShortID(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil, "--compat-socket", kubeOVNSocket)
	p := n.NewPod("p")
	before := n.Inventory()
	req := kubeOVNRequest(p, map[string]any{"container_id": "abc"})
	answer := addKubeOVN(t, n, req)
	require.Equal(t, answer.IPs[0].IP, column(n, "Interface", "abc_h", "external_ids:ip"))
	raw, err := json.Marshal(answer)
	require.NoError(t, err)
	require.Contains(t, string(raw), `"nicname":"eth0"`)
	status, _ := post(t, n, cni.PathKubeOVNDel, req)
	require.Equal(t, http.StatusNoContent, status)
	n.RequireNoLeaks(before)
}
