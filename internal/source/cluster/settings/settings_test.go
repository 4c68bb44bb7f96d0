package settings

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/install/manifest"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// source follows as a node's agent, which has no rights but those that somebody gives it.
func source(t *testing.T, c *kube.Cluster, node string, cfg Config) *Source {
	t.Helper()
	cfg.Login = login.New(login.Config{Kubeconfig: c.Kubeconfig(c.User("system:fairlead:"+node, "system:fairlead-"+node)), Node: node, UserAgent: "fairlead/test"}).Current
	cfg.Log = slog.New(slog.DiscardHandler)
	if cfg.File == "" {
		cfg.File = filepath.Join(t.TempDir(), "declared.json")
	}
	s := New(cfg)
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(t.Context()) })
	t.Cleanup(wg.Wait)
	return s
}

// rights are the chart's for agents, with the namespaces whose ConfigMaps they may read,
// given to a node's group.
func rights(t *testing.T, c *kube.Cluster, node string, namespaces ...string) {
	t.Helper()
	v, err := manifest.Defaults()
	require.NoError(t, err)
	require.NoError(t, v.Set("rbac.nodeCertificates=true"))
	require.NoError(t, v.Set("podNetworks.namespaces=["+strings.Join(namespaces, ",")+"]"))
	all, err := manifest.Render(v)
	require.NoError(t, err)
	text, err := manifest.YAML(slices.DeleteFunc(all, func(o manifest.Object) bool {
		kinds := []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
		return !slices.Contains([]string{"fairlead-agent", "fairlead-pod-networks"}, o.Name()) || !slices.Contains(kinds, o.Kind())
	}))
	require.NoError(t, err)
	c.Apply(strings.ReplaceAll(string(text), "name: system:fairlead\n", "name: system:fairlead-"+node+"\n"))
}

// TestFollows: with the chart's rights an agent sees what is declared in PodNetworks and in
// the ConfigMaps of its namespaces, and what changes; the first ordinal is the
// StatefulSet's.
func TestFollows(t *testing.T) {
	c := kube.Shared(t)
	bank, other := c.Namespace(), c.Namespace()
	rights(t, c, "follows", bank)
	cfg := Config{Namespaces: []string{"kube-system", bank}, Common: "kube-system", File: filepath.Join(t.TempDir(), "declared.json")}
	s := source(t, c, "follows", cfg)
	c.Apply(`{apiVersion: net.fairlead.io/v1alpha1, kind: PodNetwork, metadata: {namespace: ` + bank + `, name: mysql}, spec: {statefulSet: mysql, interfaces: [{name: net1, ipRange: 10.9.0.16-10.9.0.31, retain: UntilScaleDown}]}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {namespace: ` + bank + `, name: mysql}, spec: {serviceName: x, replicas: 3, ordinals: {start: 5}, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ` + bank + `, name: db, labels: {net.fairlead.io/pod-network: "true"}}, data: {mysql-7: '{"interface":"eth0","vlan":7}', bad: '{"vlan":5000}'}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ` + bank + `, name: unlabelled}, data: {mysql-7: '{"interface":"eth0","vlan":8}'}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: kube-system, name: all-` + bank + `, labels: {net.fairlead.io/pod-network: "true"}}, data: {mysql-7: '{"interface":"eth0","mac":"02:00:00:00:00:07"}'}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ` + other + `, name: db, labels: {net.fairlead.io/pod-network: "true"}}, data: {mysql-7: '{"interface":"eth0","vlan":9}'}}
`)
	sources := func(pod core.Pod) (out []string) {
		x, err := s.Declared(t.Context())
		if err != nil {
			return []string{err.Error()}
		}
		all, err := x.Of(t.Context(), pod)
		require.NoError(t, err)
		for _, d := range all {
			out = append(out, strings.ReplaceAll(d.Source, bank, "bank"))
		}
		return out
	}
	mysql := core.Pod{Namespace: bank, Name: "mysql-7"}
	want := []string{"PodNetwork bank/mysql", "ConfigMap bank/db, key mysql-7", "ConfigMap kube-system/all-bank, key mysql-7"}
	require.Eventually(t, func() bool { return slices.Equal(want, sources(mysql)) }, time.Minute, 50*time.Millisecond, "%v", want)
	require.Equal(t, want[2:], sources(core.Pod{Namespace: other, Name: "mysql-7"}), "ConfigMaps of %s are not read", other)
	x, err := s.Declared(t.Context())
	require.NoError(t, err)
	all, err := x.Of(t.Context(), mysql)
	require.NoError(t, err)
	require.Equal(t, []string{"10.9.0.18"}, all[0].Interfaces[0].IPs, "the third of its StatefulSet")
	again, err := s.Declared(t.Context())
	require.NoError(t, err)
	require.Same(t, x, again, "an ADD costs no new index")
	require.Contains(t, s.Problems()[0].String(), "vlan id 5000")
	third := core.Claim{Domain: "db", Addr: netip.MustParseAddr("10.9.0.18")}
	require.True(t, x.Says(t.Context(), mysql, third))
	c.Kubectl("-n", bank, "scale", "statefulset", "mysql", "--replicas=2")
	require.False(t, x.Says(t.Context(), mysql, third), "it is scaled down")
	c.Kubectl("-n", bank, "scale", "statefulset", "mysql", "--replicas=3")
	require.True(t, x.Says(t.Context(), mysql, third))

	require.NoError(t, c.TryApply(c.Admin(), `{apiVersion: net.fairlead.io/v1alpha1, kind: PodNetwork, metadata: {namespace: `+bank+`, name: mysql-7}, spec: {interfaces: [{name: net1, ips: [10.9.0.99]}]}}`))
	require.Eventually(t, func() bool { return slices.Contains(sources(mysql), "PodNetwork bank/mysql-7") }, time.Minute, 50*time.Millisecond)

	// An agent that starts while nobody answers knows what this one knew.
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(cfg.File)
		return err == nil && strings.Contains(string(text), "10.9.0.99")
	}, time.Minute, 50*time.Millisecond)
	cfg.Login, cfg.Log = func() (login.Login, error) { return login.Login{}, core.ErrUnavailable }, slog.New(slog.DiscardHandler)
	s = New(cfg)
	want = append([]string{"PodNetwork bank/mysql-7"}, want...)
	require.Equal(t, want, sources(mysql))
	x, err = s.Declared(t.Context())
	require.NoError(t, err)
	all, err = x.Of(t.Context(), mysql)
	require.NoError(t, err)
	require.Equal(t, []string{"10.9.0.18"}, all[1].Interfaces[0].IPs, "the first ordinal is remembered")
	require.True(t, x.Says(t.Context(), mysql, third), "nobody knows whether it is scaled down")
}

