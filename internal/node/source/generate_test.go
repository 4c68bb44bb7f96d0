package source_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// maker makes pods as people write them: most fields left out, any of them
// there now and then.
type maker struct {
	*rand.Rand
	serial int
}

// once is true once in n times.
func (m *maker) once(n int) bool { return m.IntN(n) == 0 }

func pick[T any](m *maker, all ...T) T { return all[m.IntN(len(all))] }

func ptr[T any](v T) *T { return &v }

// pod is one that everybody accepts. Names are few, so that they meet.
func (m *maker) pod() *v1.Pod {
	p := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	p.Name = pick(m, "web", "db", "cache", "dns-1", "a.b")
	p.Namespace = pick(m, "", "", "kube-system", "default")
	if m.once(3) {
		p.Labels = map[string]string{"app": p.Name, "tier": pick(m, "front", "back")}
	}
	if m.once(3) {
		p.Annotations = map[string]string{"note": pick(m, "one", "two", ""), "k8s.v1.cni.cncf.io/networks": "storage"}
	}
	if m.once(20) {
		p.Annotations = map[string]string{"pod.beta.kubernetes.io/init-containers": "[]"}
	}
	if m.once(12) {
		m.serial++
		p.UID = types.UID(fmt.Sprintf("0000-%d", m.serial))
	}
	if m.once(15) {
		p.Status = v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1", Reason: "x"}
	}
	m.spec(&p.Spec)
	return p
}

func (m *maker) spec(s *v1.PodSpec) {
	m.pods(s)
	m.volumes(s)
	for i := range 1 + m.IntN(2) {
		c := m.container(fmt.Sprintf("c%d", i), s)
		m.hooks(&c)
		s.Containers = append(s.Containers, c)
	}
	if m.once(4) {
		c := m.container("init", s)
		s.InitContainers = append(s.InitContainers, c)
	}
	if m.once(4) {
		c := m.container("side", s)
		c.RestartPolicy = ptr(v1.ContainerRestartPolicyAlways)
		m.hooks(&c)
		s.InitContainers = append(s.InitContainers, c)
	}
	if m.once(8) {
		s.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("64Gi")},
			// Left out, it is the sum of the containers' before these are
			// rounded up, and then refused for being less than afterwards.
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("32")}}
	}
}

// pods fills in what is about the pod as a whole.
func (m *maker) pods(s *v1.PodSpec) {
	s.HostNetwork, s.HostPID, s.HostIPC = m.once(4), m.once(6), m.once(8)
	if !s.HostPID && m.once(4) {
		s.ShareProcessNamespace = ptr(m.once(2))
	}
	s.RestartPolicy = pick(m, "", "", v1.RestartPolicyNever, v1.RestartPolicyOnFailure)
	if m.once(4) {
		s.TerminationGracePeriodSeconds = ptr(pick[int64](m, 0, 5, 60))
	}
	if m.once(4) {
		s.SecurityContext = &v1.PodSecurityContext{RunAsUser: ptr[int64](1000), FSGroup: ptr[int64](7),
			SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}}
		if !s.HostNetwork {
			s.SecurityContext.Sysctls = []v1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
		}
	}
	if m.once(4) {
		s.Tolerations = append(s.Tolerations, v1.Toleration{Key: "k", Operator: pick(m, "", v1.TolerationOpEqual), Value: "v", Effect: v1.TaintEffectNoSchedule})
	}
	if m.once(5) {
		s.Tolerations = append(s.Tolerations, v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: pick(m, nil, ptr[int64](300))})
	}
	if m.once(6) {
		s.DNSPolicy = v1.DNSNone
		s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"10.0.0.10"}, Searches: []string{"svc.local", "_tcp.local."},
			Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: ptr("5")}}}
	}
	if m.once(6) {
		s.HostAliases = []v1.HostAlias{{IP: "10.1.1.1", Hostnames: []string{"a", "b.c"}}}
	}
	if m.once(6) {
		s.Hostname, s.Subdomain, s.NodeSelector = "h", "sub", map[string]string{"disk": "ssd"}
	}
	if m.once(6) {
		s.PriorityClassName, s.Priority, s.AutomountServiceAccountToken = "system-node-critical", ptr[int32](2000001000), ptr(false)
	}
	if m.once(8) {
		s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"a"}}}}}}}}
		s.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}}
		s.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/ready"}}
	}
	if m.once(8) {
		s.OS, s.RuntimeClassName, s.EnableServiceLinks = &v1.PodOS{Name: v1.Linux}, ptr("runc"), ptr(false)
		s.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("10.0001m")}
	}
	if m.once(8) {
		s.SetHostnameAsFQDN, s.PreemptionPolicy, s.SchedulerName = ptr(true), ptr(v1.PreemptNever), "mine"
	}
}

