package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// TestInstallRefuses: values that no agent starts with, or that no policy can
// have, are refused before anything is asked of a cluster.
func TestInstallRefuses(t *testing.T) {
	for args, why := range map[string]string{
		"--set flags.no-such-flag=1":                            "the agent has no flag --no-such-flag",
		"--set flags.mtu=many":                                  "takes no many",
		"--set policies.requests.actions=[Deny,Warn]":           "Deny and Warn exclude each other",
		"--set policies.requests.actions=[Deny,Deny]":           "Deny stands twice",
		"--set policies.requests.actions=[Refuse]":              "Refuse is none of Deny, Warn and Audit",
		"--set policies.requests.actions=[]":                    "no action is given",
		"--set ovn.enabled=true":                                "ovn.nb: with ovn.enabled it names the northbound database",
		"--set flags.no-such-flag=1 --set flags.neither=true":   "--neither",
		"--set policies.requests.actions=[Deny,Warn] --dry-run": "exclude each other",
	} {
		s := say(t, "install "+args)
		require.Equal(t, exitUsage, s.code, args)
		require.Contains(t, s.err, why, args)
	}
	tell(t, "install --dry-run --set flags.mtu=1400 --set flags.socket=/run/x/agent.sock --set policies.requests.actions=[Deny,Audit]")
	tell(t, "install --dry-run --set policies.requests.enabled=false --set policies.requests.actions=[]")
}

// TestUninstall: it takes what install made with other values, too.
func TestUninstall(t *testing.T) {
	c := kube.Start(t, kube.Options{})
	ours := func() string {
		return c.Kubectl("get", "deployments,roles,rolebindings,clusterroles,clusterrolebindings,serviceaccounts", "-A", "-o", "name")
	}
	tell(t, "install --kubeconfig "+c.AdminKubeconfig()+" --set ovn.enabled=true --set ovn.nb=tcp:10.0.0.1:6641")
	require.Contains(t, ours(), "deployment.apps/fairlead-controller")
	tell(t, "uninstall --kubeconfig "+c.AdminKubeconfig())
	require.NotContains(t, ours(), "fairlead")
}
