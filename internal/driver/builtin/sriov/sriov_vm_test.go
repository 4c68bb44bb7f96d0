//go:build vm

package sriov_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	plugin "github.com/fairlead/fairlead/internal/driver/builtin/sriov"
	"github.com/fairlead/fairlead/internal/driver/builtin/static"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
)

const pf = "pf0" // of test/vm

// bed is the VM's card. Its tests run one after the other: the card is one.
type bed struct {
	*testing.T
	p     *plugin.Plugin
	marks string // the folder of its marks
	vfs   []sriov.VF
}

func newBed(t *testing.T) *bed {
	b := &bed{T: t, marks: t.TempDir()}
	b.p = plugin.New(b.marks)
	for n := range 3 {
		to, err := os.Readlink(fmt.Sprintf("/sys/class/net/%s/device/virtfn%d", pf, n))
		require.NoError(t, err)
		v, err := sriov.At("").VF(filepath.Base(to))
		require.NoError(t, err)
		require.Equal(t, n, v.Index)
		b.vfs = append(b.vfs, v)
	}
	return b
}

// state is all that a VF is on the machine.
func (b *bed) state(v sriov.VF) []string {
	b.Helper()
	now, err := sriov.At("").VF(v.PCI)
	require.NoError(b, err)
	a, err := sriov.Read(v)
	require.NoError(b, err)
	name, err := sriov.At("").Netdev(v.PCI)
	require.NoError(b, err)
	link := b.run("ip", "-o", "link", "show", "dev", name)
	_, mac, _ := strings.Cut(link, "link/ether ")
	if a.MAC.String() == mac[:17] {
		a.MAC = nil // the VF's own, which the card shows once the VF has told it
	}
	return []string{fmt.Sprintf("%+v", a), now.Driver, name, mac[:17]}
}

func (b *bed) run(argv ...string) string {
	b.Helper()
	out, err := exec.CommandContext(b.Context(), argv[0], argv[1:]...).CombinedOutput()
	require.NoError(b, err, "%v: %s", argv, out)
	return string(out)
}

// pod is a namespace and the call that gives it a VF.
type pod struct {
	b    *bed
	ns   *netns.Handle
	path string
	call driver.PluginCall
	conf map[string]any
}

func (b *bed) pod(n int, v sriov.VF, addr string, more map[string]any) *pod {
	b.Helper()
	p := &pod{b: b, ns: netnstest.New(b)}
	p.path = netnstest.Bind(b, p.ns)
	id, err := netns.Identify(p.path)
	require.NoError(b, err)
	p.conf = map[string]any{
		"cniVersion": "1.0.0", "name": "db", "type": "sriov", "deviceID": v.PCI,
		"ipam": map[string]any{"type": "static", "addresses": []map[string]string{{"address": addr}}},
	}
	maps.Copy(p.conf, more)
	p.call = driver.PluginCall{Key: core.Key{Container: fmt.Sprintf("%064d", n), IfName: "net1"}, Netns: id}
	p.set("", nil)
	p.call.IPAM = func(ctx context.Context, op core.Op) (json.RawMessage, error) {
		return driver.Perform(ctx, static.Plugin{}, op, driver.PluginCall{Conf: p.call.Conf, Key: p.call.Key, Netns: p.call.Netns})
	}
	return p
}

// set puts a key into the configuration.
func (p *pod) set(key string, value any) {
	if key != "" {
		p.conf[key] = value
	}
	raw, err := json.Marshal(p.conf)
	require.NoError(p.b, err)
	p.call.Conf = raw
}

// give is ADD alone.
func (p *pod) give() {
	p.b.Helper()
	out, err := p.b.p.Add(p.b.Context(), p.call)
	require.NoError(p.b, err)
	p.set("prevResult", out)
}

func (p *pod) add() {
	p.b.Helper()
	p.give()
	require.NoError(p.b, p.b.p.Check(p.b.Context(), p.call), "what was just made")
}

func (p *pod) del() { require.NoError(p.b, p.b.p.Del(p.b.Context(), p.call)) }

func (p *pod) run(argv ...string) (string, error) {
	out, err := exec.CommandContext(p.b.Context(), "nsenter", append([]string{"--net=" + p.path}, argv...)...).CombinedOutput()
	return string(out), err
}

func (p *pod) reaches(addr string) bool {
	_, err := p.run("ping", "-n", "-c", "1", "-w", "3", addr)
	return err == nil
}

