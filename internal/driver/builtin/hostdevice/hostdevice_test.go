package hostdevice

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

const (
	four = `"ipam":{"type":"host-local","dataDir":"DATA","subnet":"10.1.2.0/24","routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.1.2.9"}]}`
	fix  = `"ipam":{"type":"static","addresses":[{"address":"10.1.2.5/24"},{"address":"fd00:1::5/64"}],"routes":[{"dst":"10.9.0.0/16"},{"dst":"fd09::/64"}],"dns":{"nameservers":["192.0.2.1"]}}`
)

// TestLikeTheProgram: the same call leaves the same and answers the same; each checks and
// takes back what the other gave.
func TestLikeTheProgram(t *testing.T) {
	for _, c := range []struct{ name, conf string }{
		{"device", config("1.1.0", `"device":"d0",`+four)},
		{"hwaddr", config("1.0.0", `"hwaddr":"02:00:00:00:00:d0",`+four)},
		{"device before hwaddr", config("1.0.0", `"device":"d0","hwaddr":"02:00:00:00:00:77",`+four)},
		{"0.4.0", config("0.4.0", `"device":"d0",`+four)},
		{"0.3.1", config("0.3.1", `"device":"d0",`+four)},
		{"0.2.0", config("0.2.0", `"device":"d0",`+four)},
		{"both families, static", config("1.0.0", `"device":"d0",`+fix)},
		{"no addresses", config("1.0.0", `"device":"d0","dns":{"nameservers":["192.0.2.9"]}`)},
		{"empty ipam", config("1.0.0", `"device":"d0","ipam":{}`)},
		{"dns of the network", config("1.0.0", `"device":"d0","dns":{"nameservers":["192.0.2.9"]},`+fix)},
		{"keys that the agent adds", config("1.1.0", `"device":"d0","deviceID":"x","cni.dev/attachments":[],`+four)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := newNode(t), newNode(t)
			for _, n := range []*node{ours, theirs} {
				n.ip(n.host, "link", "set", "d0", "up")
			}
			a, b := ours.pod("c1"), theirs.pod("c1")
			add := ours.call(a, c.conf, nil)
			require.NoError(t, ours.p.Accepts(add.Conf))
			got, err := ours.p.Add(t.Context(), add)
			require.NoError(t, err)
			want, err := theirs.program(core.Add, theirs.call(b, c.conf, nil))
			require.NoError(t, err)
			require.Equal(t, sorted(t, want), sorted(t, got))
			require.Equal(t, theirs.state(b.ns), ours.state(a.ns))
			require.Equal(t, theirs.state(theirs.host), ours.state(ours.host))
			require.Equal(t, drivertest.Leases(t, theirs.data), drivertest.Leases(t, ours.data))

			mine, yours := ours.call(a, c.conf, got), theirs.call(b, c.conf, want)
			var of struct{ CNIVersion string }
			require.NoError(t, json.Unmarshal(add.Conf, &of))
			if of.CNIVersion >= "0.4.0" {
				require.NoError(t, ours.p.Check(t.Context(), mine), "ours of ours")
				require.NoError(t, theirs.p.Check(t.Context(), yours), "ours of theirs")
				_, err = ours.program(core.Check, mine)
				require.NoError(t, err, "theirs of ours")
			} else {
				mine, yours = ours.call(a, c.conf, nil), theirs.call(b, c.conf, nil) // none hands prevResult on
			}
			_, err = ours.program(core.Del, mine)
			require.NoError(t, err, "theirs of ours")
			require.NoError(t, theirs.p.Del(t.Context(), yours), "ours of theirs")
			require.Equal(t, ours.state(ours.host), theirs.state(theirs.host))
			require.NoError(t, ours.p.Del(t.Context(), mine), "nothing left to take back")
			ours.requireBack(theirs.state(theirs.host))
			theirs.requireBack(ours.state(ours.host))
		})
	}
}

