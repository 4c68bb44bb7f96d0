//go:build vm

package sriov_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	plugin "github.com/fairlead/fairlead/internal/driver/builtin/sriov"
	"github.com/fairlead/fairlead/internal/driver/builtin/static"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/driver/exec"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
)

const patient = 30 * time.Second

// userspace is the driver that hands VFs to programs here: vfio-pci needs an IOMMU (vmrun
// --iommu).
func userspace(v sriov.VF) string {
	if _, err := os.Stat("/sys/bus/pci/devices/" + v.PCI + "/iommu_group"); err == nil {
		return "vfio-pci"
	}
	return "uio_pci_generic"
}

// bind has a person give the VF to another driver, "" to its own.
func (b *bed) bind(v sriov.VF, to string) {
	b.Helper()
	device := "/sys/bus/pci/devices/" + v.PCI
	if to != "" {
		b.run("modprobe", to)
	}
	require.NoError(b, os.WriteFile(device+"/driver_override", []byte(to+"\n"), 0))
	require.NoError(b, sriov.At("").Unbind(v.PCI))
	require.NoError(b, os.WriteFile("/sys/bus/pci/drivers_probe", []byte(v.PCI), 0))
	require.Eventually(b, func() bool {
		now, err := sriov.At("").VF(v.PCI)
		require.NoError(b, err)
		name, err := sriov.At("").Netdev(v.PCI)
		require.NoError(b, err)
		if to == "" {
			return name != ""
		}
		return now.Driver == to && name == ""
	}, patient, 10*time.Millisecond)
}

// home gives the VF back to its own driver, with name and MAC that it had.
func (b *bed) home(v sriov.VF, before []string) {
	b.Helper()
	b.bind(v, "")
	name, err := sriov.At("").Netdev(v.PCI)
	require.NoError(b, err)
	b.run("ip", "link", "set", name, "down")
	b.run("ip", "link", "set", name, "address", before[3])
	if name != before[2] {
		b.run("ip", "link", "set", name, "name", before[2])
	}
	require.Equal(b, before, b.state(v))
}

func (p *pod) refused(code uint, reason string) {
	p.b.Helper()
	_, err := p.b.p.Add(p.b.Context(), p.call)
	require.Equal(p.b, []any{code, reason}, []any{core.CodeOf(err), core.ReasonOf(err)}, "%v", err)
}

func (p *pod) drifted(says string) {
	p.b.Helper()
	err := p.b.p.Check(p.b.Context(), p.call)
	require.ErrorIs(p.b, err, core.ErrDrift)
	require.ErrorContains(p.b, err, says)
}

func (b *bed) attrs(v sriov.VF) sriov.Attrs {
	b.Helper()
	a, err := sriov.Read(v)
	require.NoError(b, err)
	return a
}

var settings = map[string]any{"vlan": 1200, "mac": "02:0a:09:00:00:11", "trust": "on"}

// TestKernelVFOfPrograms: a VF that a driver hands to programs keeps it, gets its attributes
// on the card alone, and loses them when its pod goes.
func TestKernelVFOfPrograms(t *testing.T) {
	b := newBed(t)
	v := b.vfs[0]
	before := b.state(v)
	driver := userspace(v)
	t.Log(driver)
	b.bind(v, driver)
	none := sriov.Attrs{SpoofChk: true}
	given := sriov.Attrs{MAC: core.MAC{2, 0x0a, 9, 0, 0, 0x11}, VLAN: 1200, Trust: true, SpoofChk: true}

	p := b.pod(1, v, "10.9.0.17/24", settings)
	p.add()
	require.True(t, given.Equal(b.attrs(v)), "%+v", b.attrs(v))
	var said struct {
		Interfaces []map[string]string
		IPs        []map[string]any
	}
	result, _ := p.conf["prevResult"].(json.RawMessage)
	require.NoError(t, json.Unmarshal(result, &said))
	require.Equal(t, []map[string]string{{"name": "net1", "mac": "02:0a:09:00:00:11", "sandbox": p.path}}, said.Interfaces)
	require.Equal(t, "10.9.0.17/24", said.IPs[0]["address"], "it is told, and nothing has it")
	bare, err := b.p.Bare(p.call)
	require.NoError(t, err)
	require.True(t, bare)
	b.pod(2, v, "10.9.0.18/24", nil).refused(core.CodeDevice, core.ReasonNoVFMatches)
	p.add() // a runtime that asks again
	b.run("ip", "link", "set", pf, "vf", "0", "trust", "off")
	p.drifted("trust is off, not on")
	b.run("ip", "link", "set", pf, "vf", "0", "trust", "on")
	p.del()
	p.del()
	require.True(t, none.Equal(b.attrs(v)), "%+v", b.attrs(v))

	p = b.pod(3, v, "10.9.0.17/24", settings)
	p.add()
	netnstest.Unbind(t, p.path)
	require.NoError(t, p.ns.Close())
	next := b.pod(4, v, "10.9.0.18/24", map[string]any{"vlan": 7})
	require.Eventually(t, func() bool { _, err := b.p.Add(t.Context(), next.call); return err == nil }, patient, 100*time.Millisecond, "its pod is gone")
	p.del() // late
	require.Equal(t, 7, b.attrs(v).VLAN)
	next.del()
	now, err := sriov.At("").VF(v.PCI)
	require.NoError(t, err)
	require.Equal(t, driver, now.Driver)
	b.home(v, before)
}