func (m *maker) volumes(s *v1.PodSpec) {
	add := func(name string, v v1.VolumeSource) {
		s.Volumes = append(s.Volumes, v1.Volume{Name: name, VolumeSource: v})
	}
	if m.once(3) {
		add("tmp", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: pick(m, "", v1.StorageMediumMemory), SizeLimit: pick(m, nil, ptr(resource.MustParse("64Mi")))}})
	}
	if m.once(3) {
		add("logs", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/var/log", Type: pick(m, nil, ptr(v1.HostPathDirectory))}})
	}
	if m.once(5) {
		add("empty", v1.VolumeSource{})
	}
	item := v1.DownwardAPIVolumeFile{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}
	if m.once(5) {
		add("down", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{item}}})
	}
	if m.once(6) {
		add("all", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{*item.DeepCopy()}}}}}})
	}
	if m.once(8) {
		add("img", v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: pick(m, "quay.io/x/y:1", "busybox")}})
	}
}

func (m *maker) container(name string, s *v1.PodSpec) v1.Container {
	c := v1.Container{Name: name, Image: pick(m, "busybox", "busybox:1.36", "registry.k8s.io/pause:latest",
		"x@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "Not An Image")}
	if m.once(2) {
		c.Command, c.Args = []string{"sh", "-c"}, []string{pick(m, "sleep 1", "exit 1")}
	}
	if m.once(3) {
		c.Env = []v1.EnvVar{{Name: "A", Value: "b"}, {Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "CPU", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu"}}}}
	}
	if m.once(3) {
		c.Ports = []v1.ContainerPort{{Name: "http", ContainerPort: int32(8000 + m.IntN(9000)), Protocol: pick(m, "", v1.ProtocolUDP)}}
	}
	if m.once(3) {
		c.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse(pick(m, "1", "1000m", "0.0005")), v1.ResourceMemory: resource.MustParse(pick(m, "128Mi", "1e8", "1.5Gi"))}
	}
	if m.once(4) {
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100u")}
	}
	if m.once(4) {
		c.SecurityContext = &v1.SecurityContext{Privileged: ptr(true), Capabilities: &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"}}}
	}
	for _, v := range s.Volumes {
		if v.Image == nil && m.once(2) {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/mnt/" + v.Name, ReadOnly: m.once(2), SubPath: pick(m, "", "a/b")})
		}
	}
	return c
}

func (m *maker) hooks(c *v1.Container) {
	if m.once(4) {
		c.LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: pick(m, intstr.FromInt32(80), intstr.FromString("http"))}}}
	}
	if m.once(4) {
		c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}}, PeriodSeconds: 3, SuccessThreshold: 2}
	}
	if m.once(6) {
		c.StartupProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 90}}, TerminationGracePeriodSeconds: ptr[int64](4)}
	}
	if m.once(5) {
		c.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}},
			PreStop: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "bye", Port: intstr.FromInt32(81)}}}
	}
}

// text writes an object as a file or an answer.
func (m *maker) text(o any) string {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	if m.once(2) {
		return string(raw)
	}
	if raw, err = yaml.JSONToYAML(raw); err != nil {
		panic(err)
	}
	return pick(m, "", "---\n", "# a comment\n") + string(raw)
}

