// Package spec turns CRI's description of a sandbox or container into Docker's.
// It is pure but for one thing: a seccomp profile is a file that it reads. It
// neither calls Docker nor knows what exists.
package spec

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/label"
	"github.com/fairlead/fairlead/internal/netplugin"
)

// SystemdDriver is the name of one cgroup driver; the other one is cgroupfs.
const SystemdDriver = "systemd"

const (
	sandboxShares = 2    // CPU shares, the least: the pause process does nothing
	sandboxOOM    = -998 // nearly never killed: it holds the pod's namespaces
)

// Engine is what must be known of the machine.
type Engine struct {
	CgroupDriver string // cgroupfs or systemd
	// Bridged: the engine's own network serves pods, and publishes their ports.
	Bridged bool
	SELinux bool // it labels what it mounts
}

// Sandbox is the request for a sandbox's container. image is the pause image.
func Sandbox(c *cri.PodSandboxConfig, image, handler string, e Engine) (client.ContainerCreateOptions, error) {
	var none client.ContainerCreateOptions
	if c.GetMetadata().GetName() == "" || c.Metadata.Uid == "" {
		return none, fmt.Errorf("%w: a sandbox needs metadata with name and uid", errdefs.ErrInvalidArgument)
	}
	host := &container.HostConfig{
		IpcMode: container.IPCModeShareable, OomScoreAdj: sandboxOOM, Runtime: handler,
		LogConfig: noLog(), Sysctls: c.GetLinux().GetSysctls(),
		Resources: container.Resources{CPUShares: sandboxShares, CgroupParent: cgroupParent(c.GetLinux().GetCgroupParent(), e.CgroupDriver)},
	}
	config := &container.Config{
		Image: image, Labels: label.ForSandbox(c, handler), Hostname: hostname(c),
	}
	if err := sandboxSecurity(c.GetLinux().GetSecurityContext(), config, host); err != nil {
		return none, err
	}
	sandboxNetwork(c, config, host, e)
	return client.ContainerCreateOptions{Name: label.SandboxName(c.Metadata), Config: config, HostConfig: host}, nil
}

// HostNetwork tells that the pod lives in the node's network namespace.
func HostNetwork(c *cri.PodSandboxConfig) bool {
	return c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == cri.NamespaceMode_NODE
}

// hostname is the pod's; in the host's network namespace it is the host's.
func hostname(c *cri.PodSandboxConfig) string {
	if HostNetwork(c) {
		return ""
	}
	return c.Hostname
}

// noLog: a pause process says nothing that anybody reads.
func noLog() container.LogConfig { return container.LogConfig{Type: "none"} }

func sandboxSecurity(s *cri.LinuxSandboxSecurityContext, config *container.Config, host *container.HostConfig) error {
	var err error
	if config.User, err = user(s.GetRunAsUser(), s.GetRunAsGroup(), ""); err != nil {
		return err
	}
	// The pause process itself needs no rights; a container of the pod may.
	profile := s.GetSeccomp()
	if profile.GetProfileType() == cri.SecurityProfile_Localhost {
		profile = &cri.SecurityProfile{}
	}
	options, err := securityOptions(profile, s.GetSeccompProfilePath(), s.GetApparmor(), "") //nolint:staticcheck // the old field is still sent by older clients
	if err != nil {
		return err
	}
	host.SecurityOpt = append(append(options, selinux(s.GetSelinuxOptions())...), "no-new-privileges")
	host.GroupAdd, host.ReadonlyRootfs = groups(s.GetSupplementalGroups()), s.GetReadonlyRootfs()
	n := s.GetNamespaceOptions()
	if n.GetNetwork() == cri.NamespaceMode_NODE {
		host.NetworkMode, host.UTSMode = hostMode, hostMode
	}
	if n.GetIpc() == cri.NamespaceMode_NODE {
		host.IpcMode = hostMode
	}
	if n.GetPid() == cri.NamespaceMode_NODE {
		host.PidMode = hostMode
	}
	host.UsernsMode, err = userns(n.GetUsernsOptions())
	return err
}

func securityOptions(sec *cri.SecurityProfile, secPath string, arm *cri.SecurityProfile, armPath string) ([]string, error) {
	out, err := seccomp(sec, secPath)
	if err != nil {
		return nil, err
	}
	more, err := apparmor(arm, armPath)
	return append(out, more...), err
}

// sandboxNetwork: a plugin finds a namespace with nothing in it but lo; else
// Docker's own network serves, and publishes the ports.
func sandboxNetwork(c *cri.PodSandboxConfig, config *container.Config, host *container.HostConfig, e Engine) {
	switch {
	case HostNetwork(c):
	case !e.Bridged:
		host.NetworkMode = "none"
	default:
		host.NetworkMode = "default"
		config.ExposedPorts, host.PortBindings = publish(Ports(c))
	}
}

func publish(ports []netplugin.PortMapping) (network.PortSet, network.PortMap) {
	set, bindings := network.PortSet{}, network.PortMap{}
	for _, p := range ports {
		port, ok := network.PortFrom(uint16(p.ContainerPort), network.IPProtocol(p.Protocol))
		if !ok {
			continue
		}
		b := network.PortBinding{HostPort: fmt.Sprint(p.HostPort)}
		b.HostIP, _ = netip.ParseAddr(p.HostIP) // none: all addresses
		set[port] = struct{}{}
		bindings[port] = append(bindings[port], b)
	}
	return set, bindings
}

// Ports are the mappings that ask for a port of the host.
func Ports(c *cri.PodSandboxConfig) []netplugin.PortMapping {
	var out []netplugin.PortMapping
	for _, p := range c.GetPortMappings() {
		if p.HostPort > 0 {
			out = append(out, netplugin.PortMapping{
				HostPort: p.HostPort, ContainerPort: p.ContainerPort,
				Protocol: strings.ToLower(p.Protocol.String()), HostIP: p.HostIp,
			})
		}
	}
	return out
}

// Pod is what the network is told of a sandbox.
func Pod(c *cri.PodSandboxConfig, id string) netplugin.Pod {
	m, d := c.Metadata, c.GetDnsConfig()
	return netplugin.Pod{
		Sandbox: id, Namespace: m.Namespace, Name: m.Name, UID: m.Uid,
		Annotations: c.Annotations, Cgroup: c.GetLinux().GetCgroupParent(),
		DNS: netplugin.DNS{Servers: d.GetServers(), Searches: d.GetSearches(), Options: d.GetOptions()},
	}
}

// ResolvConf is the text of /etc/resolv.conf; "" when the caller gave no DNS
// configuration, and Docker's copy of the host's file stays.
func ResolvConf(d *cri.DNSConfig) string {
	if len(d.GetServers())+len(d.GetSearches())+len(d.GetOptions()) == 0 {
		return ""
	}
	var out strings.Builder
	for _, s := range d.Servers {
		out.WriteString("nameserver " + s + "\n")
	}
	if len(d.Searches) > 0 {
		out.WriteString("search " + strings.Join(d.Searches, " ") + "\n")
	}
	if len(d.Options) > 0 {
		out.WriteString("options " + strings.Join(d.Options, " ") + "\n")
	}
	return out.String()
}