// TestKernelVFFaults: what persons and cards do to a VF that a pod has, or is to have, is
// seen, and the VF is what it was in the end.
func TestKernelVFFaults(t *testing.T) {
	b := newBed(t)
	v := b.vfs[0]
	before := b.state(v)
	t.Run("bound to another driver", func(t *testing.T) {
		p := b.pod(1, v, "10.9.0.17/24", settings)
		p.add()
		b.bind(v, userspace(v))
		p.drifted(fmt.Sprintf("its driver is %q, not %q", userspace(v), "igbvf"))
		p.drifted("the device is not in the pod")
		p.del()
		require.True(t, sriov.Attrs{SpoofChk: true}.Equal(b.attrs(v)), "%+v", b.attrs(v))
		b.home(v, before)
	})
	t.Run("taken out of the pod", func(t *testing.T) {
		p := b.pod(1, v, "10.9.0.17/24", settings)
		p.add()
		stranger := b.pod(2, v, "10.9.0.18/24", nil)
		_, err := p.run("ip", "link", "set", "net1", "netns", stranger.path)
		require.NoError(t, err)
		p.drifted("the device is not in the pod")
		p.del()
		require.Equal(t, before, b.state(v))
	})
	t.Run("a stranger has it", func(t *testing.T) {
		stranger := b.pod(2, v, "10.9.0.18/24", nil)
		b.run("ip", "link", "set", before[2], "netns", stranger.path)
		b.pod(1, v, "10.9.0.17/24", settings).refused(core.CodeDevice, core.ReasonNoVFMatches)
		_, err := stranger.run("ip", "link", "set", before[2], "netns", "1")
		require.NoError(t, err)
		require.Equal(t, before, b.state(v), "nothing was touched")
	})
	t.Run("a foreign name, on the machine and in the pod", func(t *testing.T) {
		b.run("ip", "link", "set", before[2], "down")
		b.run("ip", "link", "set", before[2], "name", "mine")
		p := b.pod(1, v, "10.9.0.17/24", settings)
		p.add()
		_, err := p.run("sh", "-c", "ip link set net1 down; ip link set net1 name other")
		require.NoError(t, err)
		p.drifted("called other")
		p.del()
		require.Equal(t, "mine", b.state(v)[2])
		b.run("ip", "link", "set", "mine", "name", before[2])
		require.Equal(t, before, b.state(v))
	})
	t.Run("without a driver", func(t *testing.T) {
		require.NoError(t, sriov.At("").Unbind(v.PCI))
		b.pod(1, v, "10.9.0.17/24", settings).refused(core.CodeDevice, core.ReasonNoVFMatches)
		b.home(v, before)
	})
	t.Run("one MAC on two", func(t *testing.T) {
		p := b.pod(1, v, "10.9.0.17/24", settings)
		p.add()
		other, was := b.pod(2, b.vfs[1], "10.9.0.18/24", settings), b.state(b.vfs[1])
		other.refused(core.CodeAddress, core.ReasonMACInUse)
		require.Equal(t, was, b.state(b.vfs[1]))
		netnstest.Unbind(t, p.path) // nobody asks it back
		require.NoError(t, p.ns.Close())
		require.Eventually(t, func() bool { name, _ := sriov.At("").Netdev(v.PCI); return name != "" }, patient, 10*time.Millisecond)
		other.add()
		require.Equal(t, before, b.state(v), "it was cleaned")
		other.del()
		p.del()
	})
	t.Run("a change that is refused half-way", func(t *testing.T) {
		p := b.pod(1, v, "10.9.0.17/24", settings)
		p.add()
		former := p.call.Conf
		change := func(more map[string]any) error {
			conf := maps.Clone(p.conf)
			maps.Copy(conf, more)
			raw, err := json.Marshal(conf)
			require.NoError(t, err)
			call := p.call
			call.Conf = raw
			return b.p.Change(t.Context(), call, former)
		}
		require.Equal(t, core.ReasonDriverCannot, core.ReasonOf(change(map[string]any{"vlan": 1300, "min_tx_rate": 5})))
		require.NoError(t, b.p.Check(t.Context(), p.call), "the former values")
		require.NoError(t, change(map[string]any{"vlan": 1300}))
		p.drifted("vlan is 1300")
		p.del()
		require.Equal(t, core.ReasonNoVFMatches, core.ReasonOf(change(map[string]any{"vlan": 1400})), "it is nobody's")
		require.Equal(t, before, b.state(v))
	})
}

