package podruntime

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/node/security"
)

// runSandbox makes a pod's sandbox, with its network.
func (r *Runtime) runSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) error {
	config, err := r.sandboxConfig(ctx, pod, attempt)
	if err != nil {
		return &Error{ReasonSandbox, err}
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return &Error{ReasonSandbox, err}
	}
	if err := r.makeCgroup(pod); err != nil {
		return &Error{ReasonSandbox, err}
	}
	handler := ""
	if pod.Spec.RuntimeClassName != nil {
		handler = *pod.Spec.RuntimeClassName
	}
	_, err = through(ctx, startGrace, func(ctx context.Context) (*cri.RunPodSandboxResponse, error) {
		return r.conf.Runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	})
	if err != nil {
		return &Error{ReasonSandbox, fmt.Errorf("run sandbox of %s/%s: %w", pod.Namespace, pod.Name, err)}
	}
	return nil
}

// sandboxConfig is the same each time for the same pod: CreateContainer wants
// it again.
func (r *Runtime) sandboxConfig(ctx context.Context, pod *v1.Pod, attempt uint32) (*cri.PodSandboxConfig, error) {
	dns, err := r.dns(pod)
	if err != nil {
		return nil, fmt.Errorf("dns of %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	name, err := r.ownName(pod)
	if err != nil {
		return nil, fmt.Errorf("host name of %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	c := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt},
		Hostname:     name,
		LogDirectory: r.logDir(pod),
		DnsConfig:    dns,
		PortMappings: ports(pod),
		Labels:       podLabels(pod),
		Annotations:  maps.Clone(pod.Annotations),
		Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: security.Sandbox(pod),
			Sysctls:         map[string]string{},
		},
	}
	if r.conf.CgroupParent != "" {
		c.Linux.CgroupParent = r.cgroup(pod)
	} else if c.Linux.CgroupParent, err = runtimes.CgroupParent(ctx, r.conf.Runtime); err != nil {
		return nil, err
	}
	if s := pod.Spec.SecurityContext; s != nil {
		for _, ctl := range s.Sysctls {
			c.Linux.Sysctls[ctl.Name] = ctl.Value
		}
	}
	if pod.Spec.HostNetwork {
		c.Hostname = "" // the node's own
	}
	return c, nil
}

func (r *Runtime) logDir(pod *v1.Pod) string {
	return filepath.Join(r.conf.LogDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// podLabels are the pod's own and those by which tools find it.
func podLabels(pod *v1.Pod) map[string]string {
	out := map[string]string{}
	maps.Copy(out, pod.Labels)
	out[labelName], out[labelNamespace], out[labelUID] = pod.Name, pod.Namespace, string(pod.UID)
	return out
}

// hostname is at most 63 characters long, as the kernel's, unless the pod overrides
// it.
func hostname(pod *v1.Pod) string {
	if o := pod.Spec.HostnameOverride; o != nil {
		return *o
	}
	name := pod.Name
	if pod.Spec.Hostname != "" {
		name = pod.Spec.Hostname
	}
	if len(name) > 63 {
		name = strings.TrimRight(name[:63], "-.")
	}
	return name
}

// domainName is a pod's name in the cluster's domain; "" when it has none.
func (r *Runtime) domainName(pod *v1.Pod) string {
	if pod.Spec.Subdomain == "" || r.conf.ClusterDomain == "" || pod.Spec.HostnameOverride != nil {
		return ""
	}
	return strings.Join([]string{hostname(pod), pod.Spec.Subdomain, pod.Namespace, "svc", r.conf.ClusterDomain}, ".")
}

// ownName is what hostname(1) says in the pod.
func (r *Runtime) ownName(pod *v1.Pod) (string, error) {
	const most = 64 // of the kernel (sethostname(2))
	full := r.domainName(pod)
	if asked := pod.Spec.SetHostnameAsFQDN; asked == nil || !*asked || full == "" {
		return hostname(pod), nil
	}
	if len(full) > most {
		return "", fmt.Errorf("setHostnameAsFQDN: the name %s is longer than %d characters", full, most)
	}
	return full, nil
}

// ports are all that containers, and sidecars, want of the host.
func ports(pod *v1.Pod) []*cri.PortMapping {
	var out []*cri.PortMapping
	add := func(c *v1.Container) {
		for _, p := range c.Ports {
			out = append(out, &cri.PortMapping{
				Protocol:      cri.Protocol(cri.Protocol_value[strings.ToUpper(string(p.Protocol))]),
				ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
			})
		}
	}
	for i := range pod.Spec.InitContainers {
		if sidecar(&pod.Spec.InitContainers[i]) {
			add(&pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}

// dns follows the pod's policy (core/v1 DNSPolicy).
func (r *Runtime) dns(pod *v1.Pod) (*cri.DNSConfig, error) {
	out := &cri.DNSConfig{}
	policy := pod.Spec.DNSPolicy
	cluster := policy == v1.DNSClusterFirstWithHostNet || (policy == v1.DNSClusterFirst || policy == "") && !pod.Spec.HostNetwork
	switch {
	case policy == v1.DNSNone:
	case cluster && len(r.conf.ClusterDNS) > 0:
		out.Servers = slices.Clone(r.conf.ClusterDNS)
		out.Options = []string{"ndots:5"}
		if d := r.conf.ClusterDomain; d != "" {
			out.Searches = []string{pod.Namespace + ".svc." + d, "svc." + d, d}
		}
	default:
		if err := readResolvConf(r.conf.ResolvConf, out); err != nil {
			return nil, err
		}
	}
	addDNS(out, pod.Spec.DNSConfig)
	return out, nil
}

// addDNS adds what the pod itself says; an option of the same name is replaced.
func addDNS(to *cri.DNSConfig, c *v1.PodDNSConfig) {
	if c == nil {
		return
	}
	to.Servers = union(to.Servers, c.Nameservers)
	to.Searches = union(to.Searches, c.Searches)
	for _, o := range c.Options {
		text := o.Name
		if o.Value != nil {
			text += ":" + *o.Value
		}
		to.Options = append(slices.DeleteFunc(to.Options, func(s string) bool {
			name, _, _ := strings.Cut(s, ":")
			return name == o.Name
		}), text)
	}
}

func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

// readResolvConf reads resolv.conf(5); a node without one has no DNS.
func readResolvConf(file string, into *cri.DNSConfig) error {
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) || file == "" {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "nameserver":
			into.Servers = append(into.Servers, f[1])
		case "search", "domain":
			into.Searches = f[1:]
		case "options":
			into.Options = append(into.Options, f[1:]...)
		}
	}
	return nil
}

// writeHosts makes the /etc/hosts that all containers of the pod see: in the node's
// network it is the node's own, and what the pod adds.
func (r *Runtime) writeHosts(pod *v1.Pod, ips []string) (string, error) {
	dir := filepath.Join(r.conf.PodDir, string(pod.UID))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	var b strings.Builder
	if pod.Spec.HostNetwork {
		own, err := os.ReadFile(r.conf.Hosts)
		if err != nil && !os.IsNotExist(err) {
			return "", err
		}
		b.WriteString(strings.TrimRight(string(own), "\n") + "\n")
	} else {
		b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
		name := hostname(pod)
		if full := r.domainName(pod); full != "" {
			name = full + "\t" + name
		}
		for _, ip := range ips {
			b.WriteString(ip + "\t" + name + "\n")
		}
	}
	for _, a := range pod.Spec.HostAliases {
		b.WriteString(a.IP + "\t" + strings.Join(a.Hostnames, "\t") + "\n")
	}
	file := filepath.Join(dir, "etc-hosts")
	// In place: containers that run have this very file mounted.
	return file, os.WriteFile(file, []byte(b.String()), 0o644)
}
