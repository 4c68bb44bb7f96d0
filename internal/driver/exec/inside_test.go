package exec_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/exec"
)

// wired is a Plugin of which the test says what it does.
type wired struct {
	accepts error
	calls   []driver.PluginCall
	ops     []core.Op
	do      func(ctx context.Context, op core.Op, c driver.PluginCall) (json.RawMessage, error)
}

func (w *wired) Accepts(json.RawMessage) error { return w.accepts }

func (w *wired) run(ctx context.Context, op core.Op, c driver.PluginCall) (json.RawMessage, error) {
	w.calls, w.ops = append(w.calls, c), append(w.ops, op)
	if w.do == nil {
		return json.RawMessage(`{"cniVersion":"1.0.0"}`), nil
	}
	return w.do(ctx, op, c)
}

func (w *wired) Add(ctx context.Context, c driver.PluginCall) (json.RawMessage, error) {
	return w.run(ctx, core.Add, c)
}

func (w *wired) Check(ctx context.Context, c driver.PluginCall) error {
	_, err := w.run(ctx, core.Check, c)
	return err
}

func (w *wired) Del(ctx context.Context, c driver.PluginCall) error {
	_, err := w.run(ctx, core.Del, c)
	return err
}

func (w *wired) GC(ctx context.Context, c driver.PluginCall) error {
	_, err := w.run(ctx, core.GC, c)
	return err
}

func (w *wired) Status(ctx context.Context, c driver.PluginCall) error {
	_, err := w.run(ctx, core.Status, c)
	return err
}

func with(name string, p driver.Plugin) *exec.Driver {
	return exec.New(map[string]driver.Plugin{name: p})
}

// Which of the two ways a call goes.
func TestWhoseProgramItIs(t *testing.T) {
	_, id := pod(t)
	dir := upstreamDir(t)
	copied := func(from, to string) string {
		raw, err := os.ReadFile(filepath.Join(dir, from))
		require.NoError(t, err)
		out := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(out, to), raw, 0o755))
		return out
	}
	linked := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(dir, "loopback"), filepath.Join(linked, "loopback")))
	fork := script(t, "loopback", `cat >/dev/null; echo '{"cniVersion":"1.0.0"}'`)
	for _, c := range []struct {
		name   string
		dirs   []string
		p      *wired
		inside bool
	}{
		{"upstream's own program", []string{dir}, &wired{}, true},
		{"a link to it", []string{linked}, &wired{}, true},
		{"a copy of it", []string{copied("loopback", "loopback")}, &wired{}, true},
		{"no program at all", []string{t.TempDir()}, &wired{}, true},
		{"somebody's script", []string{fork}, &wired{}, false},
		{"the first directory decides", []string{fork, dir}, &wired{}, false},
		{"the first directory decides", []string{dir, fork}, &wired{}, true},
		{"another program of upstream's under this name", []string{copied("tuning", "loopback")}, &wired{}, false},
		{"a configuration that is not understood", []string{dir}, &wired{accepts: errors.New("no")}, false},
	} {
		d := with("loopback", c.p)
		x := call(t, `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"loopback"}]}`, 0, c.dirs...)
		require.Equal(t, c.inside, d.Inside(core.Spec{Exec: x}), c.name)
		_, _ = d.Attach(t.Context(), driver.Run{}, spec(id, x))
		require.Equal(t, c.inside, len(c.p.calls) > 0, c.name)
	}
}

// A plugin that panics over a configuration leaves it to the program; where
// there is none, that call fails, and says why.
func TestPanicOverAConfiguration(t *testing.T) {
	_, id := pod(t)
	p := &panicky{}
	d := with("loopback", p)
	attach := func(dirs ...string) error {
		_, err := d.Attach(t.Context(), driver.Run{}, spec(id, call(t, `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"loopback"}]}`, 0, dirs...)))
		return err
	}
	require.NoError(t, attach(upstreamDir(t)))
	for range 2 {
		require.ErrorContains(t, attach(t.TempDir()), "panic: accepts nothing")
	}
	require.Empty(t, p.calls)
}

