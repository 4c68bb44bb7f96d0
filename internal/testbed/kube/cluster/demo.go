package main

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

// demo is the cluster.
type demo struct {
	*progress

	t     testing.TB
	nodes int
	extra extra

	c        *kube.Cluster
	beds     []*bed
	images   []string // archives of Fairlead's images
	machines []*kube.Node
	env      string
}

// extra is what a cluster has besides; the zero value is nothing.
type extra struct {
	api    []string                       // flags of the API server
	images []func(string) ([]byte, error) // of image, of the folder of Kubernetes' programs
	dns    string                         // address of the cluster's DNS, which pods ask
	ovs    bool                           // Open vSwitch is the chart's, on the one node
}

// bed is a machine before it is a node: its namespaces, its Open vSwitch, and its
// place between the others.
type bed struct {
	*testbed.Node
	name string
	site *testbed.Site // nil in a cluster of one node
}

// podCIDR is the default network of all nodes.
const podCIDR = "10.16.0.0/16"

// values are those of the chart that this cluster needs: an image that needs no
// registry, the API server's address, since there is no kube-proxy, and policies
// that refuse.
const values = `image: {repository: %s, tag: %s, pullPolicy: Never}
kubernetesService: {host: %q, port: %q}
policies: {requests: {actions: [Deny]}}
`

// ovnValues are those of a cluster of several nodes: OVN joins them, by Open vSwitch
// of the machines and by OVN in pods.
const ovnValues = `flags: {iface: ` + testbed.PhyBridge + `}
ovn:
  enabled: true
  image: ` + image.ControllerName + `
  ovnImage: ` + image.OVNName + `
  central: {members: %s}
`

// ovsValues are those of a node without an Open vSwitch of its own.
const ovsValues = `openvswitch: {enabled: true}
ovn: {ovnImage: ` + image.OVNName + `}
`

// subnet is the pods' network, of both families.
const subnet = `
apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: ovn-default}
spec: {default: true, cidrBlock: "` + podCIDR + `,fd00:10:16::/112", natOutgoing: true}
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
	d.c = kube.Start(d.t, kube.Options{Control: true, PodCIDR: podCIDR, NoCRDs: true, Flags: d.extra.api})
	d.makeBeds()
	d.step("fairlead install: CRDs, accounts, rights, policies (Deny) and what runs, of the chart")
	d.install()
	d.step("images of this checkout's programs: %s:%s ...", image.FairleadName, image.FairleadTag)
	d.pack()
	for _, b := range d.beds {
		d.step("node %s: containerd, images, kubelet", b.name)
		d.machine(b)
	}
	d.step("what the chart runs: %s; then the nodes are Ready", strings.Join(d.parts(), ", "))
	for _, part := range d.parts() {
		if part == ovsPart { // it is updated by hand: kubectl knows no roll-out of that
			d.c.Kubectl("-n", "kube-system", "wait", part, "--for=jsonpath={.status.numberReady}=1", "--timeout=120s")
			continue
		}
		d.c.Kubectl("-n", "kube-system", "rollout", "status", part, "--timeout=120s")
	}
	for _, n := range d.machines {
		n.WaitReady()
	}
	for _, file := range d.images {
		require.NoError(d.t, os.Remove(file))
	}
	d.writeEnv()
}

const ovsPart = "daemonset/fairlead-openvswitch"

// parts are what the chart runs.
func (d *demo) parts() []string {
	switch {
	case d.extra.ovs:
		return []string{ovsPart, "daemonset/fairlead-agent"}
	case d.nodes == 1:
		return []string{"daemonset/fairlead-agent"}
	}
	return []string{"daemonset/fairlead-central", "deployment/fairlead-controller", "daemonset/fairlead-chassis", "daemonset/fairlead-agent"}
}

// makeBeds makes the machines as an administrator prepares them: with Open vSwitch,
// unless the chart brings it, on one network.
func (d *demo) makeBeds() {
	d.step("machines: %d", d.nodes)
	machine := testbed.New
	if d.extra.ovs {
		machine = testbed.Bare
	}
	var under *testbed.Underlay
	if d.nodes > 1 {
		under = testbed.NewUnderlay(d.t)
	}
	for i := range d.nodes {
		b := &bed{Node: machine(d.t), name: "demo"}
		if i > 0 {
			b.name = fmt.Sprintf("demo%d", i+1)
		}
		b.Outside()
		if under != nil {
			b.site = under.Join(b.Node)
		}
		b.Run("sh", "-ec", machineScript)
		d.beds = append(d.beds, b)
	}
}

// members are the nodes of OVN's central part as the chart takes them: three where
// there are three.
func (d *demo) members() string {
	n := 1
	if len(d.beds) >= 3 {
		n = 3
	}
	var all []string
	for _, b := range d.beds[:n] {
		all = append(all, b.name+": "+b.site.IP4)
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// install runs the command that users run, with the administrator's rights.
func (d *demo) install() {
	at, err := url.Parse(d.c.URL())
	require.NoError(d.t, err)
	file := filepath.Join(d.c.Dir(), "values.yaml")
	text := fmt.Sprintf(values, image.FairleadName, image.FairleadTag, at.Hostname(), at.Port())
	if d.nodes > 1 {
		text += fmt.Sprintf(ovnValues, d.members())
	}
	if d.extra.ovs {
		text += ovsValues
	}
	require.NoError(d.t, os.WriteFile(file, []byte(text), 0o600))
	d.command(testbed.Program(d.t), "install", "--kubeconfig", d.c.AdminKubeconfig(), "--values", file)
	d.c.Kubectl("wait", "--for=condition=Established", "crd/subnets.kubeovn.io", "--timeout=60s")
	if d.nodes > 1 {
		d.c.Apply(subnet)
	}
	d.c.Apply(tenant)
}

// pack makes the images as files, which go once all nodes have them.
func (d *demo) pack() {
	makes := []func(string) ([]byte, error){image.Fairlead}
	if d.nodes > 1 {
		makes = append(makes, image.Controller)
	}
	if d.nodes > 1 || d.extra.ovs {
		makes = append(makes, image.OVN)
	}
	programs, err := kube.Programs()
	require.NoError(d.t, err)
	d.archive(filepath.Dir(testbed.Program(d.t)), makes)
	d.archive(programs, d.extra.images)
}

// archive makes images of a folder's programs.
func (d *demo) archive(dir string, makes []func(string) ([]byte, error)) {
	for _, archive := range makes {
		b, err := archive(dir)
		require.NoError(d.t, err)
		file := filepath.Join(d.c.Dir(), fmt.Sprintf("image%d.tar", len(d.images)))
		require.NoError(d.t, os.WriteFile(file, b, 0o600))
		d.images = append(d.images, file)
	}
}

// machine makes a bed a node, with containerd, kubelet and upstream's plugins. What
// is Fairlead's comes by itself.
func (d *demo) machine(b *bed) {
	o := kube.NodeOptions{Name: b.name, Images: d.images, DNS: d.extra.dns}
	if b.site != nil {
		o.Address, o.Address6 = b.site.IP4, b.site.IP6
	}
	d.machines = append(d.machines, kube.StartNode(d.t, d.c, b.Node, o))
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

Images: %[3]s, %s.
Each node reaches %s, the world outside, and nothing else.
%sLogs: %s
Ctrl-C removes everything.`

const (
	alone = `Services have no addresses that work: there is no kube-proxy.
`
	several = `Nodes: %s (in_node2 ... enters the second one, and so on). OVN joins their pods, and answers them for Services.
`
)

// guide says what to do with it.
func (d *demo) guide() string {
	more := alone
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
