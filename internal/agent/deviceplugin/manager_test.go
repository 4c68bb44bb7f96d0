package deviceplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pb "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
	"github.com/fairlead/fairlead/internal/source/device"
)

const db = "fairlead.io/db"

// node is a machine's sysfs as files, with a Manager over it.
type node struct {
	testing.TB
	root, dir string
	cfg       Config
	m         *Manager
	looks     atomic.Int32 // that asked for policies

	mu       sync.Mutex
	policies []vfpolicy.Policy
	unknown  bool                // policies are
	marked   map[string]core.Key // functions that pods have, or had
	living   map[string]bool     // containers
	given    []device.Given
	kubelet  error // why kubelet does not tell
	reports  []vfpolicy.Report
	cleaned  []string
	failed   int           // to clean
	hung     chan struct{} // closed when a cleaning hangs that ends with its context
}

func newNode(t testing.TB, specs ...v1alpha1.NodeVFPolicySpec) *node {
	n := &node{TB: t, root: t.TempDir(), dir: t.TempDir(), marked: map[string]core.Key{}, living: map[string]bool{}}
	n.file("bus/pci/devices/0000:01:00.0/sriov_numvfs", "3")
	n.file("bus/pci/devices/0000:01:00.0/sriov_totalvfs", "7")
	for name, text := range map[string]string{"type": "1", "carrier": "1", "speed": "10000"} {
		n.file("bus/pci/devices/0000:01:00.0/net/ens1f0/"+name, text)
	}
	for i := range 3 {
		n.function(i)
	}
	for i, s := range specs {
		s.Resource = db
		n.policies = append(n.policies, vfpolicy.Policy{Name: fmt.Sprint("p", i), Spec: s})
	}
	n.cfg = Config{
		Dir: n.dir, Kubelet: n, Sys: sriov.At(n.root), Policies: n.declared, Cleaner: n, Held: func() map[string]core.Key { return nil },
		Report: func(r []vfpolicy.Report) { n.locked(func() { n.reports = r }) },
		Pod:    func(k core.Key) core.Pod { return core.Pod{Namespace: "bank", Name: k.Container} },
		Living: func() func(core.Key) bool {
			return func(k core.Key) (is bool) {
				n.locked(func() { is = n.living[k.Container] })
				return is
			}
		},
		Book: filepath.Join(t.TempDir(), "not/yet/book.json"), InfoDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	return n
}

// start runs a Manager until the function is called.
func (n *node) start() (stop func()) {
	n.m = New(n.cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { n.m.Run(ctx) })
	stop = func() { cancel(); wg.Wait() }
	n.Cleanup(stop)
	return stop
}

func (n *node) locked(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
}

func (n *node) declared() ([]vfpolicy.Policy, error) {
	n.looks.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unknown {
		return nil, core.ErrUnavailable
	}
	return slices.Clone(n.policies), nil
}

// Given implements Config.Kubelet.
func (n *node) Given(context.Context) ([]device.Given, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.given, n.kubelet
}

// Marked implements Cleaner.
func (n *node) Marked() (map[string]core.Key, error) {
	out := map[string]core.Key{}
	n.locked(func() {
		for pci, k := range n.marked {
			out[pci] = k
		}
	})
	return out, nil
}

// Clean implements Cleaner.
func (n *node) Clean(ctx context.Context, pci string, of core.Key) error {
	if of.Container == "hangs" {
		close(n.hung)
		<-ctx.Done()
		return ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if strings.HasPrefix(of.Container, "stuck") {
		n.failed++
		return errors.New("the card does not answer")
	}
	n.cleaned = append(n.cleaned, pci)
	delete(n.marked, pci)
	return nil
}

func (n *node) file(name, text string) {
	n.Helper()
	name = filepath.Join(n.root, name)
	require.NoError(n, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(n, os.WriteFile(name, []byte(text+"\n"), 0o600))
}

func address(i int) string { return fmt.Sprintf("0000:01:10.%d", i) }

// function makes the virtual function i.
func (n *node) function(i int) {
	n.Helper()
	at := "bus/pci/devices/" + address(i)
	n.file(at+"/vendor", "0x8086")
	n.file(at+"/device", "0x10ca")
	n.file(at+"/numa_node", fmt.Sprint(i%2))
	n.file(at+"/net/eth"+fmt.Sprint(i)+"/type", "1")
	n.link(at+"/driver", "../../drivers/igbvf")
	n.link(at+"/iommu_group", "../../kernel/iommu_groups/"+fmt.Sprint(40+i))
	n.link("bus/pci/devices/0000:01:00.0/virtfn"+fmt.Sprint(i), "../"+address(i))
}

func (n *node) link(name, to string) {
	n.Helper()
	_ = os.Remove(filepath.Join(n.root, name))
	require.NoError(n, os.Symlink(to, filepath.Join(n.root, name)))
}

// amiss is what was told last of the policies.
func (n *node) amiss() (out string) {
	n.locked(func() {
		for _, r := range n.reports {
			out += strings.Join(slices.Concat(r.Amiss, r.Conflicts), "; ")
		}
	})
	return out
}

func (n *node) tells(word string) {
	n.Helper()
	require.Eventually(n, func() bool { return strings.Contains(n.amiss(), word) && (word != "" || n.amiss() == "") }, time.Minute, 20*time.Millisecond, "%q", word)
}

// TestIdle: without a policy nothing is served, nothing is written and no file is watched.
func TestIdle(t *testing.T) {
	n := newNode(t)
	k := startKubelet(t, n.dir)
	n.start()
	got, err := n.m.Choose(t.Context(), resolve.DeviceWish{Resource: "other.example/nic", IDs: []string{"0000:01:10.0"}})
	require.NoError(t, err)
	require.Equal(t, resolve.Chosen{ID: "0000:01:10.0", Device: "0000:01:10.0"}, got, "what others give is not ours to choose")
	files, err := os.ReadDir(n.dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "kubelet's own socket")
	require.Zero(t, k.registrations())
	require.Len(t, n.m.Show().Items, 3, "they are shown nevertheless")
}

// TestRegisters: kubelet is told of a resource, again when it starts anew or forgets, and of
// each change; when the policy goes the resource does.
func TestRegisters(t *testing.T) {
	n := newNode(t, v1alpha1.NodeVFPolicySpec{PF: []string{"ens1f0"}})
	n.start()
	k := startKubelet(t, n.dir) // it comes later than the agent
	k.waits(db, "n0-0", "n1-0", "n0-1")
	require.Equal(t, int64(1), k.devices[db][1].GetTopology().GetNodes()[0].GetID())

	k.stop() // a kubelet that starts removes all sockets
	files, err := os.ReadDir(n.dir)
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, os.Remove(filepath.Join(n.dir, f.Name())))
	}
	k = startKubelet(t, n.dir)
	k.waits(db, "n0-0", "n1-0", "n0-1")
	out, err := k.plugin(db).GetPreferredAllocation(t.Context(), &pb.PreferredAllocationRequest{ContainerRequests: []*pb.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: []string{"n1-0", "n0-0", "n0-1"}, AllocationSize: 2},
	}})
	require.NoError(t, err)
	require.Equal(t, []string{"n0-0", "n0-1"}, out.GetContainerResponses()[0].GetDeviceIDs())

	n.locked(func() { n.policies = nil })
	n.m.Poke()
	require.Eventually(t, func() bool { _, err := k.allocate(db, "n0-0"); return status.Code(err) == codes.Unavailable }, time.Minute, 20*time.Millisecond)
}

