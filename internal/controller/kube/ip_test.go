package kube_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

const setYAML = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: NS}
spec:
  replicas: COUNT
  serviceName: db
  ordinals: {start: 3}
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: none}]}}
`

const replicaYAML = `
apiVersion: v1
kind: Pod
metadata:
  name: db-3
  namespace: NS
  annotations: {ovn.kubernetes.io/logical_switch: NS}
  ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: db, uid: UID, controller: true}]
spec: {nodeName: NS, containers: [{name: c, image: none}]}
`

// lately prints what a text is when it is printed.
type lately struct{ text *string }

func (l lately) String() string { return *l.text }

// TestIPObjects: a real API server has an IP object for each address: of a replica
// while its StatefulSet wants one, and of a user who reserves.
func TestIPObjects(t *testing.T) {
	t.Parallel()
	c := alone(t)
	kinds.Install(t, c)
	ns, db := c.Namespace(), bed.NewNB(t, testbed.Bare(t))
	c.RegisterNode(ns)
	in := func(text string, more ...string) string {
		return strings.NewReplacer(append(more, "NS", ns)...).Replace(text)
	}
	c.Apply(in(subnetYAML))
	set := c.Apply(in(setYAML, "COUNT", "1"))[0]
	first := c.Apply(in(replicaYAML, "UID", string(set.GetUID())))[0]
	serve(t, c, db)
	is := func(want string, args ...string) {
		t.Helper()
		var got string
		require.Eventually(t, func() bool {
			got = strings.TrimSpace(c.Kubectl(append([]string{"get", "--ignore-not-found"}, args...)...))
			return got == want
		}, patience, tick, "%v: wanted %s, have %v", args, want, lately{&got})
	}
	spec := "jsonpath={.spec.podName} {.spec.namespace} {.spec.subnet} {.spec.nodeName} {.spec.v4IpAddress} {.spec.v6IpAddress} {.spec.podType}"
	is(in("db-3 NS NS NS 10.30.0.2 fd30::2 StatefulSet"), "ip", "db-3."+ns, "-o", spec)
	is(in("true NS"), "ip", "-l", "ovn.kubernetes.io/subnet="+ns+",ovn.kubernetes.io/node-name="+ns, "-o",
		`jsonpath={range .items[?(@.metadata.name=="db-3.`+ns+`")]}true {.metadata.labels.ovn\.kubernetes\.io/subnet}{end}`)

	// The replica goes and comes; whoever comes meanwhile gets another address.
	c.Kubectl("delete", "pod", "db-3", "-n", ns, "--force", "--grace-period=0")
	c.Apply(in(podYAML, "NAME", "b"))
	note := `jsonpath={.metadata.annotations.ovn\.kubernetes\.io/ip_address}`
	is("10.30.0.3,fd30::3", "pod", "b", "-n", ns, "-o", note)
	again := c.Apply(in(replicaYAML, "UID", string(set.GetUID())))[0]
	require.NotEqual(t, first.GetUID(), again.GetUID())
	is("10.30.0.2,fd30::2", "pod", "db-3", "-n", ns, "-o", note)
	is(string(again.GetUID()), "ip", "db-3."+ns, "-o", `jsonpath={.metadata.annotations.fairlead\.io/owner-uid}`)

	// Scaled down, its address is free, and its object gone.
	c.Kubectl("delete", "pod", "db-3", "-n", ns, "--force", "--grace-period=0")
	c.Apply(in(setYAML, "COUNT", "0"))
	is("", "ip", "db-3."+ns)
	is("1", "subnet", ns, "-o", "jsonpath={.status.v4usingIPs}")

	// A user reserves it for a pod to come: an address is chosen for the other family.
	c.Apply(in("apiVersion: kubeovn.io/v1\nkind: IP\nmetadata: {name: c.NS}\nspec: {podName: c, namespace: NS, subnet: NS, v4IpAddress: 10.30.0.2, attachIps: [192.0.2.9]}\n"))
	is("true 10.30.0.2,fd30::4", "ip", "c."+ns, "-o", `jsonpath={.metadata.labels.ovn\.kubernetes\.io/ip_reserved} {.spec.ipAddress}`)
	c.Apply(in(podYAML, "NAME", "d"))
	is("AcquireAddressFailed", "events", "-n", ns, "--field-selector", "involvedObject.name=d", "-o", "jsonpath={.items[*].reason}")
	c.Apply(in(podYAML, "NAME", "c"))
	is("10.30.0.2,fd30::4", "pod", "c", "-n", ns, "-o", note)
	is(`c True spec.attachIps ["192.0.2.9"]`, "ip", "c."+ns, "-o", `jsonpath={.spec.podName} {.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="NotImplemented")].message} {.spec.attachIps}`)
	for _, name := range []string{"b", "c", "d"} {
		c.Kubectl("delete", "pod", name, "-n", ns, "--force", "--grace-period=0")
	}
	is("1", "subnet", ns, "-o", "jsonpath={.status.v4usingIPs}")
	c.Kubectl("delete", "ip", "c."+ns)
	is("0", "subnet", ns, "-o", "jsonpath={.status.v4usingIPs}")
	is("", "ip", "-l", "ovn.kubernetes.io/subnet="+ns, "-o", "name")

	// A part of the Subnet is for those who name it.
	c.Apply(in("apiVersion: kubeovn.io/v1\nkind: IPPool\nmetadata: {name: NS}\nspec: {subnet: NS, ips: [10.30.0.3..10.30.0.4, 'fd30::5']}\n"))
	is("1 10.30.0.3 1 0 True", "ippool", ns, "-o",
		`jsonpath={.status.v4AvailableIPs} {.status.v4AvailableIPRange} {.status.v6AvailableIPs} {.status.v4UsingIPs} {.status.conditions[?(@.type=="Ready")].status}`)
	c.Apply(in(strings.Replace(podYAML, "annotations: {", "annotations: {ovn.kubernetes.io/ip_pool: NS, ", 1), "NAME", "e"))
	is("10.30.0.3,fd30::5", "pod", "e", "-n", ns, "-o", note)
	is("0  0 1", "ippool", ns, "-o", `jsonpath={.status.v4AvailableIPs} {.status.v4AvailableIPRange} {.status.v6AvailableIPs} {.status.v4UsingIPs}`)
	c.Kubectl("delete", "pod", "e", "-n", ns, "--force", "--grace-period=0")
	is("1 0", "ippool", ns, "-o", `jsonpath={.status.v4AvailableIPs} {.status.v4UsingIPs}`)
	c.Kubectl("delete", "ippool", ns)
	c.Delete(in(setYAML, "COUNT", "0"))
	c.Delete(in(subnetYAML))
	require.Eventually(t, func() bool { return db.Get("Logical_Switch", ns, "name") == "" }, patience, tick)
}