// panicky is a Plugin that does not even accept.
type panicky struct{ wired }

func (*panicky) Accepts(json.RawMessage) error { panic("accepts nothing") }

// A file that is written again is looked at again.
func TestProgramThatIsReplaced(t *testing.T) {
	_, id := pod(t)
	dir, p := t.TempDir(), &wired{}
	raw, err := os.ReadFile(filepath.Join(upstreamDir(t), "loopback"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "loopback"), raw, 0o755))
	d := with("loopback", p)
	s := spec(id, call(t, `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"loopback"}]}`, 0, dir))
	_, err = d.Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	require.Len(t, p.calls, 1)
	fork := filepath.Join(script(t, "loopback", `cat >/dev/null; echo '{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8"}]}'`), "loopback")
	out, err := osexec.Command("cp", "-p", fork, dir).CombinedOutput()
	require.NoError(t, err, string(out))
	l, err := d.Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	require.Len(t, p.calls, 1)
	require.Contains(t, string(l.CNIResult), "10.0.0.1/8")
}

// What must not be run is not replaced by something that happens to be right.
func TestUnsafeProgramIsRefused(t *testing.T) {
	_, id := pod(t)
	dir, p := script(t, "loopback", ""), &wired{}
	require.NoError(t, os.Chmod(filepath.Join(dir, "loopback"), 0o777))
	_, err := with("loopback", p).Attach(t.Context(), driver.Run{}, spec(id, call(t, `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"loopback"}]}`, 0, dir)))
	require.ErrorContains(t, err, "can be written by others")
	require.Empty(t, p.calls)
}

func TestPluginGetsWhatAProcessWouldGet(t *testing.T) {
	_, id := pod(t)
	p := &wired{}
	d := with("p", p)
	s := spec(id, call(t, testConf, 0, t.TempDir()))
	s.Exec.Prev = []byte(`{"cniVersion":"1.0.0"}`)
	var procs []core.Proc
	var begun []int
	run := driver.Run{Report: func(_ context.Context, p core.Proc) error {
		procs = append(procs, p)
		return nil
	}}
	p.do = func(context.Context, core.Op, driver.PluginCall) (json.RawMessage, error) {
		begun = append(begun, len(procs))
		return json.RawMessage(`{"cniVersion":"1.0.0"}`), nil
	}
	l, err := d.Attach(t.Context(), run, s)
	require.NoError(t, err)
	require.NoError(t, d.Check(t.Context(), run, s, l))
	require.NoError(t, d.Detach(t.Context(), run, s))
	require.Equal(t, []core.Op{core.Add, core.Check, core.Del}, p.ops)
	require.Equal(t, make([]core.Proc, 3), procs, "it is on record that it begins, and there is no process")
	require.Equal(t, []int{1, 2, 3}, begun, "before it does anything")
	for _, c := range p.calls {
		require.JSONEq(t, `{"cniVersion":"1.0.0","name":"net","type":"p","prevResult":{"cniVersion":"1.0.0"}}`, string(c.Conf))
		require.Equal(t, s.Key, c.Key)
		require.Equal(t, id, c.Netns)
		require.Equal(t, s.Exec.Args, c.Args)
	}
	gone := s
	gone.Netns.Cookie++
	require.NoError(t, d.Detach(t.Context(), run, gone))
	require.Empty(t, p.calls[3].Netns, "a namespace that is another one by now")

	s.Exec.CNIVersion = "1.1.0"
	require.NoError(t, d.Status(t.Context(), run, *s.Exec))
	require.NoError(t, d.GC(t.Context(), run, *s.Exec, []core.Key{s.Key}))
	require.Equal(t, []core.Op{core.Status, core.GC}, p.ops[4:])
	require.Contains(t, string(p.calls[5].Conf), `"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"net1"}]`)
}