// bad is a text that nobody accepts.
func (m *maker) bad() string {
	p := m.pod()
	switch c := &p.Spec.Containers[0]; m.IntN(24) {
	case 0:
		return pick(m, "", "# nothing\n", "a: [", "\tx: 1", "- a\n- b\n", "null", "{", "apiVersion: v1\n", "kind: Pod\n", "\x00\x01", "5")
	case 1:
		p.Kind = pick(m, "", "Pods", "Deployment", "Service", "Node")
	case 2:
		p.APIVersion = pick(m, "", "v2", "apps/v1")
	case 3:
		p.Name = pick(m, "", "Upper", "a_b", "-a")
	case 4:
		p.Spec.Containers = nil
	case 5:
		c.Name = pick(m, "", "Upper", "a.b")
	case 6:
		p.Spec.Containers = append(p.Spec.Containers, *c)
	case 7:
		c.Image = ""
	case 8:
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "none", MountPath: "/x"})
	case 9:
		c.Ports = []v1.ContainerPort{{ContainerPort: pick[int32](m, 0, -1, 70000)}}
	case 10:
		c.EnvFrom = []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}}}
	case 11:
		p.Spec.ServiceAccountName = "robot"
	case 12:
		p.Spec.DeprecatedServiceAccount = "robot"
	case 13:
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "s", VolumeSource: pick(m,
			v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "m"}}},
			v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "m"}},
			v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "m"}},
			v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/a/../b"}},
			v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: ""}},
			v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/a"}, EmptyDir: &v1.EmptyDirVolumeSource{}})})
	case 14:
		c.Resources = v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}, Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}
	case 15:
		c.Resources = v1.ResourceRequirements{Requests: v1.ResourceList{pick(m, v1.ResourceCPU, "unknown"): resource.MustParse("-1")}}
	case 16:
		p.Spec.RestartPolicy = "Sometimes"
	case 17:
		p.Labels = map[string]string{"a b": "c"}
	case 18:
		c.LivenessProbe = &v1.Probe{SuccessThreshold: pick[int32](m, 0, 2), ProbeHandler: pick(m, v1.ProbeHandler{}, v1.ProbeHandler{Exec: &v1.ExecAction{}})}
	case 19:
		p.Spec.DNSPolicy, p.Spec.DNSConfig = pick(m, v1.DNSNone, "Other"), nil
	case 20:
		p.Spec.Tolerations = []v1.Toleration{pick(m, v1.Toleration{Operator: "Maybe", Key: "a"}, v1.Toleration{Key: ""}, v1.Toleration{Key: "a", TolerationSeconds: ptr[int64](1)})}
	case 21:
		p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}}
	case 22:
		p.Spec.HostAliases = []v1.HostAlias{{IP: "10.0.0"}}
	case 23:
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":%s}}`, pick(m, `{}`, `[{"name":1}]`, `"c"`, `[{"name":"c","image":"i","ports":[{"containerPort":"80"}]}]`))
	}
	return m.text(p)
}

// apiPod is a pod as the API server gives it: with a UID, without a kind.
func (m *maker) apiPod() *v1.Pod {
	p := m.pod()
	p.TypeMeta = metav1.TypeMeta{}
	m.serial++
	p.UID = types.UID(fmt.Sprintf("api-%d", m.serial))
	p.Namespace = pick(m, "default", "kube-system")
	p.Name = fmt.Sprintf("%s-%d", p.Name, m.IntN(9))
	if m.once(6) {
		p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
	}
	return p
}

// change alters something about a pod.
func (m *maker) change(p *v1.Pod) {
	switch m.IntN(8) {
	case 0:
		p.Labels = map[string]string{"v": fmt.Sprint(m.IntN(100))}
	case 1:
		p.Annotations = map[string]string{"v": fmt.Sprint(m.IntN(3))}
	case 2:
		p.Spec.Containers[0].Image = fmt.Sprint("i:", m.IntN(100))
	case 3:
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_700_000_000+int64(m.IntN(3)), 0).UTC()}
		p.DeletionGracePeriodSeconds = ptr[int64](30)
	case 4, 5:
		p.Status = v1.PodStatus{Phase: v1.PodRunning, Message: fmt.Sprint(m.IntN(3))}
	case 6:
		p.DeletionGracePeriodSeconds = ptr(int64(m.IntN(2)))
	case 7:
		p.Annotations = nil
		p.Generation++
	}
}
