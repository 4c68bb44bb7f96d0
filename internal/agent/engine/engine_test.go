package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/network/plan"
	"github.com/fairlead/fairlead/internal/source/local"
)

// nics is a driver that makes nothing, notes what it removes and fails as told.
type nics struct {
	attach, detach error
	mu             sync.Mutex
	detached       []string
	gone           bool // no device is left
}

func (d *nics) Attach(_ context.Context, _ driver.Run, s core.Spec) (core.Link, error) {
	l := core.Link{IfName: s.Key.IfName}
	if n := s.NIC; n != nil {
		l.HostIf, l.Addrs, l.PodSide = n.OVS.HostIf, n.Addrs, n.PodSide
	}
	return l, d.attach
}

func (d *nics) Check(context.Context, driver.Run, core.Spec, core.Link) error { return nil }

func (d *nics) Left(core.Spec) bool { return !d.gone }

func (d *nics) Detach(_ context.Context, _ driver.Run, s core.Spec) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.detached = append(d.detached, s.Key.IfName)
	return d.detach
}

// tries is how often something was removed, or tried to be.
func (d *nics) tries() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.detached)
}

// Carry implements driver.Carrier.
func (d *nics) Carry(s *core.Spec, n *core.NIC) error {
	s.NIC.OVS = &core.OVSPort{HostIf: hostIf(s.Key), Type: n.Type}
	return nil
}

// Guess implements driver.Guesser.
func (d *nics) Guess(key core.Key, ns core.Netns) core.Spec {
	return core.Spec{Key: key, Driver: core.DriverOVS, Netns: ns, NIC: &core.NICSpec{OVS: &core.OVSPort{HostIf: hostIf(key)}}}
}

func hostIf(key core.Key) string { return key.Container + "_" + key.IfName + "_h" }

// deaf is an Observer that notes nothing.
type deaf struct{}

func (deaf) StepDone(string, time.Duration)               {}
func (deaf) OpDone(core.Op, string, time.Duration, error) {}

// twoNICs is a pod whose second network is one of ours.
const twoNICs = `apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: default
  annotations:
    k8s.v1.cni.cncf.io/networks: second
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: second
  namespace: default
spec:
  config: '{"cniVersion": "1.0.0", "type": "fairlead", "provider": "second.default.ovn"}'
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: routed
  namespace: default
spec:
  config: '{"cniVersion": "1.0.0", "type": "fairlead", "provider": "second.default.ovn", "routes": [{"dst": "0.0.0.0/0", "gw": "10.20.0.9"}]}'
---
apiVersion: kubeovn.io/v1
kind: Subnet
metadata:
  name: second
spec:
  cidrBlock: 10.20.0.0/24
  gateway: 10.20.0.1
  provider: second.default.ovn
---
apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: few-a}
spec: {cidrBlock: 10.30.0.0/30, namespaces: [few]}
---
apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: few-b}
spec: {cidrBlock: 10.31.0.0/30, namespaces: [few]}
`

