package security

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

// contexts reads a pod's and a container's security context.
func contexts(t *testing.T, ofPod, ofContainer string) (*v1.Pod, *v1.Container) {
	t.Helper()
	p, c := &v1.Pod{}, &v1.Container{}
	require.NoError(t, yaml.UnmarshalStrict([]byte("{spec: {securityContext: "+ofPod+"}}"), p))
	require.NoError(t, yaml.UnmarshalStrict([]byte("{securityContext: "+ofContainer+"}"), c))
	return p, c
}

// TestContainerWins: what a container says counts before what its pod says.
func TestContainerWins(t *testing.T) {
	p, c := contexts(t, "{runAsUser: 1, runAsGroup: 2, fsGroup: 3, supplementalGroups: [4], supplementalGroupsPolicy: Strict, seccompProfile: {type: RuntimeDefault}}",
		"{runAsUser: 10, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {add: [NET_ADMIN], drop: [ALL]}, seccompProfile: {type: Unconfined}}")
	got := Container(p, c)
	require.Equal(t, int64(10), got.GetRunAsUser().GetValue())
	require.Equal(t, int64(2), got.GetRunAsGroup().GetValue())
	require.Equal(t, []int64{4, 3}, got.GetSupplementalGroups())
	require.Equal(t, cri.SupplementalGroupsPolicy_Strict, got.GetSupplementalGroupsPolicy())
	require.True(t, got.GetReadonlyRootfs())
	require.True(t, got.GetNoNewPrivs())
	require.Equal(t, []string{"NET_ADMIN"}, got.GetCapabilities().GetAddCapabilities())
	require.Equal(t, []string{"ALL"}, got.GetCapabilities().GetDropCapabilities())
	require.Equal(t, cri.SecurityProfile_Unconfined, got.GetSeccomp().GetProfileType())
	require.Contains(t, got.GetMaskedPaths(), "/proc/kcore")
	box := Sandbox(p)
	require.Equal(t, int64(1), box.GetRunAsUser().GetValue())
	require.Equal(t, cri.SupplementalGroupsPolicy_Strict, box.GetSupplementalGroupsPolicy())
}

func TestMasks(t *testing.T) {
	for spec, masked := range map[string]bool{"{}": true, "{privileged: true}": false, "{procMount: Unmasked}": false, "{procMount: Default}": true} {
		p, c := contexts(t, "{}", spec)
		require.Equal(t, masked, len(Container(p, c).GetMaskedPaths()) > 0, spec)
		p.Spec.Containers = []v1.Container{*c}
		require.Equal(t, spec == "{privileged: true}", Sandbox(p).GetPrivileged(), spec)
	}
}

func TestNotRoot(t *testing.T) {
	for name, c := range map[string]struct {
		pod, container string
		image          *cri.Image
		fail           string
	}{
		"not asked":       {"{}", "{}", &cri.Image{}, ""},
		"a user":          {"{runAsNonRoot: true}", "{runAsUser: 5}", &cri.Image{}, ""},
		"root":            {"{runAsNonRoot: true}", "{runAsUser: 0}", &cri.Image{}, "runAsUser is 0"},
		"the image's":     {"{runAsNonRoot: true}", "{}", &cri.Image{Uid: &cri.Int64Value{Value: 7}}, ""},
		"the image: root": {"{runAsNonRoot: true}", "{}", &cri.Image{}, "runs as root"},
		"only a name":     {"{runAsNonRoot: true}", "{}", &cri.Image{Username: "www"}, `user "www" is not a number`},
		"taken back":      {"{runAsNonRoot: true}", "{runAsNonRoot: false}", &cri.Image{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, spec := contexts(t, c.pod, c.container)
			err := NotRoot(p, spec, Container(p, spec), c.image)
			if c.fail == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.fail)
		})
	}
}
