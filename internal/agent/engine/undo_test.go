package engine

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/exec"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/local"
)

// delegates is a folder of plugins that do as they are told.
type delegates struct {
	t   *testing.T
	dir string
}

// told has a plugin run a script on one verb; "" is success without a result.
func (d delegates) told(name, verb, script string) {
	d.t.Helper()
	require.NoError(d.t, os.WriteFile(filepath.Join(d.dir, name+"."+verb), []byte(script), 0o600))
}

// fails has a plugin answer a verb with an error.
func (d delegates) fails(name, verb string, code int, msg string) {
	d.told(name, verb, fmt.Sprintf(`echo '{"cniVersion":"1.0.0","code":%d,"msg":%q}'; exit 1`, code, msg))
}

// calls are the verbs and plugins that were called, in order, but for VERSION.
func (d delegates) calls() []string {
	b, _ := os.ReadFile(filepath.Join(d.dir, "calls"))
	return slices.DeleteFunc(strings.Fields(string(b)), func(c string) bool { return strings.HasPrefix(c, "VERSION:") })
}

// newDelegated is an engine whose pod default/p has our eth0 and the networks of
// some plugins, each of its own type.
func newDelegated(t *testing.T, nics *nics, plugins ...string) (*Engine, delegates) {
	t.Helper()
	d := delegates{t, t.TempDir()}
	program := `#!/bin/sh
conf=$(cat); dir=$(dirname $0); me=$(basename $0)
echo "$CNI_COMMAND:$me" >>$dir/calls
[ -f $dir/$me.$CNI_COMMAND ] && . $dir/$me.$CNI_COMMAND
echo '{"cniVersion":"1.0.0"}'
`
	objects := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  namespace: default\n  annotations:\n    k8s.v1.cni.cncf.io/networks: " +
		strings.Join(plugins, ",") + "\n"
	for _, name := range plugins {
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, name), []byte(program), 0o755)) //nolint:gosec // a program
		objects += fmt.Sprintf("---\napiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata:\n  name: %[1]s\n  namespace: default\n"+
			"spec:\n  config: '{\"cniVersion\": \"1.0.0\", \"name\": \"%[1]s\", \"type\": \"%[1]s\"}'\n", name)
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(objects), 0o600))
	e := newEngine(t, nics)
	source, err := local.Open(dir, e.Log)
	require.NoError(t, err)
	require.Empty(t, source.Problems())
	e.Source, e.Drivers, e.Node.BinDirs = source, driver.Set{"ovs": nics, core.DriverExec: exec.New(nil)}, []string{d.dir}
	return e, d
}

// TestDelegateThatRefusesADDAndDELAlike: what the plugin did not take it need not
// give back: nothing stays of an ADD that it refused, whether its DEL repeats
// the error or says that it cannot read its configuration.
func TestDelegateThatRefusesADDAndDELAlike(t *testing.T) {
	t.Parallel()
	for _, del := range []struct {
		code int
		msg  string
	}{{999, "no daemon"}, {1, "version"}, {2, "field"}, {4, "ips: junk"}, {6, "not a number"}, {7, "subnet /99"}} {
		e, d := newDelegated(t, &nics{}, "bad")
		d.fails("bad", "ADD", 999, "no daemon")
		d.fails("bad", "DEL", del.code, del.msg)
		_, err := e.Add(t.Context(), add(t))
		require.ErrorContains(t, err, "no daemon")
		require.NotContains(t, err.Error(), "roll-back")
		require.Equal(t, []string{"ADD:bad", "DEL:bad"}, d.calls())
		require.Empty(t, e.Journal.Records(), del.msg)
		require.Empty(t, e.IPAM.Leases(), del.msg)
	}
}

// TestProgramThatIsNotThere: a plugin that never ran has nothing to undo.
func TestProgramThatIsNotThere(t *testing.T) {
	t.Parallel()
	e, d := newDelegated(t, &nics{}, "absent")
	require.NoError(t, os.Remove(filepath.Join(d.dir, "absent")))
	_, err := e.Add(t.Context(), add(t))
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	require.Empty(t, e.Journal.Records())
	require.Empty(t, e.IPAM.Leases())
}

