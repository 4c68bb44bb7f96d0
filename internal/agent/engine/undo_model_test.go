package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// The model: pods with our eth0 and up to three delegates, real programs that do
// as the dice say at ADD and DEL, while namespaces live, go, or have their path
// reused, and while the agent is started anew. It says what a DEL may answer,
// and what must be left: nothing.

// ways are what a plugin may do on a verb. Where it does not fail an ADD leaves a
// file and a DEL removes it.
var ways = map[string]string{
	"works":    "",
	"config":   `echo '{"cniVersion":"1.0.0","code":7,"msg":"subnet /99"}'; exit 1`,
	"refuses":  `echo '{"cniVersion":"1.0.0","code":999,"msg":"no daemon"}'; exit 1`,
	"patience": `echo '{"cniVersion":"1.0.0","code":11,"msg":"later"}'; exit 1`,
	"junk":     "echo '{{{'; exit 0",
	"dumb":     "echo words; exit 1",
	"killed":   "kill -9 $$",
	// It says that it hangs, and goes on when the test has looked.
	"hangs": `echo $me >>$dir/hanging; read x <$dir/fifo; echo '{"cniVersion":"1.0.0","code":5,"msg":"gave up"}'; exit 1`,
}

// ports is our own driver's world: what is attached.
type ports struct {
	nics
	mu    sync.Mutex
	there map[core.Key]bool
}

func (p *ports) Attach(ctx context.Context, r driver.Run, s core.Spec) (core.Link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.there[s.Key] = true
	return p.nics.Attach(ctx, driver.Run{}, s)
}

func (p *ports) Detach(_ context.Context, _ driver.Run, s core.Spec) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.there, s.Key)
	return nil
}

// has tells whether a container's interface of ours is there.
func (p *ports) has(k core.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.there[k]
}

// trial is one run of the model.
type trial struct {
	*testing.T
	r    *rand.Rand
	e    *Engine
	d    delegates
	p    *ports
	dir  string // the journal's
	n    int    // containers so far
	add  []string
	del  []string
	said strings.Builder // what was tried
}

func (x *trial) pick(from ...string) string { return from[x.r.IntN(len(from))] }

// restart is another agent over the same journal.
func (x *trial) restart() {
	require.NoError(x, x.e.Journal.Close())
	j, err := journal.Open(x.dir, journal.Options{OnCorrupt: func(p string) { x.Errorf("corrupt: %s", p) }})
	require.NoError(x, err)
	conf := x.e.Config
	conf.Journal, conf.IPAM = j, ipam.New()
	x.e = New(conf)
	calls := len(x.d.calls())
	x.e.Recover(x.Context(), j.Records())
	require.Len(x, x.d.calls(), calls, "a start waits for no plugin")
}

// request is one for a container of its own, in a namespace of its own.
func (x *trial) request() core.Request {
	x.n++
	return core.Request{
		Op: core.Add, Key: core.Key{Container: fmt.Sprintf("c%d", x.n), IfName: "eth0"}, Netns: netnstest.Bind(x, netnstest.New(x)),
		Pod: core.Pod{Namespace: "default", Name: "p"}, Conf: core.Conf{CNIVersion: "1.0.0", Name: "net", Type: "fairlead"},
	}
}

// meanwhile runs an operation to its end. While a plugin of its hangs, hanging
// looks, and a pod of another name comes and goes.
func (x *trial) meanwhile(op func() error, hanging func()) error {
	fifo := filepath.Join(x.d.dir, "fifo")
	answered := make(chan error, 1)
	go func() { answered <- op() }()
	for {
		select {
		case err := <-answered:
			return err
		default:
		}
		// Nobody reads the pipe before a plugin hangs (fifo(7): ENXIO).
		fd, err := unix.Open(fifo, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			unix.Nanosleep(&unix.Timespec{Nsec: 2e6}, nil) // a shorter pause does as well
			continue
		}
		hanging()
		other := x.request()
		other.Pod.Name = "bystander"
		_, err = x.e.Add(x.Context(), other)
		require.NoError(x, err, "beside a plugin that hangs")
		x.e.Delivered(other.Key)
		require.NoError(x, x.e.Del(x.Context(), other), "beside a plugin that hangs")
		if _, err = unix.Write(fd, []byte("\n")); !errors.Is(err, unix.EPIPE) { // it ends already
			require.NoError(x, err)
		}
		require.NoError(x, unix.Close(fd))
	}
}

// dice says anew what the plugins do on a verb.
func (x *trial) dice(verb string, names []string, from ...string) []string {
	var out []string
	for _, name := range names {
		way := x.pick(from...)
		script := ways[way]
		if verb == "ADD" && works(way) {
			script = "touch $dir/$me.$CNI_CONTAINERID.made\n" + script
		}
		if verb == "DEL" && works(way) {
			script = "rm -f $dir/$me.$CNI_CONTAINERID.made\n" + script
		}
		x.d.told(name, verb, script)
		out = append(out, way)
	}
	fmt.Fprintf(&x.said, "%s %v; ", verb, out)
	return out
}