// TestKernelVF: two pods on VFs in one VLAN reach each other, one in another does not, the
// wire shows the tag; Check finds each attribute that somebody changes; and after Del each
// VF is what it was.
func TestKernelVF(t *testing.T) {
	b := newBed(t)
	var before [][]string
	for _, v := range b.vfs {
		before = append(before, b.state(v))
	}
	vlan := func(id int, more map[string]any) map[string]any {
		out := map[string]any{"vlan": id}
		maps.Copy(out, more)
		return out
	}
	plain := b.pod(9, b.vfs[0], "10.9.0.20/24", nil)
	plain.add()
	plain.del()
	require.Equal(t, before[0], b.state(b.vfs[0]), "a pod that asks for nothing but the device")
	pods := []*pod{
		b.pod(1, b.vfs[0], "10.9.0.17/24", vlan(1200, map[string]any{"mac": "02:0a:09:00:00:11", "vlanQoS": 3, "max_tx_rate": 500, "trust": "on", "spoofchk": "off"})),
		b.pod(2, b.vfs[1], "10.9.0.18/24", vlan(1200, map[string]any{"mac": "02:0a:09:00:00:12"})),
		b.pod(3, b.vfs[2], "10.9.0.19/24", vlan(1300, map[string]any{"mac": "02:0a:09:00:00:13"})),
	}
	for _, p := range pods {
		p.add()
	}
	mac := core.MAC{0x02, 0x0a, 0x09, 0, 0, 0x11}
	have, err := sriov.Read(b.vfs[0])
	require.NoError(t, err)
	require.True(t, sriov.Attrs{MAC: mac, VLAN: 1200, QoS: 3, MaxMbps: 500, Trust: true}.Equal(have), "%+v", have)
	link, err := pods[0].run("ip", "-o", "link", "show", "dev", "net1")
	require.NoError(t, err)
	require.Contains(t, link, "02:0a:09:00:00:11")

	require.Eventually(t, func() bool { return pods[0].reaches("10.9.0.18") }, 30*time.Second, 100*time.Millisecond)
	require.False(t, pods[0].reaches("10.9.0.19"), "it is in another VLAN")
	require.Contains(t, b.wire(func() { pods[0].reaches("10.9.0.99") }), "vlan 1200, p 3")

	for _, change := range [][]string{
		{"mac", "02:0a:09:00:00:99"}, {"vlan", "7"}, {"rate", "9"}, {"spoofchk", "on"}, {"trust", "off"},
	} {
		b.run(append([]string{"ip", "link", "set", pf, "vf", "0"}, change...)...)
		err := b.p.Check(t.Context(), pods[0].call)
		require.ErrorIs(t, err, core.ErrDrift, change)
		require.NoError(t, sriov.Write(b.vfs[0], sriov.Attrs{MAC: mac, VLAN: 1200, QoS: 3, MaxMbps: 500, Trust: true}))
		require.NoError(t, b.p.Check(t.Context(), pods[0].call), "false alarm after %v", change)
	}
	for _, change := range [][]string{{"down"}, {"name", "other"}} { // before Linux 6.2 one that is up has its name
		_, err = pods[0].run(append([]string{"ip", "link", "set", "net1"}, change...)...)
		require.NoError(t, err)
	}
	err = b.p.Check(t.Context(), pods[0].call)
	require.ErrorContains(t, err, "called other")
	require.ErrorContains(t, err, "the device is down")

	for n, p := range pods {
		p.del()
		p.del() // a second one finds nothing
		require.Equal(t, before[n], b.state(b.vfs[n]), "VF %d", n)
	}
}

// wire is what tcpdump sees at the other end of the cable of what do sends.
func (b *bed) wire(do func()) string {
	ctx, stop := context.WithTimeout(b.Context(), 20*time.Second)
	defer stop()
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", "wire", "tcpdump", "-l", "-n", "-e", "-c", "1", "-i", "wire0", "arp and ether src 02:0a:09:00:00:11 or (vlan and ether src 02:0a:09:00:00:11)")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(b, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case <-done:
			return out.String()
		default:
			do()
		}
	}
}

