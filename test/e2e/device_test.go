package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/device"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

const (
	devInfo     = "/run/k8s.cni.cncf.io/devinfo"
	nicResource = "example.com/nic"
	vfResource  = "example.com/vf"
	// nicPlugin is a CNI plugin that makes a link whose alias tells the device
	// it was given and what the device information file says.
	nicPlugin = `#!/bin/sh
conf=$(cat)
id=$(echo "$conf" | sed -n 's/.*"deviceID":"\([^"]*\)".*/\1/p')
info=$(echo "$conf" | sed -n 's/.*"CNIDeviceInfoFile":"\([^"]*\)".*/\1/p')
run() { nsenter --net="$CNI_NETNS" ip link "$@"; }
case $CNI_COMMAND in
ADD) run add "$CNI_IFNAME" type bridge && run set "$CNI_IFNAME" alias "$id $(cat "$info")" &&
	echo '{"cniVersion":"1.0.0","interfaces":[{"name":"'"$CNI_IFNAME"'","sandbox":"'"$CNI_NETNS"'"}]}' ;;
DEL) [ -z "$CNI_NETNS" ] || run del "$CNI_IFNAME" || true ;;
esac
`
	nicConf = `{"cniVersion":"1.0.0","plugins":[{"type":"nic","capabilities":{"CNIDeviceInfoFile":true}},{"type":"nothing"}]}`
	// nothing hands on what it got, in the version that it got it in.
	nothingPlugin = `#!/bin/sh
conf=$(cat)
[ "$CNI_COMMAND" != ADD ] || echo "$conf" | sed 's/.*"prevResult"://; s/,"type":"nothing"}$//'
`
)

// deviceNode is a real node with real kubelet whose agent knows the two
// plugins above.
type deviceNode struct {
	*kube.Node
	t  *testing.T
	c  *kube.Cluster
	ns string
}

func startDeviceNode(t *testing.T) *deviceNode {
	t.Helper()
	c := kube.Shared(t)
	c.Alone()
	n := &deviceNode{Node: kube.StartNode(t, c, testbed.New(t), kube.NodeOptions{}), t: t, c: c, ns: c.Namespace()}
	n.Agent("--kubeconfig", c.Kubeconfig(c.Admin()), "--node-name", n.Name, "--cni-bin-dir", nicPlugins(t, n.Node.Node)).WaitReady()
	n.WriteConf("00-fairlead.conflist", `{"cniVersion":"1.0.0","name":"fairlead","plugins":[{"type":"fairlead"}]}`)
	n.WaitReady()
	return n
}

// nicPlugins installs the plugins above on a node.
func nicPlugins(t *testing.T, n *testbed.Node) (bin string) {
	t.Helper()
	bin = filepath.Join(n.Dir, "nicbin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	for name, text := range map[string]string{"nic": nicPlugin, "nothing": nothingPlugin} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755))
	}
	return bin
}

// nadOf is a NAD whose devices are of a resource.
func nadOf(name, resource, config string) string {
	return object("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", name,
		map[string]string{"k8s.v1.cni.cncf.io/resourceName": resource}, map[string]any{"config": config})
}

// describeDevice writes the device information file that a device plugin writes.
func describeDevice(t *testing.T, n *testbed.Node, resource, id string) {
	t.Helper()
	dir := n.Path(devInfo + "/dp")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	name := strings.ReplaceAll(resource, "/", "-") + "-" + id + "-device.json"
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(infoOf(id)), 0o600))
}

func infoOf(id string) string {
	return fmt.Sprintf(`{"type":"pci","version":"1.1.0","pci":{"pci-address":%q}}`, id)
}

