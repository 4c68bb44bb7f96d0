package spec

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/label"
)

// Place is where a container goes.
type Place struct {
	Sandbox     string // id of the pod's sandbox
	HostNetwork bool   // the sandbox lives in the node's network namespace
	HostIPC     bool   // and IPC namespace
	Runtime     string // the OCI runtime, the sandbox's
	Pod         *cri.PodSandboxConfig
	Engine      Engine
	// MountPoints of this machine, where the request has a recursively read-only
	// mount; absolute.
	MountPoints []string
}

// Container is the request for a container of a pod.
func Container(c *cri.ContainerConfig, p Place) (client.ContainerCreateOptions, error) {
	var none client.ContainerCreateOptions
	if c.GetMetadata().GetName() == "" || c.GetImage().GetImage() == "" {
		return none, fmt.Errorf("%w: a container needs metadata and an image", errdefs.ErrInvalidArgument)
	}
	config := &container.Config{
		Image: c.Image.Image, Entrypoint: c.Command, Cmd: c.Args, WorkingDir: c.WorkingDir,
		Env: environment(c.Envs), Labels: label.ForContainer(c, p.Sandbox, logPath(c, p.Pod)),
		OpenStdin: c.Stdin, StdinOnce: c.StdinOnce, Tty: c.Tty,
		StopSignal: stopSignal(c.StopSignal),
		// A pod's health is its caller's business, whatever the image says.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	host := &container.HostConfig{Runtime: p.Runtime, Resources: Resources(c.GetLinux().GetResources())}
	host.OomScoreAdj = int(c.GetLinux().GetResources().GetOomScoreAdj())
	host.CgroupParent = cgroupParent(p.Pod.GetLinux().GetCgroupParent(), p.Engine.CgroupDriver)
	namespaces(c.GetLinux().GetSecurityContext().GetNamespaceOptions(), p, host)
	if err := containerSecurity(c.GetLinux().GetSecurityContext(), config, host); err != nil {
		return none, err
	}
	covers, err := mounts(c.Mounts, p, host)
	if err != nil {
		return none, err
	}
	label.SetCovers(config.Labels, covers)
	devices(c, host)
	return client.ContainerCreateOptions{Name: label.ContainerName(c.Metadata, p.Pod.GetMetadata()), Config: config, HostConfig: host}, nil
}

// logPath is absolute; "" when the caller wants no log.
func logPath(c *cri.ContainerConfig, pod *cri.PodSandboxConfig) string {
	if c.LogPath == "" || pod.GetLogDirectory() == "" {
		return ""
	}
	return filepath.Join(pod.LogDirectory, c.LogPath)
}

func environment(envs []*cri.KeyValue) []string {
	out := make([]string, 0, len(envs))
	for _, e := range envs {
		out = append(out, e.Key+"="+string(e.Value))
	}
	return out
}

// stopSignal is the name that Docker knows: SIGRTMIN+3 where CRI says
// SIGRTMINPLUS3.
func stopSignal(s cri.Signal) string {
	if s == cri.Signal_RUNTIME_DEFAULT {
		return ""
	}
	return strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(s.String())
}

// namespaces joins the sandbox's. Without a word of the caller that holds for
// PIDs too (the zero value of CRI's mode is POD). So it does for a sandbox in the
// host's network: Docker gives the sandbox's resolv.conf to those alone that join it.
func namespaces(n *cri.NamespaceOption, p Place, host *container.HostConfig) {
	host.NetworkMode = container.NetworkMode(inContainer(p.Sandbox))
	host.IpcMode = container.IpcMode(inContainer(p.Sandbox))
	if p.HostNetwork {
		host.UTSMode = hostMode
	}
	if p.HostIPC {
		host.IpcMode = hostMode
	}
	switch n.GetPid() {
	case cri.NamespaceMode_POD:
		host.PidMode = container.PidMode(inContainer(p.Sandbox))
	case cri.NamespaceMode_NODE:
		host.PidMode = hostMode
	case cri.NamespaceMode_TARGET:
		host.PidMode = container.PidMode(inContainer(n.TargetId))
	case cri.NamespaceMode_CONTAINER:
	}
}

func containerSecurity(s *cri.LinuxContainerSecurityContext, config *container.Config, host *container.HostConfig) error {
	var err error
	if config.User, err = user(s.GetRunAsUser(), s.GetRunAsGroup(), s.GetRunAsUsername()); err != nil {
		return err
	}
	if len(s.GetCapabilities().GetAddAmbientCapabilities()) > 0 {
		return fmt.Errorf("%w: ambient capabilities", errdefs.ErrNotImplemented)
	}
	if host.UsernsMode, err = userns(s.GetNamespaceOptions().GetUsernsOptions()); err != nil {
		return err
	}
	host.GroupAdd, host.ReadonlyRootfs = groups(s.GetSupplementalGroups()), s.GetReadonlyRootfs()
	if s.GetPrivileged() {
		host.Privileged = true
		return nil // it is confined by nothing
	}
	host.CapAdd, host.CapDrop = s.GetCapabilities().GetAddCapabilities(), s.GetCapabilities().GetDropCapabilities()
	if s != nil { // an empty list is an answer too: nothing is masked
		host.MaskedPaths, host.ReadonlyPaths = nonNil(s.MaskedPaths), nonNil(s.ReadonlyPaths)
	}
	host.SecurityOpt, err = securityOptions(s.GetSeccomp(), s.GetSeccompProfilePath(), s.GetApparmor(), s.GetApparmorProfile()) //nolint:staticcheck // the old fields are still sent by older clients
	host.SecurityOpt = append(host.SecurityOpt, selinux(s.GetSelinuxOptions())...)
	if s.GetNoNewPrivs() {
		host.SecurityOpt = append(host.SecurityOpt, "no-new-privileges")
	}
	return err
}

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

var propagations = map[cri.MountPropagation]mount.Propagation{
	cri.MountPropagation_PROPAGATION_PRIVATE:           mount.PropagationRPrivate,
	cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER: mount.PropagationRSlave,
	cri.MountPropagation_PROPAGATION_BIDIRECTIONAL:     mount.PropagationRShared,
}

// Propagation is CRI's word for Docker's.
func Propagation(p mount.Propagation) cri.MountPropagation {
	for c, d := range propagations {
		if d == p {
			return c
		}
	}
	return cri.MountPropagation_PROPAGATION_PRIVATE
}

func mounts(all []*cri.Mount, p Place, host *container.HostConfig) ([]label.Cover, error) {
	var covers []label.Cover
	for _, m := range all {
		if err := supported(m); err != nil {
			return nil, err
		}
		// Only this form relabels; it cannot say a path with a colon, nor that what
		// lies below a read-only mount stays as it is.
		if p.Engine.SELinux && m.SelinuxRelabel && !strings.Contains(m.HostPath+m.ContainerPath, ":") {
			host.Binds = append(host.Binds, bind(m))
		} else {
			host.Mounts = append(host.Mounts, mount.Mount{
				Type: mount.TypeBind, Source: m.HostPath, Target: m.ContainerPath, ReadOnly: m.Readonly,
				// Since 25 an engine makes all below read-only too, where nothing is said.
				BindOptions: &mount.BindOptions{Propagation: propagations[m.Propagation], ReadOnlyNonRecursive: m.Readonly && !m.RecursiveReadOnly},
			})
		}
		if m.RecursiveReadOnly {
			c := label.Cover{Source: m.HostPath, Target: m.ContainerPath, Below: Below(m.HostPath, p.MountPoints)}
			host.Mounts = append(host.Mounts, again(c)...)
			covers = append(covers, c)
		}
	}
	return covers, nil
}

// Below are the mount points below a folder, relative to it.
func Below(folder string, points []string) []string {
	var out []string
	for _, p := range points {
		if rel, err := filepath.Rel(folder, p); err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, "../") {
			out = append(out, rel)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// again mounts what lies below a mount once more, read-only. Engines before 25
// have no other way to make all of it read-only.
func again(c label.Cover) []mount.Mount {
	var out []mount.Mount
	for _, b := range c.Below {
		out = append(out, mount.Mount{
			Type: mount.TypeBind, Source: filepath.Join(c.Source, b), Target: filepath.Join(c.Target, b), ReadOnly: true,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
		})
	}
	return out
}

func supported(m *cri.Mount) error {
	switch {
	case m.GetImage().GetImage() != "":
		return fmt.Errorf("%w: an image as a volume", errdefs.ErrNotImplemented)
	case len(m.UidMappings)+len(m.GidMappings) > 0:
		return fmt.Errorf("%w: a mount with mapped ids", errdefs.ErrNotImplemented)
	case !filepath.IsAbs(m.ContainerPath):
		return fmt.Errorf("%w: mount %s: container_path is not absolute", errdefs.ErrInvalidArgument, m.ContainerPath)
	case m.RecursiveReadOnly && (!m.Readonly || m.Propagation != cri.MountPropagation_PROPAGATION_PRIVATE):
		return fmt.Errorf("%w: mount %s: recursive_read_only needs readonly and private propagation", errdefs.ErrInvalidArgument, m.ContainerPath)
	}
	return nil
}

// bind is src:dst:options.
func bind(m *cri.Mount) string {
	options := []string{"Z", string(propagations[m.Propagation])}
	if m.Readonly {
		options = append(options, "ro")
	}
	return m.HostPath + ":" + m.ContainerPath + ":" + strings.Join(options, ",")
}

func devices(c *cri.ContainerConfig, host *container.HostConfig) {
	for _, d := range c.Devices {
		host.Devices = append(host.Devices, container.DeviceMapping{
			PathOnHost: d.HostPath, PathInContainer: d.ContainerPath, CgroupPermissions: d.Permissions,
		})
	}
	var named []string
	for _, d := range c.CDIDevices {
		named = append(named, d.Name)
	}
	if len(named) > 0 {
		host.DeviceRequests = append(host.DeviceRequests, container.DeviceRequest{Driver: "cdi", DeviceIDs: named})
	}
}

// Resources are the limits in Docker's words. Without a word about swap a
// container gets none beyond its memory.
func Resources(r *cri.LinuxContainerResources) container.Resources {
	if r == nil {
		return container.Resources{}
	}
	out := container.Resources{
		CPUPeriod: r.CpuPeriod, CPUQuota: r.CpuQuota, CPUShares: r.CpuShares,
		Memory: r.MemoryLimitInBytes, MemorySwap: r.MemorySwapLimitInBytes,
		CpusetCpus: r.CpusetCpus, CpusetMems: r.CpusetMems,
	}
	if out.Memory > 0 && out.MemorySwap == 0 {
		out.MemorySwap = out.Memory
	}
	return out
}

// Limits are the resources in CRI's words.
func Limits(h *container.HostConfig) *cri.LinuxContainerResources {
	if h == nil {
		return nil
	}
	return &cri.LinuxContainerResources{
		CpuPeriod: h.CPUPeriod, CpuQuota: h.CPUQuota, CpuShares: h.CPUShares,
		MemoryLimitInBytes: h.Memory, MemorySwapLimitInBytes: h.MemorySwap,
		CpusetCpus: h.CpusetCpus, CpusetMems: h.CpusetMems, OomScoreAdj: int64(h.OomScoreAdj),
	}
}