// TestRefusedAsTheProgram: an Add that fails leaves nothing, and both give the error the
// same code.
func TestRefusedAsTheProgram(t *testing.T) {
	for _, c := range []struct{ name, conf string }{
		{"no device", config("1.0.0", four)},
		{"no such device", config("1.0.0", `"device":"nope",`+four)},
		{"no such MAC", config("1.0.0", `"hwaddr":"02:00:00:00:00:77",`+four)},
		{"no MAC", config("1.0.0", `"hwaddr":"zz",`+four)},
		{"kernelpath", config("1.0.0", `"kernelpath":"/sys/class/net/d0",`+four)},
		{"kernelpath that leads out", config("1.0.0", `"kernelpath":"/sys/devices/../class/net/d0",`+four)},
		{"no such PCI device", config("1.0.0", `"pciBusID":"ffff:ff:1f.7",`+four)},
		{"no such device of kubelet's", config("1.0.0", `"device":"d0","runtimeConfig":{"deviceID":"ffff:ff:1f.7"},`+four)},
		{"what cannot be moved", config("1.0.0", `"device":"lo",`+four)},
		{"no range", config("1.0.0", `"device":"d0","ipam":{"type":"host-local","dataDir":"DATA"}`)},
		{"no address", config("1.0.0", `"device":"d0","ipam":{"type":"static"}`)},
		{"unreachable gateway", config("1.0.0", `"device":"d0","ipam":{"type":"host-local","dataDir":"DATA","subnet":"10.1.2.0/24","routes":[{"dst":"10.9.0.0/16","gw":"10.3.0.1"}]}`)},
		{"no address for 0.2.0", config("0.2.0", `"device":"d0"`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := newNode(t), newNode(t)
			a, b := ours.pod("c1"), theirs.pod("c1")
			before := ours.state(ours.host)
			_, want := theirs.program(core.Add, theirs.call(b, c.conf, nil))
			require.Error(t, want)
			_, err := ours.p.Add(t.Context(), ours.call(a, c.conf, nil))
			require.Error(t, err)
			t.Logf("theirs: %v\nours: %v", want, err)
			drivertest.RequireCode(t, want, err)
			ours.requireBack(before)
		})
	}
}

// TestComesBackAsItWas: whatever the pod has made of the device.
func TestComesBackAsItWas(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(n *node, p pod)
	}{
		{"MAC and MTU", func(n *node, p pod) {
			n.ip(p.ns, "link", "set", "net1", "address", "02:00:00:00:00:66", "mtu", "1300")
		}},
		{"name", func(n *node, p pod) {
			n.ip(p.ns, "link", "set", "net1", "down")
			n.ip(p.ns, "link", "set", "net1", "name", "mine")
		}},
		{"a pod that has a link of the device's name", func(n *node, p pod) { n.ip(p.ns, "link", "add", "d0", "type", "bridge") }},
		{"a machine that has a link of the pod's name", func(n *node, p pod) { n.ip(n.host, "link", "add", "net1", "type", "bridge") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.ip(n.host, "link", "set", "d0", "alias", "to the left rack")
			a := n.pod("c1")
			before := n.state(n.host)
			call := n.call(a, config("1.0.0", `"device":"d0","net.fairlead.io/settings":{"mac":"02:00:00:00:00:07"},`+four), nil)
			require.NoError(t, n.p.Accepts(call.Conf))
			_, err := n.p.Add(t.Context(), call)
			require.NoError(t, err)
			require.Contains(t, n.ip(a.ns, "link", "show", "net1"), "02:00:00:00:00:07")
			c.do(n, a)
			require.NoError(t, n.p.Del(t.Context(), call))
			if n.ip(n.host, "-br", "link", "show", "type", "bridge") != "" {
				n.ip(n.host, "link", "del", "net1")
			}
			n.requireBack(before)
		})
	}
}

// TestNameIsTaken: a name that is taken in the pod is left to whose it is, and a device whose
// name is taken on the machine waits in the pod until it is free.
func TestNameIsTaken(t *testing.T) {
	n := newNode(t)
	a := n.pod("c1")
	before := n.state(n.host)
	call := n.call(a, config("1.0.0", `"device":"d0",`+four), nil)
	n.ip(a.ns, "link", "add", "net1", "type", "bridge")
	_, err := n.p.Add(t.Context(), call)
	require.ErrorIs(t, err, core.ErrExists)
	n.requireBack(before)
	n.ip(a.ns, "link", "del", "net1")

	_, err = n.p.Add(t.Context(), call)
	require.NoError(t, err)
	n.ip(n.host, "link", "add", "d0", "type", "bridge")
	require.ErrorContains(t, n.p.Del(t.Context(), call), "is called d0 by now")
	require.NotEmpty(t, n.ip(a.ns, "link", "show", "net1"))
	require.NotEmpty(t, drivertest.Leases(t, n.data), "the pod has the address still")
	n.ip(n.host, "link", "del", "d0")
	require.NoError(t, n.p.Del(t.Context(), call))
	n.requireBack(before)
}

