package kube_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

const policyYAML = `
apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: NS}
spec: {cidrBlock: 10.31.0.0/24, vpc: NS}
---
apiVersion: kubeovn.io/v1
kind: Vpc
metadata: {name: NS}
spec: {}
---
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: NS, labels: {app: server}, annotations: {ovn.kubernetes.io/logical_switch: NS}}
spec: {nodeName: NS, containers: [{name: c, image: none, ports: [{name: web, containerPort: 8080}]}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: NS}
spec:
  podSelector: {matchLabels: {app: server}}
  egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: web}]}]
  ingress: [{ports: [{port: web}]}]
`

// TestNetworkPolicy: labels and named ports are read over a real API server, and
// what of a policy cannot be carried out is its event.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	c := alone(t)
	kinds.Install(t, c)
	ns, db := c.Namespace(), bed.NewNB(t, testbed.Bare(t))
	c.RegisterNode(ns)
	text := strings.ReplaceAll(policyYAML, "NS", ns)
	c.Apply(text)
	serve(t, c, db)
	group := logical.GroupOf(ns, "p")
	require.Eventually(t, func() bool {
		return strings.Contains(db.Nbctl("--bare", "--columns=match", "list", "ACL"), "$"+group+".in0.p0.8080.ip4 && tcp.dst == 8080") &&
			len(strings.Fields(db.Nbctl("--bare", "--columns=ports", "find", "Port_Group", "name="+group))) == 1
	}, patience, tick)
	require.Eventually(t, func() bool {
		return strings.HasPrefix(c.Kubectl("get", "events", "-n", ns, "--field-selector", "involvedObject.name=p,involvedObject.kind=NetworkPolicy",
			"-o", "jsonpath={range .items[*]}{.type} {.reason} {.message}{end}"), "Warning NetworkPolicyNotCarriedOut spec.egress[0].ports[0]: ")
	}, patience, tick)
	c.Kubectl("delete", "networkpolicy", "p", "-n", ns)
	require.Eventually(t, func() bool { return db.Nbctl("--bare", "--columns=name", "find", "Port_Group", "name="+group) == "" }, patience, tick)
	c.Kubectl("delete", "pod", "server", "-n", ns, "--force", "--grace-period=0")
	c.Delete(strings.Split(text, "---\napiVersion: v1\n")[0])
}