// TestKernelVFVanishes: VFs that somebody has the card make away with, out of a running pod.
// The card has others then.
func TestKernelVFVanishes(t *testing.T) {
	b := newBed(t)
	v := b.vfs[0]
	p := b.pod(1, v, "10.9.0.17/24", settings)
	p.add()
	number := "/sys/class/net/" + pf + "/device/sriov_numvfs"
	require.NoError(t, os.WriteFile(number, []byte("0"), 0))
	p.drifted("is no more")
	p.del()
	p.del()
	require.NoError(t, os.WriteFile(number, []byte("3"), 0))
	require.Eventually(t, func() bool {
		for _, v := range b.vfs {
			if name, err := sriov.At("").Netdev(v.PCI); err != nil || name == "" {
				return false
			}
		}
		return true
	}, patient, 10*time.Millisecond)
	next := b.pod(2, v, "10.9.0.18/24", settings)
	next.add()
	next.del()
}

// TestKernelConformance: the suite that every driver passes.
func TestKernelConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) *drivertest.Machine {
		b := newBed(t)
		return &drivertest.Machine{
			Driver: exec.New(map[string]driver.Plugin{plugin.Name: b.p, static.Name: static.Plugin{}}),
			Spec: func(n int, ns core.Netns) core.Spec {
				conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"db","type":"sriov","deviceID":"%s","mac":"02:0a:09:00:00:%02d","vlan":%d,
					"ipam":{"type":"static","addresses":[{"address":"10.9.0.%d/24"}]}}`, b.vfs[n-1].PCI, n, 100+n, n)
				return core.Spec{
					Key: core.Key{Container: fmt.Sprintf("c%d", n), IfName: "eth0"}, Driver: core.DriverExec, Netns: ns,
					Exec: &core.Exec{Type: plugin.Name, CNIVersion: "1.1.0", Network: "db", Conf: json.RawMessage(conf)},
				}
			},
			Inventory: func() (out []string) {
				for _, v := range b.vfs {
					name, err := sriov.At("").Netdev(v.PCI)
					require.NoError(t, err)
					if name == "" {
						out = append(out, v.PCI+" is away")
						continue
					}
					out = append(out, strings.Join(b.state(v), " "))
				}
				return out
			},
			Bad: func(s core.Spec) core.Spec {
				s.ChangeExec().Type = "absent"
				return s
			},
		}
	})
}

// TestKernelVFImport: a VF that the program sriov has given to a pod which runs is adopted,
// and is what it was after a Del by the agent, whose configuration may name no device.
func TestKernelVFImport(t *testing.T) {
	b := newBed(t)
	v := b.vfs[0]
	before := b.state(v)
	p := b.pod(1, v, "10.9.0.17/24", nil)
	b.byHand(v, before[2], p.path)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/pci", 0o700))
	require.NoError(t, os.WriteFile(dir+"/pci/"+v.PCI, []byte(p.path), 0o600))
	require.NoError(t, os.WriteFile(dir+"/"+p.call.Key.Container+"-net1", fmt.Appendf(nil, `{"cniVersion":"1.0.0","type":"sriov","deviceID":%q,"ContIFNames":"net1",
		"MAC":"02:0a:09:00:00:11","OrigVfState":{"HostIFName":%q,"EffectiveMAC":%q}}`, v.PCI, before[2], before[3]), 0o600))
	i := plugin.NewImport(dir, b.marks)
	all, err := i.Apply()
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, plugin.StateAdopted, all[0].State)
	b.pod(2, v, "10.9.0.18/24", nil).refused(core.CodeDevice, core.ReasonNoVFMatches)
	b.pod(2, b.vfs[1], "10.9.0.18/24", settings).refused(core.CodeAddress, core.ReasonMACInUse)
	p.set("deviceID", "")
	p.del()
	require.Equal(t, before, b.state(v))
	all, err = i.Plan()
	require.NoError(t, err)
	require.Empty(t, all, "its files are gone with it")
}

// byHand gives a VF to a pod by the steps of sriov-cni.
func (b *bed) byHand(v sriov.VF, name, pod string) {
	b.Helper()
	n := fmt.Sprint(v.Index)
	for _, argv := range [][]string{
		{"link", "set", pf, "vf", n, "mac", "02:0a:09:00:00:11"},
		{"link", "set", pf, "vf", n, "vlan", "1200"},
		{"link", "set", pf, "vf", n, "trust", "on"},
		{"link", "set", name, "down"},
		{"link", "set", name, "address", "02:0a:09:00:00:11"},
		{"link", "set", name, "netns", pod},
	} {
		b.run(append([]string{"ip"}, argv...)...)
	}
	for _, argv := range [][]string{{"link", "set", name, "name", "net1"}, {"addr", "add", "10.9.0.17/24", "dev", "net1"}, {"link", "set", "net1", "up"}} {
		b.run(append([]string{"nsenter", "--net=" + pod, "ip"}, argv...)...)
	}
}

// backByHand takes it back by the steps of sriov-cni.
func (b *bed) backByHand(v sriov.VF, before []string, pod string) {
	b.Helper()
	for _, argv := range [][]string{{"link", "set", "net1", "down"}, {"link", "set", "net1", "name", before[2]}, {"link", "set", before[2], "address", before[3]}, {"link", "set", before[2], "netns", "1"}} {
		b.run(append([]string{"nsenter", "--net=" + pod, "ip"}, argv...)...)
	}
	n := fmt.Sprint(v.Index)
	for _, argv := range [][]string{{"vlan", "0"}, {"trust", "off"}, {"mac", "00:00:00:00:00:00"}} {
		b.run(append([]string{"ip", "link", "set", pf, "vf", n}, argv...)...)
	}
}

// TestKernelVFCost tells what ADD and DEL cost beside the steps of sriov-cni by `ip`, which
// neither read attributes back, nor wait for carrier, nor bind the driver anew.
func TestKernelVFCost(t *testing.T) {
	const rounds = 3
	b := newBed(t)
	v := b.vfs[0]
	before := b.state(v)
	var ours, theirs cost
	for n := range rounds {
		p := b.pod(n, v, "10.9.0.17/24", settings)
		ours.of(p.give)
		ours.of(p.del)
		require.Equal(t, before, b.state(v))
		theirs.of(func() { b.byHand(v, before[2], p.path) })
		theirs.of(func() { b.backByHand(v, before, p.path) })
		require.Equal(t, before[2], b.state(v)[2])
	}
	t.Logf("ADD and DEL of a VF, %d times: %s; by ip: %s; ratio of wall time %.2f, of CPU %.2f", rounds, ours, theirs,
		ours.wall.Seconds()/theirs.wall.Seconds(), ours.cpu.Seconds()/theirs.cpu.Seconds())
}

// cost is wall time, and the CPU of this process and of its children.
type cost struct{ wall, cpu time.Duration }

func (c *cost) of(do func()) {
	began, before := time.Now(), used()
	do()
	c.wall += time.Since(began)
	c.cpu += used() - before
}

func used() (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

func (c cost) String() string {
	return fmt.Sprintf("%s of wall time, %s of CPU", c.wall.Round(time.Millisecond), c.cpu.Round(time.Millisecond))
}