// TestDelegateThatNeverSucceededBlocksNobody: where its DEL fails otherwise, eth0
// goes at once, the runtime's DEL succeeds, and the plugin's own part is undone
// in the background, also across a start.
func TestDelegateThatNeverSucceededBlocksNobody(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"refuses": `echo '{"cniVersion":"1.0.0","code":142,"msg":"no"}'; exit 1`, "dies": "kill -9 $$", "talks nonsense": "echo nonsense; exit 0",
	} {
		n := &nics{}
		e, d := newDelegated(t, n, "bad")
		d.told("bad", "ADD", script)
		d.fails("bad", "DEL", 5, "disk on fire")
		req := add(t)
		_, err := e.Add(t.Context(), req)
		require.ErrorContains(t, err, "disk on fire", "the roll-back is not complete")
		require.Contains(t, n.detached, "eth0")
		require.Empty(t, e.IPAM.Leases(), name)
		rec, ok := e.Journal.Get(req.Key)
		require.True(t, ok)
		require.Len(t, rec.Specs, 1, "only its own part")
		require.Equal(t, "net1", rec.Specs[0].Key.IfName)
		require.False(t, rec.Orphan)

		require.NoError(t, e.Del(t.Context(), req), name)
		rec, ok = e.Journal.Get(req.Key)
		require.True(t, ok)
		require.True(t, rec.Orphan, "it is shown")
		require.Contains(t, rec.Error, "disk on fire")
		_, err = e.Add(t.Context(), req)
		require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
		require.ErrorContains(t, err, "fairlead detach --force")

		next := New(e.Config)
		next.Recover(t.Context(), next.Journal.Records())
		next.finish(t.Context())
		require.Len(t, next.Journal.Records(), 1)
		d.told("bad", "DEL", "")
		next.finish(t.Context())
		require.Len(t, next.Journal.Records(), 1, "it rests from the failure")
		next.Kick()
		next.finish(t.Context())
		require.Empty(t, next.Journal.Records())
	}
}

// TestDelegateWhoseDELFails: one that had succeeded keeps its own part, which is
// an error while the namespace lives and success once it is gone.
func TestDelegateWhoseDELFails(t *testing.T) {
	t.Parallel()
	n := &nics{}
	e, d := newDelegated(t, n, "one", "two", "three")
	ns := netnstest.New(t)
	req := add(t)
	req.Netns = netnstest.Bind(t, ns)
	_, err := e.Add(t.Context(), req)
	require.NoError(t, err)
	e.Delivered(req.Key)
	d.fails("two", "DEL", 7, "not yet")
	for range 2 {
		require.ErrorContains(t, e.Del(t.Context(), req), "not yet")
		rec, ok := e.Journal.Get(req.Key)
		require.True(t, ok)
		require.Len(t, rec.Specs, 1)
		require.Equal(t, "net2", rec.Specs[0].Key.IfName)
		require.Empty(t, e.IPAM.Leases(), "eth0's is free")
	}
	require.Equal(t, []string{"eth0"}, n.detached, "once")
	require.Equal(t, []string{"ADD:one", "ADD:two", "ADD:three", "DEL:three", "DEL:two", "DEL:one", "DEL:two"}, d.calls())
	done, err := e.Collect(t.Context())
	require.NoError(t, err)
	require.Empty(t, done.Failed, "its namespace lives: it is the DEL's")

	require.NoError(t, unix.Unmount(req.Netns, unix.MNT_DETACH))
	require.NoError(t, e.Del(t.Context(), req))
	rec, _ := e.Journal.Get(req.Key)
	require.True(t, rec.Orphan)
	calls := d.calls()
	would, err := e.Preview(t.Context())
	require.NoError(t, err)
	require.Equal(t, []core.Record{rec}, would.Removed, "an orphan is tried")
	require.Equal(t, calls, d.calls(), "a preview runs nothing")
	done, err = e.Collect(t.Context())
	require.NoError(t, err)
	require.Empty(t, done.Removed)
	require.Empty(t, done.Failed, "an orphan")
	require.NoError(t, e.GC(t.Context(), core.Request{Conf: core.Conf{
		CNIVersion: "1.1.0", Name: "net", Type: "fairlead", HasValid: true, CNIDir: t.TempDir(),
	}}), "what a plugin says of an orphan is no error of the runtime's GC")
	d.told("two", "DEL", "")
	done, err = e.Collect(t.Context())
	require.NoError(t, err)
	require.Len(t, done.Removed, 1)
	require.Equal(t, req.Key, done.Removed[0].Key)
	require.Empty(t, e.Journal.Records())
}

