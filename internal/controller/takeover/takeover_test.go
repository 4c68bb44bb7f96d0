package takeover_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/controller/takeover"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
	kubebed "github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
)

func TestMain(m *testing.M) { os.Exit(kubebed.Main(m)) }

// TestPlan: of a cluster as Kube-OVN's installation and its users leave it.
func TestPlan(t *testing.T) {
	t.Parallel()
	c := kubebed.Start(t, kubebed.Options{})
	kinds.Install(t, c)
	text, err := os.ReadFile("testdata/cluster.yaml")
	require.NoError(t, err)
	c.Apply(string(text))
	var notes []string
	client, err := query.New(query.Options{Files: []string{c.AdminKubeconfig()}, UserAgent: "test", Note: func(s string) { notes = append(notes, s) }})
	require.NoError(t, err)

	p, err := takeover.Look(t.Context(), client)
	require.NoError(t, err)
	require.Empty(t, notes)
	var out bytes.Buffer
	require.NoError(t, p.Text(&out))
	want, err := os.ReadFile("testdata/plan.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), trimmed(out.String()))

	// What has no counterpart goes, and nothing stands in the way.
	for _, o := range []string{"vpc-nat-gateway/gw", "qos-policy/slow", "subnet/dhcp", "security-group/tiers", "vpc/blue"} {
		c.Kubectl("patch", o, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		c.Kubectl("delete", o)
	}
	c.Kubectl("delete", "pod", "-n", "default", "floats", "--force", "--grace-period=0")
	c.Kubectl("patch", "deployment", "-n", "kube-system", "kube-ovn-controller", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/template/spec/containers/0/args","value":["--node-switch-cidr=100.64.0.0/16"]}]`)
	p, err = takeover.Look(t.Context(), client)
	require.NoError(t, err)
	require.Empty(t, p.Blocks)
	require.True(t, p.Clear())
	require.Equal(t, []takeover.Value{
		{Name: "flags.iface", Value: "eth1", From: "kube-ovn-cni --iface"},
		{Name: "flags.network-type", Value: "geneve", From: "kube-ovn-cni --network-type"},
		{Name: "ovn.joinCIDR", Value: "100.64.0.0/16", From: "kube-ovn-controller --node-switch-cidr"},
		{Name: "ovn.serviceCIDR", Value: "10.96.0.0/12", From: "kube-ovn-cni --service-cluster-ip-range"},
	}, p.Values)
}

// trimmed has no blanks at the end of lines.
func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// TestEmptyCluster: nothing of Kube-OVN is there, not even its kinds.
func TestEmptyCluster(t *testing.T) {
	t.Parallel()
	c := kubebed.Start(t, kubebed.Options{})
	client, err := query.New(query.Options{Files: []string{c.AdminKubeconfig()}, UserAgent: "test"})
	require.NoError(t, err)
	p, err := takeover.Look(t.Context(), client)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, p.Text(&out))
	require.Equal(t, "No program of Kube-OVN runs in this cluster.\n\nNothing stands in the way.\n", out.String())
}

// TestWithoutRights: what the user may not see is noted, and not taken for nothing.
func TestWithoutRights(t *testing.T) {
	t.Parallel()
	c := kubebed.Start(t, kubebed.Options{})
	var notes []string
	client, err := query.New(query.Options{Files: []string{c.Kubeconfig(c.User("tenant"))}, UserAgent: "test", Note: func(s string) { notes = append(notes, s) }})
	require.NoError(t, err)
	p, err := takeover.Look(t.Context(), client)
	require.NoError(t, err)
	require.NotEmpty(t, notes)
	require.False(t, p.Clear())
	var out bytes.Buffer
	require.NoError(t, p.Text(&out))
	require.Contains(t, out.String(), "No program of Kube-OVN is seen")
	require.Contains(t, out.String(), "is not known: you may not see programs of Kube-OVN (Deployments), programs of Kube-OVN (DaemonSets), ")
	require.NotContains(t, out.String(), "Nothing stands in the way")
}
