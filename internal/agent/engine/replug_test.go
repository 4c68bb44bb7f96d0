package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/local"
)

// teller notes what it is told.
type teller struct {
	mu   sync.Mutex
	told []string
}

func (n *teller) note(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, what)
}

func with(what string, r core.Record) string {
	for _, s := range r.Statuses {
		what += " " + s.Interface
	}
	return what
}
func (n *teller) Attached(r core.Record) { n.note(with("attached", r)) }
func (n *teller) Detached(r core.Record) { n.note(with("detached", r)) }
func (n *teller) Failed(a core.Attempt)  { n.note("failed " + string(a.Op) + " " + a.Key.IfName) }
func (n *teller) Condition(_ core.Pod, _, status, reason, _ string) {
	n.note("condition " + status + " " + reason)
}

func (n *teller) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.told
	n.told = nil
	return out
}

// replugged is an engine whose only pod's annotation can be changed.
type replugged struct {
	*Engine
	*teller
	t   *testing.T
	d   *nics
	pod core.Pod
	req core.Request
	dir string
}

func newReplugged(t *testing.T) *replugged {
	t.Helper()
	d, n := &nics{}, &teller{}
	e := newEngine(t, d)
	e.Notices, e.Conditions = n, n
	r := &replugged{Engine: e, teller: n, t: t, d: d, req: add(t), dir: t.TempDir()}
	r.req.Conf.Raw = []byte(`{"cniVersion":"1.0.0","name":"net","type":"fairlead"}`)
	r.pod = r.req.Pod
	r.annotate("second")
	return r
}

// annotate changes what the pod asks for.
func (r *replugged) annotate(networks string) { r.declare("p", networks) }

// declare makes name the only pod that the source knows.
func (r *replugged) declare(name, networks string) {
	r.t.Helper()
	text := strings.Replace(twoNICs, "networks: second", "networks: '"+networks+"'", 1)
	text = strings.Replace(text, "name: p\n", "name: "+name+"\n", 1)
	require.NoError(r.t, os.WriteFile(filepath.Join(r.dir, "pod.yaml"), []byte(text), 0o600))
	objects, err := local.Open(r.dir, r.Log)
	require.NoError(r.t, err)
	require.Empty(r.t, objects.Problems())
	r.Source = objects
}

func (r *replugged) interfaces() (out []string) {
	rec, ok := r.Journal.Get(r.req.Key)
	require.True(r.t, ok)
	for _, s := range rec.Specs {
		out = append(out, s.Key.IfName)
	}
	return out
}

// TestReplug: what comes and goes is in the record, in its leases and told to
// others; what stays is not touched.
func TestReplug(t *testing.T) {
	r := newReplugged(t)
	_, err := r.Add(t.Context(), r.req)
	require.NoError(t, err)
	require.Equal(t, []string{"attached eth0 net1"}, r.take())
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Empty(t, r.take(), "nothing changed")

	r.annotate("second,second")
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Equal(t, []string{"eth0", "net1", "net2"}, r.interfaces())
	require.Equal(t, []string{"attached net2"}, r.take())
	require.Len(t, r.IPAM.Leases(), 3)
	require.Empty(t, r.d.detached)
	rec, _ := r.Journal.Get(r.req.Key)
	require.Equal(t, "net2", rec.Plugs[0].IfName)
	require.NotEmpty(t, rec.Plugs[0].Timeline)

	r.annotate("")
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Equal(t, []string{"eth0"}, r.interfaces())
	require.Equal(t, []string{"detached net1 net2"}, r.take())
	require.Equal(t, []string{"net2", "net1"}, r.d.detached, "in reverse")
	require.Len(t, r.IPAM.Leases(), 1)
	require.Len(t, r.Journal.Released(), 2, "the pod gets them back if it comes back")

	r.annotate("second")
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.NoError(t, r.Del(t.Context(), r.req))
	require.Empty(t, r.IPAM.Leases())
	require.NoError(t, r.Replug(t.Context(), r.pod), "a pod that is gone")
}

// TestReplugFailures: they are told, the record says what the problem is, and a part
// that cannot be removed stays until it can, with its addresses.
func TestReplugFailures(t *testing.T) {
	r := newReplugged(t)
	_, err := r.Add(t.Context(), r.req)
	require.NoError(t, err)
	r.take()
	r.annotate("second,second,nowhere")
	r.d.attach, r.d.detach = errors.New("attach broke"), errors.New("detach broke")
	require.ErrorContains(t, r.Replug(t.Context(), r.pod), "attach broke")
	require.Equal(t, []string{"failed HOTPLUG net2", "failed HOTPLUG net3", "condition False NoNetworkFound"}, r.take())
	require.Equal(t, []string{"eth0", "net1"}, r.interfaces())
	rec, _ := r.Journal.Get(r.req.Key)
	require.Contains(t, rec.Problem, "attach broke")
	require.Contains(t, rec.Problem, "nowhere")
	require.Len(t, rec.Parts, 1)
	require.Len(t, r.IPAM.Leases(), 3)

	r.d.attach = nil
	require.ErrorContains(t, r.Replug(t.Context(), r.pod), "detach broke")
	require.Equal(t, []string{"eth0", "net1", "net3"}, r.interfaces(), "net2 is not free yet")
	require.Len(t, r.IPAM.Leases(), 4)
	r.take()
	r.d.detach = nil
	r.annotate("second,second")
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Equal(t, []string{"eth0", "net1", "net3"}, r.interfaces())
	require.Equal(t, []string{"condition True AsAnnotated"}, r.take())
	require.Len(t, r.IPAM.Leases(), 3)
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Empty(t, r.take())
}