// TestCheckGivesWay: a CHECK in which a plugin hangs ends when a DEL comes, and says why.
func TestCheckGivesWay(t *testing.T) {
	t.Parallel()
	e, d := newDelegated(t, &nics{}, "slow")
	fifo := filepath.Join(d.dir, "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	d.told("slow", "CHECK", "read x <"+fifo)
	req := add(t)
	_, err := e.Add(t.Context(), req)
	require.NoError(t, err)
	answered := make(chan error, 1)
	go func() { answered <- e.Check(t.Context(), req) }()
	require.Eventually(t, func() bool {
		fd, err := unix.Open(fifo, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		return err == nil && unix.Close(fd) == nil
	}, specDeadline, time.Millisecond, "the plugin is called")
	require.NoError(t, e.Del(t.Context(), req))
	err = <-answered
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	require.ErrorContains(t, err, "a DEL of the same container arrived")
}

// waiting is a nics whose Detach tells when it was called.
type waiting struct {
	nics
	called chan string
}

func (w *waiting) Detach(_ context.Context, _ driver.Run, s core.Spec) error {
	w.called <- s.Key.IfName
	return nil
}

// TestOwnInterfaceWaitsForNoDelegate: while a plugin's DEL hangs, eth0 has gone
// already, and a start serves: it has called no plugin.
func TestOwnInterfaceWaitsForNoDelegate(t *testing.T) {
	t.Parallel()
	e, d := newDelegated(t, &nics{}, "slow")
	w := &waiting{called: make(chan string, 8)}
	e.Drivers["ovs"] = w
	fifo := filepath.Join(d.dir, "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	d.told("slow", "DEL", "read x <"+fifo)
	req := add(t)
	_, err := e.Add(t.Context(), req)
	require.NoError(t, err)
	answered := make(chan error, 1)
	go func() { answered <- e.Del(t.Context(), req) }()
	require.Equal(t, "eth0", <-w.called, "the plugin hangs until it reads something")
	require.NoError(t, os.WriteFile(fifo, []byte("\n"), 0o600))
	require.NoError(t, <-answered)

	_, err = e.Add(t.Context(), req)
	require.NoError(t, err)
	rec, _ := e.Journal.Get(req.Key)
	rec.Phase = core.Deleting // the agent died in the DEL
	require.NoError(t, e.Journal.Save(t.Context(), rec))
	before := d.calls()
	next := New(e.Config)
	next.IPAM = ipam.New()
	next.Recover(t.Context(), next.Journal.Records())
	require.Equal(t, "eth0", <-w.called)
	require.Equal(t, before, d.calls(), "no plugin before it serves")
	require.Empty(t, next.IPAM.Leases())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); next.Run(ctx) }()
	require.NoError(t, os.WriteFile(fifo, []byte("\n"), 0o600), "the worker has called it")
	require.Eventually(t, func() bool { return len(next.Journal.Heads()) == 0 }, specDeadline, 10e6)
	stop()
	<-ended
}

// TestHangingDelegatesShareTheTime: a plugin that hangs takes its own deadline
// and nothing from those behind it.
func TestHangingDelegatesShareTheTime(t *testing.T) {
	t.Parallel()
	e, d := newDelegated(t, &nics{}, "one", "two", "three", "four")
	req := add(t)
	_, err := e.Add(t.Context(), req)
	require.NoError(t, err)
	e.Delivered(req.Key)
	d.told("four", "DEL", "exec sleep 1000")
	d.told("two", "DEL", "exec sleep 1000")
	err = e.Del(t.Context(), req)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	require.ErrorContains(t, err, `"four"`)
	require.ErrorContains(t, err, `"two"`)
	require.ErrorContains(t, err, "not done within")
	require.Equal(t, []string{"DEL:four", "DEL:three", "DEL:two", "DEL:one"}, d.calls()[4:])
	rec, _ := e.Journal.Get(req.Key)
	require.Len(t, rec.Specs, 2)
	d.told("four", "DEL", "")
	d.told("two", "DEL", "")
	require.NoError(t, e.Del(t.Context(), req))
	require.Empty(t, e.Journal.Records())
}

// firstly is a driver of our own NICs that notes which plugins were called before.
type firstly struct {
	nics
	d      delegates
	before []string
}

func (f *firstly) Detach(ctx context.Context, r driver.Run, s core.Spec) error {
	f.before = append([]string{s.Key.IfName}, f.d.calls()...)
	return f.nics.Detach(ctx, driver.Run{}, s)
}

// TestUnknownContainerWaitsForNoDelegate: nor has a plugin that hangs more than
// its own deadline where no record says what there is to remove.
func TestUnknownContainerWaitsForNoDelegate(t *testing.T) {
	t.Parallel()
	e, d := newDelegated(t, &nics{}, "one", "two")
	f := &firstly{d: d}
	e.Drivers["ovs"] = f
	d.told("two", "DEL", "exec sleep 1000")
	require.NoError(t, e.Del(t.Context(), add(t)))
	require.Equal(t, []string{"eth0"}, f.before)
	require.Equal(t, []string{"DEL:two", "DEL:one"}, d.calls())
}

// TestForce: an operator drops what no DEL can undo, and is told of it.
func TestForce(t *testing.T) {
	t.Parallel()
	e, d := newDelegated(t, &nics{}, "bad", "good")
	req := add(t)
	_, _, err := e.Force(t.Context(), req.Key)
	require.ErrorIs(t, err, core.ErrNotFound)
	_, err = e.Add(t.Context(), req)
	require.NoError(t, err)
	d.fails("bad", "DEL", 5, "never")
	rec, left, err := e.Force(t.Context(), req.Key)
	require.NoError(t, err)
	require.Equal(t, req.Pod, rec.Pod)
	require.Len(t, left, 1)
	require.Equal(t, "net1", left[0].Spec.Key.IfName)
	require.ErrorContains(t, left[0].Err, "never")
	require.Empty(t, e.Journal.Records())
	require.Empty(t, e.IPAM.Leases())
	_, err = e.Add(t.Context(), req)
	require.NoError(t, err)
}

// TestOwnAddressFromAnEarlierSandbox: a fixed address that waits in an earlier
// sandbox of the same pod, for a plugin to be undone, is the pod's; another
// pod's is not, nor is that of one that lives.
func TestOwnAddressFromAnEarlierSandbox(t *testing.T) {
	t.Parallel()
	e := newEngine(t, &nics{})
	subnets, err := e.Source.Subnets(t.Context())
	require.NoError(t, err)
	ip := netip.MustParseAddr("10.16.0.9")
	of := slices.IndexFunc(subnets, func(s core.Subnet) bool { return s.CIDRs[0].Contains(ip) })
	ask := func(container, pod string) ipam.Request {
		return ipam.Request{Subnet: subnets[of], IPs: []netip.Addr{ip}, Owner: core.Owner{
			Key: core.Key{Container: container, IfName: "net1"}, Pod: core.Pod{Namespace: "default", Name: pod},
		}}
	}
	l, err := e.acquire(t.Context(), ask("old", "p"))
	require.NoError(t, err)
	rec := core.Record{
		Key: core.Key{Container: "old", IfName: "eth0"}, Network: "net", Pod: l.Owner.Pod, Phase: core.Added,
		Specs:  []core.Spec{{Key: l.Owner.Key, Driver: core.DriverExec, Exec: &core.Exec{Type: "bad"}}},
		Leases: []core.Lease{l}, Begun: 1,
	}
	require.NoError(t, e.Journal.Begin(t.Context(), rec))
	_, err = e.acquire(t.Context(), ask("new", "p"))
	require.ErrorIs(t, err, core.ErrHeld, "it lives")
	rec.Phase = core.Deleting
	require.NoError(t, e.Journal.Save(t.Context(), rec))
	_, err = e.acquire(t.Context(), ask("new", "q"))
	require.ErrorIs(t, err, core.ErrHeld, "another pod")
	got, err := e.acquire(t.Context(), ask("new", "p"))
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{ip}, got.IPs)
	rec, _ = e.Journal.Get(rec.Key)
	require.Empty(t, rec.Leases)
	require.Len(t, rec.Specs, 1)
}

