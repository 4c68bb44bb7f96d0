package resolve

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// carried resolves a pod where OVN carries networks and a controller gives the
// addresses.
func carried(t *testing.T, w *world, pod string, notes, told map[string]string) ([]core.Want, error) {
	t.Helper()
	w.pods["default/"+pod] = &Pod{Pod: core.Pod{Namespace: "default", Name: pod, UID: "u"}, Annotations: notes}
	return Resolve(t.Context(), w, Input{OVN: true, Request: core.Request{
		Key: core.Key{Container: "c", IfName: "eth0"}, Pod: core.Pod{Namespace: "default", Name: pod, UID: "u"},
		Conf: core.Conf{CNIVersion: "1.0.0", Name: "fairlead", Type: "fairlead", Annotations: told},
	}})
}

// allocatedNotes are the annotations of a pod whose eth0 a controller has given addresses.
func allocatedNotes() map[string]string {
	const at = "ovn.kubernetes.io/"
	return map[string]string{
		at + "allocated": "true", at + "routed": "true", at + "ip_address": "10.16.0.9,fd00:10:16::9", at + "mac_address": "0a:00:00:00:00:09",
		at + "cidr": "10.16.0.0/16,fd00:10:16::/112", at + "gateway": "10.16.0.1,fd00:10:16::1", at + "logical_switch": "ovn-default",
	}
}

// TestAllocated: where a controller gives addresses nobody else does, and what
// is missing is named until it is there.
func TestAllocated(t *testing.T) {
	wants, err := carried(t, standard(), "q", allocatedNotes(), nil)
	require.NoError(t, err)
	nic := wants[0].Steps[0].NIC
	require.True(t, nic.Given)
	require.Equal(t, "10.16.0.9", nic.IPs[0].String())

	for key, missing := range map[string]string{
		"allocated": "ovn.kubernetes.io/allocated", "routed": "ovn.kubernetes.io/routed", "mac_address": "ovn.kubernetes.io/mac_address",
		"ip_address": "ovn.kubernetes.io/ip_address", "logical_switch": "ovn.kubernetes.io/logical_switch",
	} {
		notes := allocatedNotes()
		delete(notes, "ovn.kubernetes.io/"+key)
		_, err := carried(t, standard(), "q", notes, allocatedNotes())
		unallocated := (*annotation.UnallocatedError)(nil)
		require.ErrorAs(t, err, &unallocated, key)
		require.Equal(t, []string{missing}, unallocated.Missing)
		require.Equal(t, notes, unallocated.Seen, "what the runtime tells is older than what the controller wrote")
		require.ErrorIs(t, err, core.ErrUnavailable)
		require.ErrorContains(t, err, missing)
	}

	// An IPPool's name is the controller's to read: it waits, and takes what that gave.
	notes := allocatedNotes()
	notes[ipPool] = "gold"
	wants, err = carried(t, standard(), "q", notes, nil)
	require.NoError(t, err)
	require.Equal(t, "10.16.0.9", wants[0].Steps[0].NIC.IPs[0].String())
	_, err = carried(t, standard(), "q", map[string]string{ipPool: "gold"}, nil)
	require.ErrorIs(t, err, core.ErrUnavailable)

	// So are names of SecurityGroups and Vips. Without a controller they would be
	// promises that nobody keeps.
	for key, value := range map[string]string{"security_groups": "a, b", "vip": "v", "aaps": "v,w"} {
		notes = allocatedNotes()
		notes["ovn.kubernetes.io/"+key] = value
		_, err = carried(t, standard(), "q", notes, nil)
		require.NoError(t, err, key)
		w := standard()
		w.pods["default/q"] = &Pod{Pod: core.Pod{Namespace: "default", Name: "q"}, Annotations: map[string]string{"ovn.kubernetes.io/" + key: value}}
		_, err = Resolve(t.Context(), w, Input{Request: core.Request{
			Key: core.Key{Container: "c", IfName: "eth0"}, Pod: core.Pod{Namespace: "default", Name: "q"},
			Conf: core.Conf{CNIVersion: "1.0.0", Name: "fairlead", Type: "fairlead"},
		}})
		require.Equal(t, core.CodeValue, core.CodeOf(err), key)
		require.ErrorContains(t, err, "needs a controller and OVN")
	}

	// What OVN would not carry is refused, not made.
	w := standard()
	w.nad("default/apart", `{"cniVersion":"1.0.0","type":"fairlead","provider":"apart.default"}`)
	w.subnets = append(w.subnets, pool("apart", "apart.default", "10.77.0.0/24"))
	notes = allocatedNotes()
	notes["k8s.v1.cni.cncf.io/networks"] = "apart"
	_, err = carried(t, w, "q", notes, nil)
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	require.ErrorContains(t, err, `"apart.default"`)
	_, err = Resolve(t.Context(), w, Input{OVN: true, Request: core.Request{
		Key: core.Key{Container: "c", IfName: "eth0"}, Conf: core.Conf{CNIVersion: "1.0.0", Name: "fairlead", Type: "fairlead"},
	}})
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	require.ErrorContains(t, err, "no pod")
}