// want is a pod that asks for count devices of kubelet and for networks.
func (n *deviceNode) want(name string, count int, networks string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":%q,"name":%q,"annotations":{%q:%q}},"spec":{"containers":[
 {"name":"a","image":%q,"command":["sleep","1000000"],"resources":{"limits":{%q:"1"}}},
 {"name":"b","image":%[5]q,"command":["sleep","1000000"],"resources":{"limits":{%[6]q:"%d"}}}]}}`,
		n.ns, name, networksKey, networks, kube.Busybox, nicResource, count-1)
}

// given is what kubelet says that a pod has of a resource, in the order in
// which it is to be handed out.
func (n *deviceNode) given(pod, resource string) (ids []string) {
	n.t.Helper()
	for _, c := range resourcesOf(n.t, n.Node, n.ns, pod).GetContainers() {
		for _, d := range c.GetDevices() {
			if d.GetResourceName() == resource {
				ids = append(ids, d.GetDeviceIds()...)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// proveGiven proves that a pod's networks have devices, in order: by what the
// plugin saw, and by the pod's status.
func (n *deviceNode) proveGiven(p *kube.Pod, ids ...string) {
	n.t.Helper()
	cn := &clusterNode{t: n.t, c: n.c, name: n.ns}
	eventually(n.t, func() string {
		if len(cn.published(p.Name)) != len(ids)+1 {
			return "no status"
		}
		return ""
	})
	status := cn.published(p.Name)
	for i, id := range ids {
		out, err := p.Nsenter("ip", "-d", "link", "show", fmt.Sprintf("net%d", i+1))
		require.NoError(n.t, err)
		require.Contains(n.t, out, "alias "+id+" "+infoOf(id))
		require.JSONEq(n.t, infoOf(id), string(status[i+1].DeviceInfo))
	}
}

// TestRule8_KubeletsDevices: networks of a resource get the devices that kubelet gave
// the pod's containers, in order and none twice.
func TestRule8_KubeletsDevices(t *testing.T) {
	t.Parallel()
	n := startDeviceNode(t)
	all := []string{"nic-1", "nic-2", "nic-3", "nic-4"}
	offerDevices(t, n.c, n.Node, nicResource, all...)
	for _, id := range all {
		describeDevice(t, n.Node.Node, nicResource, id)
	}
	n.c.Apply(nadOf(n.ns+"/a", nicResource, nicConf))
	n.c.Apply(nadOf(n.ns+"/b", nicResource, nicConf))

	one := n.RunPod(n.want("one", 2, "a,b"))
	two := n.RunPod(n.want("two", 2, "b,b"))
	first, second := n.given("one", nicResource), n.given("two", nicResource)
	require.Len(t, first, 2)
	require.Len(t, second, 2)
	require.ElementsMatch(t, all, slices.Concat(first, second))
	n.proveGiven(one, first...)
	n.proveGiven(two, second...)
	files, err := os.ReadDir(n.Path(devInfo + "/cni"))
	require.NoError(t, err)
	require.Len(t, files, 4)

	// What kubelet keeps on disk says the same, for when it is not there.
	n.KillKubelet()
	kubelet := device.New(n.Path(kubeletRoot), nil)
	got, err := kubelet.Allocated(t.Context(), core.Pod{Namespace: n.ns, Name: "one", UID: string(one.UID)})
	require.NoError(t, err)
	require.Equal(t, map[string][]string{nicResource: first}, got)
	n.RestartKubelet()
	offerDevices(t, n.c, n.Node, nicResource, all...)

	// A pod whose networks want more than it asked for says so and gets nothing.
	two.Delete()
	three := n.CreatePod(n.want("three", 2, "a,b,a"))
	eventually(t, func() string {
		events := strings.Join(three.Events(), "\n")
		if strings.Contains(events, n.ns+"/a wants resource "+nicResource+", of which kubelet gave this pod 2") {
			return ""
		}
		return "no event says that devices lack:\n" + events
	})
	three.Delete()
	one.Delete()
	files, err = os.ReadDir(n.Path(devInfo + "/cni"))
	require.NoError(t, err)
	require.Empty(t, files)
	files, err = os.ReadDir(n.Path(devInfo + "/dp"))
	require.NoError(t, err)
	require.Len(t, files, 4, "the device plugin's own")
}

// TestRule8_DRADevices: the devices of a ResourceClaim are known by what their driver
// publishes of them. Scheduler and driver's controller are the test: it writes
// what they would.
func TestRule8_DRADevices(t *testing.T) {
	t.Parallel()
	n := startDeviceNode(t)
	const driver = "nic.example.com"
	ids := []string{"0000:03:02.0", "0000:03:02.1"}
	var devices []any
	for i, id := range ids {
		devices = append(devices, map[string]any{"name": fmt.Sprintf("vf%d", i), "attributes": map[string]any{
			"k8s.cni.cncf.io/deviceID":     map[string]any{"string": id},
			"k8s.cni.cncf.io/resourceName": map[string]any{"string": vfResource},
		}})
		describeDevice(t, n.Node.Node, vfResource, id)
	}
	n.c.Apply(object("resource.k8s.io/v1", "ResourceSlice", n.Name+"-nic", nil, map[string]any{
		"driver": driver, "nodeName": n.Name, "devices": devices,
		"pool": map[string]any{"name": n.Name, "generation": 1, "resourceSliceCount": 1},
	}))
	registerDRA(t, n.Node, driver, func(*dra.Claim) (out []*dra.Device) {
		for i := range ids {
			out = append(out, &dra.Device{RequestNames: []string{"nics"}, PoolName: n.Name, DeviceName: fmt.Sprintf("vf%d", i)})
		}
		return out
	})
	n.c.Apply(nadOf(n.ns+"/a", vfResource, nicConf))
	n.c.Apply(nadOf(n.ns+"/b", vfResource, nicConf))
	n.c.Apply(object("resource.k8s.io/v1", "ResourceClaim", n.ns+"/nics", nil, map[string]any{
		"devices": map[string]any{"requests": []any{map[string]any{"name": "nics", "exactly": map[string]any{
			"deviceClassName": "nic", "allocationMode": "ExactCount", "count": len(ids),
		}}}},
	}))
	p := n.CreatePod(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":%q,"name":"p","annotations":{%q:"a,b"}},"spec":{
 "resourceClaims":[{"name":"nics","resourceClaimName":"nics"}],
 "containers":[{"name":"a","image":%q,"command":["sleep","1000000"],"resources":{"claims":[{"name":"nics"}]}}]}}`, n.ns, networksKey, kube.Busybox))
	n.allocate(p, "nics", driver, len(ids))
	p.WaitRunning()
	n.proveGiven(p, ids...)
	p.Delete()
	files, err := os.ReadDir(n.Path(devInfo + "/cni"))
	require.NoError(t, err)
	require.Empty(t, files)
}

