package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed/kube"
)

const onOVN = "--set ovn.enabled=true --set ovn.nb=tcp:10.0.0.1:6641 "

// TestInstallRefuses: values that no agent starts with, or that no policy can
// have, are refused before anything is asked of a cluster.
func TestInstallRefuses(t *testing.T) {
	for args, why := range map[string]string{
		"--set flags.no-such-flag=1":                  "the agent has no flag --no-such-flag",
		"--set flags.mtu=many":                        "takes no many",
		"--set policies.requests.actions=[Deny,Warn]": "Deny and Warn exclude each other",
		"--set policies.requests.actions=[Deny,Deny]": "Deny stands twice",
		"--set policies.requests.actions=[Refuse]":    "Refuse is none of Deny, Warn and Audit",
		"--set policies.requests.actions=[]":          "no action is given",
		"--set ovn.enabled=true":                      "ovn.central.members: with ovn.enabled they are the nodes of OVN's central part",
		"--set ovn.enabled=true --set ovn.nb=ssl:192.0.2.1:6641 --set ovn.central.members.a=192.0.2.1":       "exclude each other",
		"--set ovn.enabled=true --set ovn.central.members.a=192.0.2.1 --set ovn.central.members.b=192.0.2.2": "take one, three or five",
		"--set ovn.enabled=true --set ovn.central.members.a=somewhere":                                       "no address",
		"--set flags.no-such-flag=1 --set flags.neither=true":                                                "--neither",
		"--set policies.requests.actions=[Deny,Warn] --dry-run":                                              "exclude each other",
		onOVN + "--set ovn.podCIDR=100.64.0.0/10":                                                            "ovn.podCIDR 100.64.0.0/10 overlaps ovn.joinCIDR 100.64.0.0/16",
		onOVN + "--set ovn.podCIDR=7":                                                                        "ovn.podCIDR: 7 is not a network",
	} {
		s := say(t, "install "+args)
		require.Equal(t, exitUsage, s.code, args)
		require.Contains(t, s.err, why, args)
	}
	tell(t, "install --dry-run --set flags.mtu=1400 --set flags.socket=/run/x/agent.sock --set policies.requests.actions=[Deny,Audit]")
	tell(t, "install --dry-run --set policies.requests.enabled=false --set policies.requests.actions=[]")
}

// TestInstallBesideACluster: networks that the cluster's nodes, Services or Subnets
// have are refused by name, and nothing is applied; others are, with their Subnet.
func TestInstallBesideACluster(t *testing.T) {
	c := kube.Start(t, kube.Options{})
	c.RegisterNode("n1")
	_, err := c.TryKubectl("", "patch", "node", "n1", "--subresource=status", "--type=merge", "-p", `{"status":{"addresses":[{"type":"InternalIP","address":"10.20.0.7"}]}}`)
	require.NoError(t, err)
	services := c.Kubectl("get", "servicecidrs", "-o", "jsonpath={.items[0].spec.cidrs[0]}")
	c.Apply(`{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: old}, spec: {cidrBlock: 10.30.0.0/16}}`)
	admin := "install --kubeconfig " + c.AdminKubeconfig() + " " + onOVN
	for args, why := range map[string]string{
		"--set ovn.podCIDR=10.20.0.0/16":                  "ovn.podCIDR 10.20.0.0/16 has the address 10.20.0.7 of node n1",
		"--set ovn.podCIDR=" + services:                   "ovn.podCIDR " + services + " overlaps the API server's network of Services " + services,
		"--set ovn.joinCIDR=" + services:                  "ovn.joinCIDR " + services + " overlaps the API server's network of Services " + services,
		"--set ovn.joinCIDR=10.30.7.0/24":                 "ovn.joinCIDR 10.30.7.0/24 overlaps 10.30.0.0/16 of Subnet old",
		"--set ovn.serviceCIDR=10.99.0.0/16":              "ovn.serviceCIDR 10.99.0.0/16: the API server gives Services addresses of " + services,
		"--set ovn.joinCIDR=10.16.200.0/24":               "the built-in network of pods 10.16.0.0/16",
		"--dry-run=server --set ovn.podCIDR=10.20.0.0/16": "of node n1",
	} {
		s := say(t, admin+args)
		require.Equal(t, exitFailed, s.code, args)
		require.Contains(t, s.err, why, args)
		require.Contains(t, s.err, "nothing was applied", args)
	}
	require.Empty(t, c.Kubectl("get", "daemonsets,deployments", "-A", "-o", "name"))
	// What the controller shows of former values declares nothing.
	c.Apply(`{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: join, annotations: {fairlead.io/shown: '{"cidrBlock":"10.40.0.0/16"}'}}, spec: {cidrBlock: 10.40.0.0/16}}`)
	c.Apply(`{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: ovn-default, annotations: {fairlead.io/shown: '{"cidrBlock":"10.16.0.0/16"}'}}, spec: {cidrBlock: 10.16.0.0/16}}`)
	tell(t, admin+"--set ovn.podCIDR=10.40.0.0/16")
	require.Equal(t, "10.40.0.0/16 true", c.Kubectl("get", "subnet", "ovn-default", "-o", "jsonpath={.spec.cidrBlock} {.spec.default}"))
	tell(t, admin+"--set ovn.podCIDR=10.40.0.0/16")
	tell(t, "uninstall --kubeconfig "+c.AdminKubeconfig()+" --set ovn.podCIDR=10.40.0.0/16")
	require.Contains(t, c.Kubectl("get", "subnets", "-o", "name"), "ovn-default", "Subnets stay")
}

// TestUninstall: it takes what install made with other values, too.
func TestUninstall(t *testing.T) {
	c := kube.Start(t, kube.Options{})
	ours := func() string {
		return c.Kubectl("get", "deployments,roles,rolebindings,clusterroles,clusterrolebindings,serviceaccounts", "-A", "-o", "name")
	}
	tell(t, "install --kubeconfig "+c.AdminKubeconfig()+" --set ovn.enabled=true --set ovn.central.members.n1=10.0.0.1")
	require.Contains(t, ours(), "deployment.apps/fairlead-controller")
	require.Contains(t, ours(), "serviceaccount/fairlead-central")
	kept := map[string]string{"secret/fairlead-ca": `{"data":{"key":"a2V5"}}`, "configmap/fairlead-central": `{"data":{"OVN_Northbound":"id"}}`}
	data := func(what string) string { return c.Kubectl("get", what, "-n", "kube-system", "-o", "jsonpath={.data}") }
	for what, patch := range kept {
		c.Kubectl("patch", what, "-n", "kube-system", "-p", patch)
	}
	was := data("secret/fairlead-ca") + data("configmap/fairlead-central")
	for _, crds := range []string{"", " --crds"} {
		tell(t, "uninstall --kubeconfig "+c.AdminKubeconfig()+crds)
		require.NotContains(t, ours(), "fairlead")
		require.Equal(t, was, data("secret/fairlead-ca")+data("configmap/fairlead-central"), "the CAs and whether databases have begun stay, as with Helm")
	}
	require.NotContains(t, c.Kubectl("get", "crds", "-o", "name"), "kubeovn.io")
	tell(t, "install --kubeconfig "+c.AdminKubeconfig()+" --set ovn.enabled=true --set ovn.central.members.n1=10.0.0.1")
	require.Equal(t, was, data("secret/fairlead-ca")+data("configmap/fairlead-central"), "another installation goes on with them")
}
