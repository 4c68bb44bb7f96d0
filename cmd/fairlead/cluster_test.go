package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
)

// city is a Subnet of a cluster with a controller: addresses of pods, kept ones,
// reserved ones, and such as were left.
type city struct {
	c       *kube.Cluster
	ns, net string // net: the first three bytes of its Subnet
}

func newCity(t *testing.T, net string) *city {
	t.Helper()
	isolated(t)
	v := &city{c: kube.Shared(t), net: net}
	kinds.Install(t, v.c)
	v.ns = v.c.Namespace()
	v.apply(t, `
{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: NS}, spec: {cidrBlock: NET.0/24, gateway: NET.1, excludeIps: [NET.2..NET.4], private: true,
  allowSubnets: [10.9.0.0/16], natOutgoing: true, namespaces: [NS], acls: [{direction: to-lport, priority: 1500, match: "ip4.src == 10.9.0.1", action: drop}]}}
---
{apiVersion: kubeovn.io/v1, kind: IPPool, metadata: {name: NS}, spec: {subnet: NS, ips: [NET.128/26]}}
---
{apiVersion: v1, kind: Node, metadata: {name: NS, annotations: {ovn.kubernetes.io/ip_address: 100.64.0.9, ovn.kubernetes.io/mac_address: "0a:00:00:00:00:99"}}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: NS}, spec: {replicas: 2, selector: {matchLabels: {a: b}},
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: none}]}}}}`)
	_, err := v.c.TryKubectl("", "patch", "subnet", v.ns, "--subresource=status", "--type=merge", "-p", `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"CarriedOut"}]}}`)
	require.NoError(t, err)
	set, err := v.c.Client().AppsV1().StatefulSets(v.ns).Get(t.Context(), "db", metav1.GetOptions{})
	require.NoError(t, err)
	v.pod(t, "web", v.net+".5")
	v.ip(t, "web", v.uid(t, "web"), "", v.net+".5")
	v.pod(t, "early", v.net+".6") // its object is not there yet
	v.ip(t, "db-1", "1-2-3", "StatefulSet/db/"+string(set.UID), v.net+".130")
	v.ip(t, "db-7", "1-2-3", "StatefulSet/db/"+string(set.UID), v.net+".7")
	v.ip(t, "gone", "1-2-4", "", v.net+".8")
	v.apply(t, `{apiVersion: kubeovn.io/v1, kind: IP, metadata: {name: held.NS}, spec: {podName: held, namespace: NS, subnet: NS, v4IpAddress: NET.9}}`)
	return v
}

func (v *city) apply(t *testing.T, text string) {
	t.Helper()
	v.c.With(t).Apply(strings.NewReplacer("NS", v.ns, "NET", v.net).Replace(text))
}

// pod makes a pod that was told an address.
func (v *city) pod(t *testing.T, name, ip string) {
	t.Helper()
	v.apply(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: NS, annotations: {ovn.kubernetes.io/allocated: "true",
    ovn.kubernetes.io/ip_address: %s}}, spec: {nodeName: NS, containers: [{name: c, image: none}]}}`, name, ip))
}

func (v *city) uid(t *testing.T, pod string) string {
	t.Helper()
	p, err := v.c.Client().CoreV1().Pods(v.ns).Get(t.Context(), pod, metav1.GetOptions{})
	require.NoError(t, err)
	return string(p.UID)
}

// ip makes an IP object as the controller writes it.
func (v *city) ip(t *testing.T, pod, uid, keeper, ip string) {
	t.Helper()
	v.apply(t, fmt.Sprintf(`{apiVersion: kubeovn.io/v1, kind: IP, metadata: {name: %s.NS, labels: {ovn.kubernetes.io/ip_reserved: "false", ovn.kubernetes.io/subnet: NS},
  annotations: {fairlead.io/owner-uid: %q, fairlead.io/keeper: %q}}, spec: {podName: %s, namespace: NS, subnet: NS, nodeName: NS, ipAddress: %s, v4IpAddress: %s,
  macAddress: "0a:00:00:00:00:05"}}`, pod, uid, keeper, pod, ip, ip))
}

// lease claims an address of a Subnet that OVN does not carry, as the controller does.
func (v *city) lease(t *testing.T, pod, uid, keeper, ip string) {
	t.Helper()
	v.apply(t, fmt.Sprintf(`{apiVersion: fairlead.io/v1, kind: AddressLease, metadata: {name: NS.%s, annotations: {fairlead.io/port: %s.NS.lan.NS, fairlead.io/keeper: %q}},
  spec: {subnet: NS, address: %s, owner: {kind: Pod, namespace: NS, name: %s, uid: %q, nic: net1}}}`, ip, pod, keeper, ip, pod, uid))
}

// ask runs a command as an administrator.
func (v *city) ask(t *testing.T, args string) said {
	t.Helper()
	return say(t, args+" --kubeconfig "+v.c.AdminKubeconfig())
}

// TestMapOfASubnet: the map of a Subnet has each address once, in order, with
// who has it and why; `ip who` says the same of one.
func TestMapOfASubnet(t *testing.T) {
	v := newCity(t, "10.211.5")
	s := v.ask(t, "ip "+v.ns)
	require.Zero(t, s.code, s.err)
	want := strings.NewReplacer("NS", v.ns, "NET", v.net).Replace(`Subnet NS: NET.0/24, 6 used, 244 free, 6 for nobody

