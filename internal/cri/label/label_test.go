package label_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/label"
)

var pod = &cri.PodSandboxConfig{
	Metadata:    &cri.PodSandboxMetadata{Name: "web-0", Namespace: "shop", Uid: "1-2", Attempt: 4},
	Labels:      map[string]string{"app": "web", label.Name: "main"},
	Annotations: map[string]string{"note": "x", "annotation.note": "y"},
}

func TestNamesAreDockershims(t *testing.T) {
	require.Equal(t, "k8s_POD_web-0_shop_1-2_4", label.SandboxName(pod.Metadata))
	require.Equal(t, "k8s_main_web-0_shop_1-2_7", label.ContainerName(&cri.ContainerMetadata{Name: "main", Attempt: 7}, pod.Metadata))
	require.Equal(t, "k8s_POD_a-b_shop_1-2_0", label.SandboxName(&cri.PodSandboxMetadata{Name: "a/b", Namespace: "shop", Uid: "1-2"}))
}

func TestWhatGoesInComesOut(t *testing.T) {
	labels := label.ForSandbox(pod, "other")
	require.Equal(t, "podsandbox", labels["io.kubernetes.docker.type"])
	require.Equal(t, "POD", labels["io.kubernetes.container.name"])
	own, annotations := label.Read(labels)
	require.Equal(t, map[string]string{"app": "web"}, own)
	require.Equal(t, pod.Annotations, annotations)
	require.Equal(t, pod.Metadata, label.SandboxMetadata("/any_name", labels))
	require.True(t, label.IsSandbox(labels))

	c := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "a_b", Attempt: 1}, Labels: map[string]string{label.Name: "a_b"},
		Image: &cri.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "web:1"},
	}
	labels = label.ForContainer(c, "s1", "/log/0.log")
	require.Equal(t, "container", labels["io.kubernetes.docker.type"])
	require.Equal(t, "s1", labels["io.kubernetes.sandbox.id"])
	require.Equal(t, "/log/0.log", labels["io.kubernetes.container.logpath"])
	own, annotations = label.Read(labels)
	require.Equal(t, c.Labels, own)
	require.Empty(t, annotations)
	require.Equal(t, c.Metadata, label.ContainerMetadata("", labels))
	require.Equal(t, c.Image, label.ImageSpec(labels, "other"))
	require.True(t, label.IsContainer(labels))
}

// TestDockershimsContainersAreKnown: they have names and no label of ours.
func TestDockershimsContainersAreKnown(t *testing.T) {
	require.Equal(t, pod.Metadata, label.SandboxMetadata("/k8s_POD_web-0_shop_1-2_4", nil))
	require.Equal(t, pod.Metadata, label.SandboxMetadata("/k8s_POD_web-0_shop_1-2_4_0a1b2c3d", nil), "with dockershim's suffix after a conflict")
	require.Equal(t, &cri.ContainerMetadata{Name: "main", Attempt: 7}, label.ContainerMetadata("/k8s_main_web-0_shop_1-2_7", nil))
	require.Equal(t, &cri.ImageSpec{Image: "web:1"}, label.ImageSpec(nil, "web:1"))
	require.Empty(t, label.SandboxMetadata("/nonsense", nil).Name)
}

func TestCovers(t *testing.T) {
	labels := map[string]string{}
	label.SetCovers(labels, nil)
	require.Empty(t, labels)
	want := []label.Cover{{Source: "/a", Target: "/b", Below: []string{"c"}}}
	label.SetCovers(labels, want)
	got, err := label.Covers(labels)
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = label.Covers(map[string]string{label.Covered: "{"})
	require.Error(t, err)
}
