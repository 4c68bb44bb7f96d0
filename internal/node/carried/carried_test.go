package carried

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// leaves lists each field of a type, as the table names it; below a rule that
// refuses or warns nothing is listed.
func leaves(t reflect.Type, key string, visit func(key string)) {
	if r, ok := table[name(key)]; ok && r.how != carriedOut || leaf(t) {
		visit(name(key))
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		leaves(t.Elem(), key, visit)
	case reflect.Slice:
		leaves(t.Elem(), key+"[]", visit)
	case reflect.Map:
		leaves(t.Elem(), key+"{}", visit)
	case reflect.Struct:
		for i := range t.NumField() {
			leaves(t.Field(i).Type, join(key, jsonName(t.Field(i))), visit)
		}
	}
}

// TestEachFieldStandsInTheTable: a Kubernetes API with one more field needs a
// decision what this node does with it; and nothing stands there that no API has.
func TestEachFieldStandsInTheTable(t *testing.T) {
	seen := map[string]bool{}
	leaves(reflect.TypeFor[v1.PodSpec](), "", func(key string) {
		seen[key] = true
		require.Contains(t, table, key, "what does this node do with the field?")
	})
	for key := range table {
		require.True(t, seen[key] || strings.Contains(key, "{") && seen[key[:strings.Index(key, "{")]+"{}"], "%s is no field of a pod", key)
	}
	require.Greater(t, len(seen), 150)
}

func pod(edit func(*v1.PodSpec)) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}}
	edit(&p.Spec)
	return p
}

// TestWhatIsNotCarriedOut names the field and its place.
func TestWhatIsNotCarriedOut(t *testing.T) {
	yes, no := true, false
	always := v1.ContainerRestartPolicyAlways
	for _, c := range []struct {
		name    string
		edit    func(*v1.PodSpec)
		path    string // "" is nothing
		refused bool
	}{
		{"nothing", func(*v1.PodSpec) {}, "", false},
		{"user namespace", func(s *v1.PodSpec) { s.HostUsers = &no }, "spec.hostUsers", true},
		{"the node's users", func(s *v1.PodSpec) { s.HostUsers = &yes }, "", false},
		{"AppArmor", func(s *v1.PodSpec) {
			s.Containers[0].SecurityContext = &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}
		}, "spec.containers[0].securityContext.appArmorProfile.type", true},
		{"no AppArmor", func(s *v1.PodSpec) {
			s.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}}
		}, "", false},
		{"storage", func(s *v1.PodSpec) {
			s.Volumes = []v1.Volume{{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
				{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}}}
		}, "spec.volumes[1].persistentVolumeClaim", true},
		{"empty kind", func(s *v1.PodSpec) {
			s.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{GitRepo: &v1.GitRepoVolumeSource{}}}}
		}, "spec.volumes[0].gitRepo", true},
		{"group policy", func(s *v1.PodSpec) {
			policy := v1.FSGroupChangeOnRootMismatch
			s.SecurityContext = &v1.PodSecurityContext{FSGroupChangePolicy: &policy}
		}, "spec.securityContext.fsGroupChangePolicy", false},
		{"disk", func(s *v1.PodSpec) {
			s.InitContainers = []v1.Container{{Name: "i", RestartPolicy: &always}}
			s.InitContainers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi"), v1.ResourceCPU: resource.MustParse("1")}
		}, "spec.initContainers[0].resources.limits[ephemeral-storage]", false},
		{"scheduler's", func(s *v1.PodSpec) { s.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1}} },
			"spec.topologySpreadConstraints", false},
		{"pod's resources", func(s *v1.PodSpec) {
			s.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}
		}, "spec.resources.limits", false},
		{"all restart", func(s *v1.PodSpec) {
			s.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
		}, "spec.containers[0].restartPolicyRules[0].action", true},
		{"one restarts", func(s *v1.PodSpec) {
			s.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart}}
		}, "", false},
		{"debugger", func(s *v1.PodSpec) {
			s.EphemeralContainers = []v1.EphemeralContainer{{TargetContainerName: "c",
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "d", VolumeDevices: []v1.VolumeDevice{{Name: "v"}}}}}
		}, "spec.ephemeralContainers[0].volumeDevices", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := Check(pod(c.edit), true, Machine{})
			if c.path == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Equal(t, c.path, found[0].Path)
			require.Equal(t, c.refused, found[0].Refused)
			require.NotEmpty(t, found[0].Why)
		})
	}
	able := Machine{AppArmor: true, PodCgroups: true}
	require.Empty(t, Check(pod(func(s *v1.PodSpec) {
		s.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}
		s.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}
	}), true, able))
	spread := pod(func(s *v1.PodSpec) { s.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1}} })
	require.Empty(t, Check(spread, false, Machine{}), "a scheduler has seen a pod of the API server")
}