ADDRESS STATE WHO POOL NODE MAC
NET.0 network - - - -
NET.1 gateway - - - -
NET.2..NET.4 excluded - - - -
NET.5 held pod NS/web - NS 0a:00:00:00:00:05
NET.6 held pod NS/early - NS -
NET.7 left pod NS/db-7 - NS 0a:00:00:00:00:05
NET.8 left pod NS/gone - NS 0a:00:00:00:00:05
NET.9 reserved pod NS/held - - -
NET.10..NET.127 free - - - -
NET.128..NET.129 free - NS - -
NET.130 kept pod NS/db-1 of StatefulSet db NS NS 0a:00:00:00:00:05
NET.131..NET.191 free - NS - -
NET.192..NET.254 free - - - -
NET.255 network - - - -
`)
	require.Equal(t, want, squeezed(s.out))
	var m agent.AddressMap
	require.NoError(t, json.Unmarshal([]byte(v.ask(t, "ip -o json "+v.ns).out), &m))
	require.True(t, m.Counted)
	require.Len(t, m.Parts, 14)

	for ip, says := range map[string]string{
		".5": "is of pod " + v.ns + "/web", ".7": "whose pod " + v.ns + "/db-7 is gone", ".9": "is reserved in subnet " + v.ns + " for pod " + v.ns + "/held",
		".130": "is kept in subnet " + v.ns + " for the next pod " + v.ns + "/db-1 of StatefulSet db", ".1": "is the gateway", ".20": "is free",
	} {
		require.Contains(t, v.ask(t, "ip who "+v.net+ip).out, says)
	}
	s = v.ask(t, "ip no-such-subnet")
	require.Equal(t, exitNotFound, s.code)
	require.Contains(t, s.err, `no Subnet "no-such-subnet" is in force`)
	s = say(t, "ip "+v.ns+" --node-local")
	require.Equal(t, exitFailed, s.code)
	require.Contains(t, s.err, "asked of the Kubernetes API")
}

// TestLeaksOfACluster: what nobody has is found and removed, and nothing else is;
// what came back between looking and removing stays.
func TestLeaksOfACluster(t *testing.T) {
	v := newCity(t, "10.211.6")
	s := v.ask(t, "ip leaks --install-namespace "+v.ns)
	require.Equal(t, exitFailed, s.code)
	require.Contains(t, s.out, "ip gone."+v.ns+" ("+v.net+".8): there is no pod "+v.ns+"/gone\n")
	require.Contains(t, s.out, "ip db-7."+v.ns+" ("+v.net+".7): there is no pod "+v.ns+"/db-7, and StatefulSet db wants it no more\n")
	require.Contains(t, s.out, "pod "+v.ns+"/early ("+v.net+".6): it was told these addresses, and no IP object has them\n")
	for _, fine := range []string{"db-1.", "held.", "web."} {
		require.NotContains(t, s.out, fine+v.ns)
	}
	// A StatefulSet that wants its eighth replica again keeps the address.
	_, err := v.c.TryKubectl("", "scale", "statefulset", "db", "-n", v.ns, "--replicas=8")
	require.NoError(t, err)
	s = v.ask(t, "ip leaks --fix --install-namespace "+v.ns)
	require.Equal(t, exitFailed, s.code, "a pod without its object is not what --fix removes")
	require.Contains(t, s.out, "ip gone."+v.ns)
	require.NotContains(t, s.out, "db-7."+v.ns)
	left := v.c.Kubectl("get", "ips", "-l", "ovn.kubernetes.io/subnet="+v.ns, "-o", "name")
	require.NotContains(t, left, "gone."+v.ns)
	for _, stays := range []string{"web.", "db-1.", "db-7."} {
		require.Contains(t, left, stays+v.ns)
	}
	v.ip(t, "early", v.uid(t, "early"), "", v.net+".6")
	require.NotContains(t, v.ask(t, "ip leaks --install-namespace "+v.ns).out, v.ns)
}

// TestLeaksOfLeases: an AddressLease whose pod is gone, or another one by its UID, is found
// and removed; of a pod that lives, one that a StatefulSet, a virtual machine or an IP
// object keeps, and one of another owner stay.
func TestLeaksOfLeases(t *testing.T) {
	v := newCity(t, "10.211.8")
	set, err := v.c.Client().AppsV1().StatefulSets(v.ns).Get(t.Context(), "db", metav1.GetOptions{})
	require.NoError(t, err)
	sets := "StatefulSet/db/" + string(set.UID)
	v.lease(t, "web", v.uid(t, "web"), "", "10.9.1.1")
	v.lease(t, "early", "", "", "10.9.1.2") // it stays with the name
	v.lease(t, "db-1", "1-2-3", sets, "10.9.1.3")
	v.lease(t, "vm", "1-2-3", "VirtualMachine/vm/1-2-3", "10.9.1.4")
	v.lease(t, "kept", "1-2-3", "", "10.9.1.5")
	v.apply(t, `{apiVersion: kubeovn.io/v1, kind: IP, metadata: {name: kept.NS.lan.NS}, spec: {podName: kept, namespace: NS, subnet: NS, v4IpAddress: 10.9.1.5}}`)
	v.apply(t, `{apiVersion: fairlead.io/v1, kind: AddressLease, metadata: {name: NS.10.9.1.6}, spec: {subnet: NS, address: 10.9.1.6, owner: {kind: Vip, name: gone}}}`)
	v.lease(t, "gone", "1-2-4", "", "10.9.1.7")
	v.lease(t, "web", "1-2-4", "", "10.9.1.8") // of the pod before it
	v.lease(t, "db-7", "1-2-3", sets, "10.9.1.9")

	says := []string{
		"addresslease " + v.ns + ".10.9.1.7 (10.9.1.7): there is no pod " + v.ns + "/gone\n",
		"addresslease " + v.ns + ".10.9.1.8 (10.9.1.8): pod " + v.ns + "/web is another one, of UID " + v.uid(t, "web") + "\n",
		"addresslease " + v.ns + ".10.9.1.9 (10.9.1.9): there is no pod " + v.ns + "/db-7, and StatefulSet db wants it no more\n",
	}
	s := v.ask(t, "ip leaks --install-namespace "+v.ns)
	require.Equal(t, exitFailed, s.code)
	for _, line := range says {
		require.Contains(t, s.out, line+"    next: `fairlead ip leaks --fix`\n")
	}
	require.Equal(t, len(says), strings.Count(s.out, "addresslease "+v.ns))
	s = v.ask(t, "ip leaks --fix --install-namespace "+v.ns)
	for _, line := range says {
		require.Contains(t, s.out, line+"    removed\n")
	}
	left := strings.Fields(v.c.Kubectl("get", "addressleases", "-o", "name"))
	left = slices.DeleteFunc(left, func(name string) bool { return !strings.Contains(name, "/"+v.ns+".") })
	require.Len(t, left, 6)
	for i := range left {
		require.Equal(t, fmt.Sprintf("addresslease.fairlead.io/%s.10.9.1.%d", v.ns, i+1), left[i])
	}
}

// TestDescribeOfACluster: a Subnet and a node in full.
func TestDescribeOfACluster(t *testing.T) {
	v := newCity(t, "10.211.7")
	s := v.ask(t, "describe subnet "+v.ns)
	require.Zero(t, s.code, s.err)
	for _, line := range []string{
		"Vpc: ovn-cluster", "Namespaces: " + v.ns, "Pools: " + v.ns, "Of these: 2 held, 1 kept, 2 left, 1 reserved", "Private: yes", "Let in: 10.9.0.0/16",
		"ACL: 1500 to-lport drop: ip4.src == 10.9.0.1", "Gateway: distributed", "NAT: yes",
	} {
		require.Contains(t, "\n"+squeezed(s.out), "\n"+line+"\n")
	}
	s = v.ask(t, "describe node "+v.ns+" --ovsdb unix:/nonexistent")
	require.Zero(t, s.code, s.err)
	require.Contains(t, squeezed(s.out), "On ovn0: 100.64.0.9 0a:00:00:00:00:99\n")
	require.Contains(t, squeezed(s.out), v.ns+"/early pending "+v.net+".6\n")
	require.Contains(t, s.err, "note: the southbound database is not asked about the chassis: ")
	require.Equal(t, exitNotFound, v.ask(t, "describe node nobody").code)
	require.Equal(t, exitNotFound, v.ask(t, "describe subnet nobody").code)

	// How a pod leaves, as far as the API tells.
	v.c.Kubectl("annotate", "pod", "-n", v.ns, "web", `k8s.v1.cni.cncf.io/network-status=[{"name":"fairlead","interface":"eth0","ips":["`+v.net+`.5"],"default":true}]`)
	s = v.ask(t, "explain "+v.ns+"/web")
	require.Zero(t, s.code, s.err)
	require.Contains(t, s.out, "- Subnet "+v.ns+" is distributed: it leaves by the pod's own node")
	require.Contains(t, s.out, "- natOutgoing is on: the world sees an address of that node")
	v.c.Kubectl("patch", "subnet", v.ns, "--type=merge", "-p", `{"spec":{"gatewayType":"centralized","gatewayNode":"`+v.ns+`","natOutgoing":false}}`)
	s = v.ask(t, "explain "+v.ns+"/web")
	require.Contains(t, squeezed(s.out), "Leaves by: "+v.ns+"\nSeen as: "+v.net+".5\n")
	require.Contains(t, s.out, `- Subnet `+v.ns+` is centralized (gatewayNode "`+v.ns+`"): OVN leads the packet by a tunnel to `+v.ns)
	require.Equal(t, exitNotFound, v.ask(t, "explain "+v.ns+"/nobody").code)
}
