package source

import (
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fairlead/fairlead/internal/node/demand"
)

// setDefaults fills in what the API server would fill in, in the order in which
// it does (Kubernetes' pkg/apis/core/v1/defaults.go): a static pod never passes
// it. Volumes of kinds that no file of a node can serve are left as they are.
func setDefaults(pod *v1.Pod) {
	s := &pod.Spec
	eachContainer(pod, func(c *v1.Container) { limitsAsRequests(&c.Resources) })
	podResources(pod)
	setDefault(&s.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	setDefault(&s.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	if *s.TerminationGracePeriodSeconds < 0 {
		*s.TerminationGracePeriodSeconds = 1
	}
	orDefault(&s.DNSPolicy, v1.DNSClusterFirst)
	orDefault(&s.RestartPolicy, v1.RestartPolicyAlways)
	orDefault(&s.SchedulerName, v1.DefaultSchedulerName)
	if s.SecurityContext == nil {
		s.SecurityContext = &v1.PodSecurityContext{}
	}
	for i := range s.Volumes {
		volumeDefaults(&s.Volumes[i])
	}
	eachContainer(pod, func(c *v1.Container) { containerDefaults(c, s.HostNetwork) })
	round(s.Overhead)
	if s.Resources != nil {
		round(s.Resources.Limits)
		round(s.Resources.Requests)
	}
	aliases(pod)
}

// aliases makes older names of a thing agree with the newer one.
func aliases(pod *v1.Pod) {
	s := &pod.Spec
	orDefault(&s.ServiceAccountName, s.DeprecatedServiceAccount)
	s.DeprecatedServiceAccount = s.ServiceAccountName
	// These stood for initContainers before Kubernetes 1.6.
	for _, beta := range []string{"beta", "alpha"} {
		delete(pod.Annotations, "pod."+beta+".kubernetes.io/init-containers")
		delete(pod.Annotations, "pod."+beta+".kubernetes.io/init-container-statuses")
	}
	st := &pod.Status
	if st.PodIP != "" && (len(st.PodIPs) == 0 || st.PodIPs[0].IP != st.PodIP) {
		st.PodIPs = []v1.PodIP{{IP: st.PodIP}}
	}
	if len(st.PodIPs) > 0 {
		st.PodIP = st.PodIPs[0].IP
	}
}

func eachContainer(pod *v1.Pod, do func(*v1.Container)) {
	for i := range pod.Spec.InitContainers {
		do(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		do(&pod.Spec.Containers[i])
	}
}

func setDefault[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

func orDefault[T comparable](p *T, v T) {
	if none := *new(T); *p == none {
		*p = v
	}
}

// limitsAsRequests: who limits a resource and does not say what it needs, needs
// the limit.
func limitsAsRequests(r *v1.ResourceRequirements) {
	if r.Limits == nil {
		return
	}
	if r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	for name, q := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = q.DeepCopy()
		}
	}
}

// podResources completes what a pod asks for as a whole, when it does (KEP-2837):
// huge pages are limited to the sum of the containers', and requests are the
// sum of the containers' or else the limit.
func podResources(pod *v1.Pod) {
	r := pod.Spec.Resources
	if r == nil || len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	for name, q := range demand.Together(pod, limitsOf) {
		if _, asked := r.Requests[name]; huge(name) && !asked {
			r.Limits = fill(r.Limits, name, q)
		}
	}
	if len(r.Limits) == 0 {
		return
	}
	for name, q := range demand.Together(pod, requestsOf) {
		if ofPods(name) && !huge(name) {
			r.Requests = fill(r.Requests, name, q)
		}
	}
	for name, q := range r.Limits {
		if ofPods(name) {
			r.Requests = fill(r.Requests, name, q)
		}
	}
}

func limitsOf(r v1.ResourceRequirements) v1.ResourceList   { return r.Limits }
func requestsOf(r v1.ResourceRequirements) v1.ResourceList { return r.Requests }

// ofPods tells what a pod may ask for as a whole.
func ofPods(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || huge(name)
}

func huge(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// fill sets what is not there yet.
func fill(l v1.ResourceList, name v1.ResourceName, q resource.Quantity) v1.ResourceList {
	if _, ok := l[name]; ok {
		return l
	}
	if l == nil {
		l = v1.ResourceList{}
	}
	l[name] = q.DeepCopy()
	return l
}

func sidecar(c v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// round rounds up to thousandths, the finest that the API keeps.
func round(l v1.ResourceList) {
	for name, q := range l {
		q.RoundUp(resource.Milli)
		l[name] = q
	}
}

func volumeDefaults(v *v1.Volume) {
	if v.VolumeSource == (v1.VolumeSource{}) {
		v.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		setDefault(&v.HostPath.Type, v1.HostPathUnset)
	case v.Secret != nil:
		setDefault(&v.Secret.DefaultMode, v1.SecretVolumeSourceDefaultMode)
	case v.ConfigMap != nil:
		setDefault(&v.ConfigMap.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode)
	case v.DownwardAPI != nil:
		setDefault(&v.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		fieldDefaults(v.DownwardAPI.Items)
	case v.Projected != nil:
		projectedDefaults(v.Projected)
	case v.Image != nil:
		orDefault(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
}

func projectedDefaults(p *v1.ProjectedVolumeSource) {
	setDefault(&p.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		if d := p.Sources[i].DownwardAPI; d != nil {
			fieldDefaults(d.Items)
		}
		if t := p.Sources[i].ServiceAccountToken; t != nil {
			setDefault(&t.ExpirationSeconds, 60*60)
		}
	}
}

func fieldDefaults(items []v1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			orDefault(&items[i].FieldRef.APIVersion, "v1")
		}
	}
}

func containerDefaults(c *v1.Container, hostNetwork bool) {
	orDefault(&c.ImagePullPolicy, pullPolicy(c.Image))
	orDefault(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	orDefault(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		orDefault(&c.Ports[i].Protocol, v1.ProtocolTCP)
		if hostNetwork {
			orDefault(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from != nil && from.FieldRef != nil {
			orDefault(&from.FieldRef.APIVersion, "v1")
		}
		if from != nil && from.FileKeyRef != nil {
			setDefault(&from.FileKeyRef.Optional, false)
		}
	}
	round(c.Resources.Limits)
	round(c.Resources.Requests)
	for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		probeDefaults(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				httpDefaults(h.HTTPGet)
			}
		}
	}
}

func probeDefaults(p *v1.Probe) {
	if p == nil {
		return
	}
	orDefault(&p.TimeoutSeconds, 1)
	orDefault(&p.PeriodSeconds, 10)
	orDefault(&p.SuccessThreshold, 1)
	orDefault(&p.FailureThreshold, 3)
	httpDefaults(p.HTTPGet)
	if p.GRPC != nil {
		setDefault(&p.GRPC.Service, "")
	}
}

func httpDefaults(g *v1.HTTPGetAction) {
	if g != nil {
		orDefault(&g.Path, "/")
		orDefault(&g.Scheme, v1.URISchemeHTTP)
	}
}

// pullPolicy of an image that is named without one: a tag that moves is asked
// for each time. A name that is none is refused elsewhere.
func pullPolicy(image string) v1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent
	}
	tagged, isTagged := named.(reference.Tagged)
	_, isDigested := named.(reference.Digested)
	if (isTagged && tagged.Tag() == "latest") || (!isTagged && !isDigested) {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}
