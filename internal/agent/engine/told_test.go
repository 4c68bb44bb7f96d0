package engine

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// tell makes r's ADD that of another pod, whose annotation the runtime tells.
func (r *replugged) tell(pod, networks string) {
	r.t.Helper()
	notes, err := json.Marshal(map[string]string{"k8s.v1.cni.cncf.io/networks": networks})
	require.NoError(r.t, err)
	conf := `{"cniVersion":"1.0.0","name":"net","type":"fairlead","runtimeConfig":{"io.kubernetes.cri.pod-annotations":` + string(notes) + `}}`
	r.req.Conf, err = cniconf.Parse([]byte(conf))
	require.NoError(r.t, err)
	r.req.Pod.Name = pod
	r.pod = r.req.Pod
}

// TestToldAnnotations: a pod that the source does not know keeps what the
// runtime's annotations gave it. Once the source knows it, the source's are in
// force; what both ask for stays.
func TestToldAnnotations(t *testing.T) {
	r := newReplugged(t)
	r.tell("static", "second,second")
	_, err := r.Add(t.Context(), r.req)
	require.NoError(t, err)
	require.Equal(t, []string{"eth0", "net1", "net2"}, r.interfaces())
	rec, _ := r.Journal.Get(r.req.Key)
	require.NotContains(t, string(rec.AddCall.Conf), "annotations", "they are of that moment")
	r.take()

	require.Contains(t, r.Followed(), r.pod)
	require.NoError(t, r.Replug(t.Context(), r.pod))
	r.annotate("second") // another pod's
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Equal(t, []string{"eth0", "net1", "net2"}, r.interfaces())
	require.Empty(t, r.take())

	r.declare("static", "second,second")
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Empty(t, r.take(), "it says the same")
	r.declare("static", "second")
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Equal(t, []string{"eth0", "net1"}, r.interfaces())
	require.Equal(t, []string{"detached net2"}, r.take())
	r.declare("other", "")
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Equal(t, []string{"eth0", "net1"}, r.interfaces(), "it is not known any more")
	require.NoError(t, r.Del(t.Context(), r.req))
	require.Empty(t, r.IPAM.Leases())
}

// TestToldAnnotationsGiveWay to those of a source that knows the pod.
func TestToldAnnotationsGiveWay(t *testing.T) {
	r := newReplugged(t)
	r.tell("p", "second,second,second")
	_, err := r.Add(t.Context(), r.req)
	require.NoError(t, err)
	require.Equal(t, []string{"eth0", "net1"}, r.interfaces())
}
