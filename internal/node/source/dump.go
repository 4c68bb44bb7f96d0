package source

import (
	"io"
	"reflect"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// kubelet hashes a pod as Kubernetes' internal type of it, printed with the
// names of fields and types (k8s.io/utils/dump.ForHash over go-spew's %#v). The
// internal types are those of core/v1 under another package name, but for the
// fields below; so the same text comes from walking the pod that we have. The
// differential test holds this against kubelet's own hash.

// inner are the fields of the structs that internally stand in another order,
// or with others.
var inner = map[reflect.Type][]string{
	reflect.TypeFor[v1.PodSpec](): {"Volumes", "InitContainers", "Containers", "EphemeralContainers", "RestartPolicy",
		"TerminationGracePeriodSeconds", "ActiveDeadlineSeconds", "DNSPolicy", "NodeSelector", "ServiceAccountName",
		"AutomountServiceAccountToken", "NodeName", "SecurityContext", "ImagePullSecrets", "Hostname", "Subdomain",
		"SetHostnameAsFQDN", "Affinity", "SchedulerName", "Tolerations", "HostAliases", "PriorityClassName", "Priority",
		"PreemptionPolicy", "DNSConfig", "ReadinessGates", "RuntimeClassName", "Overhead", "EnableServiceLinks",
		"TopologySpreadConstraints", "OS", "SchedulingGates", "ResourceClaims", "Resources", "HostnameOverride",
		"SchedulingGroup"},
	reflect.TypeFor[v1.PodSecurityContext](): {"HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers",
		"SELinuxOptions", "WindowsOptions", "RunAsUser", "RunAsGroup", "RunAsNonRoot", "SupplementalGroups",
		"SupplementalGroupsPolicy", "FSGroup", "FSGroupChangePolicy", "Sysctls", "SeccompProfile", "AppArmorProfile",
		"SELinuxChangePolicy"},
	reflect.TypeFor[v1.VolumeSource](): {"HostPath", "EmptyDir", "GCEPersistentDisk", "AWSElasticBlockStore", "GitRepo",
		"Secret", "NFS", "ISCSI", "Glusterfs", "PersistentVolumeClaim", "RBD", "Quobyte", "FlexVolume", "Cinder", "CephFS",
		"Flocker", "DownwardAPI", "FC", "AzureFile", "ConfigMap", "VsphereVolume", "AzureDisk", "PhotonPersistentDisk",
		"Projected", "PortworxVolume", "ScaleIO", "StorageOS", "CSI", "Ephemeral", "Image"},
	reflect.TypeFor[v1.PodStatus](): {"ObservedGeneration", "Phase", "Conditions", "Message", "Reason", "NominatedNodeName",
		"HostIP", "HostIPs", "PodIPs", "StartTime", "QOSClass", "InitContainerStatuses", "ContainerStatuses",
		"EphemeralContainerStatuses", "Resize", "ResourceClaimStatuses", "ExtendedResourceClaimStatus",
		"AllocatedResources", "Resources", "NodeAllocatableResourceClaimStatuses"},
}

// dump writes the pod as kubelet prints it. The pod has its defaults.
func dump(w io.Writer, pod *v1.Pod) {
	d := dumper{w: w, spec: reflect.ValueOf(&pod.Spec).Elem()}
	d.value(reflect.ValueOf(pod), true)
}

type dumper struct {
	w    io.Writer
	spec reflect.Value // has what internally is the security context's
}

func (d *dumper) put(s string) {
	_, _ = io.WriteString(d.w, s) // into a hash
}

// value writes one value, behind its type if typed. Elements of slices and maps
// are written without: their type is said by what they are in.
func (d *dumper) value(v reflect.Value, typed bool) {
	if v.Kind() == reflect.Pointer {
		d.pointer(v, typed)
		return
	}
	if typed {
		d.put("(" + typeName(v.Type()) + ")")
	}
	switch v.Kind() {
	case reflect.Bool:
		d.put(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.put(strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.put(strconv.FormatUint(v.Uint(), 10))
	case reflect.String:
		d.put(v.String())
	case reflect.Slice, reflect.Array:
		d.list(v)
	case reflect.Map:
		d.table(v)
	case reflect.Struct:
		d.fields(v)
	default:
		d.put("<nil>") // interfaces; a pod has none that is filled
	}
}

func (d *dumper) pointer(v reflect.Value, typed bool) {
	switch {
	case typed:
		d.put("(" + typeName(v.Type()) + ")")
	case !v.IsNil():
		d.put("<*>")
	}
	if v.IsNil() {
		d.put("<nil>")
		return
	}
	d.value(v.Elem(), false)
}

func (d *dumper) list(v reflect.Value) {
	if v.Kind() == reflect.Slice && v.IsNil() {
		d.put("<nil>")
		return
	}
	d.put("[")
	for i := range v.Len() {
		if i > 0 {
			d.put(" ")
		}
		d.value(v.Index(i), false)
	}
	d.put("]")
}

func (d *dumper) table(v reflect.Value) {
	if v.IsNil() {
		d.put("<nil>")
		return
	}
	keys := v.MapKeys() // all of a pod's are text
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	d.put("map[")
	for i, k := range keys {
		if i > 0 {
			d.put(" ")
		}
		d.value(k, false)
		d.put(":")
		d.value(v.MapIndex(k), false)
	}
	d.put("]")
}

func (d *dumper) fields(v reflect.Value) {
	names, ok := inner[v.Type()]
	if !ok {
		for i := range v.NumField() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	d.put("{")
	for i, name := range names {
		if i > 0 {
			d.put(" ")
		}
		d.put(name + ":")
		d.value(d.field(v, name), true)
	}
	d.put("}")
}

// field finds a field where core/v1 has it.
func (d *dumper) field(v reflect.Value, name string) reflect.Value {
	switch f := v.FieldByName(name); {
	case !f.IsValid(): // a security context's, that is the pod's
		return d.spec.FieldByName(name)
	case v.Type() == reflect.TypeFor[v1.ServiceAccountTokenProjection]() && name == "ExpirationSeconds" && !f.IsNil():
		return f.Elem() // internally no pointer: its default is always there
	default:
		return f
	}
}

// typeName is the type's name with core/v1 called core, as the internal
// package is.
func typeName(t reflect.Type) string {
	switch {
	case t.Name() != "" && t.PkgPath() == "k8s.io/api/core/v1":
		return "core." + t.Name()
	case t.Name() != "":
		return t.String()
	case t.Kind() == reflect.Pointer:
		return "*" + typeName(t.Elem())
	case t.Kind() == reflect.Slice:
		return "[]" + typeName(t.Elem())
	case t.Kind() == reflect.Map:
		return "map[" + typeName(t.Key()) + "]" + typeName(t.Elem())
	}
	return t.String()
}
