package testbed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os/exec"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
)

// Pod is a sandbox as a runtime makes it before it calls the plugin: a named
// network namespace with lo up, and a container id.
type Pod struct {
	Namespace   string
	Name        string
	ContainerID string // 64 hex digits, new for each Pod

	n     *Node
	netns string // name below /run/netns
}

// NewPod makes a sandbox. name is "namespace/name", or a name in "default".
func (n *Node) NewPod(name string) *Pod {
	n.t.Helper()
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		namespace, short = "default", name
	}
	id := make([]byte, 32)
	_, err := rand.Read(id)
	require.NoError(n.t, err)
	p := &Pod{Namespace: namespace, Name: short, ContainerID: hex.EncodeToString(id), n: n}
	p.netns = fmt.Sprintf("%s-%s-%s", namespace, short, p.ContainerID[:6])
	n.Run("ip", "netns", "add", p.netns)
	n.mu.Lock()
	n.pods[p.netns] = p
	n.mu.Unlock()
	p.Run("ip", "link", "set", "lo", "up")
	return p
}

// Netns is the path of the pod's namespace inside the node: what a runtime
// puts into CNI_NETNS.
func (p *Pod) Netns() string { return "/run/netns/" + p.netns }

// NetnsPath names the same namespace for this process.
func (p *Pod) NetnsPath() string { return p.n.Path(p.Netns()) }

// Delete removes the namespace, as a runtime does after DEL.
func (p *Pod) Delete() {
	p.n.t.Helper()
	p.n.Run("ip", "netns", "del", p.netns)
	p.n.mu.Lock()
	delete(p.n.pods, p.netns)
	p.n.mu.Unlock()
}

// Cmd prepares a command in the pod's network namespace, with the node's
// files. Safe in any goroutine.
func (p *Pod) Cmd(ctx context.Context, argv ...string) *exec.Cmd {
	return p.n.enter(ctx, p.NetnsPath(), argv...)
}

// Run runs a command in the pod's network namespace.
func (p *Pod) Run(argv ...string) string {
	p.n.t.Helper()
	out, err := p.Try(argv...)
	require.NoError(p.n.t, err)
	return out
}

// Try is Run for commands that may fail, and for any goroutine.
func (p *Pod) Try(argv ...string) (string, error) {
	return output(p.NetnsPath(), p.n, argv)
}

// Ping sends one echo request, up to three times; nil means that one was
// answered. The first may be lost to address resolution on a loaded machine.
func (p *Pod) Ping(addr string) error { return pingFrom(p, addr) }

type tryer interface {
	Try(argv ...string) (string, error)
}

func pingFrom(from tryer, addr string) error {
	_, err := from.Try("ping", "-n", "-c", "1", "-w", "3", addr)
	return err
}

// Args is CNI_ARGS as containerd writes them for this pod.
func (p *Pod) Args() string {
	return strings.Join([]string{"IgnoreUnknown=1", "K8S_POD_NAMESPACE=" + p.Namespace,
		"K8S_POD_NAME=" + p.Name, "K8S_POD_INFRA_CONTAINER_ID=" + p.ContainerID}, ";")
}

// CNI calls the plugin for the pod's eth0; conf is the network configuration
// as it stands on the plugin's standard input. Safe in any goroutine.
func (p *Pod) CNI(op, conf string) Answer { return p.CNIInterface(op, "eth0", conf) }

// CNIInterface is CNI for another CNI_IFNAME.
func (p *Pod) CNIInterface(op, ifName, conf string) Answer {
	return p.n.CNI(cni.Request{Command: op, ContainerID: p.ContainerID, Netns: p.Netns(),
		IfName: ifName, Args: p.Args(), Config: []byte(conf)})
}