// away is a source that cannot be asked for NADs.
type away struct{ resolve.Source }

func (away) NAD(context.Context, string, string) (*resolve.NAD, error) {
	return nil, core.ErrUnavailable
}

// TestReplugWithoutSource: what cannot be asked now is no fault of the pod's.
func TestReplugWithoutSource(t *testing.T) {
	r := newReplugged(t)
	_, err := r.Add(t.Context(), r.req)
	require.NoError(t, err)
	r.annotate("second,second")
	r.take()
	objects := r.Source
	r.Source = away{objects}
	require.ErrorIs(t, r.Replug(t.Context(), r.pod), core.ErrUnavailable)
	require.Empty(t, r.take())
	rec, _ := r.Journal.Get(r.req.Key)
	require.Empty(t, rec.Problem)
	r.Source = objects
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Equal(t, []string{"attached net2"}, r.take())
}

// TestRecoverDropsParts: what a dead agent left of a network that came is removed,
// and its addresses are free; what was there stays. Also the DEL of the whole
// takes it.
func TestRecoverDropsParts(t *testing.T) {
	for _, whole := range []bool{false, true} {
		r := newReplugged(t)
		_, err := r.Add(t.Context(), r.req)
		require.NoError(t, err)
		r.annotate("second,second")
		r.d.attach, r.d.detach = errors.New("attach broke"), errors.New("detach broke")
		require.Error(t, r.Replug(t.Context(), r.pod))
		r.d.attach, r.d.detach, r.d.detached = nil, nil, nil
		later := New(r.Config)
		if whole {
			later.Recover(t.Context(), later.Journal.Records())
			require.Equal(t, []string{"net2"}, r.d.detached)
			require.Len(t, r.IPAM.Leases(), 2)
			require.Equal(t, []string{"eth0", "net1"}, r.interfaces())
			require.NoError(t, later.Replug(t.Context(), r.pod))
			require.Equal(t, []string{"eth0", "net1", "net2"}, r.interfaces())
			continue
		}
		require.NoError(t, later.Del(t.Context(), r.req))
		require.Equal(t, []string{"net2", "net1", "eth0"}, r.d.detached)
		require.Empty(t, r.IPAM.Leases())
	}
}

// slowNICs wait in Attach of one interface.
type slowNICs struct {
	*nics
	at            string
	entered, pass chan struct{}
}

func (d *slowNICs) Attach(ctx context.Context, r driver.Run, s core.Spec) (core.Link, error) {
	if s.Key.IfName == d.at {
		d.entered <- struct{}{}
		select {
		case <-d.pass:
		case <-ctx.Done():
			return core.Link{}, ctx.Err()
		}
	}
	return d.nics.Attach(ctx, driver.Run{}, s)
}

// TestChangeDuringAdd: an annotation that changes after the ADD has read it is
// not lost.
func TestChangeDuringAdd(t *testing.T) {
	r := newReplugged(t)
	slow := &slowNICs{nics: r.d, at: "net1", entered: make(chan struct{}), pass: make(chan struct{})}
	r.Drivers["ovs"] = slow
	added, replugged := make(chan error), make(chan error)
	go func() {
		_, err := r.Add(t.Context(), r.req)
		added <- err
	}()
	<-slow.entered
	r.annotate("second,second")
	go func() { replugged <- r.Replug(t.Context(), r.pod) }()
	close(slow.pass)
	require.NoError(t, <-added)
	require.NoError(t, <-replugged)
	require.Equal(t, []string{"eth0", "net1", "net2"}, r.interfaces())
}

// TestDelEndsReplug: a DEL does not wait for a network that is just coming, and
// takes it too.
func TestDelEndsReplug(t *testing.T) {
	r := newReplugged(t)
	_, err := r.Add(t.Context(), r.req)
	require.NoError(t, err)
	slow := &slowNICs{nics: r.d, at: "net2", entered: make(chan struct{}), pass: make(chan struct{})}
	r.Drivers["ovs"] = slow
	r.annotate("second,second")
	replugged := make(chan error)
	go func() { replugged <- r.Replug(t.Context(), r.pod) }()
	<-slow.entered
	r.take()
	require.NoError(t, r.Del(t.Context(), r.req))
	require.NoError(t, <-replugged, "nothing is asked for any more")
	require.Empty(t, r.IPAM.Leases())
	require.Empty(t, r.Journal.Records())
	require.Equal(t, []string{"net2", "net1", "eth0"}, r.d.detached)
}

