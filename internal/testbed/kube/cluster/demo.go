package main

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

// demo is the cluster.
type demo struct {
	*progress

	t     *foreground
	nodes int

	c        *kube.Cluster
	image    string // archive of Fairlead's image
	machines []*kube.Node
	env      string
}

// podCIDR is the default network of all nodes, and a node's part of it.
const podCIDR = "10.16.0.0/16"

// values are those of the chart that this cluster needs: an image that needs no
// registry, the API server's address, since there is no kube-proxy, and policies
// that refuse.
const values = `image: {repository: %s, tag: %s, pullPolicy: Never}
kubernetesService: {host: %q, port: %q}
policies: {requests: {actions: [Deny]}}
`

// blocks gives each node its part of the default network, without which one
// node alone would give addresses (docs/several-nodes.md).
const blocks = `
apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: ovn-default, annotations: {fairlead.io/allocate: node-block}}
spec: {default: true, protocol: IPv4, cidrBlock: ` + podCIDR + `, gateway: 10.16.0.1, natOutgoing: true}
`

// tenant is a user who may do in a namespace what users usually may.
const tenant = `
{apiVersion: v1, kind: Namespace, metadata: {name: tenant}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: edit, namespace: tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]
`

// start makes it, step by step.
func (d *demo) start() {
	d.step("etcd, kube-apiserver, kube-scheduler, kube-controller-manager: each as its own user")
	d.c = kube.Start(d.t, kube.Options{Control: true, PodCIDR: podCIDR, NoCRDs: true})
	d.step("fairlead install: CRDs, account, rights, policies (Deny) and DaemonSet of the chart")
	d.install()
	d.step("image %s:%s, of this checkout's programs", image.FairleadName, image.FairleadTag)
	d.pack()
	for i := range d.nodes {
		d.machine(i)
	}
	d.step("agents: init container, plugin, configuration; then the nodes are Ready")
	d.c.Kubectl("-n", "kube-system", "rollout", "status", "daemonset/fairlead-agent", "--timeout=80s")
	for _, n := range d.machines {
		n.WaitReady()
	}
	require.NoError(d.t, os.Remove(d.image))
	d.writeEnv()
}

// install runs the command that users run, with the administrator's rights.
func (d *demo) install() {
	at, err := url.Parse(d.c.URL())
	require.NoError(d.t, err)
	file := filepath.Join(d.c.Dir(), "values.yaml")
	text := fmt.Sprintf(values, image.FairleadName, image.FairleadTag, at.Hostname(), at.Port())
	require.NoError(d.t, os.WriteFile(file, []byte(text), 0o600))
	d.command(testbed.Program(d.t), "install", "--kubeconfig", d.c.AdminKubeconfig(), "--values", file)
	d.c.Kubectl("wait", "--for=condition=Established", "crd/subnets.kubeovn.io", "--timeout=60s")
	if d.nodes > 1 {
		d.c.Apply(blocks)
	}
	d.c.Apply(tenant)
}

// pack makes the image as a file, which goes once all nodes have it.
func (d *demo) pack() {
	b, err := image.Fairlead(filepath.Dir(testbed.Program(d.t)))
	require.NoError(d.t, err)
	d.image = filepath.Join(d.c.Dir(), "fairlead.tar")
	require.NoError(d.t, os.WriteFile(d.image, b, 0o600))
}

// machine is a node as an administrator prepares it: Open vSwitch, containerd,
// kubelet and upstream's plugins. The agent comes by itself.
func (d *demo) machine(i int) {
	name := "demo"
	if i > 0 {
		name = fmt.Sprintf("demo%d", i+1)
	}
	d.step("node %s: Open vSwitch, containerd, images, kubelet", name)
	bed := testbed.New(d.t)
	bed.Outside()
	bed.Run("sh", "-ec", machineScript)
	n := kube.StartNode(d.t, d.c, bed, kube.NodeOptions{Name: name, Images: []string{d.image}})
	d.machines = append(d.machines, n)
}

// machineScript makes what the chart expects of a node: a folder of plugins that
// can be written, and mounts below /run that containers see (systemd does that).
const machineScript = `
mkdir /opt/plugins
find /opt/cni/bin -type f ! -name fairlead ! -name multus ! -name kube-ovn -exec cp {} /opt/plugins \;
umount /opt/cni/bin
mount --bind /opt/plugins /opt/cni/bin
mount --make-shared /run
`

// command runs a program of this machine, which must succeed.
func (d *demo) command(argv ...string) {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	require.NoError(d.t, err, "%s: %s", strings.Join(argv, " "), out)
}

const guide = `%3.0f s  ready

In another shell:

  . %s
  kubectl get nodes -o wide
  kubectl -n kube-system get pods -o wide          # Fairlead's agents, as the chart installs them
  kubectl create deployment web --image=%s --replicas=2 -- sh -c 'trap exit TERM; sleep 1000000 & wait'
  kubectl get pods -o wide
  kubectl exec deploy/web -- ip addr
  fairlead get pods -A                             # asks the API, as kubectl does
  kubectl -n kube-system exec ds/fairlead-agent -- fairlead status
  in_node fairlead get pods --node-local           # asks the agent, in the network and the folders of the machine
  in_node ctr -n k8s.io containers ls
  in_node bash

A tenant may not choose addresses (policy fairlead-requests refuses; as administrator you may):

  kubectl -n tenant --as=tenant run fixed --image=%[3]s --annotations=ovn.kubernetes.io/ip_address=10.16.0.99 -- sleep 1000

Images: %[3]s, %s. Services have no addresses that work: there is no kube-proxy.
Each node reaches %s, the world outside, and nothing else.
%sLogs: %s
Ctrl-C removes everything.`

const several = `Nodes: %s (in_node2 ... enters the second one, and so on). Each gives the addresses of its own
podCIDR; pods of different nodes do not reach each other yet.
`

// guide says what to do with it.
func (d *demo) guide() string {
	more := ""
	logs := []string{d.c.Dir() + "/*.log"}
	var names []string
	for _, n := range d.machines {
		logs = append(logs, n.Dir+"/log")
		names = append(names, n.Name)
	}
	if d.nodes > 1 {
		more = fmt.Sprintf(several, strings.Join(names, ", "))
	}
	return fmt.Sprintf(guide, time.Since(d.begin).Seconds(), d.env, kube.Busybox, kube.Pause, testbed.WorldIP4,
		more, strings.Join(logs, ", "))
}

// enter is a shell function that runs a command in a node.
const enter = `in_node%s() { nsenter --mount=%s/ns/mnt --net=%[2]s/ns/net --wd=/ -- "$@"; }
`

// writeEnv writes what a shell needs to use the cluster.
func (d *demo) writeEnv() {
	programs, err := kube.Programs()
	require.NoError(d.t, err)
	programs, err = filepath.Abs(programs)
	require.NoError(d.t, err)
	fairlead, err := filepath.Abs(filepath.Dir(testbed.Program(d.t)))
	require.NoError(d.t, err)
	text := fmt.Sprintf("export KUBECONFIG=%s\nexport PATH=%s:%s:$PATH\n", d.c.AdminKubeconfig(), programs, fairlead)
	for i, n := range d.machines {
		number := ""
		if i > 0 {
			number = fmt.Sprint(i + 1)
		}
		text += fmt.Sprintf(enter, number, strings.TrimSuffix(n.NetnsPath(), "/ns/net"))
	}
	d.env = filepath.Join(d.c.Dir(), "env")
	require.NoError(d.t, os.WriteFile(d.env, []byte(text), 0o600))
}
