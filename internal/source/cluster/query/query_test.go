package query_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

const agentName = "query-test"

func newClient(t *testing.T, c *kube.Cluster) (*query.Client, *[]string) {
	t.Helper()
	notes := &[]string{}
	q, err := query.New(query.Options{
		Files: []string{c.AdminKubeconfig()}, UserAgent: agentName, Note: func(s string) { *notes = append(*notes, s) },
	})
	require.NoError(t, err)
	return q, notes
}

// makePods makes n pods, some at a time.
func makePods(t *testing.T, c *kube.Cluster, ns string, n int) {
	t.Helper()
	client := c.Client().CoreV1().Pods(ns)
	names := make(chan string)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for name := range names {
				_, err := client.Create(context.Background(), &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
						"k8s.v1.cni.cncf.io/network-status": `[{"name":"fairlead","interface":"eth0","ips":["10.16.9.9"],"default":true}]`,
					}},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Errorf("create pod: %v", err)
				}
			}
		})
	}
	for i := range n {
		names <- fmt.Sprintf("p-%04d", i)
	}
	close(names)
	wg.Wait()
}

// TestPages: long lists come in pages, all of them once and in order; counting
// asks for metadata only, and nothing is watched.
func TestPages(t *testing.T) {
	c := kube.Shared(t)
	ns := c.Namespace()
	makePods(t, c, ns, 1001)
	q, _ := newClient(t, c)
	since := c.Mark()
	list, err := q.Pods(t.Context(), query.Scope{Namespace: ns})
	require.NoError(t, err)
	require.Len(t, list.Items, 1001)
	for i, p := range list.Items {
		require.Equal(t, fmt.Sprintf("p-%04d", i), p.Name)
	}
	asked := c.Requests(kube.Filter{Since: since, UserAgent: agentName})
	require.Len(t, asked, 3)
	for _, r := range asked {
		require.Equal(t, "list", r.Verb)
		require.Contains(t, r.URI, "limit=500")
	}
	since = c.Mark()
	one, err := q.Pods(t.Context(), query.Scope{Namespace: ns, Name: "p-0700"})
	require.NoError(t, err)
	require.Len(t, one.Items, 1)
	require.Len(t, c.Requests(kube.Filter{Since: since, UserAgent: agentName}), 1)

	names, err := q.PodNames(t.Context(), ns)
	require.NoError(t, err)
	require.Len(t, names, 1001)
	require.Equal(t, ns, names[1000].Namespace)

	// One address on a thousand pods is one address.
	subnets, err := q.Subnets(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ovn-default", subnets.Items[0].Name)
	require.EqualValues(t, 1, subnets.Items[0].Usage[0].Used)
}

// TestOddStatuses: the annotation is anybody's to write.
func TestOddStatuses(t *testing.T) {
	c := kube.Shared(t)
	ns := c.Namespace()
	for name, status := range map[string]string{
		"broken": "{", "nil": "null", "empty": "[]",
		"odd": `[{"name":"x","ips":["10.99.0.1/24","nonsense","::ffff:10.99.0.2"],"gateway":[""]}]`,
	} {
		c.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, annotations: {k8s.v1.cni.cncf.io/network-status: %q}},
  spec: {containers: [{name: c, image: none}]}}`, name, ns, status))
	}
	q, notes := newClient(t, c)
	list, err := q.Pods(t.Context(), query.Scope{Namespace: ns})
	require.NoError(t, err)
	require.Len(t, list.Items, 4)
	require.Len(t, *notes, 1)
	require.Contains(t, (*notes)[0], "pod "+ns+"/broken: k8s.v1.cni.cncf.io/network-status: ")
	for _, p := range list.Items {
		require.Equal(t, p.Name == "odd", len(p.Attachments) == 1, p.Name)
	}
	ips, err := q.IPs(t.Context(), ns)
	require.NoError(t, err)
	require.Len(t, ips.Items, 2)
	who, err := q.Who(t.Context(), netip.MustParseAddr("10.99.0.2"), ns)
	require.NoError(t, err)
	require.Equal(t, "odd", who.Items[0].Pod)
}

func TestNamesThatLeadElsewhere(t *testing.T) {
	q, _ := newClient(t, kube.Shared(t))
	_, err := q.Pods(t.Context(), query.Scope{Namespace: "../.."})
	require.ErrorContains(t, err, "is not a name")
	_, err = q.Pod(t.Context(), core.Pod{Namespace: "default", Name: ".."})
	require.ErrorContains(t, err, "is not a name")
}

// TestKubeconfigs: none that names a cluster is another thing than one that
// cannot be read, and the pod that we may run in is not asked in its place.
func TestKubeconfigs(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	_, err := query.New(query.Options{})
	require.ErrorIs(t, err, query.ErrNoCluster)
	_, err = query.New(query.Options{Files: []string{dir + "/a", dir + "/b"}})
	require.ErrorIs(t, err, query.ErrNoCluster)
	_, err = query.New(query.Options{Files: []string{dir + "/a"}})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(dir+"/a", []byte("{"), 0o600))
	_, err = query.New(query.Options{Files: []string{dir + "/a"}})
	require.ErrorContains(t, err, "kubeconfig: ")
}