// age makes the pod's record one that does not say what asked for its networks.
func (r *replugged) age(leftovers ...string) {
	r.t.Helper()
	rec, ok := r.Journal.Get(r.req.Key)
	require.True(r.t, ok)
	rec.AddCall, rec.FormerFiles = nil, leftovers
	for i := range rec.Specs {
		rec.Specs[i].Request = ""
	}
	require.NoError(r.t, r.Journal.Save(r.t.Context(), rec))
}

// TestReplugOfOlderRecord: a record without AddCall, of an older version or taken
// over from Multus, follows the annotation by the runtime's configuration.
func TestReplugOfOlderRecord(t *testing.T) {
	r := newReplugged(t)
	r.ConfDir = t.TempDir()
	conf := `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"fairlead"}]}`
	require.NoError(t, os.WriteFile(filepath.Join(r.ConfDir, "00.conflist"), []byte(conf), 0o600))
	_, err := r.Add(t.Context(), r.req)
	require.NoError(t, err)
	r.age()
	r.take()
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Empty(t, r.take(), "what it has is what is asked for")
	rec, _ := r.Journal.Get(r.req.Key)
	require.NotNil(t, rec.AddCall)

	r.age("file-of-multus")
	r.annotate("second,second@data0")
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Equal(t, []string{"eth0", "net1", "data0"}, r.interfaces())
	r.annotate("second@data0")
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Equal(t, []string{"eth0", "data0"}, r.interfaces())
	require.Equal(t, []string{"net1"}, r.d.detached)
}

// TestReplugOfInheritedRecord: without such a configuration the change is
// refused, with an event and a condition that say why, once.
func TestReplugOfInheritedRecord(t *testing.T) {
	r := newReplugged(t)
	r.ConfDir = t.TempDir()
	_, err := r.Add(t.Context(), r.req)
	require.NoError(t, err)
	r.take()
	r.age()
	r.annotate("second,second")
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Empty(t, r.take(), "somebody else's pod")

	r.age("file-of-multus")
	for range 2 {
		require.NoError(t, r.Replug(t.Context(), r.pod))
	}
	require.Equal(t, []string{"failed HOTPLUG net2", "condition False FailedAttachment"}, r.take())
	rec, _ := r.Journal.Get(r.req.Key)
	require.Contains(t, rec.Problem, "delete the pod")
	require.Equal(t, []string{"eth0", "net1"}, r.interfaces())
}

// TestUnplugLeavesNoDefaultRoute: a pod whose default network was not to have
// the default route (default_route) does not get it from the network that goes.
func TestUnplugLeavesNoDefaultRoute(t *testing.T) {
	r := newReplugged(t)
	const refused = "second'\n    ovn.kubernetes.io/default_route: 'false"
	r.annotate(refused)
	_, err := r.Add(t.Context(), r.req)
	require.NoError(t, err)
	r.Drivers["defroute"] = r.d
	r.annotate(`[{"name":"second"},{"name":"second","default-route":["10.20.0.1"]}]` + refused[len("second"):])
	require.NoError(t, r.Replug(t.Context(), r.pod))
	require.Equal(t, []string{"eth0", "net1", "net2", "net2"}, r.interfaces())
	r.annotate(refused)
	require.NoError(t, r.Replug(t.Context(), r.pod))
	rec, _ := r.Journal.Get(r.req.Key)
	require.Equal(t, []string{"eth0", "net1"}, r.interfaces())
	require.Empty(t, rec.Specs[0].NIC.Routes)
	require.Empty(t, rec.Statuses[0].Gateway)
}

// TestReplugTakesWrittenDefaultRoute: a network whose NAD writes a default route
// takes the pod's when it comes, as it does at the ADD, and gives it back.
func TestReplugTakesWrittenDefaultRoute(t *testing.T) {
	r := newReplugged(t)
	r.Drivers["defroute"] = r.d
	_, err := r.Add(t.Context(), r.req)
	require.NoError(t, err)
	ways := func() (out []string) {
		rec, ok := r.Journal.Get(r.req.Key)
		require.True(t, ok)
		for _, s := range rec.Specs {
			if s.NIC == nil {
				continue
			}
			for _, route := range s.NIC.Routes {
				out = append(out, s.Key.IfName+" "+route.Dst.String()+" "+route.GW.String())
			}
		}
		return out
	}
	before := ways()
	require.Len(t, before, 1)
	require.Contains(t, before[0], "eth0 0.0.0.0/0 ")
	for _, networks := range []string{"second,routed", "second"} {
		r.annotate(networks)
		require.NoError(t, r.Replug(t.Context(), r.pod))
		if networks == "second" {
			require.Equal(t, before, ways())
		} else {
			require.Equal(t, []string{"net2 0.0.0.0/0 10.20.0.9"}, ways())
		}
	}
	require.NoError(t, r.Del(t.Context(), r.req))

	r.annotate("second,routed")
	_, err = r.Add(t.Context(), r.req)
	require.NoError(t, err)
	require.Equal(t, []string{"net2 0.0.0.0/0 10.20.0.9"}, ways())
}
