package e2e

import (
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// declared runs pod data/near with the addresses that a PodNetwork declares of it by its
// name: the same on another node and, made anew, on this one. Nobody else of the Subnet,
// whatever he asks for, has them meanwhile.
func (n *ovnNode) declared(other *ovnNode, peer *ovnPod) *ovnPod {
	n.o.t.Helper()
	want := []string{"10.17.0.50", "fd00:10:17::50"}
	n.o.c.Apply(object("net.fairlead.io/v1alpha1", "PodNetwork", "data/near", nil, map[string]any{
		"interfaces": []map[string]any{{"name": "eth0", "ips": want}},
	}))
	first := other.run("data/near")
	require.Equal(n.o.t, want, first.ips)
	first.reaches(peer)
	first.end()
	thief := n.labelled("data/thief", nil, func(p *corev1.Pod) { p.Annotations = map[string]string{"ovn.kubernetes.io/ip_address": want[0]} })
	eventually(n.o.t, func() string {
		all := strings.Join(n.o.c.Lines("events", "{.involvedObject.name}: {.message}"), "\n")
		if !strings.Contains(all, "thief: ") || !strings.Contains(all, "AddressHeld") || !strings.Contains(all, "PodNetwork data/near declares it") {
			return all
		}
		return ""
	})
	thief.gone()
	again := n.run("data/near")
	require.Equal(n.o.t, want, again.ips)
	return again
}
