package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "embed"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube/cgroup"
	"github.com/fairlead/fairlead/internal/testbed/kube/image"
	"github.com/fairlead/fairlead/internal/testbed/kube/relay"
)

// The images that every node has; imagePullPolicy must not be Always.
const (
	// Busybox has a shell and its applets (ip, ping, nc, httpd, wget, ...).
	Busybox = image.BusyboxName
	// Pause waits for its end.
	Pause = image.PauseName
)

//go:embed assets/boot.sh
var bootScript string

//go:embed assets/containerd.toml
var containerdConfig string

//go:embed assets/containerd1.toml
var containerd1Config string

//go:embed assets/kubelet.yaml
var kubeletConfig string

// NodeOptions say what a node is like; the zero value has a name of its own
// and no network configuration.
type NodeOptions struct {
	// Name of the Node object. "" is a new one.
	Name string
	// Conf is the content of a conflist for /etc/cni/net.d; StartNode then
	// waits until the node is Ready. Without one, whoever writes a conf there
	// makes it Ready.
	Conf string
	// Runtime is the socket of a CRI runtime that the test has started in the
	// node and ends itself, in place of containerd: its path is the same inside
	// the node and outside. It has the images already. Such a node cannot Reboot.
	Runtime string
	// Images are further images that containerd gets: archives, as files.
	Images []string
	// Address is the node's own, which it has already, as on an underlay. "" is one
	// on its lo, which other nodes do not reach.
	Address string
	// Address6 is its own of IPv6. "" is none.
	Address6 string
	// DNS is the address of the cluster's DNS, which pods are to ask. "" is none.
	DNS string
}

// Node is a machine of a cluster: kubelet, and containerd unless the test brings
// another runtime, in a testbed node's namespaces. CNI plugins are the testbed's (/opt/cni/bin: upstream's and, by
// all its types, ours), confs are read from the node's own /etc/cni/net.d.
type Node struct {
	*testbed.Node

	// Name of the Node object.
	Name string
	// IP is the node's address in the cluster.
	IP string
	// Link is the node's way to the API server.
	Link *Link

	t          testing.TB
	c          *Cluster
	cgroups    *cgroup.Group
	kubeconfig string
	runtime    string      // NodeOptions.Runtime
	site       string      // NodeOptions.Address
	site6      string      // NodeOptions.Address6
	dns        string      // NodeOptions.DNS
	containerd *Containerd // nil where the runtime is the test's
	kubelet    *process
}

// StartNode makes a testbed node a machine of the cluster. When the test ends,
// its pods are removed through the runtime, so that plugins see their DEL; what
// is left then (processes, cgroups, network namespaces) fails the test.
func StartNode(t testing.TB, c *Cluster, n *testbed.Node, o NodeOptions) *Node {
	t.Helper()
	k := &Node{Node: n, Name: o.Name, runtime: o.Runtime, site: o.Address, site6: o.Address6, dns: o.DNS, t: t, c: c.With(t)}
	number := c.s.nextNode()
	if k.Name == "" {
		k.Name = fmt.Sprintf("node-%d", number)
	}
	k.IP = cmp.Or(o.Address, fmt.Sprintf("192.0.2.%d", number)) // RFC 5737
	k.kubeconfig = c.Kubeconfig(c.User("system:node:"+k.Name, "system:nodes"))
	var err error
	k.cgroups, err = cgroup.New(cgroup.Of(n.Dir))
	require.NoError(t, err)
	if k.runtime == "" {
		k.containerd = NewContainerd(t, n)
		k.containerd.host, k.containerd.images = k.Name, o.Images
	}
	t.Cleanup(k.close)
	require.NoError(t, k.files())
	k.boot()
	if o.Conf != "" {
		k.WriteConf("10-test.conflist", o.Conf)
		k.WaitReady()
	}
	return k
}

// nextNode numbers the nodes of a cluster from 1.
func (s *server) nextNode() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes++
	return s.nodes
}

// file is a path in the folder of what kubelet and containerd are given.
func (k *Node) file(name string) string { return filepath.Join(k.Dir, "kube", name) }

