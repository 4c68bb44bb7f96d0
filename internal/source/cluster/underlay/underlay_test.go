package underlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/install/manifest"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/source/declare"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// TestFollowsAndTells: with the chart's rights and under its policy, a node's agent sees
// what is declared, and has its Node say what became of it, and no more of it later.
func TestFollowsAndTells(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	node := c.Namespace()
	v, err := manifest.Defaults()
	require.NoError(t, err)
	require.NoError(t, v.Set("rbac.nodeCertificates=true"))
	all, err := manifest.Render(v)
	require.NoError(t, err)
	rights, err := manifest.YAML(slices.DeleteFunc(all, func(o manifest.Object) bool {
		kinds := []string{"ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
		return !slices.Contains([]string{"fairlead-agent", "fairlead-agent-node"}, o.Name()) || !slices.Contains(kinds, o.Kind())
	}))
	require.NoError(t, err)
	c.Apply(string(rights))
	_, err = c.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"zone": "a"}}}, metav1.CreateOptions{})
	require.NoError(t, err)

	user := c.User("system:fairlead:"+node, "system:fairlead")
	changed := make(chan struct{}, 100)
	s := New(Config{
		Login: login.New(login.Config{Kubeconfig: c.Kubeconfig(user), Node: node, UserAgent: "fairlead/test"}).Current,
		Node:  node, Changed: func() { changed <- struct{}{} }, Log: slog.New(slog.DiscardHandler),
	})
	_, err = s.Underlay()
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.ErrorIs(t, s.Tell(t.Context(), nil, nil), core.ErrUnavailable)
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(t.Context()) })
	t.Cleanup(wg.Wait)
	until := func(what string, ok func() bool) {
		t.Helper()
		require.Eventually(t, ok, 3*time.Minute, 200*time.Millisecond, what)
	}
	c.Apply(`{apiVersion: kubeovn.io/v1, kind: ProviderNetwork, metadata: {name: net1}, spec: {defaultInterface: eth1, exchangeLinkName: true}}
---
{apiVersion: kubeovn.io/v1, kind: Vlan, metadata: {name: v7}, spec: {id: 7, provider: net1}}
`)
	until("all is known", func() bool {
		u, err := s.Underlay()
		return err == nil && len(u.Networks) == 1 && u.Networks[0].Spec.ExchangeLinkName && slices.Equal(u.Trunks("net1"), []int{0, 7}) && u.Labels["zone"] == "a"
	})

	const key = "net1.provider-network.kubernetes.io/"
	says := func(ready, why string) func() bool {
		return func() bool {
			n, err := c.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
			return err == nil && n.Labels[key+"ready"] == ready && n.Annotations[key+"err_mesg"] == why && n.Labels["zone"] == "a"
		}
	}
	// Asked without a write: a label that went in before the policy came is one that the policy
	// keeps the next word from taking off.
	agent, err := kubernetes.NewForConfig(user)
	require.NoError(t, err)
	may := func(label string) error {
		_, err := agent.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"b"}}}`, label),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		return err
	}
	until("the policy and its rights are in force", func() bool { return may("other") != nil && may(key+"ready") == nil })
	require.NoError(t, s.Tell(t.Context(), map[string]string{key + "ready": "true"}, nil))
	require.True(t, says("true", "")())
	require.NoError(t, s.Tell(t.Context(), nil, map[string]string{key + "err_mesg": "no link"}))
	require.True(t, says("", "no link")())
	require.NoError(t, s.Tell(t.Context(), nil, nil))
	require.True(t, says("", "")())

	for len(changed) > 0 {
		<-changed
	}
	note, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key + "interface": "eth2"}}})
	require.NoError(t, err)
	_, err = c.Client().CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, note, metav1.PatchOptions{})
	require.NoError(t, err)
	until("an administrator's word is heard", func() bool { u, _ := s.Underlay(); return u.Notes[key+"interface"] == "eth2" })
	require.NotEmpty(t, changed)
	c.Kubectl("delete", "node", node)
	until("without the Node nothing is known", func() bool { _, err := s.Underlay(); return errors.Is(err, core.ErrUnavailable) })
	_, err = c.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"zone": "b"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	until("it is registered again", func() bool { u, err := s.Underlay(); return err == nil && u.Labels["zone"] == "b" })
	c.Kubectl("delete", "provider-network", "net1")
	until("it is gone", func() bool { u, err := s.Underlay(); return err == nil && len(u.Networks) == 0 })
}

// synced is a controller that has read all, or not.
type synced bool

func (s *synced) RunWithContext(context.Context)      {}
func (s *synced) Run(<-chan struct{})                 {}
func (s *synced) HasSynced() bool                     { return bool(*s) }
func (s *synced) HasSyncedChecker() cache.DoneChecker { return nil }
func (s *synced) LastSyncResourceVersion() string     { return "" }

// TestFaultyExternalGateway: a ConfigMap of the external gateway that is faulty takes no NIC
// away: the last good version counts, and of an agent that has seen none what is there stays.
func TestFaultyExternalGateway(t *testing.T) {
	t.Parallel()
	read := synced(false)
	keep := func() follower { return follower{store: cache.NewStore(cache.MetaNamespaceKeyFunc), control: &read} }
	maps := keep()
	now, s := &session{node: keep(), external: &maps}, &Source{cfg: Config{Node: "n1"}}
	set := func(kind string) {
		t.Helper()
		require.NoError(t, maps.store.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: declare.ConfigExternal}, Data: map[string]string{
			"enable-external-gw": "true", "type": kind, "external-gw-nodes": "n1", "external-gw-nic": "eth7", "nic-ip": "192.0.2.9/24", "external-gw-addr": "192.0.2.1",
		}}))
	}
	look := func() (u declare.Underlay) { s.outside(now, nil, &u); return u }
	require.Equal(t, declare.Underlay{Unread: []string{"external"}}, look(), "before it was read")
	read = true
	require.Equal(t, declare.Underlay{}, look())
	set("distributed")
	require.Equal(t, declare.Underlay{Unread: []string{"external"}}, look())
	set("centralized")
	good := look()
	require.Equal(t, "eth7", good.Networks[0].Spec.DefaultInterface)
	require.Empty(t, good.Unread)
	set("distributed")
	require.Equal(t, good, look())
}

// TestJoins: whether the node is a gateway to other clusters is not known before the ConfigMap
// was read, nor of a faulty one; then the last good version counts.
func TestJoins(t *testing.T) {
	t.Parallel()
	read := synced(false)
	keep := func() follower { return follower{store: cache.NewStore(cache.MetaNamespaceKeyFunc), control: &read} }
	maps := keep()
	s := &Source{cfg: Config{Node: "n1"}}
	s.now.Store(&session{node: keep(), others: &maps})
	set := func(zone, nodes string) {
		t.Helper()
		require.NoError(t, maps.store.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: declare.ConfigInterconnect}, Data: map[string]string{
			"enable-ic": "true", "az-name": zone, "ic-db-host": "192.0.2.1", "gw-nodes": nodes,
		}}))
	}
	is := func(gateway, known bool) {
		t.Helper()
		g, k := s.Joins()
		require.Equal(t, []bool{gateway, known}, []bool{g, k})
	}
	is(false, false)
	read = true
	is(false, true)
	set("", "n1")
	is(false, false)
	set("az1", "n1")
	is(true, true)
	set("", "n2")
	is(true, true)
	set("az1", "n2")
	is(false, true)
}