// TestHealth: each reason for which kubelet is not to give a function, and its end.
func TestHealth(t *testing.T) {
	n := newNode(t, v1alpha1.NodeVFPolicySpec{PF: []string{"ens1f0"}, IDMode: "pci"})
	k := startKubelet(t, n.dir)
	n.start()
	all := []string{address(0), address(1), address(2)}
	k.waits(db, all...)
	driver := "bus/pci/devices/" + address(0) + "/driver"
	net, away := filepath.Join(n.root, "bus/pci/devices", address(1), "net"), filepath.Join(n.root, "away")
	for _, c := range []struct {
		why      string
		do, undo func()
		left     []string
	}{
		{"no driver", func() { require.NoError(t, os.Remove(filepath.Join(n.root, driver))) }, func() { n.link(driver, "../../drivers/igbvf") }, all[1:]},
		{"not on the machine", func() { require.NoError(t, os.Rename(net, away)) }, func() { require.NoError(t, os.Rename(away, net)) }, []string{all[0], all[2]}},
		{"no carrier", func() { n.file("bus/pci/devices/0000:01:00.0/net/ens1f0/carrier", "0") }, func() { n.file("bus/pci/devices/0000:01:00.0/net/ens1f0/carrier", "1") }, nil},
		{"waits to be cleaned after stuck/net1: the card does not answer", func() {
			n.locked(func() { n.marked[all[2]] = core.Key{Container: "stuck", IfName: "net1"} })
		}, func() { n.locked(func() { delete(n.marked, all[2]) }) }, all[:2]},
	} {
		c.do()
		k.waits(db, c.left...)
		var told []string
		for _, v := range n.m.Show().Items {
			told = append(told, v.Unhealthy)
		}
		if !strings.Contains(c.why, ":") { // what cleaning said is of that time
			require.Contains(t, strings.Join(told, "; "), c.why)
		}
		_, err := k.allocate(db, all...)
		require.Equal(t, codes.FailedPrecondition, status.Code(err), "%s: %v", c.why, err)
		require.ErrorContains(t, err, c.why)
		c.undo()
		k.waits(db, all...)
	}
	// A pod has one: its device is away, and it is healthy. When the pod has ended it is cleaned.
	n.locked(func() {
		n.marked[all[1]], n.living["mysql-0"] = core.Key{Container: "mysql-0", IfName: "net1"}, true
	})
	require.NoError(t, os.Rename(net, away))
	n.m.Poke()
	require.Eventually(t, func() bool { return n.m.Show().Items[1].Pod == "mysql-0" }, time.Minute, 20*time.Millisecond)
	k.waits(db, all...)
	require.NoError(t, os.Rename(away, net))
	n.locked(func() { delete(n.living, "mysql-0") })
	require.Eventually(t, func() (is bool) { n.locked(func() { is = slices.Contains(n.cleaned, all[1]) }); return is }, time.Minute, 20*time.Millisecond)
}