var (
	allWays = []string{"works", "works", "config", "refuses", "patience", "junk", "dumb", "killed", "hangs"}
	mostly  = []string{"works", "works", "works", "works", "config", "refuses", "junk", "killed"}
)

// leave has the pod's namespace go, or another take its path.
func (x *trial) leave(req core.Request) (gone bool) {
	fate := x.pick("lives", "gone", "reused")
	fmt.Fprintf(&x.said, "namespace %s; ", fate)
	if fate == "lives" {
		return false
	}
	netnstest.Unbind(x, req.Netns)
	if fate == "reused" {
		netnstest.Rebind(x, netnstest.New(x), req.Netns)
	}
	return true
}

// works tells ways whose plugin answers well.
func works(way string) bool { return way == "works" || way == "junk" }

// pod is the life of one: what is asserted of it does not depend on how the
// others fare.
func (x *trial) pod(names []string) {
	x.add = x.dice("ADD", names, mostly...)
	x.del = x.dice("DEL", names, allWays...)
	req := x.request()
	fmt.Fprintf(&x.said, "%s: ", req.Key.Container)
	err := x.meanwhile(func() error { _, err := x.e.Add(x.Context(), req); return err }, func() {})
	if err == nil {
		x.e.Delivered(req.Key)
		require.True(x, x.p.has(req.Key))
	} else {
		require.False(x, x.p.has(req.Key), "eth0 of a failed ADD")
		x.withoutEth0(req.Key)
	}
	if x.r.IntN(3) == 0 {
		x.said.WriteString("restart; ")
		x.restart()
	}
	gone, added := x.leave(req), err == nil
	for range 1 + x.r.IntN(2) {
		err = x.delete(req)
		require.False(x, x.p.has(req.Key), "eth0 after DEL")
		x.withoutEth0(req.Key)
		if err != nil {
			require.False(x, gone, "DEL of a namespace that is gone: %v", err)
			require.True(x, x.mayFail(added), "DEL: %v", err)
		}
	}
	if !gone && x.r.IntN(2) == 0 {
		netnstest.Unbind(x, req.Netns)
		require.NoError(x, x.delete(req), "once the namespace is gone")
	}
}

// delete is DEL, in which eth0 waits for no plugin.
func (x *trial) delete(req core.Request) error {
	return x.meanwhile(func() error { return x.e.Del(x.Context(), req) }, func() {
		require.False(x, x.p.has(req.Key), "eth0 while a plugin hangs")
	})
}

// mayFail tells that a DEL may fail while the namespace lives: a plugin that had
// succeeded refuses.
func (x *trial) mayFail(added bool) bool {
	for i, way := range x.add {
		if !added && way != "works" {
			break // the first that failed, and those behind it, had not
		}
		if !works(x.del[i]) {
			return true
		}
	}
	return false
}

// withoutEth0 proves that a container holds no address for eth0.
func (x *trial) withoutEth0(k core.Key) {
	for _, l := range x.e.IPAM.Leases() {
		require.NotEqual(x, k, l.Owner.Key, "a lease of eth0")
	}
}

func TestUndoModel(t *testing.T) {
	t.Parallel()
	runs := 12
	if os.Getenv("FAIRLEAD_SOAK") != "" {
		runs = 500
	}
	first := rand.Uint64()
	for i := range runs {
		seed := first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { undoTrial(t, rand.New(rand.NewPCG(seed, 0))) }) //nolint:gosec // a seed is repeated
	}
}

func undoTrial(t *testing.T, r *rand.Rand) {
	names := []string{"one", "two", "three"}[:1+r.IntN(3)]
	p := &ports{there: map[core.Key]bool{}}
	e, d := newDelegated(t, &nics{}, names...)
	x := &trial{T: t, r: r, e: e, d: d, p: p, dir: t.TempDir()}
	e.Drivers["ovs"] = p
	j, err := journal.Open(x.dir, journal.Options{})
	require.NoError(t, err)
	require.NoError(t, j.SetWhole(t.Context()))
	require.NoError(t, e.Journal.Close())
	e.Journal = j
	t.Cleanup(func() { _ = x.e.Journal.Close() })
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(x.said.String())
		}
	})
	require.NoError(t, unix.Mkfifo(filepath.Join(d.dir, "fifo"), 0o600))
	for range 1 + r.IntN(4) {
		x.pod(names)
	}

	// The plugins come to their senses: nothing is left that anything had made.
	x.dice("DEL", names, "works")
	x.restart()
	x.e.finish(t.Context())
	for _, h := range x.e.Journal.Heads() { // DELs that the runtime has yet to repeat
		require.NoError(t, x.e.Del(t.Context(), core.Request{Key: h.Key}))
	}
	require.Empty(t, x.e.Journal.Heads())
	require.Empty(t, x.e.IPAM.Leases())
	require.Empty(t, p.there)
	made, err := filepath.Glob(filepath.Join(d.dir, "*.made"))
	require.NoError(t, err)
	require.Empty(t, made)
}
