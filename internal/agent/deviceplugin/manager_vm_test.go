//go:build vm

package deviceplugin

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	plugin "github.com/fairlead/fairlead/internal/driver/builtin/sriov"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
	"github.com/fairlead/fairlead/internal/source/device"
)

// card is the VM's card with a Manager over it.
type card struct {
	*testing.T
	dir     string
	p       *plugin.Plugin
	m       *Manager
	reports chan []vfpolicy.Report

	mu       sync.Mutex
	policies []vfpolicy.Policy
	held     map[string]core.Key // of the attachments that go on
	pods     map[string]*netns.Handle
}

func newCard(t *testing.T, policies ...vfpolicy.Policy) *card {
	c := &card{T: t, dir: t.TempDir(), p: plugin.New(t.TempDir()), policies: policies, held: map[string]core.Key{}, pods: map[string]*netns.Handle{}, reports: make(chan []vfpolicy.Report, 100)}
	c.m = New(Config{
		Dir: c.dir, Kubelet: device.New(t.TempDir(), nil), Sys: sriov.At(""), Cleaner: c.p,
		Policies: func() ([]vfpolicy.Policy, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return slices.Clone(c.policies), nil
		},
		Report: func(r []vfpolicy.Report) { c.reports <- r },
		Held:   func() map[string]core.Key { return nil },
		Pod:    func(k core.Key) core.Pod { return core.Pod{Namespace: "bank", Name: k.Container} },
		Living: func() func(core.Key) bool {
			return func(k core.Key) bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.held[k.Container] == k
			}
		},
		Book: filepath.Join(t.TempDir(), "book.json"), InfoDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	wg.Go(func() { c.m.Run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
	t.Cleanup(c.tell)
	return c
}

// tell says of a test that failed why functions are not given, and what the kernel said.
func (c *card) tell() {
	if !c.Failed() {
		return
	}
	c.m.mu.Lock()
	c.Logf("sick: %v; not cleaned: %v", c.m.seen.sick, c.m.unclean)
	c.m.mu.Unlock()
	said, err := exec.Command("dmesg").CombinedOutput()
	lines := strings.Split(string(said), "\n")
	c.Log(strings.Join(lines[max(0, len(lines)-40):], "\n"), err)
}

// amiss waits for what is told of a policy.
func (c *card) amiss(word string) {
	c.Helper()
	for deadline := time.After(2 * time.Minute); ; {
		select {
		case all := <-c.reports:
			for _, r := range all {
				if strings.Contains(strings.Join(r.Amiss, "; "), word) || word == "" && len(r.Amiss) == 0 {
					return
				}
			}
		case <-deadline:
			require.FailNow(c, "nobody tells it", "%q", word)
		}
	}
}

// pod gets a VF by a place of kubelet's.
func (c *card) pod(container, id string, pfs ...string) (call driver.PluginCall, err error) {
	c.Helper()
	key := core.Key{Container: container, IfName: "net1"}
	c.mu.Lock()
	c.held[container] = key
	c.mu.Unlock()
	got, err := c.m.Choose(c.Context(), resolve.DeviceWish{Key: key, Resource: "fairlead.io/db", IDs: []string{id}, PFs: pfs})
	if err != nil {
		return call, err
	}
	h := netnstest.New(c)
	ns, err := netns.Identify(netnstest.Bind(c, h))
	require.NoError(c, err)
	c.pods[container] = h
	call = driver.PluginCall{Key: key, Netns: ns, Conf: json.RawMessage(`{"cniVersion":"1.0.0","name":"db","type":"sriov","vlan":7,"deviceID":"` + got.Device + `"}`)}
	_, err = c.p.Add(c.Context(), call)
	return call, err
}

// inPod lists the network devices of a pod.
func (c *card) inPod(container string) (out string) {
	c.Helper()
	netnstest.Do(c, c.pods[container], func() error {
		raw, err := exec.CommandContext(c.Context(), "ip", "-o", "link").CombinedOutput()
		out = string(raw)
		return err
	})
	return out
}

func (c *card) ends(container string) {
	if h := c.pods[container]; h != nil {
		require.NoError(c, h.Close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, container)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(text), 0))
}

// TestKernelDevicePlugin: functions are made and told to kubelet; a pod gets one by a
// place; a driver that is taken away and a function that waits to be cleaned are told;
// their number stays while a pod has one.
func TestKernelDevicePlugin(t *testing.T) {
	write(t, "/sys/class/net/pf0/device/sriov_numvfs", "0")
	count := 2
	c := newCard(t, vfpolicy.Policy{Name: "db", Spec: v1alpha1.NodeVFPolicySpec{Resource: "fairlead.io/db", PF: []string{"pf0"}, NumVFs: &count}})
	k := startKubelet(t, c.dir)
	k.waits("fairlead.io/db", "n-0", "n-1")
	out, err := k.allocate("fairlead.io/db", "n-1")
	require.NoError(t, err)
	require.Empty(t, out.GetEnvs(), "which function it is, is not known yet")

	_, err = c.pod("none", "n-1", "pf9")
	require.Equal(t, core.ReasonNoVFMatches, core.ReasonOf(err), "%v", err)
	c.ends("none")
	call, err := c.pod("mysql-0", "n-1", "pf0")
	require.NoError(t, err)
	require.Contains(t, c.inPod("mysql-0"), "net1")
	marked, err := c.p.Marked()
	require.NoError(t, err)
	require.Len(t, marked, 1)

	// The other function loses its driver: the free place goes, the pod's stays.
	var other string
	functions, err := sriov.At("").Functions(sriov.PF{PCI: "0000:01:00.0", Name: "pf0"})
	require.NoError(t, err)
	for _, f := range functions {
		if _, given := marked[f.PCI]; !given {
			other = f.PCI
		}
	}
	require.NoError(t, sriov.At("").Unbind(other))
	k.waits("fairlead.io/db", "n-1")
	_, err = c.pod("late", "n-0")
	require.Equal(t, core.ReasonNoVFMatches, core.ReasonOf(err), "%v", err)
	c.ends("late")

	// Three are wanted: they are refused while the pod has one, with its name.
	more := 3
	c.mu.Lock()
	c.policies[0].Spec.NumVFs = &more
	c.mu.Unlock()
	c.m.Poke()
	c.amiss("numVFs of pf0 stays 2, not 3: pod bank/mysql-0 has virtual function")

	// The pod ends without a DEL: its function is cleaned, and then there are three.
	netnstest.Unbind(t, call.Netns.Path)
	c.ends("mysql-0")
	k.waits("fairlead.io/db", "n-0", "n-1", "n-2")
	c.amiss("")
	marked, err = c.p.Marked()
	require.NoError(t, err)
	require.Empty(t, marked)
}

// TestIOMMUDevicePlugin: a policy gives its functions to programs, with the nodes that
// the kernel made of them, and its physical function an MTU; the other functions stay the
// kernel's. A changed policy brings them back.
func TestIOMMUDevicePlugin(t *testing.T) {
	require.NoError(t, exec.CommandContext(t.Context(), "modprobe", "vfio-pci").Run())
	mtu := func() string {
		text, err := os.ReadFile("/sys/class/net/pf0/mtu")
		require.NoError(t, err)
		return strings.TrimSpace(string(text))
	}
	was := mtu()
	t.Cleanup(func() { require.NoError(t, setMTU("pf0", 1500)) })
	require.Equal(t, "1500", was)
	count, wanted := 2, 1600
	c := newCard(t,
		vfpolicy.Policy{Name: "db", Spec: v1alpha1.NodeVFPolicySpec{Resource: "fairlead.io/db", PF: []string{"pf0#0"}, NumVFs: &count, MTU: wanted}},
		vfpolicy.Policy{Name: "dpdk", Spec: v1alpha1.NodeVFPolicySpec{Resource: "fairlead.io/dpdk", PF: []string{"pf0#1"}, NumVFs: &count, Driver: "vfio-pci"}})
	k := startKubelet(t, c.dir)
	k.waits("fairlead.io/db", "n-0")
	require.Eventually(t, func() bool { return len(k.healthy("fairlead.io/dpdk")) == 1 }, time.Minute, 20*time.Millisecond)
	require.Equal(t, "1600", mtu())
	pci := k.healthy("fairlead.io/dpdk")[0]
	to, err := os.Readlink("/sys/class/net/pf0/device/virtfn1")
	require.NoError(t, err)
	require.Equal(t, filepath.Base(to), pci)
	v, err := sriov.At("").VF(pci)
	require.NoError(t, err)
	require.Equal(t, sriov.DriverVFIO, v.Driver)

	out, err := k.allocate("fairlead.io/dpdk", pci)
	require.NoError(t, err)
	require.Equal(t, pci, out.GetEnvs()["PCIDEVICE_FAIRLEAD_IO_DPDK"])
	require.Len(t, out.GetDevices(), 2)
	for _, d := range out.GetDevices() {
		info, err := os.Stat(d.GetHostPath())
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&os.ModeCharDevice, d.GetHostPath())
		require.Contains(t, out.GetEnvs()["PCIDEVICE_FAIRLEAD_IO_DPDK_INFO"], d.GetHostPath())
	}

	c.mu.Lock()
	c.policies[1].Spec.Driver = "kernel"
	c.mu.Unlock()
	c.m.Poke()
	k.waits("fairlead.io/dpdk", "n-0")
	v, err = sriov.At("").VF(pci)
	require.NoError(t, err)
	require.Equal(t, "igbvf", v.Driver)
}
