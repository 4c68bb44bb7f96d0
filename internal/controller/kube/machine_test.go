package kube_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	kubebed "github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

const machineCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: virtualmachines.kubevirt.io}
spec:
  group: kubevirt.io
  names: {kind: VirtualMachine, plural: virtualmachines, singular: virtualmachine, listKind: VirtualMachineList}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const machineYAML = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: vm, namespace: NS}
`

const machineSubnetYAML = `
apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: NS}
spec: {cidrBlock: 10.31.0.0/29, excludeIps: [10.31.0.4..10.31.0.6]}
`

const launcherYAML = `
apiVersion: v1
kind: Pod
metadata:
  name: virt-launcher-vm-NAME
  namespace: NS
  labels: {vm.kubevirt.io/name: vm}
  annotations: {ovn.kubernetes.io/logical_switch: NS}
  ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, name: vm, uid: i-NAME, controller: true}]
spec: {nodeName: NS, containers: [{name: c, image: none}]}
`

// TestVirtualMachines: on a real API server a virtual machine has its address again in
// another launcher pod, whether the API server knows the kind or comes to know it, until
// the object is deleted. Before there is a launcher nothing is asked about the kind.
func TestVirtualMachines(t *testing.T) {
	t.Parallel()
	c := alone(t)
	kinds.Install(t, c)
	ns, db := c.Namespace(), bed.NewNB(t, testbed.Bare(t))
	c.RegisterNode(ns)
	in := func(text string, more ...string) string {
		return strings.NewReplacer(append(more, "NS", ns)...).Replace(text)
	}
	c.Apply(in(machineSubnetYAML))
	from := c.Mark()
	asked := func() int {
		return len(c.Requests(kubebed.Filter{UserAgent: agent, Resource: "virtualmachines", Since: from}))
	}
	serve(t, c, db)
	told := func(pod, want string) {
		t.Helper()
		var got string
		require.Eventually(t, func() bool {
			p, err := c.Client().CoreV1().Pods(ns).Get(t.Context(), pod, metav1.GetOptions{})
			got = strings.TrimSpace(p.Annotations["ovn.kubernetes.io/virtualmachine"] + " " + p.Annotations["ovn.kubernetes.io/ip_address"])
			return err == nil && got == want
		}, patience, tick, "%s: wanted %s, have %v", pod, want, lately{&got})
	}
	c.Apply(in(podYAML, "NAME", "a"))
	told("a", "10.31.0.2")
	require.Zero(t, asked())
	remove := func(pod string) {
		now := int64(0)
		require.NoError(t, c.Client().CoreV1().Pods(ns).Delete(t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	}

	// There is no such kind: an instance alone has its address as long as a pod runs it.
	c.Apply(in(launcherYAML, "NAME", "1"))
	told("virt-launcher-vm-1", "vm 10.31.0.3")
	require.NotZero(t, asked())
	remove("virt-launcher-vm-1")
	c.Apply(in(podYAML, "NAME", "b"))
	told("b", "10.31.0.3")
	remove("b")

	c.Apply(machineCRD)
	require.Eventually(t, func() bool { return c.TryApply(c.Admin(), in(machineYAML)) == nil }, patience, tick)
	uid := string(c.Apply(in(machineYAML))[0].GetUID())
	c.Apply(in(launcherYAML, "NAME", "2"))
	told("virt-launcher-vm-2", "vm 10.31.0.3")
	keeper := func() bool {
		return strings.Contains(db.Get("Logical_Switch_Port", "vm."+ns, "external_ids"), "VirtualMachine/vm/"+uid)
	}
	require.Eventually(t, keeper, patience, tick)
	remove("virt-launcher-vm-2")
	c.Apply(in(podYAML, "NAME", "b"))
	require.Eventually(t, func() bool {
		all, err := c.Client().CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=b,reason=AcquireAddressFailed"})
		return err == nil && len(all.Items) > 0
	}, patience, tick)
	c.Delete(in(machineYAML))
	told("b", "10.31.0.3")
	for _, pod := range []string{"a", "b"} {
		remove(pod)
	}
	c.Delete(machineCRD)
	c.Delete(in(machineSubnetYAML))
}