// unnoted hides what pods ask for until it is to be known.
type unnoted struct {
	resolve.Source

	known atomic.Bool
}

func (u *unnoted) Pod(ctx context.Context, p core.Pod) (*resolve.Pod, error) {
	out, err := u.Source.Pod(ctx, p)
	if err == nil && !u.known.Load() {
		out = &resolve.Pod{Pod: out.Pod}
	}
	return out, err
}

// TestGCBesideAHotPlug: plugins free nothing of what is being attached to a running pod, which
// the runtime that collects does not know of.
func TestGCBesideAHotPlug(t *testing.T) {
	t.Parallel()
	e, d := newDelegated(t, &nics{}, "slow")
	objects := "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: default, annotations: {k8s.v1.cni.cncf.io/networks: slow}}\n" +
		"---\napiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: slow, namespace: default}\n" +
		`spec: {config: '{"cniVersion": "1.1.0", "name": "slow", "type": "slow"}'}` + "\n"
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(objects), 0o600))
	source, err := local.Open(dir, e.Log)
	require.NoError(t, err)
	require.Empty(t, source.Problems())
	pods := &unnoted{Source: source}
	e.Source = pods
	fifo := filepath.Join(d.dir, "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	d.told("slow", "ADD", `echo '{"cniVersion":"1.1.0"}'; read x <`+fifo+"; exit 0")
	d.told("slow", "GC", `echo "$conf" >$dir/collected`)
	req := add(t)
	req.Conf.CNIVersion, req.Conf.Raw = "1.1.0", []byte(`{"cniVersion":"1.1.0","name":"net","type":"fairlead"}`)
	_, err = e.Add(t.Context(), req)
	require.NoError(t, err)
	require.NotContains(t, d.calls(), "ADD:slow")

	pods.known.Store(true)
	plugged, collected := make(chan error, 1), make(chan error, 1)
	go func() { plugged <- e.Replug(t.Context(), req.Pod) }()
	var pipe int
	require.Eventually(t, func() bool {
		var err error
		pipe, err = unix.Open(fifo, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		return err == nil
	}, specDeadline, time.Millisecond, "the plugin is called")
	gc := core.Request{Conf: core.Conf{CNIVersion: "1.1.0", Name: "net", Type: "fairlead", HasValid: true, Valid: []core.Key{req.Key}, CNIDir: t.TempDir()}}
	go func() { collected <- e.GC(t.Context(), gc) }()
	require.Eventually(t, func() bool {
		if e.plugging.TryAcquire(1) {
			e.plugging.Release(1)
			return false
		}
		return true
	}, specDeadline, time.Millisecond, "the plugins' turn is waited for")
	require.NotContains(t, d.calls(), "GC:slow")
	_, err = unix.Write(pipe, []byte("\n"))
	require.NoError(t, err)
	require.NoError(t, unix.Close(pipe))
	require.NoError(t, <-plugged)
	require.NoError(t, <-collected)
	told, err := os.ReadFile(filepath.Join(d.dir, "collected"))
	require.NoError(t, err)
	require.Contains(t, string(told), `{"containerID":"c1","ifname":"net1"}`)
}