// newEngine has a journal, addresses and a folder of its own, and d in place of
// the switch.
func newEngine(t testing.TB, d *nics) *Engine {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pod.yaml"), []byte(twoNICs), 0o600))
	objects, err := local.Open(dir, log)
	require.NoError(t, err)
	require.Empty(t, objects.Problems())
	boot, err := netns.BootID()
	require.NoError(t, err)
	j, err := journal.Open(t.TempDir(), journal.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	require.NoError(t, j.SetWhole(t.Context()))
	return New(Config{
		Journal: j, IPAM: ipam.New(), Source: objects, Drivers: driver.Set{"ovs": d},
		Node: plan.Node{MTU: 1400}, BootID: boot, Observer: deaf{}, Log: log,
	})
}

func add(t testing.TB) core.Request {
	t.Helper()
	return core.Request{
		Op: core.Add, Key: core.Key{Container: "c1", IfName: "eth0"}, Netns: netnstest.Path(netnstest.New(t)),
		Pod: core.Pod{Namespace: "default", Name: "p"}, Conf: core.Conf{CNIVersion: "1.0.0", Name: "net", Type: "fairlead"},
	}
}

// TestRefusedIntentLeavesNoLease: an ADD whose record could not be written
// gives its addresses back as if they had never been given.
func TestRefusedIntentLeavesNoLease(t *testing.T) {
	e := newEngine(t, &nics{})
	require.NoError(t, e.Journal.Close())
	_, err := e.Add(t.Context(), add(t))
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.Empty(t, e.IPAM.Leases())
	require.Empty(t, e.Journal.Released())
}

// TestFullSubnetOfSeveral: a pod whose namespace has two Subnets comes to the second when
// the first has no address left.
func TestFullSubnetOfSeveral(t *testing.T) {
	e := newEngine(t, &nics{})
	for i, want := range []string{"10.30.0.2", "10.31.0.2"} {
		req := add(t)
		req.Key.Container, req.Pod = fmt.Sprintf("c%d", i), core.Pod{Namespace: "few", Name: fmt.Sprintf("p%d", i)}
		_, err := e.Add(t.Context(), req)
		require.NoError(t, err)
		require.Len(t, e.IPAM.Who(netip.MustParseAddr(want)), 1)
	}
	req := add(t)
	req.Key.Container, req.Pod = "c9", core.Pod{Namespace: "few", Name: "p9"}
	_, err := e.Add(t.Context(), req)
	require.ErrorIs(t, err, core.ErrExhausted)
}

// TestFailedRollbackKeepsCode: the runtime learns why the ADD failed, whatever
// code its roll-back failed with.
func TestFailedRollbackKeepsCode(t *testing.T) {
	d := &nics{
		attach: core.Errorf(core.CodeTryAgain, "attach broke"),
		detach: core.Errorf(core.CodeConfig, "detach broke"),
	}
	e := newEngine(t, d)
	_, err := e.Add(t.Context(), add(t))
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	require.ErrorContains(t, err, "attach broke")
	require.ErrorContains(t, err, "detach broke")
	require.NotEmpty(t, e.IPAM.Leases(), "the record goes on holding them")
	d.detach = errors.New("still broken")
	d.detached = nil
	require.Error(t, e.Del(t.Context(), add(t)))
	d.detach = nil
	require.NoError(t, e.Del(t.Context(), add(t)))
	require.Empty(t, e.IPAM.Leases())
}

// TestUnknownDelTakesNothingFromOthers: a DEL of an attachment that never was
// leaves the interfaces of the container's other attachment alone, those that
// the pod's annotations name and the one of its own name.
func TestUnknownDelTakesNothingFromOthers(t *testing.T) {
	d := &nics{}
	e := newEngine(t, d)
	req := add(t)
	_, err := e.Add(t.Context(), req)
	require.NoError(t, err)
	for _, name := range []string{"eth7", "net1"} {
		other := req
		other.Key.IfName = name
		require.NoError(t, e.Del(t.Context(), other))
	}
	require.Contains(t, d.detached, "eth7")
	require.NotContains(t, d.detached, "eth0")
	require.NotContains(t, d.detached, "net1")
	require.NoError(t, e.Del(t.Context(), req))
	require.Subset(t, d.detached, []string{"eth0", "net1"})
}

// TestCheckOfForeignRecord: a record that another version of the agent wrote is
// an error, not a panic.
func TestCheckOfForeignRecord(t *testing.T) {
	e := newEngine(t, &nics{})
	req := add(t)
	rec := core.Record{Key: req.Key, Phase: core.Added, Specs: []core.Spec{{Key: req.Key, Driver: "later"}}, Links: []core.Link{{}}}
	require.NoError(t, e.Journal.Begin(t.Context(), rec))
	require.ErrorContains(t, e.Check(t.Context(), core.Request{Key: req.Key}), "later")
}

// TestRecoverTakesAllOfAContainer: a start after a reboot removes every
// attachment of a container, not one of them.
func TestRecoverTakesAllOfAContainer(t *testing.T) {
	e := newEngine(t, &nics{})
	for _, name := range []string{"eth0", "eth7", "eth8"} {
		req := add(t)
		req.Key.IfName, req.Pod = name, core.Pod{}
		_, err := e.Add(t.Context(), req)
		require.NoError(t, err)
	}
	later := e.Config
	later.BootID = "later"
	New(later).Recover(t.Context(), later.Journal.Records())
	require.Empty(t, e.Journal.Records())
}

// ops is an Observer that notes the outcome of operations.
type ops struct {
	deaf
	done []string
}

func (o *ops) OpDone(op core.Op, driver string, _ time.Duration, err error) {
	o.done = append(o.done, fmt.Sprintf("%s %s %t", op, driver, err == nil))
}

// TestEveryOperationIsObserved: also those that end before they find anything.
func TestEveryOperationIsObserved(t *testing.T) {
	e, o, req := newEngine(t, &nics{}), &ops{}, add(t)
	e.Observer = o
	require.NoError(t, e.Status(t.Context(), core.Request{}))
	require.Error(t, e.Check(t.Context(), req))
	require.Error(t, e.GC(t.Context(), req), "no list")
	unlock, ok := e.queue.TryLock(req.Key.Container)
	require.True(t, ok)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, e.Del(over, req), "busy")
	unlock()
	_, err := e.Add(t.Context(), req)
	require.NoError(t, err)
	require.NoError(t, e.Del(t.Context(), req))
	require.Equal(t, []string{
		"STATUS none true", "CHECK none false", "GC none false", "DEL none false", "ADD ovs true", "DEL ovs true",
	}, o.done)
}