// TestKilledHalfWay: from wherever an agent that died has come, Del leaves the device as it
// was, and so does the next pod that gets it.
func TestKilledHalfWay(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(n *node, p pod)
	}{
		{"marked", func(*node, pod) {}},
		{"moved", func(n *node, p pod) { n.move("d0", p, "net1") }},
		{"renamed again", func(n *node, p pod) { n.move("d0", p, "d0") }},
		{"moved back", func(n *node, p pod) {
			n.ip(n.host, "link", "set", "d0", "alias", "d0", "address", "02:00:00:00:00:66", "mtu", "1300")
		}},
		{"back by itself", func(n *node, p pod) {
			n.ip(n.host, "link", "set", "d0", "alias", "d0", "address", "02:00:00:00:00:66", "name", "net1")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			a, b := n.pod("c1"), n.pod("c2")
			before := n.state(n.host)
			host, err := n.p.host.Get()
			require.NoError(t, err)
			l, err := host.LinkByName("d0")
			require.NoError(t, err)
			n.p.host.Put(host)
			mine, next := n.call(a, config("1.0.0", `"device":"d0",`+four), nil), n.call(b, config("1.0.0", `"hwaddr":"02:00:00:00:00:d0",`+four), nil)
			for range 2 {
				m := n.p.marked(a.key, l)
				require.NoError(t, n.p.mark(m))
				c.do(n, a)
				_, err = n.p.Add(t.Context(), next)
				if n.ip(a.ns, "-br", "link", "show", "type", "veth") != "" {
					require.ErrorIs(t, err, core.ErrNotFound, "another pod has it")
					require.NoError(t, n.p.Del(t.Context(), mine))
					n.requireBack(before)
					continue
				}
				require.NoError(t, err)
				require.NoError(t, n.p.Del(t.Context(), mine), "late: it is another's")
				require.NotEmpty(t, n.ip(b.ns, "link", "show", "net1"))
				require.NoError(t, n.p.Del(t.Context(), next))
				n.requireBack(before)
			}
		})
	}
}

// move is what the kernel does for an Add.
func (n *node) move(name string, to pod, as string) {
	n.Helper()
	host, err := n.p.host.Get()
	require.NoError(n, err)
	defer n.p.host.Put(host)
	l, err := host.LinkByName(name)
	require.NoError(n, err)
	require.NoError(n, host.Apply(l.Index, rtnl.Change{To: to.ns, Name: as, Alias: name}))
}

// TestNamespaceIsGone: a virtual device ends with its pod's namespace; the mark and the
// addresses go with the Del.
func TestNamespaceIsGone(t *testing.T) {
	n := newNode(t)
	a := n.pod("c1")
	call := n.call(a, config("1.0.0", `"device":"d0",`+four), nil)
	_, err := n.p.Add(t.Context(), call)
	require.NoError(t, err)
	netnstest.Unbind(t, a.id.Path)
	require.NoError(t, a.ns.Close())
	require.NoError(t, n.p.Del(t.Context(), call))
	require.Empty(t, drivertest.Leases(t, n.data))
	left, err := n.p.marks("*")
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestOthersDoNotWait: while a pod's device is on its way back, other pods' devices move.
func TestOthersDoNotWait(t *testing.T) {
	n := newNode(t)
	a := n.pod("c1")
	n.p.sys = t.TempDir()
	card := filepath.Join(n.p.sys, pci, "0000:01:10.0")
	require.NoError(t, os.MkdirAll(card, 0o755))
	require.NoError(t, n.p.mark(mark{Owner: a.key, Name: "ens1f0", Bus: "0000:01:10.0"})) // neither here nor in the pod
	done := make(chan error, 1)
	go func() { done <- n.p.back(t.Context(), n.call(a, config("1.0.0", `"device":"ens1f0",`+four), nil)) }()
	for {
		unlock, free := n.p.moves.TryLock("")
		if left, err := n.p.marks("*"); free && err == nil && len(left) == 1 {
			require.NoError(t, os.RemoveAll(card)) // it was taken out
			unlock()
			break
		} else if free {
			unlock()
		}
	}
	require.NoError(t, <-done, "it waited with the turn of all devices")
}

// TestCheckFindsDrift: whatever is changed is told.
func TestCheckFindsDrift(t *testing.T) {
	for name, do := range map[string]func(n *node, p pod){
		"address": func(n *node, p pod) { n.ip(p.ns, "addr", "del", "10.1.2.2/24", "dev", "net1") },
		"route":   func(n *node, p pod) { n.ip(p.ns, "route", "del", "10.9.0.0/16") },
		"mac":     func(n *node, p pod) { n.ip(p.ns, "link", "set", "net1", "address", "02:00:00:00:00:55") },
		"down":    func(n *node, p pod) { n.ip(p.ns, "link", "set", "net1", "down") },
		"link":    func(n *node, p pod) { n.ip(p.ns, "link", "del", "net1") },
		"lease":   func(n *node, _ pod) { n.data = n.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			a := n.pod("c1")
			cf := config("1.0.0", `"device":"d0",`+four)
			res, err := n.p.Add(t.Context(), n.call(a, cf, nil))
			require.NoError(t, err)
			require.NoError(t, n.p.Check(t.Context(), n.call(a, cf, res)))
			do(n, a)
			require.Error(t, n.p.Check(t.Context(), n.call(a, cf, res)))
		})
	}
}