// TestKernelVFIsCleaned: whatever became of the pod, and however far an Add came, the VF
// is what it was; and a Del that comes late leaves it to who has it by now.
func TestKernelVFIsCleaned(t *testing.T) {
	b := newBed(t)
	v := b.vfs[0]
	before := b.state(v)
	settings := map[string]any{"vlan": 1200, "mac": "02:0a:09:00:00:11", "trust": "on"}

	t.Run("the namespace is gone", func(t *testing.T) {
		p := b.pod(1, v, "10.9.0.17/24", settings)
		p.add()
		netnstest.Unbind(t, p.path)
		require.NoError(t, p.ns.Close())
		p.del()
		require.Equal(t, before, b.state(v))
	})
	t.Run("nobody asked it back", func(t *testing.T) {
		p := b.pod(1, v, "10.9.0.17/24", settings)
		p.add()
		netnstest.Unbind(t, p.path)
		require.NoError(t, p.ns.Close())
		require.Eventually(t, func() bool { name, _ := sriov.At("").Netdev(v.PCI); return name != "" }, 10*time.Second, 10*time.Millisecond)
		next := b.pod(2, v, "10.9.0.18/24", nil)
		next.add()
		p.del() // late
		require.NoError(t, b.p.Check(t.Context(), next.call))
		next.del()
		require.Equal(t, before, b.state(v))
	})
	t.Run("the name is taken meanwhile", func(t *testing.T) {
		p := b.pod(1, v, "10.9.0.17/24", settings)
		p.add()
		b.run("ip", "link", "add", before[2], "type", "dummy")
		p.del()
		b.run("ip", "link", "del", before[2])
		name, err := sriov.At("").Netdev(v.PCI)
		require.NoError(t, err)
		b.run("ip", "link", "set", name, "down")
		b.run("ip", "link", "set", name, "name", before[2])
		require.Equal(t, before, b.state(v))
	})
	t.Run("a late Del", func(t *testing.T) {
		p := b.pod(1, v, "10.9.0.17/24", settings)
		p.add()
		p.del()
		next := b.pod(2, v, "10.9.0.18/24", map[string]any{"vlan": 1300})
		next.add()
		p.del()
		require.NoError(t, b.p.Check(t.Context(), next.call))
		next.del()
		require.Equal(t, before, b.state(v))
	})
	t.Run("what the driver refuses, after others were set", func(t *testing.T) {
		for key, value := range map[string]any{"min_tx_rate": 5, "vlanProto": "802.1ad", "link_state": "disable", "max_tx_rate": 100_000} {
			p := b.pod(1, v, "10.9.0.17/24", settings)
			p.set(key, value)
			_, err := b.p.Add(t.Context(), p.call)
			require.Equal(t, []any{core.CodeValue, core.ReasonDriverCannot}, []any{core.CodeOf(err), core.ReasonOf(err)}, "%s: %v", key, err)
			require.Equal(t, before, b.state(v), key)
		}
	})
	t.Run("no address", func(t *testing.T) {
		p := b.pod(1, v, "10.9.0.17/24", settings)
		p.set("ipam", map[string]any{"type": "static", "addresses": []map[string]string{{"address": "x"}}})
		_, err := b.p.Add(t.Context(), p.call)
		require.Error(t, err)
		require.Equal(t, before, b.state(v))
	})
	t.Run("no such device, one that is none, and none at all", func(t *testing.T) {
		for _, device := range []string{"0000:ff:00.0", "pf0", "../../0000:01:00.0", "0000:01:00.0"} {
			p := b.pod(1, v, "10.9.0.17/24", settings)
			p.set("deviceID", device)
			_, err := b.p.Add(t.Context(), p.call)
			require.Equal(t, []any{core.CodeDevice, core.ReasonNoVFMatches}, []any{core.CodeOf(err), core.ReasonOf(err)}, "%v", err)
		}
		p := b.pod(1, v, "10.9.0.17/24", settings)
		p.set("deviceID", "")
		_, err := b.p.Add(t.Context(), p.call)
		require.Equal(t, core.ReasonNoDeviceRequested, core.ReasonOf(err))
	})
	t.Run("twice", func(t *testing.T) {
		p := b.pod(1, v, "10.9.0.17/24", settings)
		p.add()
		_, err := b.p.Add(t.Context(), p.call)
		require.ErrorIs(t, err, core.ErrExists)
		other := b.pod(2, v, "10.9.0.18/24", nil)
		_, err = b.p.Add(t.Context(), other.call)
		require.Equal(t, core.ReasonNoVFMatches, core.ReasonOf(err))
		require.NoError(t, b.p.Check(t.Context(), p.call), "who has it keeps it")
		p.del()
		require.Equal(t, before, b.state(v))
	})
	require.True(t, slices.Equal(before, b.state(v)))
}
