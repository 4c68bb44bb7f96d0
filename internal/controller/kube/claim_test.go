package kube_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/controller/kube"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/testbed"
	kubebed "github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

const uplinkYAML = `
apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: up-NS}
spec: {cidrBlock: "10.31.0.0/29,fd31::/125", provider: up.NS}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: up, namespace: NS}
spec: {config: '{"cniVersion":"1.0.0","type":"macvlan","master":"eth0","ipam":{"type":"kube-ovn","provider":"up.NS"}}'}
`

// TestClaims: on a real API server an address of a Subnet that OVN does not carry has
// an AddressLease before its pod is told, two controllers give none twice, and it goes
// with the pod.
func TestClaims(t *testing.T) {
	t.Parallel()
	c := alone(t)
	kinds.Install(t, c)
	ns := c.Namespace()
	in := func(text, name string) string { return strings.NewReplacer("NS", ns, "NAME", name).Replace(text) }
	pod := strings.Replace(podYAML, "{ovn.kubernetes.io/logical_switch: NS}", "{v1.multus-cni.io/default-network: NS/up}", 1)
	c.Apply(in(uplinkYAML, ""))
	for range 2 { // neither fence stops the other: each has a database of its own
		serve(t, c, bed.NewNB(t, testbed.Bare(t)))
	}
	get := func(args ...string) string {
		return strings.TrimSpace(c.Kubectl(append([]string{"get", "--ignore-not-found"}, args...)...))
	}
	seen := map[string]string{}
	fixed := strings.Replace(pod, "default-network: NS/up", "default-network: NS/up, up.NS.kubernetes.io/mac_address: \"0a:00:00:00:00:07\"", 1)
	c.Apply(in(fixed, "p0"))
	for i := range 4 {
		c.Apply(in(pod, fmt.Sprintf("p%d", i+1)))
	}
	for i := range 5 {
		name := fmt.Sprintf("p%d", i)
		var ips string
		require.Eventually(t, func() bool {
			ips = get("pod", name, "-n", ns, "-o", `jsonpath={.metadata.annotations.up\.`+ns+`\.kubernetes\.io/ip_address}`)
			return ips != ""
		}, patience, tick, name)
		for ip := range strings.SplitSeq(ips, ",") {
			require.Empty(t, seen[ip], "%s has %s", name, ip)
			seen[ip] = name
			require.Equal(t, "Pod "+ns+" "+name+" eth0", get("addresslease", fairlead.LeaseName("up-"+ns, netip.MustParseAddr(ip)),
				"-o", "jsonpath={.spec.owner.kind} {.spec.owner.namespace} {.spec.owner.name} {.spec.owner.nic}"))
		}
	}
	require.Equal(t, "Pod p0 0a:00:00:00:00:07", get("addresslease", "up-"+ns+".fe80-0000-0000-0000-0800-00ff-fe00-0007",
		"-o", "jsonpath={.spec.owner.kind} {.spec.owner.name} {.spec.mac}"), "its MAC")
	c.Apply(in(pod, "more"))
	require.Eventually(t, func() bool {
		return strings.Contains(get("events", "-n", ns, "--field-selector", "involvedObject.name=more", "-o", "jsonpath={.items[*].message}"), "is full (IPv4: 5 in use of 5, IPv6: ")
	}, patience, tick)
	c.Kubectl("delete", "pod", "p0", "-n", ns, "--force", "--grace-period=0")
	require.Eventually(t, func() bool {
		return get("pod", "more", "-n", ns, "-o", `jsonpath={.metadata.annotations.up\.`+ns+`\.kubernetes\.io/allocated}`) == "true"
	}, patience, tick)
	c.Kubectl("delete", "pod", "--all", "-n", ns, "--force", "--grace-period=0")
	require.Eventually(t, func() bool { return !strings.Contains(get("addressleases", "-o", "name"), "up-"+ns) }, patience, tick)
	c.Delete(in(uplinkYAML, ""))
}

// BenchmarkClaim is what an address costs that has an object: it is made, and goes.
func BenchmarkClaim(b *testing.B) {
	c := kubebed.Shared(b)
	kinds.Install(b, c)
	objects, err := kube.New(c.Admin(), slog.New(slog.DiscardHandler))
	require.NoError(b, err)
	var wg sync.WaitGroup
	wg.Go(func() { objects.Run(b.Context()) })
	b.Cleanup(wg.Wait)
	world := objects.World()
	i := 0
	for b.Loop() {
		i++
		ip := netip.AddrFrom4([4]byte{10, 32, byte(i >> 8), byte(i)})
		name := fairlead.LeaseName("bench", ip)
		require.NoError(b, world.PutClaim(b.Context(), nil, &fairlead.AddressLease{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       fairlead.AddressLeaseSpec{Subnet: "bench", Address: ip.String(), Owner: fairlead.Owner{Kind: string(object.KindPod), Namespace: "ns", Name: "p"}},
		}))
		b.StopTimer()
		have, err := world.Claims.Now(b.Context(), name)
		require.NoError(b, err)
		b.StartTimer()
		require.NoError(b, world.DropClaim(b.Context(), have))
	}
	_, err = world.Claims.Gone(b.Context(), core.Pod{Namespace: "ns", Name: "none", UID: "1"})
	require.NoError(b, err)
}