// TestUnclean: no pod that starts waits for a card that does not answer, and what could not
// be cleaned is not bound anew with each look.
func TestUnclean(t *testing.T) {
	n := newNode(t, v1alpha1.NodeVFPolicySpec{PF: []string{"ens1f0"}})
	n.hung = make(chan struct{})
	n.marked[address(1)] = core.Key{Container: "stuck", IfName: "net1"}
	k := startKubelet(t, n.dir)
	stop := n.start()
	k.waits(db, "n0-0", "n0-1")
	for range 3 {
		looks := n.looks.Load()
		n.m.Poke()
		require.Eventually(t, func() bool { return n.looks.Load() > looks }, time.Minute, time.Millisecond)
	}
	n.locked(func() {
		require.Equal(t, 1, n.failed)
		n.marked[address(2)] = core.Key{Container: "hangs", IfName: "net1"}
	})
	n.m.Poke()
	<-n.hung
	out, err := n.m.Choose(t.Context(), resolve.DeviceWish{Key: core.Key{Container: "c", IfName: "net1"}, Resource: db, IDs: []string{"n0-0"}})
	require.NoError(t, err)
	require.Equal(t, address(0), out.Device)
	stop()
}

// hanging is a Cleaner whose functions are all in somebody's hand.
type hanging struct{ asked map[string]int }

func (hanging) Marked() (map[string]core.Key, error) { return nil, nil }

func (h hanging) Clean(ctx context.Context, pci string, _ core.Key) error {
	h.asked[pci]++
	<-ctx.Done()
	return ctx.Err()
}