// Before the record is written nothing may be made.
func TestPluginThatIsNotOnRecordDoesNothing(t *testing.T) {
	_, id := pod(t)
	p := &wired{}
	run := driver.Run{Report: func(context.Context, core.Proc) error { return errors.New("disk full") }}
	_, err := with("p", p).Attach(t.Context(), run, spec(id, call(t, testConf, 0, t.TempDir())))
	require.ErrorContains(t, err, `plugin "p" (ADD, network "net"): record the plugin's process: disk full`)
	require.Empty(t, p.calls)
}

func TestErrorsInsideHaveTheShapeOfAProgram(t *testing.T) {
	_, id := pod(t)
	s := spec(id, call(t, testConf, 0, t.TempDir()))
	for _, c := range []struct {
		err  error
		code uint
		text string
	}{
		{&core.Error{Code: 7, Msg: "bad", Details: "very"}, 7, `plugin "p" (ADD, network "net"): bad: very`},
		{errors.New("odd"), 999, `plugin "p" (ADD, network "net"): odd`},
		{context.DeadlineExceeded, core.CodeTryAgain, `plugin "p" (ADD, network "net"): context deadline exceeded`},
	} {
		p := &wired{do: func(context.Context, core.Op, driver.PluginCall) (json.RawMessage, error) { return nil, c.err }}
		_, err := with("p", p).Attach(t.Context(), driver.Run{}, s)
		require.ErrorContains(t, err, c.text)
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.code, core.CodeOf(err))
	}
	p := &wired{do: func(context.Context, core.Op, driver.PluginCall) (json.RawMessage, error) { panic("at the disco") }}
	_, err := with("p", p).Attach(t.Context(), driver.Run{}, s)
	require.ErrorContains(t, err, `plugin "p" (ADD, network "net"): panic: at the disco`)
	require.Equal(t, core.CodeIO, core.CodeOf(err))

	p = &wired{do: func(context.Context, core.Op, driver.PluginCall) (json.RawMessage, error) {
		return nil, errors.New("gone")
	}}
	err = with("p", p).Check(t.Context(), driver.Run{}, s, core.Link{CNIResult: json.RawMessage(`{"cniVersion":"1.0.0"}`)})
	require.ErrorIs(t, err, core.ErrDrift)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p = &wired{}
	_, err = with("p", p).Attach(ctx, driver.Run{}, s)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	require.Empty(t, p.calls)
}

// TestOneMakesWhatTheOtherRemoves: an agent with and one without the plugins, as
// before and after an update, and an Add that was cut off half-way.
func TestOneMakesWhatTheOtherRemoves(t *testing.T) {
	dir := upstreamDir(t)
	const conf = `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"%s",%s"ipam":{"type":"host-local","dataDir":"%s",
		"ranges":[[{"subnet":"10.88.0.0/24"}],[{"subnet":"fd00:88::/64"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`
	for kind, keys := range map[string]string{"bridge": `"bridge":"cni7","isGateway":true,`, "macvlan": `"master":"m0",`} {
		hostNS, inside := agentHost(t)
		programs := inHost{exec.New(nil), hostNS}
		data := t.TempDir()
		held := func() []string { return leasesOf(t, filepath.Join(data, "n")) }
		for i, pair := range [][2]driver.Driver{{inside, programs}, {programs, inside}, {inside, inside}} {
			ns, id := pod(t)
			s := spec(id, call(t, fmt.Sprintf(conf, kind, keys, data), 0, dir))
			require.Equal(t, i != 1, pair[0].(inHost).Inside(s))
			l, err := pair[0].Attach(t.Context(), driver.Run{}, s)
			require.NoError(t, err)
			require.Len(t, held(), 2)
			s.Exec.Prev = l.CNIResult
			for _, d := range pair {
				require.NoError(t, d.Check(t.Context(), driver.Run{}, s, l))
			}
			require.NoError(t, pair[1].Detach(t.Context(), driver.Run{}, s))
			require.NoError(t, pair[0].Detach(t.Context(), driver.Run{}, s))
			require.NotContains(t, linkNames(t, ns), "net1")
			require.Empty(t, held())

			// what an agent leaves that dies in the middle: the address, or the link
			s.Exec.Prev = nil
			_, err = pair[0].Attach(t.Context(), driver.Run{}, s)
			require.NoError(t, err)
			ip(t, ns, "link", "del", "net1")
			require.NoError(t, pair[1].Detach(t.Context(), driver.Run{}, s))
			require.Empty(t, held())
			_, err = pair[0].Attach(t.Context(), driver.Run{}, s)
			require.NoError(t, err)
			require.NoError(t, os.RemoveAll(data))
			_, err = pair[1].Attach(t.Context(), driver.Run{}, s)
			require.NoError(t, err, "a former attempt is cleared")
			require.NoError(t, pair[0].Detach(t.Context(), driver.Run{}, s))
			require.NotContains(t, linkNames(t, ns), "net1")
			require.Empty(t, held())
		}
	}
}

