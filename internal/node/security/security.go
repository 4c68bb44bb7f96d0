// Package security says in CRI's words what the security contexts of a pod and its
// containers allow. It is pure: it looks at no machine and makes no call.
package security

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// namespaces are those that a pod shares with the node or between its
// containers.
func namespaces(pod *v1.Pod) *cri.NamespaceOption {
	mode := func(node bool) cri.NamespaceMode {
		if node {
			return cri.NamespaceMode_NODE
		}
		return cri.NamespaceMode_POD
	}
	o := &cri.NamespaceOption{Network: mode(pod.Spec.HostNetwork), Ipc: mode(pod.Spec.HostIPC), Pid: cri.NamespaceMode_CONTAINER}
	switch share := pod.Spec.ShareProcessNamespace; {
	case pod.Spec.HostPID:
		o.Pid = cri.NamespaceMode_NODE
	case share != nil && *share:
		o.Pid = cri.NamespaceMode_POD
	}
	return o
}

// Sandbox is the context of a pod's sandbox.
func Sandbox(pod *v1.Pod) *cri.LinuxSandboxSecurityContext {
	out := &cri.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod), Privileged: anyPrivileged(pod),
		Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault},
	}
	s := pod.Spec.SecurityContext
	if s == nil {
		return out
	}
	out.RunAsUser, out.RunAsGroup = number(s.RunAsUser), number(s.RunAsGroup)
	out.SupplementalGroupsPolicy = groupsPolicy(s)
	out.SupplementalGroups = groups(s)
	out.SelinuxOptions = selinux(s.SELinuxOptions)
	return out
}

// anyPrivileged tells that a sandbox has to allow a privileged container.
func anyPrivileged(pod *v1.Pod) bool {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
				return true
			}
		}
	}
	return false
}

func groups(s *v1.PodSecurityContext) []int64 {
	out := append([]int64(nil), s.SupplementalGroups...)
	if s.FSGroup != nil {
		out = append(out, *s.FSGroup)
	}
	return out
}

// groupsPolicy says whether the image's own groups count too.
func groupsPolicy(s *v1.PodSecurityContext) cri.SupplementalGroupsPolicy {
	if p := s.SupplementalGroupsPolicy; p != nil && *p == v1.SupplementalGroupsPolicyStrict {
		return cri.SupplementalGroupsPolicy_Strict
	}
	return cri.SupplementalGroupsPolicy_Merge
}

func number(n *int64) *cri.Int64Value {
	if n == nil {
		return nil
	}
	return &cri.Int64Value{Value: *n}
}

func selinux(o *v1.SELinuxOptions) *cri.SELinuxOption {
	if o == nil {
		return nil
	}
	return &cri.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

// Paths that a container does not see, or cannot write, unless its procMount
// says otherwise (kubelet's pkg/securitycontext).
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// Container merges the pod's security context into the container's.
func Container(pod *v1.Pod, c *v1.Container) *cri.LinuxContainerSecurityContext {
	out := &cri.LinuxContainerSecurityContext{NamespaceOptions: namespaces(pod), Capabilities: &cri.Capability{}}
	seccomp := (*v1.SeccompProfile)(nil)
	apparmor := (*v1.AppArmorProfile)(nil)
	if s := pod.Spec.SecurityContext; s != nil {
		out.RunAsUser, out.RunAsGroup, out.SupplementalGroups = number(s.RunAsUser), number(s.RunAsGroup), groups(s)
		out.SupplementalGroupsPolicy = groupsPolicy(s)
		out.SelinuxOptions = selinux(s.SELinuxOptions)
		seccomp, apparmor = s.SeccompProfile, s.AppArmorProfile
	}
	unmasked := false
	if s := c.SecurityContext; s != nil {
		mergeContainer(out, s)
		if s.SeccompProfile != nil {
			seccomp = s.SeccompProfile
		}
		if s.AppArmorProfile != nil {
			apparmor = s.AppArmorProfile
		}
		unmasked = s.ProcMount != nil && *s.ProcMount == v1.UnmaskedProcMount
	}
	out.Seccomp, out.Apparmor = seccompOf(seccomp), apparmorOf(apparmor)
	if !unmasked && !out.Privileged {
		out.MaskedPaths, out.ReadonlyPaths = maskedPaths, readonlyPaths
	}
	return out
}

func mergeContainer(out *cri.LinuxContainerSecurityContext, s *v1.SecurityContext) {
	if s.RunAsUser != nil {
		out.RunAsUser = number(s.RunAsUser)
	}
	if s.RunAsGroup != nil {
		out.RunAsGroup = number(s.RunAsGroup)
	}
	if s.SELinuxOptions != nil {
		out.SelinuxOptions = selinux(s.SELinuxOptions)
	}
	out.Privileged = s.Privileged != nil && *s.Privileged
	out.ReadonlyRootfs = s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem
	out.NoNewPrivs = s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation
	if s.Capabilities != nil {
		for _, k := range s.Capabilities.Add {
			out.Capabilities.AddCapabilities = append(out.Capabilities.AddCapabilities, string(k))
		}
		for _, k := range s.Capabilities.Drop {
			out.Capabilities.DropCapabilities = append(out.Capabilities.DropCapabilities, string(k))
		}
	}
}

func seccompOf(p *v1.SeccompProfile) *cri.SecurityProfile {
	out := &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
	switch {
	case p == nil:
	case p.Type == v1.SeccompProfileTypeRuntimeDefault:
		out.ProfileType = cri.SecurityProfile_RuntimeDefault
	case p.Type == v1.SeccompProfileTypeLocalhost && p.LocalhostProfile != nil:
		// Where kubelet has its root: profiles are shared with it.
		out.ProfileType, out.LocalhostRef = cri.SecurityProfile_Localhost, "/var/lib/kubelet/seccomp/"+*p.LocalhostProfile
	}
	return out
}

func apparmorOf(p *v1.AppArmorProfile) *cri.SecurityProfile {
	if p == nil {
		return nil // the runtime's default, where the machine has AppArmor
	}
	out := &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
	switch {
	case p.Type == v1.AppArmorProfileTypeRuntimeDefault:
		out.ProfileType = cri.SecurityProfile_RuntimeDefault
	case p.Type == v1.AppArmorProfileTypeLocalhost && p.LocalhostProfile != nil:
		out.ProfileType, out.LocalhostRef = cri.SecurityProfile_Localhost, *p.LocalhostProfile
	}
	return out
}

// NotRoot checks runAsNonRoot against the user that the container would have.
func NotRoot(pod *v1.Pod, c *v1.Container, has *cri.LinuxContainerSecurityContext, image *cri.Image) error {
	want := pod.Spec.SecurityContext != nil && pod.Spec.SecurityContext.RunAsNonRoot != nil && *pod.Spec.SecurityContext.RunAsNonRoot
	if s := c.SecurityContext; s != nil && s.RunAsNonRoot != nil {
		want = *s.RunAsNonRoot
	}
	switch {
	case !want:
		return nil
	case has.GetRunAsUser() != nil:
		if has.GetRunAsUser().GetValue() == 0 {
			return errors.New("runAsNonRoot is set and runAsUser is 0")
		}
		return nil
	case image.GetUid() != nil && image.GetUid().GetValue() != 0:
		return nil
	case image.GetUsername() != "" && image.GetUid() == nil:
		return fmt.Errorf("runAsNonRoot is set and the image's user %q is not a number", image.GetUsername())
	}
	return errors.New("runAsNonRoot is set and the image runs as root")
}