// TestAllocatedByOthers: with a controller also a plugin's interface has what the
// annotations say, as Kube-OVN's controller writes them: no Subnet's name, no MAC, not
// routed. Nothing is chosen before, and a container that is no pod gets nothing.
func TestAllocatedByOthers(t *testing.T) {
	w := lending()
	w.subnets = append(w.subnets, pool("lan2", "lan.default", "10.61.0.0/24,fd61::/112"))
	notes := allocatedNotes()
	notes["k8s.v1.cni.cncf.io/networks"] = "lan"
	for _, notes["lan.default.kubernetes.io/ip_address"] = range []string{"", "10.60.0.9"} { // a request is no answer
		_, err := carried(t, w, "q", notes, nil)
		unallocated := (*annotation.UnallocatedError)(nil)
		require.ErrorAs(t, err, &unallocated)
		require.Contains(t, unallocated.Missing, "lan.default.kubernetes.io/allocated")
	}
	notes["lan.default.kubernetes.io/allocated"], notes["lan.default.kubernetes.io/ip_address"] = "true", "10.61.0.9"
	notes["lan.default.kubernetes.io/cidr"], notes["lan.default.kubernetes.io/gateway"] = "10.61.0.0/24,fd61::/112", "10.61.0.1,fd61::1"
	wants, err := carried(t, w, "q", notes, nil)
	require.NoError(t, err)
	lent := wants[1].Steps[0].Lent
	require.Equal(t, addr("10.61.0.9"), lent.IPs)
	require.Equal(t, "lan2", lent.Subnet.Name)
	require.True(t, lent.Given, "a family that the controller gave none of is not chosen here")
	require.Equal(t, "q.default.lan.default", lent.IfaceID)

	notes["k8s.v1.cni.cncf.io/networks"] = "shared"
	_, err = carried(t, w, "q", notes, nil)
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	require.ErrorContains(t, err, "ipam.provider is missing")

	req := request()
	req.Pod, req.Key.IfName = core.Pod{}, "net1"
	req.Conf, err = cniconf.Parse([]byte(lanConf))
	require.NoError(t, err)
	_, err = Addresses(t.Context(), w, Input{OVN: true, Request: req})
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	require.ErrorContains(t, err, "no pod")
}

// TestVirtualMachinePorts: a launcher's ports are named after the virtual machine that a
// controller says it runs, if that is the one that made the pod.
func TestVirtualMachinePorts(t *testing.T) {
	for of, want := range map[string]string{"vm": "vm.default", "another": "q.default", "": "q.default"} {
		w, notes := standard(), allocatedNotes()
		notes["ovn.kubernetes.io/virtualmachine"] = "vm"
		w.pods["default/q"] = &Pod{Pod: core.Pod{Namespace: "default", Name: "q"}, Annotations: notes, Machine: of}
		wants, err := Resolve(t.Context(), w, Input{OVN: true, Request: core.Request{
			Key: core.Key{Container: "c", IfName: "eth0"}, Pod: core.Pod{Namespace: "default", Name: "q"},
			Conf: core.Conf{CNIVersion: "1.0.0", Name: "fairlead", Type: "fairlead"},
		}})
		require.NoError(t, err)
		require.Equal(t, want, wants[0].Steps[0].NIC.IfaceID, of)
	}
	require.Equal(t, "vm", v1.MachineOf(&metav1.OwnerReference{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "vm"}))
	require.Empty(t, v1.MachineOf(&metav1.OwnerReference{APIVersion: "example.io/v1", Kind: "VirtualMachineInstance", Name: "vm"}))
}
