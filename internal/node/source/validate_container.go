package source

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead/fairlead/internal/node/demand"
)

// kindsOf names the fields of a union that are set, as the file spells them.
func kindsOf(union any) []string {
	var out []string
	v := reflect.ValueOf(union).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			out = append(out, name)
		}
	}
	return out
}

func (v *validator) containers(at *field.Path) {
	s := &v.pod.Spec
	if len(s.Containers) == 0 {
		v.add(field.Required(at.Child("containers"), ""))
	}
	names, ports := sets.New[string](), sets.New[string]()
	for i := range s.Containers {
		at := at.Child("containers").Index(i)
		v.container(&s.Containers[i], names, at)
		v.hostPorts(&s.Containers[i], ports, at.Child("ports"))
		v.hooks(&s.Containers[i], at)
	}
	for i := range s.InitContainers {
		c, at := &s.InitContainers[i], at.Child("initContainers").Index(i)
		v.container(c, names, at)
		v.hostPorts(c, sets.New[string](), at.Child("ports")) // they run one by one
		if sidecar(*c) {
			v.hooks(c, at)
		} else if c.Lifecycle != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil {
			v.add(field.Forbidden(at, "lifecycle and probes may not be set for init containers without restartPolicy=Always"))
		}
	}
}

func (v *validator) container(c *v1.Container, names sets.Set[string], at *field.Path) {
	v.label(c.Name, at.Child("name"))
	if names.Has(c.Name) {
		v.add(field.Duplicate(at.Child("name"), c.Name))
	}
	names.Insert(c.Name)
	if c.Image == "" {
		v.add(field.Required(at.Child("image"), ""))
	}
	among(v, at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy, v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	among(v, at.Child("imagePullPolicy"), c.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	if p := c.RestartPolicy; p != nil {
		among(v, at.Child("restartPolicy"), *p, v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
	}
	v.restartRules(c, at)
	v.ports(c.Ports, at.Child("ports"))
	v.env(c, at)
	v.mounts(c.VolumeMounts, at.Child("volumeMounts"))
	v.resources(&c.Resources, at.Child("resources"))
	if sc := c.SecurityContext; sc != nil && sc.Privileged != nil && *sc.Privileged &&
		sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		v.add(field.Invalid(at.Child("securityContext"), "", "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
	}
}

func (v *validator) restartRules(c *v1.Container, at *field.Path) {
	if len(c.RestartPolicyRules) > 0 && c.RestartPolicy == nil {
		v.add(field.Required(at.Child("restartPolicy"), "must be set when `restartPolicyRules` is"))
	}
	for i, r := range c.RestartPolicyRules {
		at := at.Child("restartPolicyRules").Index(i)
		if r.ExitCodes == nil {
			v.add(field.Required(at.Child("exitCodes"), ""))
			continue
		}
		among(v, at.Child("exitCodes", "operator"), r.ExitCodes.Operator, v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)
	}
}

func (v *validator) ports(ports []v1.ContainerPort, at *field.Path) {
	names := sets.New[string]()
	for i, p := range ports {
		at := at.Index(i)
		if p.Name != "" {
			v.says(validation.IsValidPortName(p.Name), at.Child("name"), p.Name)
			if names.Has(p.Name) {
				v.add(field.Duplicate(at.Child("name"), p.Name))
			}
			names.Insert(p.Name)
		}
		v.says(validation.IsValidPortNum(int(p.ContainerPort)), at.Child("containerPort"), p.ContainerPort)
		if p.HostPort != 0 {
			v.says(validation.IsValidPortNum(int(p.HostPort)), at.Child("hostPort"), p.HostPort)
		}
		if v.pod.Spec.HostNetwork && p.HostPort != p.ContainerPort {
			v.add(field.Invalid(at.Child("hostPort"), p.HostPort, "must match `containerPort` when `hostNetwork` is true"))
		}
		among(v, at.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
	}
}

// hostPorts refuses a port of the node that is wanted twice.
func (v *validator) hostPorts(c *v1.Container, have sets.Set[string], at *field.Path) {
	for i, p := range c.Ports {
		if p.HostPort == 0 {
			continue
		}
		key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
		if have.Has(key) {
			v.add(field.Duplicate(at.Index(i).Child("hostPort"), key))
		}
		have.Insert(key)
	}
}

func (v *validator) env(c *v1.Container, at *field.Path) {
	for i, e := range c.Env {
		at := at.Child("env").Index(i)
		if e.Name == "" {
			v.add(field.Required(at.Child("name"), ""))
		} else {
			v.says(validation.IsRelaxedEnvVarName(e.Name), at.Child("name"), e.Name)
		}
		if e.ValueFrom == nil {
			continue
		}
		switch kinds := kindsOf(e.ValueFrom); {
		case len(kinds) == 0:
			v.add(field.Required(at.Child("valueFrom"), "one source"))
		case len(kinds) > 1:
			v.add(field.Invalid(at.Child("valueFrom", kinds[1]), "", "may not have more than one field specified at a time"))
		case e.Value != "":
			v.add(field.Invalid(at.Child("valueFrom"), "", "may not be specified when `value` is not empty"))
		}
	}
	for i, e := range c.EnvFrom {
		if len(kindsOf(&e)) != 1 {
			v.add(field.Invalid(at.Child("envFrom").Index(i), "", "one of configMapRef and secretRef is required"))
		}
	}
}

func (v *validator) mounts(mounts []v1.VolumeMount, at *field.Path) {
	paths := sets.New[string]()
	for i, m := range mounts {
		at := at.Index(i)
		if m.Name == "" {
			v.add(field.Required(at.Child("name"), ""))
		} else if v.volumes[m.Name] == nil {
			v.add(field.NotFound(at.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			v.add(field.Required(at.Child("mountPath"), ""))
		}
		if paths.Has(m.MountPath) {
			v.add(field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		paths.Insert(m.MountPath)
		v.descending(m.SubPath, at.Child("subPath"))
		v.descending(m.SubPathExpr, at.Child("subPathExpr"))
		if m.SubPath != "" && m.SubPathExpr != "" {
			v.add(field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
		}
	}
}

func (v *validator) resources(r *v1.ResourceRequirements, at *field.Path) {
	v.quantities(r.Requests, at.Child("requests"))
	v.quantities(r.Limits, at.Child("limits"))
	for name, q := range r.Requests {
		at := at.Child("requests").Key(string(name))
		limit, limited := r.Limits[name]
		switch overcommit := standard(name) && !huge(name); {
		case limited && q.Cmp(limit) > 0:
			v.add(field.Invalid(at, q.String(), "must be less than or equal to the limit of "+limit.String()))
		case !overcommit && (!limited || q.Cmp(limit) != 0):
			v.add(field.Invalid(at, q.String(), "must be equal to the limit, for it cannot be overcommitted"))
		}
	}
}

func (v *validator) quantities(l v1.ResourceList, at *field.Path) {
	for name, q := range l {
		at := at.Key(string(name))
		if q.Sign() < 0 {
			v.add(field.Invalid(at, q.String(), "must not be negative"))
		}
		if !standard(name) && !strings.Contains(string(name), "/") {
			v.add(field.Invalid(at, name, "must be a standard resource for containers or qualified"))
		}
	}
}

// standard tells the resources that every node has.
func standard(name v1.ResourceName) bool {
	return huge(name) || name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage
}

// podResources checks what the pod as a whole asks for against its containers.
func (v *validator) podResources(at *field.Path) {
	r := v.pod.Spec.Resources
	if r == nil {
		return
	}
	v.resources(r, at)
	v.covers(r.Requests, demand.Together(v.pod, requestsOf), at.Child("requests"))
	pages := demand.Together(v.pod, limitsOf)
	maps.DeleteFunc(pages, func(name v1.ResourceName, _ resource.Quantity) bool { return !huge(name) })
	v.covers(r.Limits, pages, at.Child("limits"))
	for _, c := range v.pod.Spec.Containers {
		v.covers(r.Limits, c.Resources.Limits, at.Child("limits"))
	}
}

// covers refuses what is less for the pod than for its containers.
func (v *validator) covers(pod, containers v1.ResourceList, at *field.Path) {
	for name, q := range containers {
		if whole, ok := pod[name]; ok && q.Cmp(whole) > 0 {
			v.add(field.Invalid(at.Key(string(name)), whole.String(), "must be at least that of the containers, "+q.String()))
		}
	}
}

// hooks checks probes and what is to be done around a container's life.
func (v *validator) hooks(c *v1.Container, at *field.Path) {
	for _, p := range []struct {
		name  string
		probe *v1.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		if p.probe != nil {
			v.probe(p.probe, p.name == "readinessProbe", at.Child(p.name))
		}
	}
	if c.Lifecycle == nil {
		return
	}
	for name, h := range map[string]*v1.LifecycleHandler{"postStart": c.Lifecycle.PostStart, "preStop": c.Lifecycle.PreStop} {
		if h != nil {
			at := at.Child("lifecycle", name)
			v.oneHandler(kindsOf(h), at)
			v.handler(h.Exec, h.HTTPGet, h.TCPSocket, at)
		}
	}
}

func (v *validator) probe(p *v1.Probe, readiness bool, at *field.Path) {
	v.oneHandler(kindsOf(&p.ProbeHandler), at)
	v.handler(p.Exec, p.HTTPGet, p.TCPSocket, at)
	if p.GRPC != nil {
		v.says(validation.IsValidPortNum(int(p.GRPC.Port)), at.Child("grpc", "port"), p.GRPC.Port)
	}
	atLeast(v, at.Child("initialDelaySeconds"), p.InitialDelaySeconds, 0)
	atLeast(v, at.Child("timeoutSeconds"), p.TimeoutSeconds, 0)
	atLeast(v, at.Child("periodSeconds"), p.PeriodSeconds, 0)
	atLeast(v, at.Child("successThreshold"), p.SuccessThreshold, 0)
	atLeast(v, at.Child("failureThreshold"), p.FailureThreshold, 0)
	grace := p.TerminationGracePeriodSeconds
	switch {
	case readiness && grace != nil:
		v.add(field.Invalid(at.Child("terminationGracePeriodSeconds"), *grace, "must not be set for readinessProbes"))
	case grace != nil:
		atLeast(v, at.Child("terminationGracePeriodSeconds"), *grace, 1)
	}
	if !readiness && p.SuccessThreshold != 1 {
		v.add(field.Invalid(at.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
}

func (v *validator) oneHandler(kinds []string, at *field.Path) {
	switch {
	case len(kinds) == 0:
		v.add(field.Required(at, "must specify a handler type"))
	case len(kinds) > 1:
		v.add(field.Forbidden(at.Child(kinds[1]), "may not specify more than 1 handler type"))
	}
}

func (v *validator) handler(exec *v1.ExecAction, get *v1.HTTPGetAction, tcp *v1.TCPSocketAction, at *field.Path) {
	if exec != nil && len(exec.Command) == 0 {
		v.add(field.Required(at.Child("exec", "command"), ""))
	}
	if tcp != nil {
		v.portOrName(tcp.Port, at.Child("tcpSocket", "port"))
	}
	if get == nil {
		return
	}
	v.portOrName(get.Port, at.Child("httpGet", "port"))
	among(v, at.Child("httpGet", "scheme"), get.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
	for _, h := range get.HTTPHeaders {
		v.says(validation.IsHTTPHeaderName(h.Name), at.Child("httpGet", "httpHeaders"), h.Name)
	}
}

func (v *validator) portOrName(p intstr.IntOrString, at *field.Path) {
	if p.Type == intstr.Int {
		v.says(validation.IsValidPortNum(p.IntValue()), at, p.IntValue())
	} else {
		v.says(validation.IsValidPortName(p.StrVal), at, p.StrVal)
	}
}