// TestCleaningIsBounded: however many functions cannot be cleaned, a look waits as long as for
// one of them, and each has its turn.
func TestCleaningIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hanging{map[string]int{}}
		m := New(Config{Cleaner: h})
		m.seen.given = map[string]owner{address(0): {dirty: true}, address(1): {dirty: true}, address(2): {}}
		for range 2 {
			began := time.Now()
			require.True(t, m.clean(t.Context()))
			require.LessOrEqual(t, time.Since(began), cleanLimit) // of the bubble's clock
		}
		require.Equal(t, map[string]int{address(0): 1, address(1): 1}, h.asked)
	})
}

// TestAllocate: what a container gets of functions that kubelet chooses.
func TestAllocate(t *testing.T) {
	n := newNode(t, v1alpha1.NodeVFPolicySpec{PF: []string{"ens1f0"}, IDMode: "pci", ExternallyManaged: true, NeedVhostNet: true, ExcludeTopology: true})
	for i := range 2 {
		n.link("bus/pci/devices/"+address(i)+"/driver", "../../drivers/vfio-pci")
	}
	k := startKubelet(t, n.dir)
	stop := n.start()
	k.waits(db, address(0), address(1), address(2))
	require.Nil(t, k.devices[db][0].GetTopology())
	out, err := k.allocate(db, address(0), address(1))
	require.NoError(t, err)
	require.Equal(t, address(0)+","+address(1), out.GetEnvs()["PCIDEVICE_FAIRLEAD_IO_DB"])
	require.JSONEq(t, `{"0000:01:10.0":{"generic":{"deviceID":"0000:01:10.0"},"vfio":{"mount":"/dev/vfio/vfio","dev-mount":"/dev/vfio/40"},"vhost":{"net-mount":"/dev/vhost-net","tun-mount":"/dev/net/tun"}},
		"0000:01:10.1":{"generic":{"deviceID":"0000:01:10.1"},"vfio":{"mount":"/dev/vfio/vfio","dev-mount":"/dev/vfio/41"},"vhost":{"net-mount":"/dev/vhost-net","tun-mount":"/dev/net/tun"}}}`, out.GetEnvs()["PCIDEVICE_FAIRLEAD_IO_DB_INFO"])
	var nodes []string
	for _, d := range out.GetDevices() {
		nodes = append(nodes, d.GetHostPath()+" "+d.GetPermissions())
	}
	require.Equal(t, []string{"/dev/vfio/vfio rw", "/dev/vfio/40 rw", "/dev/vhost-net rw", "/dev/net/tun rw", "/dev/vfio/41 rw"}, nodes)
	text, err := os.ReadFile(filepath.Join(n.cfg.InfoDir, "dp/fairlead.io-db-0000:01:10.0-device.json"))
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:10.0","pf-pci-address":"0000:01:00.0","vhost-net":"/dev/vhost-net"}}`, string(text))
	_, err = k.allocate(db, "0000:09:00.0")
	require.Equal(t, codes.NotFound, status.Code(err))
	stop()

	// The same by CDI.
	n.cfg.CDIDir = t.TempDir()
	n.start()
	require.Eventually(t, func() bool { out, err = k.allocate(db, address(0)); return err == nil }, time.Minute, 20*time.Millisecond)
	require.Empty(t, out.GetDevices())
	require.Equal(t, "fairlead.io/db=0000:01:10.0", out.GetCdiDevices()[0].GetName())
	text, err = os.ReadFile(filepath.Join(n.cfg.CDIDir, "fairlead-fairlead.io_db.json"))
	require.NoError(t, err)
	var spec cdi
	require.NoError(t, json.Unmarshal(text, &spec))
	require.Equal(t, "/dev/vfio/40", spec.Devices[0].Edits.Nodes[1].Path)
}

