package cluster_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func nadYAML(ns, name, config string) string {
	return `{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: ` + name + `, namespace: ` + ns + `}, spec: {config: '` + config + `'}}`
}

func subnetYAML(name, spec string) string {
	return `{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: ` + name + `}, spec: {` + spec + `}}`
}

// names are the subnets in force; "+" marks the default one.
func (a *agent) names() []string {
	subnets, err := a.Subnets(a.t.Context())
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, s := range subnets {
		if s.Default {
			s.Name += "+"
		}
		out = append(out, s.Name)
	}
	return out
}

func (a *agent) problems() string {
	var out []string
	for _, p := range a.Source.Problems() {
		out = append(out, p.String())
	}
	return strings.Join(out, "\n")
}

// A NAD may be made after the pod that names it, and its network is asked for
// once before it is called absent.
func TestNADs(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	config, user := account(c, ns)
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: ns})
	a.synced()
	since := c.Mark()
	_, err := a.NAD(t.Context(), ns, "net")
	require.ErrorIs(t, err, core.ErrNotFound)
	// The watch may begin only now.
	require.Len(t, c.Requests(kube.Filter{User: user, Verbs: []string{"get", "list"}, Resource: "network-attachment-definitions", Since: since}), 1)

	c.Apply(nadYAML(ns, "net", `{"cniVersion":"1.0.0","type":"macvlan"}`))
	c.Apply(`{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: bare, namespace: ` + ns + `, annotations: {k8s.v1.cni.cncf.io/resourceName: intel.com/vf}}}`)
	c.Apply(nadYAML(ns, "junk", `{"plugins": []}`))
	n, err := a.NAD(t.Context(), ns, "net")
	require.NoError(t, err)
	require.JSONEq(t, `{"cniVersion":"1.0.0","type":"macvlan"}`, n.Config)
	n, err = a.NAD(t.Context(), ns, "bare")
	require.NoError(t, err)
	require.Equal(t, "intel.com/vf", n.Annotations["k8s.v1.cni.cncf.io/resourceName"])
	require.Empty(t, n.Config, "a file of the node says what it is")

	eventually(t, "the problem", func() bool {
		return strings.Contains(a.problems(), "NetworkAttachmentDefinition "+ns+"/junk: spec.config: ")
	})
	require.NotContains(t, a.problems(), ns+"/bare")
	var listed []string
	for _, n := range a.NADs() {
		if n.Namespace == ns {
			listed = append(listed, n.Name)
		}
	}
	require.Equal(t, []string{"bare", "junk", "net"}, listed)
}

// Subnets hold in a cluster what they hold in a folder: what contradicts another
// is refused and named, and the last good version stays.
func TestSubnets(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{}) // Subnets are of the whole cluster
	config, _ := account(c, "default")
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: "n"})
	a.synced()
	withOVN := newAgent(t, cluster.Config{Kubeconfig: config, Node: "n"}, func(s *cluster.Source) {
		cluster.NewShares(s, func(string) []netip.Addr { return nil }, true)
	})
	withOVN.synced()
	require.Equal(t, []string{"ovn-default+"}, a.names(), "the built-in one")
	become := func(want ...string) {
		t.Helper()
		eventually(t, strings.Join(want, " "), func() bool { return slices.Equal(want, a.names()) })
	}

	c.Apply(subnetYAML("secret", `cidrBlock: 10.40.0.0/24, private: true`))
	eventually(t, "what nobody carries out", func() bool { return strings.Contains(a.problems(), "Subnet secret: spec.private: ") })
	eventually(t, "what OVN carries out", func() bool { return slices.Equal([]string{"ovn-default+", "secret"}, withOVN.names()) })
	c.Delete(subnetYAML("secret", ""))

	// One that a controller made to show what it serves declares nothing, until somebody changes it.
	const shown = `{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: join, annotations: {fairlead.io/shown: '{"cidrBlock":"10.50.0.0/24"}'}}, spec: {cidrBlock: CIDR}}`
	c.Apply(strings.Replace(shown, "CIDR", "10.50.0.0/24", 1))
	c.Apply(subnetYAML("after", `cidrBlock: 10.51.0.0/24`))
	become("after", "ovn-default+")
	c.Apply(strings.Replace(shown, "CIDR", "10.50.0.0/25", 1))
	become("after", "join", "ovn-default+")
	c.Delete(subnetYAML("join", ""))
	c.Delete(subnetYAML("after", ""))

	c.Apply(subnetYAML("tagged", `cidrBlock: 10.20.0.0/24, vlan: v7`))
	eventually(t, "the missing Vlan", func() bool { return strings.Contains(a.problems(), `Subnet tagged: spec.vlan: there is no Vlan "v7"`) })
	c.Apply(`{apiVersion: kubeovn.io/v1, kind: Vlan, metadata: {name: v7}, spec: {id: 7}}`)
	become("ovn-default+", "tagged")
	subnets, err := a.Subnets(t.Context())
	require.NoError(t, err)
	require.Equal(t, 7, subnets[1].VLAN)
	require.Empty(t, a.problems())

	c.Apply(subnetYAML("clash", `cidrBlock: 10.20.0.128/25`))
	eventually(t, "the clash", func() bool {
		return strings.Contains(a.problems(), "10.20.0.128/25 overlaps 10.20.0.0/24 of Subnet tagged")
	})
	c.Apply(subnetYAML("tagged", `cidrBlock: 10.20.0.0/24, vlan: v7, private: true`))
	eventually(t, "what nobody carries out", func() bool { return strings.Contains(a.problems(), "Subnet tagged: spec.private: ") })
	become("ovn-default+", "tagged")

	for len(a.Changed()) > 0 {
		<-a.Changed()
	}
	c.Delete(subnetYAML("tagged", ""))
	become("clash", "ovn-default+")
	<-a.Changed()
	c.Apply(subnetYAML("mine", `cidrBlock: 10.30.0.0/16, default: true`))
	become("clash", "mine+")

	// A cluster without Kube-OVN's kinds has the built-in subnet, and gets the
	// kinds when they are installed.
	c.Kubectl("delete", "crd", "subnets.kubeovn.io", "vlans.kubeovn.io", "network-attachment-definitions.k8s.cni.cncf.io", "--wait=true")
	become("ovn-default+")
	bare := newAgent(t, cluster.Config{Kubeconfig: config, Node: "n"})
	bare.synced()
	require.Equal(t, []string{"ovn-default+"}, bare.names())
	require.Empty(t, bare.problems())
	_, err = bare.NAD(t.Context(), "default", "net")
	require.ErrorIs(t, err, core.ErrNotFound)
	files, err := filepath.Glob("../../../deploy/crds/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		c.Apply(string(text))
	}
	eventually(t, "the kind", func() bool { return c.TryApply(c.Admin(), subnetYAML("again", `cidrBlock: 10.40.0.0/16`)) == nil })
	eventually(t, "the kinds", func() bool { return slices.Equal([]string{"again", "ovn-default+"}, bare.names()) })
}
