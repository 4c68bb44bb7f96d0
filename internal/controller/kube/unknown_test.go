package kube_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// TestUnknownKeysAreTold: what an object asks for by keys that nobody reads is accepted, kept and
// named, of each kind that people write; the IP object that the controller makes has nothing to
// tell.
func TestUnknownKeysAreTold(t *testing.T) {
	t.Parallel()
	c := alone(t)
	kinds.Install(t, c)
	ns, db := c.Namespace(), bed.NewNB(t, testbed.Bare(t))
	specs := map[string]string{
		"Vpc": "{Newer: 1}", "Subnet": `{cidrBlock: 10.31.0.0/24, Newer: 1, Private: true, acls: [{action: drop, match: ip, newer: 1}]}`,
		"IPPool": "{subnet: NAME, ips: [10.31.0.9], Newer: 1}", "IP": "{subnet: NAME, ipAddress: 10.31.0.7, Newer: 1}", "Vip": "{subnet: NAME, Newer: 1}",
		"Vlan": "{id: 7, provider: NAME, Newer: 1}", "ProviderNetwork": "{defaultInterface: eth1, Newer: 1}", "SecurityGroup": "{Newer: 1}",
	}
	name := "u" + ns[len(ns)-5:] // a ProviderNetwork's is short
	var all []string
	for kind, spec := range specs {
		all = append(all, strings.ReplaceAll("{apiVersion: kubeovn.io/v1, kind: "+kind+", metadata: {name: NAME}, spec: "+spec+"}", "NAME", name))
	}
	text := strings.Join(all, "\n---\n")
	t.Cleanup(func() { c.Delete(text) })
	c.Apply(text)
	serve(t, c, db)
	const unknown = " (this version does not know it)"
	for kind := range specs {
		want := "True spec.Newer" + unknown
		if kind == "Subnet" {
			want += ", spec.Private" + unknown + ", spec.acls[0].newer" + unknown
		}
		got := ""
		require.Eventually(t, func() bool {
			got = c.Kubectl("get", kind+".kubeovn.io", name, "-o", `jsonpath={.status.conditions[?(@.type=="NotImplemented")].status} {.status.conditions[?(@.type=="NotImplemented")].message}`)
			return got == want
		}, patience, tick, "%s: %s", kind, &got)
	}
	require.Equal(t, "1", c.Kubectl("get", "subnets.kubeovn.io", name, "-o", "jsonpath={.spec.Newer}"), "it is kept")
}