// allocate gives the first devices of the node to a claim, for a pod.
func (n *deviceNode) allocate(p *kube.Pod, claim, driver string, count int) {
	n.t.Helper()
	claims := n.c.Client().ResourceV1().ResourceClaims(n.ns)
	o, err := claims.Get(n.t.Context(), claim, metav1.GetOptions{})
	require.NoError(n.t, err)
	results := make([]resourcev1.DeviceRequestAllocationResult, 0, count)
	for i := range count {
		results = append(results, resourcev1.DeviceRequestAllocationResult{Request: "nics", Driver: driver, Pool: n.Name, Device: fmt.Sprintf("vf%d", i)})
	}
	o.Status = resourcev1.ResourceClaimStatus{
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: p.Name, UID: p.UID}},
		Allocation: &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: results},
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{n.Name}}},
			}}},
		},
	}
	_, err = claims.UpdateStatus(n.t.Context(), o, metav1.UpdateOptions{})
	require.NoError(n.t, err)
}

// TestRule8_DevicesWithoutKubelet: on a machine without kubelet nobody gives devices,
// so a network gets what the pod names, and says so where it names none. A DEL
// of a pod without record needs to know no device.
func TestRule8_DevicesWithoutKubelet(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.WriteObjects("objects.yaml", together(
		subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}),
		nadOf("default/a", nicResource, nicConf),
		podObject("default/named", map[string]string{networksKey: `[{"name":"a","deviceID":"nic-1"}]`}),
		podObject("default/open", map[string]string{networksKey: "a"}),
	))
	describeDevice(t, n, nicResource, "nic-1")
	n.Agent("--cni-bin-dir", nicPlugins(t, n), "--kubelet-root", filepath.Join(n.Dir, "nowhere")).WaitReady()
	p, q := n.NewPod("named"), n.NewPod("open")
	before := n.Inventory()
	p.CNI("ADD", ownConf).Must()
	require.Contains(t, p.Run("ip", "-d", "link", "show", "net1"), "alias nic-1 "+infoOf("nic-1"))
	require.Contains(t, n.Fairlead("describe", "pod", "named", "-o", "json"), `"device-info"`)
	p.CNI("DEL", ownConf).Must()
	require.Equal(t, before, n.Inventory())

	err := q.CNI("ADD", ownConf).MustCode(104)
	require.Contains(t, err.Msg+err.Details, "default/a wants resource "+nicResource)
	require.Contains(t, err.Msg+err.Details, "no kubelet is known here")
	require.Equal(t, before, n.Inventory())

	// What somebody else attached: a link and a file of the names that we use.
	q.Run("ip", "link", "add", "net1", "type", "bridge")
	file := n.Path(devInfo + "/cni/default-a-" + q.ContainerID + "-net1-device.json")
	require.NoError(t, os.WriteFile(file, []byte(infoOf("nic-2")), 0o444))
	q.CNI("DEL", ownConf).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, q))
	require.NoFileExists(t, file)
	require.Equal(t, before, n.Inventory())
}
