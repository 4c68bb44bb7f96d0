package spec_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/spec"
	"github.com/fairlead/fairlead/internal/netplugin"
)

func pod(s *cri.LinuxSandboxSecurityContext) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: "u"}, Hostname: "web",
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: "/kubepods/pod1.slice", SecurityContext: s},
	}
}

func TestSandboxIsLightAndConfined(t *testing.T) {
	o, err := spec.Sandbox(pod(nil), "pause", "", spec.Engine{CgroupDriver: "cgroupfs"})
	require.NoError(t, err)
	require.EqualValues(t, 2, o.HostConfig.CPUShares)
	require.Equal(t, -998, o.HostConfig.OomScoreAdj)
	require.Contains(t, o.HostConfig.SecurityOpt, "no-new-privileges")
	require.Equal(t, container.IPCModeShareable, o.HostConfig.IpcMode)
	require.EqualValues(t, "none", o.HostConfig.NetworkMode)
	require.Equal(t, "/kubepods/pod1.slice", o.HostConfig.CgroupParent)
	require.Equal(t, "web", o.Config.Hostname)

	o, err = spec.Sandbox(pod(nil), "pause", "", spec.Engine{CgroupDriver: "systemd"})
	require.NoError(t, err)
	require.Equal(t, "pod1.slice", o.HostConfig.CgroupParent)
}

func TestSandboxOfTheHost(t *testing.T) {
	n := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_NODE, Ipc: cri.NamespaceMode_NODE}
	o, err := spec.Sandbox(pod(&cri.LinuxSandboxSecurityContext{NamespaceOptions: n}), "pause", "", spec.Engine{})
	require.NoError(t, err)
	require.True(t, o.HostConfig.NetworkMode.IsHost())
	require.True(t, o.HostConfig.UTSMode.IsHost())
	require.True(t, o.HostConfig.PidMode.IsHost())
	require.True(t, o.HostConfig.IpcMode.IsHost())
	require.Empty(t, o.Config.Hostname)
}

func TestSandboxRefuses(t *testing.T) {
	_, err := spec.Sandbox(&cri.PodSandboxConfig{}, "pause", "", spec.Engine{})
	require.ErrorIs(t, err, errdefs.ErrInvalidArgument)
	_, err = spec.Sandbox(pod(&cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{UsernsOptions: &cri.UserNamespace{}}}), "pause", "", spec.Engine{})
	require.ErrorIs(t, err, errdefs.ErrNotImplemented)
}

func TestPortsOfTheHostAlone(t *testing.T) {
	c := pod(nil)
	c.PortMappings = []*cri.PortMapping{{ContainerPort: 80}, {ContainerPort: 53, HostPort: 5353, Protocol: cri.Protocol_UDP, HostIp: "10.0.0.1"}}
	require.Equal(t, []netplugin.PortMapping{{HostPort: 5353, ContainerPort: 53, Protocol: "udp", HostIP: "10.0.0.1"}}, spec.Ports(c))
	o, err := spec.Sandbox(c, "pause", "", spec.Engine{Bridged: true})
	require.NoError(t, err)
	require.Len(t, o.HostConfig.PortBindings, 1)
	require.EqualValues(t, "default", o.HostConfig.NetworkMode)
}

func TestResolvConf(t *testing.T) {
	require.Empty(t, spec.ResolvConf(nil))
	require.Equal(t, "nameserver 1.1.1.1\nsearch a b\noptions ndots:5 edns0\n", spec.ResolvConf(&cri.DNSConfig{
		Servers: []string{"1.1.1.1"}, Searches: []string{"a", "b"}, Options: []string{"ndots:5", "edns0"},
	}))
}

// place of a container, in a sandbox called s.
var place = spec.Place{Sandbox: "s", Pod: pod(nil)}

func config(s *cri.LinuxContainerSecurityContext) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: "i"}, Linux: &cri.LinuxContainerConfig{SecurityContext: s},
	}
}

