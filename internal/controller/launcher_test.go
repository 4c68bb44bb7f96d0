package controller_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
)

// machines are the virtual machines of a world.
type machines struct{ *world }

func (m machines) Get(namespace, name string) (vm object.Machine, there, known bool) {
	vm, there = lister[object.Machine]{m.world, object.KindMachine}.Get(namespace, name)
	m.mu.Lock()
	defer m.mu.Unlock()
	return vm, there, !m.unsure
}

func (m machines) Launchers(_ context.Context, namespace, machine string) (out []object.Pod, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, o := range m.objects {
		if p, ok := o.(object.Pod); ok && k.Namespace == namespace && p.Owner.Kind == object.OwnerInstance && p.Owner.Name == machine {
			out = append(out, p)
		}
	}
	return out, m.away
}

// launcher declares a pod that runs an instance of virtual machine vm.
func (w *world) launcher(name, uid, instance, node string, done bool) {
	p := declared(name, uid)
	if was, ok := (lister[object.Pod]{w, object.KindPod}).Get("ns", name); ok {
		p = was
	}
	w.mu.Lock()
	w.version++
	p.Born, p.Node, p.Done, p.Owner = time.Unix(int64(w.version), 0), node, done, object.Owner{Kind: object.OwnerInstance, Name: "vm", UID: instance}
	w.mu.Unlock()
	w.set(podKey(name), p)
}

// machine declares virtual machine vm.
func (w *world) machine(uid string, ending bool) {
	w.set(object.KindMachine.Named("ns", "vm"), object.Machine{Namespace: "ns", Name: "vm", UID: uid, Ending: ending})
}

// TestVirtualMachine: the launcher pods of a virtual machine have the machine's address,
// MAC and port, one after the other and two at once while it moves; while it is there
// nobody else gets them, whoever leads, and when it is gone they are free.
func TestVirtualMachine(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("tiny", v1.SubnetSpec{CIDRBlock: "10.21.0.0/29", ExcludeIps: []string{"10.21.0.3..10.21.0.6"}, Default: true})
	w.machine("v1", false)
	w.launcher("virt-launcher-vm-a", "1", "i1", "n1", false)
	first := lead(t, "one", w, db)
	require.Equal(t, "10.21.0.2", w.ip(t, "virt-launcher-vm-a"))
	notes := w.notes("virt-launcher-vm-a")
	mac := notes["ovn.kubernetes.io/mac_address"]
	require.Equal(t, "vm", notes["ovn.kubernetes.io/virtualmachine"])
	port := map[string]string{"vm.ns": mac + " 10.21.0.2"}
	require.Equal(t, port["vm.ns"], ports(db)["vm.ns"])
	require.NotContains(t, ports(db), "virt-launcher-vm-a.ns")
	w.object(t, "vm.ns", func(o *v1.IP) bool {
		return o.Spec.PodType == "VirtualMachine" && o.Spec.PodName == "vm" && o.Spec.NodeName == "n1"
	})
	options := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool { return db.Get("Logical_Switch_Port", "vm.ns", "options") == want }, patience, tick, want)
	}

	// It moves.
	w.launcher("virt-launcher-vm-b", "2", "i1", "n2", false)
	require.Equal(t, "10.21.0.2", w.ip(t, "virt-launcher-vm-b"))
	require.Equal(t, mac, w.notes("virt-launcher-vm-b")["ovn.kubernetes.io/mac_address"])
	options(`{activation-strategy=rarp, requested-chassis="n1,n2"}`)
	w.launcher("virt-launcher-vm-a", "1", "i1", "n1", true)
	options("{}")
	w.object(t, "vm.ns", func(o *v1.IP) bool { return o.Spec.NodeName == "n2" })
	w.set(podKey("virt-launcher-vm-a"), nil)
	first.rests(t)
	require.Equal(t, port["vm.ns"], ports(db)["vm.ns"])

	// It is stopped, and somebody else asks; also of a leader that does not know yet
	// whether it is there.
	w.set(podKey("virt-launcher-vm-b"), nil)
	w.pod("other", "3")
	waits := func(count int) {
		t.Helper()
		require.Eventually(t, func() bool { return len(w.warned(podKey("other"))) == count }, patience, tick)
		require.Contains(t, w.warned(podKey("other"))[count-1], "is full")
	}
	waits(1)
	first.stop()
	w.unsure = true
	second := lead(t, "two", w, db)
	waits(2)
	w.launcher("virt-launcher-vm-c", "4", "i2", "n1", false)
	const why = "whether VirtualMachine ns/vm is there is not known: unavailable"
	require.Eventually(t, func() bool { _, failed := second.failed.Load(why); return failed }, patience, tick)
	require.Empty(t, w.notes("virt-launcher-vm-c"))
	w.mu.Lock()
	w.unsure = false
	w.mu.Unlock()
	w.set(object.Key{Kind: object.KindMachine}, object.Machine{}) // all are known
	require.Equal(t, "10.21.0.2", w.ip(t, "virt-launcher-vm-c"))
	require.Equal(t, port["vm.ns"], ports(db)["vm.ns"])

	// A pod that comes to have its name waits.
	plain := declared("vm", "5")
	plain.Born = time.Now()
	w.set(podKey("vm"), plain)
	second.rests(t)
	require.Empty(t, w.notes("vm"))
	w.set(podKey("vm"), nil)

	// One of the name is made anew.
	w.set(podKey("virt-launcher-vm-c"), nil)
	second.rests(t)
	w.machine("v2", false)
	require.Equal(t, "10.21.0.2", w.ip(t, "other"))
	w.set(podKey("other"), nil)

	// An instance that is no machine's has its address while a pod runs it, and a watch
	// that lags is no proof.
	w.set(object.KindMachine.Named("ns", "vm"), nil)
	w.launcher("virt-launcher-vm-d", "6", "i3", "n1", false)
	require.Equal(t, "10.21.0.2", w.ip(t, "virt-launcher-vm-d"))
	second.stop()
	w.lag(podKey("virt-launcher-vm-d"), true)
	w.pod("other", "7")
	third := lead(t, "three", w, db)
	require.Eventually(t, func() bool {
		_, failed := third.failed.Load("pod ns/vm is there and has yet to be told of: unavailable")
		return failed
	}, patience, tick)
	require.Contains(t, ports(db), "vm.ns")
	w.lag(podKey("virt-launcher-vm-d"), false)
	w.set(podKey("virt-launcher-vm-d"), nil)
	require.Equal(t, "10.21.0.2", w.ip(t, "other"))
}
