package manifest_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

const nadWriters = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nad-writer}
rules: [{apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], verbs: [get, create, update, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nad-writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: nad-writer}
subjects: [{kind: User, name: tenant, apiGroup: rbac.authorization.k8s.io}, {kind: User, name: friend, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: other-user}
rules:
- {apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], resourceNames: [own], verbs: [use]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: other-user}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: other-user}
subjects: [{kind: User, name: friend, apiGroup: rbac.authorization.k8s.io}]
`

// written is a Source with one NAD more.
type written struct {
	everywhere
	config string
}

func (w written) NAD(ctx context.Context, ns, name string) (*resolve.NAD, error) {
	if ns == w.ns && name == "mine" {
		return &resolve.NAD{Namespace: ns, Name: name, Config: w.config}, nil
	}
	return w.everywhere.NAD(ctx, ns, name)
}

func (w written) Subnets(ctx context.Context) ([]core.Subnet, error) {
	all, err := w.everywhere.Subnets(ctx)
	mine := all[0]
	mine.Name, mine.Provider = "of-mine", "mine."+w.ns+".ovn"
	return append(all, mine), err
}

// reached is the Subnet from which a pod gets addresses by a NAD of its own
// namespace, "" where the agent refuses it.
func reached(t *testing.T, ns, config string) string {
	t.Helper()
	wants, err := resolve.Resolve(t.Context(), written{everywhere{ns}, config}, resolve.Input{Request: core.Request{
		Op: core.Add, Key: core.Key{Container: "0123456789abcdef", IfName: "eth0"}, Netns: "/run/netns/x", Path: []string{"/opt/cni/bin"},
		Pod: core.Pod{Namespace: ns, Name: "p"}, Args: map[string]string{},
		Conf: core.Conf{CNIVersion: "1.0.0", Name: "fairlead", Type: "fairlead", Annotations: map[string]string{networksKey: "mine"}, Raw: json.RawMessage(`{}`)},
	}})
	if err != nil || wants[1].Steps[0].NIC == nil {
		return ""
	}
	return wants[1].Steps[0].NIC.Subnet.Name
}

// TestProvidersOfOthers: a NAD whose provider is another namespace's network is
// its author's to justify, however it is written; what the agent reads in it,
// the policy read.
func TestProvidersOfOthers(t *testing.T) {
	s := newSite(t)
	s.Apply(nadWriters)
	nads := schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}
	write := func(user, config string) error {
		c, err := dynamic.NewForConfig(s.User(user))
		require.NoError(t, err)
		_, err = c.Resource(nads).Namespace(s.ns).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
			"metadata": map[string]any{"name": "mine"}, "spec": map[string]any{"config": config},
		}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	of := func(provider string) string {
		return `{"cniVersion":"1.0.0","type":"fairlead","provider":"` + provider + `"}`
	}
	require.Eventually(t, func() bool {
		return write("tenant", of("own.other.ovn")) != nil && write("tenant", `{}`) == nil && write("friend", of("own.other.ovn")) == nil
	}, time.Minute, 50*time.Millisecond)
	for config, c := range map[string]struct{ tenant, friend bool }{
		``:                                       {true, true},
		`{"cniVersion":"1.0.0","type":"bridge"}`: {true, true},
		of("mine.NS.ovn"):                        {true, true},
		of("own.NS.ovn"):                         {true, true},
		of("own.NS"):                             {true, true},
		of("ovn"):                                {true, true},
		of(""):                                   {true, true},
		of("own.default.ovn"):                    {true, true},
		of("own.other.ovn"):                      {false, true},
		of("own.other"):                          {false, true},
		of("own.kube-system.ovn"):                {false, true},
		of("far.other.ovn"):                      {false, false},
		of("backbone"):                           {false, false},
		of(`own.\u006fther.ovn`):                 {false, false},
		`{"cniVersion":"1.0.0","type":"fairlead","pr\u006fvider":"own.other.ovn"}`:                                   {false, false},
		`{"cniVersion":"1.0.0","type":"fairlead","provider":"mine.NS.ovn","x":{"provider":"own.other.ovn"}}`:         {false, true},
		`{"cniVersion":"1.0.0","type":"fairlead","x":{"provider":"mine.NS.ovn"},"provider":"own.other.ovn"}`:         {false, true},
		`{"cniVersion":"1.0.0","type":"fairlead","provider":"mine.NS.ovn","provider":"own.other.ovn"}`:               {false, true},
		"{\"cniVersion\":\"1.0.0\",\"type\":\"fairlead\",\"provider\"\n\t:\r \"own.other.ovn\"}":                     {false, true},
		`{"cniVersion":"1.0.0","type":"fairlead","Provider":"own.other.ovn"}`:                                        {true, true},
		`{"cniVersion":"1.0.0","plugins":[{"type":"fairlead","provider":"own.other.ovn"},{"type":"portmap"}]}`:       {false, true},
		`{"cniVersion":"1.0.0","type":"macvlan","ipam":{"type":"kube-ovn","provider":"own.other"}}`:                  {false, true},
		`{"cniVersion":"1.0.0","type":"macvlan","ipam":{"type":"kube-ovn","provider":"mine.NS"}}`:                    {true, true},
		`{"cniVersion":"1.0.0","type":"fairlead","provider":["own.other.ovn"]}`:                                      {true, true},
		`{"cniVersion":"1.0.0","type":"fairlead","provider":"x","args":"\"provider\":\"mine.NS.ovn\"","x":"\u0000"}`: {false, false},
	} {
		config = strings.ReplaceAll(config, "NS", s.ns)
		for user, may := range map[string]bool{"tenant": c.tenant, "friend": c.friend} {
			refused := "may not make a network of provider"
			if may {
				refused = ""
			}
			judge(t, write(user, config), refused)
		}
		if got := reached(t, s.ns, config); c.tenant {
			require.NotContains(t, got, ".other.", config)
			require.NotContains(t, got, ".kube-system.", config)
		}
	}
	require.Equal(t, "of-own.other.ovn", reached(t, s.ns, of("own.other.ovn")), "which is what the policy is for")
}
