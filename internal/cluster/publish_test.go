package cluster_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/cluster"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// An ADD costs nothing to read and one write of the pod.
func TestAnAddReadsNothingAndWritesOnce(t *testing.T) {
	c := kube.Shared(t)
	ns := c.Namespace()
	config, user := account(c, ns)
	c.Apply(`{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: net, namespace: ` + ns + `}, spec: {config: '{"cniVersion":"1.0.0","type":"macvlan"}'}}`)
	p := makePod(c, ns, "web", ns, "k8s.v1.cni.cncf.io/networks", "net")
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: ns})
	a.synced()

	since := c.Mark()
	found, err := a.Pod(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "net", found.Annotations["k8s.v1.cni.cncf.io/networks"])
	_, err = a.NAD(t.Context(), ns, "net")
	require.NoError(t, err)
	_, err = a.Subnets(t.Context())
	require.NoError(t, err)
	a.attach(record(p, "c1", "10.16.0.2"))
	eventually(t, "the status", func() bool { return status(t, c, p) != "" })
	var nets []core.Net
	require.NoError(t, json.Unmarshal([]byte(status(t, c, p)), &nets))
	require.Equal(t, a.records(p)[0].Statuses, nets)
	eventually(t, "the event", func() bool {
		return len(c.Requests(kube.Filter{User: user, Resource: "events", Since: since})) > 0
	})

	// What came after, came without a cause: there must be none.
	makePod(c, ns, "web", ns, "k8s.v1.cni.cncf.io/networks", "net", "other", "1")
	eventually(t, "the other annotation", func() bool {
		found, err := a.Pod(t.Context(), p)
		return err == nil && found.Annotations["other"] != ""
	})
	require.Empty(t, c.Requests(kube.Filter{User: user, Verbs: kube.Reads, Since: since}))
	require.Len(t, c.Requests(kube.Filter{User: user, Resource: "pods", Since: since}), 1)
	require.Len(t, c.Requests(kube.Filter{User: user, Resource: "pods/status", Since: since}), 1)
	require.Len(t, c.Requests(kube.Filter{User: user, Since: since}), 2)
}
