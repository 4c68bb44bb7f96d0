package podruntime

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestEphemeralOnce: one is started before all others, and never again, neither
// when it has failed nor in another sandbox.
func TestEphemeralOnce(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways)
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}, TargetContainerName: "m",
	}}
	for name, c := range map[string]struct {
		has   []Container
		start bool
	}{
		"not there":          {nil, true},
		"never started":      {[]Container{has("e", made, 0)}, true},
		"runs":               {[]Container{has("e", up, 0)}, false},
		"not known":          {[]Container{has("e", unknown, 0)}, false},
		"has failed":         {[]Container{has("e", exited, 1)}, false},
		"in another sandbox": {[]Container{in("old", has("e", exited, 0))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := decide(pod, &Status{Sandboxes: []Sandbox{ready}, Containers: c.has}, nil)
			require.Empty(t, p.stop, "it is the pod's")
			require.NotEmpty(t, p.start)
			require.Equal(t, c.start, p.start[0].spec.Name == "e")
			require.Equal(t, "a", p.start[len(p.start)-1].spec.Name, "the init container comes all the same")
		})
	}
}

// TestTarget: its processes are seen by the container's id.
func TestTarget(t *testing.T) {
	st := &Status{Sandboxes: []Sandbox{ready}, Containers: []Container{has("m", up, 0), has("n", exited, 0)}}
	o := &cri.NamespaceOption{}
	require.NoError(t, join(o, st, ""))
	require.Equal(t, cri.NamespaceMode_POD, o.GetPid())
	require.ErrorContains(t, join(o, st, "n"), "container n, does not run")
	require.NoError(t, join(o, st, "m"))
	require.Equal(t, cri.NamespaceMode_TARGET, o.GetPid())
	require.Equal(t, "m-id", o.GetTargetId())
}