// TestWrittenInTheEnd: what could not be written down is tried again, though nothing
// changes any more.
func TestWrittenInTheEnd(t *testing.T) {
	c := kube.Shared(t)
	rights(t, c, "written")
	dir := filepath.Join(t.TempDir(), "later")
	s := source(t, c, "written", Config{File: filepath.Join(dir, "declared.json")})
	require.Eventually(t, func() bool { _, err := s.Declared(t.Context()); return err == nil }, time.Minute, 50*time.Millisecond)
	time.Sleep(2 * calm) // it has tried
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.Eventually(t, func() bool { _, err := os.Stat(s.cfg.File); return err == nil }, time.Minute, 50*time.Millisecond)
}

// TestNobodyIsAsked: credentials that have ended say nothing of what is declared.
func TestNobodyIsAsked(t *testing.T) {
	s := New(Config{Optional: true})
	require.False(t, s.absent(apierrors.NewUnauthorized("ended")))
	require.True(t, s.absent(apierrors.NewForbidden(schema.GroupResource{}, "", nil)))
}

// TestUnread: while it is not known what is declared nobody is told that nothing is, but
// where reading it is no condition.
func TestUnread(t *testing.T) {
	c := kube.Shared(t)
	s := source(t, c, "unread", Config{})
	require.Eventually(t, func() bool { return len(s.Problems()) > 0 }, time.Minute, 50*time.Millisecond)
	_, err := s.Declared(t.Context())
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.ErrorContains(t, err, "podnetworks cannot be read")
	require.ErrorContains(t, err, "forbidden")

	s = source(t, c, "optional", Config{Optional: true})
	var x *declared.Index
	require.Eventually(t, func() bool { x, err = s.Declared(t.Context()); return err == nil }, time.Minute, 50*time.Millisecond)
	all, err := x.Of(t.Context(), core.Pod{Namespace: "a", Name: "b"})
	require.NoError(t, err)
	require.Empty(t, all)
	require.Contains(t, s.Problems()[0].Reason, "forbidden", "it is told nevertheless")
}
