package kube_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

const groupYAML = `
apiVersion: kubeovn.io/v1
kind: SecurityGroup
metadata: {name: NS}
spec:
  tier: 2
  allowSameGroupTraffic: true
  ingressRules:
  - {ipVersion: ipv4, protocol: tcp, priority: 1, remoteType: securityGroup, remoteSecurityGroup: none-NS, portRangeMin: 80, portRangeMax: 90, policy: allow}
---
apiVersion: kubeovn.io/v1
kind: QoSPolicy
metadata: {name: NS}
spec: {bandwidthLimitRules: [{name: r, rateMax: "5"}]}
---
apiVersion: kubeovn.io/v1
kind: Vlan
metadata: {name: NS}
spec: {id: 7, provider: net}
---
apiVersion: kubeovn.io/v1
kind: Vlan
metadata: {name: zz-NS}
spec: {id: 7, provider: net}
`

// TestSecurityGroupObjects: over a real API server a pod is in its groups, a group's
// status names the port group and what cannot be carried out, and so do those of
// Vlans and QoSPolicies.
func TestSecurityGroupObjects(t *testing.T) {
	t.Parallel()
	c := alone(t)
	kinds.Install(t, c)
	ns, db := c.Namespace(), bed.NewNB(t, testbed.Bare(t))
	c.RegisterNode(ns)
	in := func(text string, more ...string) string {
		return strings.NewReplacer(append(more, "NS", ns)...).Replace(text)
	}
	c.Apply(in(subnetYAML))
	c.Apply(in(groupYAML))
	c.Apply(in(strings.Replace(podYAML, "annotations: {", "annotations: {ovn.kubernetes.io/security_groups: NS, ", 1), "NAME", "a"))
	serve(t, c, db)
	is := func(want string, args ...string) {
		t.Helper()
		var got string
		require.Eventually(t, func() bool {
			got = strings.TrimSpace(c.Kubectl(append([]string{"get", "--ignore-not-found"}, args...)...))
			return got == want
		}, patience, tick, "%v: wanted %s, have %v", args, want, lately{&got})
	}
	group := logical.SecurityGroupOf(ns)
	const because = `{.status.conditions[?(@.type=="Ready")]['status','observedGeneration','message']}|{.status.conditions[?(@.type=="NotImplemented")].message}`
	is(in("GROUP true  true|False 1 spec.ingressRules[0].remoteSecurityGroup: there is no SecurityGroup none-NS: the rule is about nobody|"+
		"spec.tier (all groups' rules are in one order)", "GROUP", group), "sg", ns, "-o",
		"jsonpath={.status.portGroup} {.status.allowSameGroupTraffic} {.status.ingressLastSyncSuccess} {.status.egressLastSyncSuccess}|"+because)
	require.Eventually(t, func() bool {
		return len(strings.Fields(db.Nbctl("--bare", "--columns=ports", "find", "Port_Group", "name="+logical.GroupIn(ns, ns)))) == 1 && // its Vpc has the same name
			len(strings.Fields(db.Nbctl("--bare", "--columns=ports", "find", "Port_Group", "name="+logical.ClosedGroup))) == 1
	}, patience, tick)
	is(status.UndoneQoSPolicy, "qos", ns, "-o", `jsonpath={.status.conditions[?(@.type=="NotImplemented")].message}`)
	is(in("true spec.id: Vlan NS has id 7 of provider network net already"), "vlan", in("zz-NS"), "-o", `jsonpath={.status.conflict} {.status.conditions[?(@.type=="Conflict")].message}`)

	c.Kubectl("delete", "sg", ns)
	is("SecurityGroupNotFound Warning", "events", "-n", ns, "--field-selector", "involvedObject.name=a", "-o", "jsonpath={range .items[*]}{.reason} {.type}{end}")
	require.Eventually(t, func() bool {
		return db.Nbctl("--bare", "--columns=name", "find", "Port_Group", "name="+group) == "" &&
			db.Nbctl("--bare", "--columns=name", "find", "Port_Group", "name="+logical.GroupIn(ns, ns)) == "" &&
			len(strings.Fields(db.Nbctl("--bare", "--columns=ports", "find", "Port_Group", "name="+logical.ClosedGroup))) == 1
	}, patience, tick)
	c.Kubectl("delete", "vlan", ns)
	is("False", "vlan", in("zz-NS"), "-o", `jsonpath={.status.conflict}{.status.conditions[?(@.type=="Conflict")].status}`)
	c.Kubectl("delete", "pod", "a", "-n", ns, "--force", "--grace-period=0")
	c.Kubectl("delete", "vlan", in("zz-NS"))
	c.Kubectl("delete", "qos", ns)
	c.Delete(in(subnetYAML))
	require.Eventually(t, func() bool { return db.Get("Logical_Switch", ns, "name") == "" }, patience, tick)
}