// files writes configurations and certificates.
func (k *Node) files() error {
	if err := os.MkdirAll(k.file(""), 0o755); err != nil {
		return err
	}
	serving, err := k.c.s.ca.Server([]net.IP{net.ParseIP(k.IP)}, k.Name)
	if err != nil {
		return err
	}
	fill := strings.NewReplacer("@DIR@", k.file(""), "@CGROUP@", k.cgroups.Name, "@DNS@", k.dns)
	return errors.Join(serving.Write(k.file(""), "kubelet"),
		os.WriteFile(k.file("ca.crt"), k.c.s.ca.PEM, 0o600),
		os.WriteFile(k.file("kubelet.yaml"), []byte(fill.Replace(kubeletConfig)), 0o600))
}

// boot brings everything up that is not on the disk.
func (k *Node) boot() {
	k.t.Helper()
	k.Run("sh", "-c", bootScript, "boot", k.Dir)
	if k.site == "" {
		k.Run("ip", "addr", "add", k.IP+"/32", "dev", "lo")
	}
	var err error
	k.Link, err = newLink(k.c.s, k.NetnsPath())
	require.NoError(k.t, err)
	k.c.s.egress.Route(k.IP, k.NetnsPath())
	if k.containerd != nil {
		k.containerd.Start()
	}
	k.StartKubelet()
	k.waitRegistered()
}

// daemon starts a program in a node, by the words of argv.
func daemon(t testing.TB, n *testbed.Node, bin string, argv ...string) *process {
	t.Helper()
	name := filepath.Base(bin)
	// Its life is not that of a context: tests end it on purpose.
	cmd := n.Cmd(context.Background(), argv...)
	// The shim is found beside containerd.
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"))
	p, err := start(name, filepath.Join(n.Dir, "log", name), cmd)
	require.NoError(t, err)
	return p
}

// StartContainerd starts containerd again and waits until it answers.
func (k *Node) StartContainerd() { k.containerd.Start() }

// KillContainerd kills containerd; the pods' processes go on.
func (k *Node) KillContainerd() { k.containerd.Kill() }

// StartKubelet starts kubelet and does not wait.
func (k *Node) StartKubelet() {
	k.t.Helper()
	endpoint := containerdSocket
	if k.runtime != "" {
		endpoint = k.runtime
	}
	bin, err := program("kubelet")
	require.NoError(k.t, err)
	addresses := k.IP
	if k.site6 != "" {
		addresses += "," + k.site6
	}
	k.kubelet = daemon(k.t, k.Node, bin, bin, "--config="+k.file("kubelet.yaml"), "--kubeconfig="+k.kubeconfig, "--container-runtime-endpoint=unix://"+endpoint,
		"--hostname-override="+k.Name, "--node-ip="+addresses, "--cert-dir="+k.file("certs"), "--v=1")
}

// ended tells which daemon of the node has ended by itself.
func (k *Node) ended() error {
	if k.containerd == nil {
		return k.kubelet.ended()
	}
	return errors.Join(k.kubelet.ended(), k.containerd.proc.ended())
}

// KillKubelet kills kubelet; pods go on.
func (k *Node) KillKubelet() { k.kubelet.kill() }

// RestartKubelet kills kubelet, starts it again and waits until it serves.
func (k *Node) RestartKubelet() {
	k.t.Helper()
	k.KillKubelet()
	k.StartKubelet()
	ctx, cancel := limited()
	defer cancel()
	require.NoError(k.t, until(ctx, "kubelet", func() error {
		if err := k.kubelet.ended(); err != nil {
			return err
		}
		c, err := relay.Dial(ctx, k.NetnsPath(), "tcp", k.IP+":10250")
		if err != nil {
			return err
		}
		return c.Close()
	}))
}

// Reboot is testbed's: pods' processes are gone, the runtime's and kubelet's
// records and the API's objects stay. kubelet starts the pods again once the
// network is ready; an agent is the test's to start.
func (k *Node) Reboot() {
	k.t.Helper()
	require.Empty(k.t, k.runtime, "the test's runtime cannot be brought up again from here")
	k.KillKubelet()
	k.KillContainerd()
	k.Link.close()
	// A machine's processes end all at once: no DEL, no clean end.
	require.NoError(k.t, k.cgroups.Remove())
	k.Node.Reboot()
	var err error
	k.cgroups, err = cgroup.New(strings.TrimPrefix(k.cgroups.Name, "/"))
	require.NoError(k.t, err)
	k.boot()
}

