package podruntime

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/testbed/kube/cgroup"
)

func asks(uid, request, limit string) *v1.Pod {
	list := func(text string) v1.ResourceList {
		cpu, memory, ok := strings.Cut(text, "/")
		if !ok {
			return nil
		}
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	p := &v1.Pod{}
	p.UID = types.UID(uid)
	for range 2 {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: v1.ResourceRequirements{Requests: list(request), Limits: list(limit)}})
	}
	return p
}

// TestCgroupOfAPod: it stands below its class and has the weight and the limits of
// the whole pod, in the kernel's own files.
func TestCgroupOfAPod(t *testing.T) {
	group, err := cgroup.New("fln-pod-" + strconv.Itoa(os.Getpid()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, group.Remove()) })
	r := New(Config{CgroupParent: group.Name, PodDir: t.TempDir(), LogDir: t.TempDir()})
	partly := asks("p", "250m/64Mi", "1/128Mi")
	partly.Spec.Containers[1].Resources.Limits = nil
	whole := asks("w", "250m/64Mi", "")
	whole.Spec.Resources = &v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
		Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")},
	}
	for _, c := range []struct {
		pod                   *v1.Pod
		dir                   string
		shares, quota, memory string // of v1
		weight, most, bytes   string // of v2
	}{
		{asks("g", "500m/64Mi", "500m/64Mi"), "podg", "1024", "100000", "134217728", "39", "100000 100000", "134217728"},
		{asks("b", "250m/64Mi", "1/128Mi"), "burstable/podb", "512", "200000", "268435456", "20", "200000 100000", "268435456"},
		{partly, "burstable/podp", "512", "-1", "9223372036854771712", "20", "max 100000", "max"},
		{whole, "burstable/podw", "1024", "300000", "9223372036854771712", "39", "300000 100000", "max"},
		{asks("n", "", ""), "besteffort/podn", "2", "-1", "9223372036854771712", "1", "max 100000", "max"},
	} {
		require.NoError(t, r.makeCgroup(c.pod))
		require.NoError(t, r.makeCgroup(c.pod), "again")
		require.Equal(t, filepath.Join(group.Name, c.dir), r.cgroup(c.pod))
		read := func(hierarchy, file string) string {
			text, err := os.ReadFile(filepath.Join(cgroupRoot, hierarchy, group.Name, c.dir, file))
			require.NoError(t, err)
			return strings.TrimSpace(string(text))
		}
		if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
			require.Equal(t, []string{c.weight, c.most, c.bytes}, []string{read("", "cpu.weight"), read("", "cpu.max"), read("", "memory.max")}, c.dir)
		} else {
			require.Equal(t, []string{c.shares, c.quota, c.memory},
				[]string{read("cpu", "cpu.shares"), read("cpu", "cpu.cfs_quota_us"), read("memory", "memory.limit_in_bytes")}, c.dir)
		}
		require.NoError(t, r.removeCgroup(c.pod.UID))
		dirs, err := r.cgroupDirs(string(c.pod.UID), "")
		require.NoError(t, err)
		require.Empty(t, dirs)
	}
	for _, p := range []*v1.Pod{asks("1", "500m/64Mi", ""), asks("2", "250m/64Mi", "")} {
		require.NoError(t, r.makeCgroup(p))
	}
	together, err := os.ReadFile(filepath.Join(cgroupRoot, "cpu", group.Name, "burstable/cpu.shares"))
	if err == nil { // v1
		require.Equal(t, "1536\n", string(together), "pods of a class are weighed against those of the others")
	}
	require.NoError(t, r.removeCgroup("1"))
	require.NoError(t, r.removeCgroup("2"))
	effort, err := os.ReadFile(filepath.Join(cgroupRoot, "cpu", group.Name, "besteffort/cpu.shares"))
	if err == nil { // v1
		require.Equal(t, "2\n", string(effort))
	}
}

// TestOOMScore: who asks for half of the node's memory goes as late as half of the
// way, whatever size the node has.
func TestOOMScore(t *testing.T) {
	p := asks("b", "1m/512Mi", "")
	require.EqualValues(t, 500, oomScore(p, &p.Spec.Containers[0], 1<<30))
	require.EqualValues(t, 938, oomScore(p, &p.Spec.Containers[0], 8<<30))
	require.EqualValues(t, 3, oomScore(p, &p.Spec.Containers[0], 1<<20))
	require.EqualValues(t, 1000, oomScore(asks("n", "", ""), &v1.Container{}, 1<<30))
}