// TestNumVFs: another number is written only while nobody has one of them, and that can be
// told; a number is no wish of those who leave the functions to others.
func TestNumVFs(t *testing.T) {
	five := 5
	n := newNode(t, v1alpha1.NodeVFPolicySpec{PF: []string{"ens1f0"}, NumVFs: &five, IDMode: "pci"})
	startKubelet(t, n.dir)
	number := func() string {
		text, err := os.ReadFile(filepath.Join(n.root, "bus/pci/devices/0000:01:00.0/sriov_numvfs"))
		require.NoError(t, err)
		return strings.TrimSpace(string(text))
	}
	mysql := core.Key{Container: "mysql-0", IfName: "net1"}
	net, away := filepath.Join(n.root, "bus/pci/devices", address(1), "net"), filepath.Join(n.root, "away")
	n.marked[address(2)], n.living["mysql-0"] = mysql, true
	n.start()
	n.tells("numVFs of ens1f0 stays 3, not 5: pod bank/mysql-0 has virtual function 2 (0000:01:10.2)")
	n.locked(func() {
		clear(n.marked)
		n.given = []device.Given{{Pod: core.Pod{Namespace: "bank", Name: "dpdk"}, Resource: db, IDs: []string{address(1)}}}
	})
	n.tells("pod bank/dpdk has virtual function 1")
	n.locked(func() { n.given, n.kubelet = nil, errors.New("kubelet does not answer") })
	n.tells("it cannot be told who has virtual function 0: kubelet does not answer")
	require.NoError(t, os.Rename(net, away))
	n.locked(func() { n.kubelet = nil })
	n.tells("somebody has virtual function 1")
	require.Equal(t, "3", number())
	n.locked(func() { n.policies[0].Spec.ExternallyManaged = true })
	n.tells("they are made by somebody else")
	require.NoError(t, os.Rename(away, net))
	n.locked(func() { n.policies[0].Spec.ExternallyManaged, n.kubelet = false, core.ErrNotFound })
	n.tells("")
	require.Equal(t, "5", number())
	many := 9
	n.locked(func() { n.policies[0].Spec.NumVFs = &many })
	n.tells("ens1f0 can have 7 virtual functions, not 9")
}

// TestChoose: a place becomes a function when the pod is known: one that nobody has, of the
// PF that is asked for, the same when it is asked again, also by the agent after this one.
func TestChoose(t *testing.T) {
	n := newNode(t, v1alpha1.NodeVFPolicySpec{PF: []string{"ens1f0"}})
	n.unknown = true
	k := startKubelet(t, n.dir)
	stop := n.start()
	choose := func(container, ifName string, pfs []string, ids ...string) (string, string, error) {
		n.locked(func() { n.living[container] = true })
		got, err := n.m.Choose(t.Context(), resolve.DeviceWish{Key: core.Key{Container: container, IfName: ifName}, Resource: db, IDs: ids, PFs: pfs})
		return got.ID, got.Device, err
	}
	_, _, err := choose("a", "net1", nil, "n0-0")
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err), "policies are not known: %v", err)
	n.locked(func() { n.unknown = false })
	n.m.Poke()
	k.waits(db, "n0-0", "n1-0", "n0-1")
	_, _, err = choose("a", "net1", []string{"ens9"}, "n0-0")
	require.Equal(t, core.ReasonNoVFMatches, core.ReasonOf(err))
	first, pci, err := choose("a", "net1", []string{"ens1f0"}, "n0-0", "n1-0")
	require.NoError(t, err)
	require.Equal(t, []string{"n0-0", address(0)}, []string{first, pci})
	second, other, err := choose("a", "net2", nil, "n0-0", "n1-0")
	require.NoError(t, err)
	require.Equal(t, []string{"n1-0", address(1)}, []string{second, other}, "the container's other place, and that node's function")
	none, _, err := choose("a", "net3", nil, "n0-0", "n1-0")
	require.NoError(t, err)
	require.Empty(t, none, "it has no more places")
	_, pci, err = choose("b", "net1", nil, "n0-1")
	require.NoError(t, err)
	require.Equal(t, address(2), pci)
	_, _, err = choose("c", "net1", nil, "n0-1")
	require.Equal(t, core.ReasonNoVFMatches, core.ReasonOf(err), "all are given")
	stop()

	n.start()
	require.Eventually(t, func() bool { _, pci, err = choose("b", "net1", nil, "n0-1"); return err == nil }, time.Minute, 20*time.Millisecond)
	require.Equal(t, address(2), pci, "as before the agent's restart")
	require.Equal(t, "n0-1", n.m.Show().Items[2].Place)
	// The function of b loses its driver: b's place goes, the others stay.
	require.NoError(t, os.Remove(filepath.Join(n.root, "bus/pci/devices", address(2), "driver")))
	k.waits(db, "n0-0", "n1-0")
	n.link("bus/pci/devices/"+address(2)+"/driver", "../../drivers/igbvf")
	n.locked(func() { delete(n.living, "b") })
	_, pci, err = choose("c", "net1", nil, "n0-1")
	require.NoError(t, err)
	require.Equal(t, address(2), pci, "b has ended")
}