// WriteConf puts a file into the node's /etc/cni/net.d in the way that
// containerd notices: by rename, and once more in place.
func (k *Node) WriteConf(name, text string) {
	k.t.Helper()
	dir := filepath.Join(k.Dir, "disk/etc/cni/net.d")
	require.NoError(k.t, os.WriteFile(filepath.Join(dir, name+".tmp"), []byte(text), 0o600))
	require.NoError(k.t, os.Rename(filepath.Join(dir, name+".tmp"), filepath.Join(dir, name)))
	require.NoError(k.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

// Manifests is the folder of static pods.
func (k *Node) Manifests() string { return filepath.Join(k.Dir, "disk/etc/kubernetes/manifests") }

// waitRegistered waits until the Node object is there.
func (k *Node) waitRegistered() {
	k.t.Helper()
	require.NoError(k.t, until(context.Background(), "the node's registration", func() error {
		_, err := k.object()
		return err
	}))
}

// WaitReady waits until kubelet calls the node Ready, which needs a network
// configuration.
func (k *Node) WaitReady() {
	k.t.Helper()
	require.NoError(k.t, until(context.Background(), "node "+k.Name+" Ready", func() error {
		node, err := k.object()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(node.Status.Conditions, func(c core.NodeCondition) bool { return c.Type == core.NodeReady })
		if i < 0 {
			return errors.New("no condition Ready")
		}
		if c := node.Status.Conditions[i]; c.Status != core.ConditionTrue {
			return errors.New(c.Message)
		}
		return nil
	}))
}

// object reads the Node object, and tells of daemons that have ended.
func (k *Node) object() (*core.Node, error) {
	if err := k.ended(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return k.c.Client().CoreV1().Nodes().Get(ctx, k.Name, metav1.GetOptions{})
}

// close ends the node's part in the cluster. It goes before the testbed node's
// own end: the agent, if there is one, still answers the plugins.
func (k *Node) close() {
	k.t.Helper()
	if k.t.Failed() {
		k.logs()
	}
	var errs []error
	if k.kubelet != nil { // first: it would start again what ends
		errs = append(errs, k.kubelet.stop())
	}
	if k.kubelet != nil {
		errs = append(errs, k.removeSandboxes())
	}
	if k.containerd != nil {
		errs = append(errs, k.containerd.Stop())
	}
	if left := k.cgroups.Residents(); len(left) > 0 {
		errs = append(errs, fmt.Errorf("left over in the node's cgroups: %s", strings.Join(left, "; ")))
	}
	k.c.s.egress.Route(k.IP, "")
	if k.Link != nil {
		k.Link.close()
	}
	errs = append(errs, k.cgroups.Remove(), k.forget())
	for _, err := range errs {
		if err != nil {
			k.t.Errorf("end of node %s: %v", k.Name, err)
		}
	}
}

// forget deletes the objects of the node's pods and the Node object from a
// cluster that others go on using. A server that is stopped or paused has no
// others.
func (k *Node) forget() error {
	if !k.c.s.running() {
		return nil
	}
	ctx, cancel := limited()
	defer cancel()
	api := k.c.Client().CoreV1()
	pods, err := api.Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + k.Name})
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range pods.Items {
		errs = append(errs, api.Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}
	return errors.Join(append(errs, api.Nodes().Delete(ctx, k.Name, metav1.DeleteOptions{}))...)
}

// logs shows what tells most about a failure.
func (k *Node) logs() {
	if k.kubelet != nil {
		k.t.Logf("%s:\n%s", k.kubelet.name, k.kubelet.tail())
	}
	if k.c.s.running() {
		out, err := k.c.TryKubectl("", "get", "events", "-A", "--field-selector=source=kubelet", "-o",
			`jsonpath={range .items[?(@.source.host=="`+k.Name+`")]}{.involvedObject.kind} {.involvedObject.name}: {.reason}: {.message}{"\n"}{end}`)
		k.t.Logf("events:\n%s%v", out, err)
	}
}