func TestContainerJoinsItsSandbox(t *testing.T) {
	o, err := spec.Container(config(nil), place)
	require.NoError(t, err)
	require.EqualValues(t, "container:s", o.HostConfig.NetworkMode)
	require.EqualValues(t, "container:s", o.HostConfig.IpcMode)
	require.EqualValues(t, "container:s", o.HostConfig.PidMode, "POD is CRI's zero value")
	for mode, want := range map[cri.NamespaceMode]string{
		cri.NamespaceMode_CONTAINER: "", cri.NamespaceMode_NODE: "host", cri.NamespaceMode_TARGET: "container:t",
	} {
		o, err := spec.Container(config(&cri.LinuxContainerSecurityContext{NamespaceOptions: &cri.NamespaceOption{Pid: mode, TargetId: "t"}}), place)
		require.NoError(t, err)
		require.EqualValues(t, want, o.HostConfig.PidMode, mode)
	}
	inHost := place
	inHost.HostNetwork = true
	o, err = spec.Container(config(nil), inHost)
	require.NoError(t, err)
	require.EqualValues(t, "container:s", o.HostConfig.NetworkMode, "with its resolv.conf")
	require.EqualValues(t, "host", o.HostConfig.UTSMode)
}

func TestUsers(t *testing.T) {
	one := &cri.Int64Value{Value: 1}
	for _, c := range []struct {
		s    *cri.LinuxContainerSecurityContext
		want string
	}{
		{&cri.LinuxContainerSecurityContext{}, ""},
		{&cri.LinuxContainerSecurityContext{RunAsUser: one}, "1"},
		{&cri.LinuxContainerSecurityContext{RunAsUser: one, RunAsGroup: one}, "1:1"},
		{&cri.LinuxContainerSecurityContext{RunAsUsername: "www", RunAsGroup: one}, "www:1"},
	} {
		o, err := spec.Container(config(c.s), place)
		require.NoError(t, err)
		require.Equal(t, c.want, o.Config.User)
	}
	_, err := spec.Container(config(&cri.LinuxContainerSecurityContext{RunAsGroup: one}), place)
	require.ErrorIs(t, err, errdefs.ErrInvalidArgument)
}

func TestSecurityProfiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.json")
	require.NoError(t, os.WriteFile(file, []byte("{\n \"a\": 1 }"), 0o600))
	profile := func(k cri.SecurityProfile_ProfileType, ref string) *cri.SecurityProfile {
		return &cri.SecurityProfile{ProfileType: k, LocalhostRef: ref}
	}
	for name, c := range map[string]struct {
		s    *cri.LinuxContainerSecurityContext
		want []string
	}{
		"none is unconfined": {&cri.LinuxContainerSecurityContext{}, []string{"seccomp=unconfined"}},
		"default":            {&cri.LinuxContainerSecurityContext{Seccomp: profile(cri.SecurityProfile_RuntimeDefault, "")}, nil},
		"a file":             {&cri.LinuxContainerSecurityContext{Seccomp: profile(cri.SecurityProfile_Localhost, file)}, []string{`seccomp={"a":1}`}},
		"the old field":      {&cri.LinuxContainerSecurityContext{SeccompProfilePath: "localhost/" + file}, []string{`seccomp={"a":1}`}}, //nolint:staticcheck // older clients send it
		"apparmor": {&cri.LinuxContainerSecurityContext{
			Seccomp: profile(cri.SecurityProfile_RuntimeDefault, ""), Apparmor: profile(cri.SecurityProfile_Localhost, "localhost/x"), NoNewPrivs: true,
		}, []string{"apparmor=x", "no-new-privileges"}},
		"selinux": {&cri.LinuxContainerSecurityContext{
			Seccomp: profile(cri.SecurityProfile_RuntimeDefault, ""), SelinuxOptions: &cri.SELinuxOption{Type: "t", Level: "s0"},
		}, []string{"label=type:t", "label=level:s0"}},
	} {
		o, err := spec.Container(config(c.s), place)
		require.NoError(t, err, name)
		require.ElementsMatch(t, c.want, o.HostConfig.SecurityOpt, name)
	}
	for _, s := range []*cri.LinuxContainerSecurityContext{
		{SeccompProfilePath: "nonsense"}, {Seccomp: profile(cri.SecurityProfile_Localhost, file+"x")}, {ApparmorProfile: "nonsense"},
	} {
		_, err := spec.Container(config(s), place)
		require.ErrorIs(t, err, errdefs.ErrInvalidArgument)
	}
}