// The IPAM plugin goes its own way: inside, or a program with the environment
// and standard input of the plugin that asks.
func TestIPAMOfAPluginInside(t *testing.T) {
	_, id := pod(t)
	out := filepath.Join(t.TempDir(), "seen")
	dir := script(t, "addr", `cat >`+out+`.stdin; env >`+out+`.env; echo '{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8"}]}'`)
	ask := &wired{do: func(ctx context.Context, op core.Op, c driver.PluginCall) (json.RawMessage, error) {
		return c.IPAM(ctx, op)
	}}
	inner := &wired{}
	const conf = `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"p","ipam":{"type":"addr"}}]}`
	run := driver.Run{Caller: driver.Caller{Token: "t0ken", Socket: "/run/s"}}
	var pids []int
	run.Report = func(_ context.Context, p core.Proc) error { pids = append(pids, p.PGID); return nil }
	s := spec(id, call(t, conf, 0, dir))
	l, err := with("p", ask).Attach(t.Context(), run, s)
	require.NoError(t, err)
	require.Contains(t, string(l.CNIResult), "10.0.0.1/8")
	stdin, err := os.ReadFile(out + ".stdin")
	require.NoError(t, err)
	require.JSONEq(t, `{"cniVersion":"1.0.0","name":"net","type":"p","ipam":{"type":"addr"}}`, string(stdin))
	env, err := os.ReadFile(out + ".env")
	require.NoError(t, err)
	for _, want := range []string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_IFNAME=net1", "CNI_NETNS=" + id.Path, "CNI_PATH=" + dir,
		"CNI_ARGS=" + s.Exec.Args, "FAIRLEAD_TOKEN=t0ken", "FAIRLEAD_SOCKET=/run/s",
	} {
		require.Contains(t, string(env), want)
	}
	require.Len(t, pids, 2)
	require.Zero(t, pids[0])
	require.NotZero(t, pids[1], "the program's process is on record")

	s.Exec.Path = []string{t.TempDir()}
	_, err = exec.New(map[string]driver.Plugin{"p": ask, "addr": inner}).Attach(t.Context(), run, s)
	require.NoError(t, err)
	require.Equal(t, []core.Op{core.Add}, inner.ops)
	require.JSONEq(t, string(stdin), string(inner.calls[0].Conf))

	s.Exec.Path = []string{script(t, "addr", `echo '{"code":103,"msg":"none left"}'; exit 1`)}
	_, err = with("p", ask).Attach(t.Context(), run, s)
	require.ErrorContains(t, err, `plugin "p" (ADD, network "net"): none left`, "as the program of p would hand it on")
	require.Equal(t, uint(103), core.CodeOf(err))
}