// TestDevicesOfABus: by the address of the PCI device that kubelet gave, also behind virtio,
// of an auxiliary device and by its kernel path; one that a driver for userspace has is told
// and not moved.
func TestDevicesOfABus(t *testing.T) {
	for name, c := range map[string]struct{ folder, conf string }{
		"pciBusID":   {"bus/pci/devices/0000:01:00.0/net/d0", `"pciBusID":"0000:01:00.0"`},
		"virtio":     {"bus/pci/devices/0000:01:00.0/virtio3/net/d0", `"pciBusID":"0000:01:00.0"`},
		"deviceID":   {"bus/pci/devices/0000:01:00.0/net/d0", `"pciBusID":"0000:07:00.0","runtimeConfig":{"deviceID":"0000:01:00.0"}`},
		"auxiliary":  {"bus/auxiliary/devices/mlx5_core.sf.2/net/d0", `"pciBusID":"0000:07:00.0","runtimeConfig":{"deviceID":"mlx5_core.sf.2"}`},
		"kernelpath": {"devices/pci0000:00/0000:00:05.0/net/d0", `"kernelpath":"/sys/devices/pci0000:00/0000:00:05.0"`},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.p.sys = t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(n.p.sys, c.folder), 0o755))
			driverOf := filepath.Join(n.p.sys, "bus/pci/devices/0000:01:00.0/driver")
			require.NoError(t, os.MkdirAll(filepath.Dir(driverOf), 0o755))
			require.NoError(t, os.Symlink("../drivers/e1000", driverOf))
			a := n.pod("c1")
			before := n.state(n.host)
			call := n.call(a, config("1.0.0", c.conf+`,`+four), nil)
			_, err := n.p.Add(t.Context(), call)
			require.NoError(t, err)
			require.Contains(t, n.ip(a.ns, "link", "show", "net1"), "02:00:00:00:00:d0")
			require.NoError(t, n.p.Del(t.Context(), call))
			n.requireBack(before)

			require.NoError(t, os.Remove(driverOf))
			require.NoError(t, os.Symlink("../drivers/vfio-pci", driverOf))
			if name != "pciBusID" {
				return
			}
			out, err := n.p.Add(t.Context(), call)
			require.NoError(t, err)
			require.JSONEq(t, `{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"`+a.id.Path+`"}],
				"ips":[{"interface":0,"address":"10.1.2.3/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.1.2.9"}]}`, string(out))
			require.NoError(t, n.p.Check(t.Context(), n.call(a, config("1.0.0", c.conf+`,`+four), out)))
			require.Equal(t, before, n.state(n.host))
			require.NoError(t, n.p.Del(t.Context(), call))
			n.requireBack(before)
		})
	}
}

// TestIPAMThatFails: an IPAM plugin that fails is not asked to free anything; one that gives
// nothing is.
func TestIPAMThatFails(t *testing.T) {
	n := newNode(t)
	a := n.pod("c1")
	before := n.state(n.host)
	for answer, want := range map[string][]core.Op{"": {core.Add}, `{"cniVersion":"1.0.0","ips":[]}`: {core.Add, core.Del}} {
		call := n.call(a, config("1.0.0", `"device":"d0",`+four), nil)
		var ops []core.Op
		call.IPAM = func(_ context.Context, op core.Op) (json.RawMessage, error) {
			ops = append(ops, op)
			if answer == "" {
				return nil, core.Errorf(103, "none left")
			}
			return json.RawMessage(answer), nil
		}
		_, err := n.p.Add(t.Context(), call)
		require.Error(t, err)
		require.Equal(t, want, ops)
		n.requireBack(before)
	}
}

func TestAccepts(t *testing.T) {
	p := New(nil, t.TempDir())
	for keys, ok := range map[string]bool{
		`"device":"d0"`: true, `"hwaddr":"x"`: true, `"kernelpath":"x"`: true, `"pciBusID":"x"`: true, `"runtimeConfig":{"deviceID":"x","mac":"y"}`: true,
		`"Device":"d0"`: false, `"device":7`: false, `"dpdkMode":true`: false, `"net.fairlead.io/settings":{"mac":"x"}`: true, `"net.fairlead.io/settings":{"vlan":7}`: false,
	} {
		err := p.Accepts(json.RawMessage(config("1.0.0", keys)))
		require.Equal(t, ok, err == nil, "%s: %v", keys, err)
	}
}
