package source

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate finds what an API server would refuse and what would fail only once
// the pod is run. It is not the whole of Kubernetes' validation (that is not to
// be had as a library): what it does not know of, the runtime refuses.
func validate(pod *v1.Pod) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	v := &validator{pod: pod, volumes: map[string]*v1.VolumeSource{}}
	at := field.NewPath("spec")
	v.allVolumes(at.Child("volumes"))
	v.containers(at)
	v.settings(at)
	v.podResources(at.Child("resources"))
	v.dns(at)
	v.tolerations(at.Child("tolerations"))
	for i, a := range pod.Spec.HostAliases {
		v.ip(a.IP, at.Child("hostAliases").Index(i).Child("ip"))
		for j, name := range a.Hostnames {
			v.says(validation.IsDNS1123Subdomain(name), at.Child("hostAliases").Index(i).Child("hostnames").Index(j), name)
		}
	}
	return append(errs, v.errs...)
}

type validator struct {
	pod     *v1.Pod
	volumes map[string]*v1.VolumeSource // the good ones, by name
	errs    field.ErrorList
}

func (v *validator) add(e ...*field.Error) { v.errs = append(v.errs, e...) }

// says adds messages of apimachinery's checks about one value.
func (v *validator) says(messages []string, at *field.Path, value any) {
	for _, m := range messages {
		v.add(field.Invalid(at, value, m))
	}
}

func (v *validator) label(name string, at *field.Path) {
	if name == "" {
		v.add(field.Required(at, ""))
		return
	}
	v.says(validation.IsDNS1123Label(name), at, name)
}

func (v *validator) ip(ip string, at *field.Path) {
	v.add(validation.IsValidIPForLegacyField(at, ip, false, nil)...)
}

// among checks a value that has only some.
func among[T ~string](v *validator, at *field.Path, value T, all ...T) {
	if !slices.Contains(all, value) {
		v.add(field.NotSupported(at, value, all))
	}
}

// atLeast checks a number's lower bound.
func atLeast[T int32 | int64](v *validator, at *field.Path, value, least T) {
	if value < least {
		v.add(field.Invalid(at, value, "must be at least "+map[T]string{0: "0", 1: "1"}[least]))
	}
}

