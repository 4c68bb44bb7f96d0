package downward

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

func facts(t *testing.T) *Facts {
	t.Helper()
	p := &v1.Pod{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(`
metadata: {name: web, namespace: shop, uid: u, labels: {app: web, a.b/c: "x y"}, annotations: {note: "a\nb"}}
spec:
  serviceAccountName: sa
  initContainers: [{name: i, resources: {requests: {cpu: 1500m}}}]
  containers:
  - {name: c, resources: {requests: {cpu: 250m, memory: 100Mi}, limits: {cpu: "1", memory: 1Gi, ephemeral-storage: 2Gi, hugepages-2Mi: 4Mi}}}
  - {name: d}
`), p))
	return &Facts{
		Pod: p, NodeName: "node1", HostIPs: []string{"192.0.2.1", "2001:db8::1"}, PodIPs: []string{"10.0.0.5", "fd00::5"},
		Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("16Gi")},
	}
}

func TestFields(t *testing.T) {
	for path, want := range map[string]struct{ env, file string }{
		"metadata.name": {"web", "web"}, "metadata.namespace": {"shop", "shop"}, "metadata.uid": {"u", "u"},
		"metadata.labels['app']": {"web", "web"}, "metadata.labels['a.b/c']": {"x y", "x y"}, "metadata.labels['none']": {"", ""},
		"metadata.annotations['note']": {"a\nb", "a\nb"},
		"metadata.labels":              {"!", "a.b/c=\"x y\"\napp=\"web\""}, "metadata.annotations": {"!", `note="a\nb"`},
		"spec.nodeName": {"node1", "!"}, "spec.serviceAccountName": {"sa", "!"},
		"status.hostIP": {"192.0.2.1", "!"}, "status.hostIPs": {"192.0.2.1,2001:db8::1", "!"},
		"status.podIP": {"10.0.0.5", "!"}, "status.podIPs": {"10.0.0.5,fd00::5", "!"},
		"status.phase": {"!", "!"}, "metadata.labels['app": {"!", "!"}, "spec['x']": {"!", "!"},
	} {
		f := facts(t)
		for kind, one := range map[string]struct {
			ask  func(string) (string, error)
			want string
		}{"variable": {f.Field, want.env}, "file": {f.FileField, want.file}} {
			got, err := one.ask(path)
			if one.want == "!" {
				require.ErrorContains(t, err, "field "+path+" is not supported in a "+kind)
				continue
			}
			require.NoError(t, err, path)
			require.Equal(t, one.want, got, path)
		}
	}
	bare := &Facts{Pod: &v1.Pod{}}
	for _, path := range []string{"status.podIP", "status.hostIPs", "metadata.labels['x']"} {
		got, err := bare.Field(path)
		require.NoError(t, err)
		require.Empty(t, got)
	}
}

func TestResources(t *testing.T) {
	for name, c := range map[string]struct{ container, resource, divisor, want string }{
		"own":                  {"", "limits.cpu", "", "1"},
		"rounded up":           {"", "requests.cpu", "", "1"},
		"in thousandths":       {"", "requests.cpu", "1m", "250"},
		"bytes":                {"", "limits.memory", "", "1073741824"},
		"Mi":                   {"", "requests.memory", "1Mi", "100"},
		"Gi, rounded up":       {"", "requests.memory", "1Gi", "1"},
		"disk":                 {"", "limits.ephemeral-storage", "1Gi", "2"},
		"huge pages":           {"", "limits.hugepages-2Mi", "1Mi", "4"},
		"another's":            {"i", "requests.cpu", "1m", "1500"},
		"no limit: the node's": {"d", "limits.cpu", "", "8"},
		"and its memory":       {"d", "limits.memory", "1Gi", "16"},
		"no request":           {"d", "requests.cpu", "", "0"},
		"no such container":    {"x", "limits.cpu", "", `!the pod has no container "x"`},
		"no such resource":     {"", "usage.cpu", "", "!resource usage.cpu is not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			f, ref := facts(t), &v1.ResourceFieldSelector{ContainerName: c.container, Resource: c.resource}
			if c.divisor != "" {
				ref.Divisor = resource.MustParse(c.divisor)
			}
			got, err := f.Resource(&f.Pod.Spec.Containers[0], ref)
			if c.want[0] == '!' {
				require.EqualError(t, err, c.want[1:])
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	_, err := facts(t).Resource(nil, &v1.ResourceFieldSelector{Resource: "limits.cpu"})
	require.ErrorContains(t, err, `no container ""`)
}