func TestPrivilegedIsConfinedByNothing(t *testing.T) {
	o, err := spec.Container(config(&cri.LinuxContainerSecurityContext{Privileged: true, MaskedPaths: []string{"/proc/x"}}), place)
	require.NoError(t, err)
	require.True(t, o.HostConfig.Privileged)
	require.Empty(t, o.HostConfig.SecurityOpt)
	require.Nil(t, o.HostConfig.MaskedPaths)
}

func TestMounts(t *testing.T) {
	c := config(nil)
	c.Mounts = []*cri.Mount{
		{HostPath: "/a", ContainerPath: "/b", Readonly: true, SelinuxRelabel: true, Propagation: cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
		{HostPath: "/a:b", ContainerPath: "/c", SelinuxRelabel: true, Propagation: cri.MountPropagation_PROPAGATION_BIDIRECTIONAL},
		{HostPath: "/d", ContainerPath: "/e", Readonly: true, RecursiveReadOnly: true},
		{HostPath: "/f", ContainerPath: "/g", Readonly: true},
	}
	p := place
	p.Engine.SELinux = true
	p.MountPoints = []string{"/", "/d", "/d/x", "/d/x/y", "/dx", "/d/x"}
	o, err := spec.Container(c, p)
	require.NoError(t, err)
	require.Equal(t, []string{"/a:/b:Z,rslave,ro"}, o.HostConfig.Binds)
	var got [][2]string
	for _, m := range o.HostConfig.Mounts {
		got = append(got, [2]string{m.Source, m.Target})
		require.Equal(t, m.Target == "/g", m.BindOptions.ReadOnlyNonRecursive, m.Target)
	}
	require.Equal(t, [][2]string{{"/a:b", "/c"}, {"/d", "/e"}, {"/d/x", "/e/x"}, {"/d/x/y", "/e/x/y"}, {"/f", "/g"}}, got)
	require.True(t, o.HostConfig.Mounts[3].ReadOnly)
	p.Engine.SELinux = false
	o, err = spec.Container(c, p)
	require.NoError(t, err)
	require.Empty(t, o.HostConfig.Binds, "an engine without labels")
	require.True(t, o.HostConfig.Mounts[0].BindOptions.ReadOnlyNonRecursive)

	for _, m := range []*cri.Mount{
		{HostPath: "/a", ContainerPath: "b"},
		{HostPath: "/a", ContainerPath: "/b", RecursiveReadOnly: true},
		{HostPath: "/a", ContainerPath: "/b", Readonly: true, RecursiveReadOnly: true, Propagation: cri.MountPropagation_PROPAGATION_BIDIRECTIONAL},
	} {
		c.Mounts = []*cri.Mount{m}
		_, err := spec.Container(c, place)
		require.ErrorIs(t, err, errdefs.ErrInvalidArgument)
	}
}

func TestResourcesComeBack(t *testing.T) {
	r := &cri.LinuxContainerResources{CpuPeriod: 1, CpuQuota: 2, CpuShares: 3, MemoryLimitInBytes: 4, MemorySwapLimitInBytes: 5, CpusetCpus: "0", CpusetMems: "0"}
	require.Equal(t, r, spec.Limits(&container.HostConfig{Resources: spec.Resources(r)}))
	require.EqualValues(t, 4, spec.Resources(&cri.LinuxContainerResources{MemoryLimitInBytes: 4}).MemorySwap, "no swap beyond the memory")
}

func TestStopSignal(t *testing.T) {
	c := config(nil)
	c.StopSignal = cri.Signal_SIGRTMINPLUS3
	o, err := spec.Container(c, place)
	require.NoError(t, err)
	require.Equal(t, "SIGRTMIN+3", o.Config.StopSignal)
}