func (v *validator) settings(at *field.Path) {
	s := &v.pod.Spec
	among(v, at.Child("restartPolicy"), s.RestartPolicy, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	v.add(metavalidation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
	if d := s.ActiveDeadlineSeconds; d != nil {
		atLeast(v, at.Child("activeDeadlineSeconds"), *d, 1)
	}
	v.says(validation.IsDNS1123Subdomain(s.NodeName), at.Child("nodeName"), s.NodeName)
	if s.Hostname != "" {
		v.label(s.Hostname, at.Child("hostname"))
	}
	if s.Subdomain != "" {
		v.label(s.Subdomain, at.Child("subdomain"))
	}
	if len(s.EphemeralContainers) > 0 {
		v.add(field.Forbidden(at.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if len(s.SchedulingGates) > 0 {
		v.add(field.Forbidden(at.Child("schedulingGates"), "a static pod has no scheduler to wait for"))
	}
	if share := s.ShareProcessNamespace; s.HostPID && share != nil && *share {
		v.add(field.Invalid(at.Child("shareProcessNamespace"), *share, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	names := sets.New[string]()
	for i, c := range s.SecurityContext.Sysctls {
		at := at.Child("securityContext", "sysctls").Index(i).Child("name")
		switch {
		case c.Name == "":
			v.add(field.Required(at, ""))
		case names.Has(c.Name):
			v.add(field.Duplicate(at, c.Name))
		}
		names.Insert(c.Name)
	}
}

func (v *validator) dns(at *field.Path) {
	s := &v.pod.Spec
	among(v, at.Child("dnsPolicy"), s.DNSPolicy, v1.DNSClusterFirstWithHostNet, v1.DNSClusterFirst, v1.DNSDefault, v1.DNSNone)
	c := s.DNSConfig
	at = at.Child("dnsConfig")
	if s.DNSPolicy == v1.DNSNone && (c == nil || len(c.Nameservers) == 0) {
		v.add(field.Required(at.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None"))
	}
	if c == nil {
		return
	}
	if len(c.Nameservers) > 3 {
		v.add(field.TooMany(at.Child("nameservers"), len(c.Nameservers), 3)) // resolv.conf(5)
	}
	for i, ns := range c.Nameservers {
		v.ip(ns, at.Child("nameservers").Index(i))
	}
	for i, name := range c.Searches {
		// Underscores stand in names of services; a dot alone is the root.
		plain := strings.ReplaceAll(strings.TrimSuffix(name, "."), "_", "-")
		if name != "." {
			v.says(validation.IsDNS1123Subdomain(strings.Trim(plain, "-")), at.Child("searches").Index(i), name)
		}
	}
	for i, o := range c.Options {
		if o.Name == "" {
			v.add(field.Required(at.Child("options").Index(i), "must not be empty"))
		}
	}
}

func (v *validator) tolerations(at *field.Path) {
	for i, t := range v.pod.Spec.Tolerations {
		at := at.Index(i)
		if t.Key != "" {
			v.add(metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != v1.TolerationOpExists {
			v.add(field.Invalid(at.Child("operator"), t.Operator, "must be Exists when `key` is empty"))
		}
		if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
			v.add(field.Invalid(at.Child("effect"), t.Effect, "must be NoExecute when `tolerationSeconds` is set"))
		}
		among(v, at.Child("operator"), t.Operator, "", v1.TolerationOpEqual, v1.TolerationOpExists)
		if t.Operator == v1.TolerationOpExists && t.Value != "" {
			v.add(field.Invalid(at.Child("value"), t.Value, "must be empty when `operator` is Exists"))
		} else {
			v.says(validation.IsValidLabelValue(t.Value), at.Child("value"), t.Value)
		}
		among(v, at.Child("effect"), t.Effect, "", v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)
	}
}

func (v *validator) allVolumes(at *field.Path) {
	names := sets.New[string]()
	for i := range v.pod.Spec.Volumes {
		vol, at := &v.pod.Spec.Volumes[i], at.Index(i)
		before := len(v.errs)
		v.label(vol.Name, at.Child("name"))
		if names.Has(vol.Name) {
			v.add(field.Duplicate(at.Child("name"), vol.Name))
		}
		names.Insert(vol.Name)
		v.volume(vol, at)
		if len(v.errs) == before {
			v.volumes[vol.Name] = &vol.VolumeSource
		}
	}
}

func (v *validator) volume(vol *v1.Volume, at *field.Path) {
	if kinds := kindsOf(&vol.VolumeSource); len(kinds) > 1 {
		v.add(field.Forbidden(at.Child(kinds[1]), "may not specify more than 1 volume type"))
	}
	if vol.HostPath != nil {
		v.hostPath(vol.HostPath, at.Child("hostPath"))
	}
	if e := vol.EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		v.add(field.Forbidden(at.Child("emptyDir", "sizeLimit"), "must not be negative"))
	}
	if c := vol.ConfigMap; c != nil {
		v.required(c.Name, at.Child("configMap", "name"))
		v.keys(c.Items, at.Child("configMap", "items"))
	}
	if s := vol.Secret; s != nil {
		v.required(s.SecretName, at.Child("secret", "secretName"))
		v.keys(s.Items, at.Child("secret", "items"))
	}
	if d := vol.DownwardAPI; d != nil {
		v.fields(d.Items, at.Child("downwardAPI", "items"))
	}
	if vol.Projected != nil {
		v.projected(vol.Projected, at.Child("projected", "sources"))
	}
}

func (v *validator) required(value string, at *field.Path) {
	if value == "" {
		v.add(field.Required(at, ""))
	}
}

func (v *validator) hostPath(h *v1.HostPathVolumeSource, at *field.Path) {
	v.required(h.Path, at.Child("path"))
	v.noBacksteps(h.Path, at.Child("path"))
	among(v, at.Child("type"), *h.Type, v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory,
		v1.HostPathFileOrCreate, v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev)
}

// projected refuses also that two sources write one file.
func (v *validator) projected(p *v1.ProjectedVolumeSource, at *field.Path) {
	var files []string
	keys := func(name string, items []v1.KeyToPath, at *field.Path) {
		v.required(name, at.Child("name"))
		v.keys(items, at.Child("items"))
		for _, k := range items {
			files = append(files, k.Path)
		}
	}
	for i, s := range p.Sources {
		at := at.Index(i)
		if s.ConfigMap != nil {
			keys(s.ConfigMap.Name, s.ConfigMap.Items, at.Child("configMap"))
		}
		if s.Secret != nil {
			keys(s.Secret.Name, s.Secret.Items, at.Child("secret"))
		}
		if s.DownwardAPI != nil {
			v.fields(s.DownwardAPI.Items, at.Child("downwardAPI", "items"))
			for _, f := range s.DownwardAPI.Items {
				files = append(files, f.Path)
			}
		}
		if n := len(kindsOf(&s)); n != 1 {
			v.add(field.Required(at, "exactly one source"))
		}
	}
	slices.Sort(files)
	for i := 1; i < len(files); i++ {
		if files[i] == files[i-1] {
			v.add(field.Duplicate(at, files[i]))
		}
	}
}

// keys checks where the files of a ConfigMap or Secret are to be.
func (v *validator) keys(items []v1.KeyToPath, at *field.Path) {
	for i, k := range items {
		v.required(k.Key, at.Index(i).Child("key"))
		v.below(k.Path, at.Index(i).Child("path"))
	}
}

func (v *validator) fields(items []v1.DownwardAPIVolumeFile, at *field.Path) {
	for i, f := range items {
		v.below(f.Path, at.Index(i).Child("path"))
		if (f.FieldRef == nil) == (f.ResourceFieldRef == nil) {
			v.add(field.Required(at.Index(i), "one of fieldRef and resourceFieldRef is required"))
		}
	}
}

// below checks a path inside a volume, which is not optional.
func (v *validator) below(p string, at *field.Path) {
	switch {
	case p == "":
		v.add(field.Required(at, ""))
	case strings.HasPrefix(p, ".."):
		v.add(field.Invalid(at, p, "must not start with '..'"))
	default:
		v.descending(p, at)
	}
}

func (v *validator) descending(p string, at *field.Path) {
	if path.IsAbs(p) {
		v.add(field.Invalid(at, p, "must be a relative path"))
	}
	v.noBacksteps(p, at)
}

func (v *validator) noBacksteps(p string, at *field.Path) {
	if slices.Contains(strings.Split(p, "/"), "..") {
		v.add(field.Invalid(at, p, "must not contain '..'"))
	}
}