// TestPromises: what running pods are promised stays within the budget of their physical
// function, as what new ones are; what a change frees others may have, once the card has it so.
func TestPromises(t *testing.T) {
	n := newNode(t, v1alpha1.NodeVFPolicySpec{PF: []string{"ens1f0"}, MinRateBudgetPercent: 50})
	card := map[int]int{}
	n.cfg.Attrs = func(v sriov.VF) (sriov.Attrs, error) { return sriov.Attrs{MinMbps: card[v.Index]}, nil }
	n.unknown = true
	k := startKubelet(t, n.dir)
	stop := n.start()
	n.locked(func() { n.living["a"], n.living["b"], n.living["c"] = true, true, true })
	key := func(container string) core.Key { return core.Key{Container: container, IfName: "net1"} }
	choose := func(container, id string, mbps int) error {
		_, err := n.m.Choose(t.Context(), resolve.DeviceWish{Key: key(container), Resource: db, IDs: []string{id}, MinMbps: mbps})
		return err
	}
	require.NoError(t, n.m.Promise(key("a"), 9000), "it has no function by a place")
	n.locked(func() { n.unknown = false })
	n.m.Poke()
	k.waits(db, "n0-0", "n1-0", "n0-1")
	require.NoError(t, choose("a", "n0-0", 2000))
	require.NoError(t, choose("b", "n0-1", 2000))
	card[0], card[2] = 2000, 2000
	err := n.m.Promise(key("a"), 3001)
	require.Equal(t, core.ReasonMinRate, core.ReasonOf(err))
	require.ErrorContains(t, err, "3001 Mbit/s cannot be promised: ens1f0 has 3000 left")
	for range 2 {
		require.NoError(t, n.m.Promise(key("a"), 3000))
	}
	require.Equal(t, core.ReasonMinRate, core.ReasonOf(n.m.Promise(key("b"), 2001)), "a's rate is booked, though the card has it not yet")
	require.NoError(t, n.m.Promised(key("a"), 2000))
	require.NoError(t, n.m.Promise(key("b"), 3000))
	require.NoError(t, n.m.Promise(key("b"), 500))
	require.Equal(t, core.ReasonMinRate, core.ReasonOf(choose("c", "n1-0", 1001)), "the card has b's former rate still")
	card[2] = 500
	require.NoError(t, choose("c", "n1-0", 2500))
	stop()

	n.locked(func() { n.unknown = true })
	n.start()
	require.Equal(t, core.CodeTryAgain, core.CodeOf(n.m.Promise(key("b"), 600)), "policies are not known")
	require.NoError(t, n.m.Promise(key("b"), 400))
}

// TestBudget: what can be promised is a resource of its own, by 100 Mbit/s.
func TestBudget(t *testing.T) {
	n := newNode(t, v1alpha1.NodeVFPolicySpec{PF: []string{"ens1f0"}, MinRateBudgetPercent: 5})
	k := startKubelet(t, n.dir)
	n.start()
	k.waits(db+Budget, "ens1f0-0", "ens1f0-1", "ens1f0-2", "ens1f0-3", "ens1f0-4")
	_, err := k.allocate(db+Budget, "ens1f0-0")
	require.NoError(t, err)
}
