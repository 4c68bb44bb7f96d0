package hostlocal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/hostlocal"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
)

// side is one of the two implementations with a folder of its own.
type side struct {
	dir string
	run func(op core.Op, c driver.PluginCall) (json.RawMessage, error)
}

func inside(p *hostlocal.Plugin, dir string) side {
	return side{dir, func(op core.Op, c driver.PluginCall) (json.RawMessage, error) {
		return driver.Perform(context.Background(), p, op, c)
	}}
}

func program(t testing.TB, dir string) side {
	return side{dir, drivertest.Program{Dir: drivertest.Programs(t, "ipam/host-local"), Type: hostlocal.Name}.Run}
}

// call fills DIR in.
func (s side) call(conf, container, args string) driver.PluginCall {
	return driver.PluginCall{
		Conf: json.RawMessage(strings.ReplaceAll(conf, "DIR", s.dir)), Args: args,
		Key: core.Key{Container: container, IfName: "net1"}, Netns: core.Netns{Path: "/var/run/netns/none"},
	}
}

// files are those below a folder with mode and content; the lock has none.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir || strings.HasSuffix(name, "resolv.conf") {
			return err
		}
		info, err := d.Info()
		if err != nil || d.IsDir() {
			out[strings.TrimPrefix(name, dir)] = info.Mode().String()
			return err
		}
		raw, err := os.ReadFile(name)
		out[strings.TrimPrefix(name, dir)] = info.Mode().String() + " " + string(raw)
		return err
	}))
	return out
}

func conf(version, ipam, more string) string {
	return `{"cniVersion":"` + version + `","name":"net","type":"macvlan","ipam":{"type":"host-local","dataDir":"DIR",` + ipam + `}` + more + `}`
}

// step is a call that both sides get.
type step struct {
	op        core.Op
	container string
	args      string
}

// TestLikeTheProgram: the same calls give the same answers and files.
func TestLikeTheProgram(t *testing.T) {
	const four, both = `"subnet":"10.1.2.0/24"`, `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"2001:db8:1::/64","gateway":"2001:db8:1::ffff"}]]`
	life := []step{{core.Add, "a", ""}, {core.Add, "b", ""}, {core.Check, "a", ""}, {core.Add, "a", ""}, {core.Del, "a", ""}, {core.Check, "a", ""}, {core.Add, "c", ""}, {core.Del, "b", ""}, {core.Del, "b", ""}}
	ask := func(ip string) []step {
		return []step{{core.Add, "a", "IgnoreUnknown=1;IP=" + ip}, {core.Add, "b", "IgnoreUnknown=1;IP=" + ip}, {core.Del, "a", ""}}
	}
	unchecked := slices.DeleteFunc(slices.Clone(life), func(s step) bool { return s.op == core.Check }) // before 0.4.0
	for _, c := range []struct {
		name, conf string
		steps      []step
	}{
		{"one range", conf("1.0.0", four, ""), life},
		{"both families", conf("1.1.0", both, ""), life},
		{"0.4.0", conf("0.4.0", both, ""), life},
		{"0.3.1", conf("0.3.1", both, ""), unchecked},
		{"0.2.0", conf("0.2.0", both, ""), []step{{core.Add, "a", ""}, {core.Del, "a", ""}}},
		{"0.1.0", conf("0.1.0", four, ""), []step{{core.Add, "a", ""}, {core.Del, "a", ""}}},
		{"0.2.0 and two of a family", conf("0.2.0", `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/24"}]]`, ""), []step{{core.Add, "a", ""}}},
		{"old range and new ones", conf("1.0.0", four+`,"ranges":[[{"subnet":"10.1.3.0/24"}]]`, ""), life},
		{"a set of several ranges, exhausted", conf("1.0.0", `"ranges":[[{"subnet":"10.1.2.0/30"},{"subnet":"10.1.3.0/30","rangeStart":"10.1.3.2","rangeEnd":"10.1.3.2"}]]`, ""),
			[]step{{core.Add, "a", ""}, {core.Add, "b", ""}, {core.Add, "c", ""}, {core.Del, "a", ""}, {core.Add, "c", ""}}},
		{"the second set is exhausted", conf("1.0.0", `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/30"}]]`, ""),
			[]step{{core.Add, "a", ""}, {core.Add, "b", ""}, {core.Add, "b", ""}}},
		{"round about", conf("1.0.0", `"subnet":"10.1.2.0/29","rangeStart":"10.1.2.2","rangeEnd":"10.1.2.4","gateway":"10.1.2.3"`, ""),
			[]step{{core.Add, "a", ""}, {core.Del, "a", ""}, {core.Add, "a", ""}, {core.Del, "a", ""}, {core.Add, "a", ""}}},
		{"routes", conf("1.1.0", four+`,"routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.1.2.9","mtu":1400,"advmss":1300,"priority":7,"table":100,"scope":253}]`, ""), life},
		{"routes of 0.3.1", conf("0.3.1", four+`,"routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.1.2.9"}]`, ""), unchecked},
		{"resolv.conf", conf("1.0.0", four+`,"resolvConf":"DIR/resolv.conf"`, ""), []step{{core.Add, "a", ""}}},
		{"no resolv.conf", conf("1.0.0", four+`,"resolvConf":"DIR/missing"`, ""), []step{{core.Add, "a", ""}}},
		{"CNI_ARGS", conf("1.0.0", four, ""), ask("10.1.2.77")},
		{"CNI_ARGS, the gateway", conf("1.0.0", four, ""), ask("10.1.2.1")},
		{"CNI_ARGS, outside", conf("1.0.0", four, ""), ask("10.1.3.1")},
		{"CNI_ARGS, nonsense", conf("1.0.0", four, ""), ask("x")},
		{"CNI_ARGS, unknown", conf("1.0.0", four, ""), []step{{core.Add, "a", "K8S=1"}}},
		{"args", conf("1.0.0", both, `,"args":{"cni":{"ips":["10.1.2.9","2001:db8:1::9/64"]}}`), life},
		{"runtimeConfig.ips", conf("1.0.0", both, `,"runtimeConfig":{"ips":["10.1.2.9/24"],"mac":"x"}`), life},
		{"runtimeConfig.ips, too many", conf("1.0.0", four, `,"runtimeConfig":{"ips":["10.1.2.9/24","10.1.2.9/24","10.1.9.9/24"]}`), life},
		{"runtimeConfig.ipRanges", conf("1.0.0", four, `,"runtimeConfig":{"ipRanges":[[{"subnet":"10.5.0.0/24"}]]}`), life},
		{"no range", conf("1.0.0", `"ranges":[]`, ""), life},
		{"an empty set", conf("1.0.0", `"ranges":[[]]`, ""), life},
		{"overlap", conf("1.0.0", `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.2.0/25"}]]`, ""), life},
		{"too small", conf("1.0.0", `"subnet":"10.1.2.0/31"`, ""), life},
		{"host bits", conf("1.0.0", `"subnet":"10.1.2.1/24"`, ""), life},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := inside(hostlocal.New(), t.TempDir()), program(t, t.TempDir())
			for _, s := range []side{ours, theirs} {
				require.NoError(t, os.WriteFile(filepath.Join(s.dir, "resolv.conf"),
					[]byte("# x\n; y\nnameserver 192.0.2.1\nnameserver\ndomain a.b\nsearch c d\nsearch e\noptions ndots:5 x\n"), 0o600))
			}
			require.NoError(t, hostlocal.New().Accepts(ours.call(c.conf, "", "").Conf))
			for i, st := range c.steps {
				got, err := ours.run(st.op, ours.call(c.conf, st.container, st.args))
				want, werr := theirs.run(st.op, theirs.call(c.conf, st.container, st.args))
				if werr != nil {
					require.Error(t, err, "step %d", i)
					drivertest.RequireCode(t, werr, err)
					require.Equal(t, strings.ReplaceAll(werr.Error(), theirs.dir, ours.dir), err.Error(), "step %d", i)
				} else {
					require.NoError(t, err, "step %d", i)
					require.Equal(t, len(want) == 0, len(got) == 0)
					if len(want) > 0 {
						require.JSONEq(t, string(want), string(got), "step %d", i)
					}
				}
				left, have := files(t, theirs.dir), files(t, ours.dir)
				if len(have) == 0 && len(left) == 2 { // a folder is not made to find nothing in it
					delete(left, "/net")
					delete(left, "/net/lock")
				}
				require.Equal(t, left, have, "step %d", i)
			}
		})
	}
}

// Either frees and checks what the other has given, in one folder.
func TestTakingTurns(t *testing.T) {
	dir := t.TempDir()
	p := hostlocal.New()
	ours, theirs := inside(p, dir), program(t, dir)
	c := conf("1.1.0", `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00::/64"}]]`, "")
	for i, pair := range [][2]side{{ours, theirs}, {theirs, ours}} {
		id := fmt.Sprintf("c%d", i)
		_, err := pair[0].run(core.Add, ours.call(c, id, ""))
		require.NoError(t, err)
		_, err = pair[1].run(core.Check, ours.call(c, id, ""))
		require.NoError(t, err)
		_, err = pair[1].run(core.Add, ours.call(c, id, ""))
		require.ErrorContains(t, err, "duplicate allocation is not allowed")
		_, err = pair[1].run(core.Del, ours.call(c, id, ""))
		require.NoError(t, err)
		_, err = pair[0].run(core.Check, ours.call(c, id, ""))
		require.Error(t, err)
		require.Len(t, files(t, dir), 4, "the folder, the lock and two counters")
	}
	// the files of very old versions name the container alone
	require.NoError(t, os.WriteFile(filepath.Join(dir, "net", "10.1.2.200"), []byte("old\n"), 0o600))
	_, err := ours.run(core.Check, ours.call(c, "old", ""))
	require.NoError(t, err)
	_, err = ours.run(core.Del, ours.call(c, "old", ""))
	require.NoError(t, err)
	require.Len(t, files(t, dir), 4)
}

func held(t testing.TB, dir string) int {
	n := 0
	for name := range files(t, dir) {
		if strings.HasPrefix(filepath.Base(name), "10.1.") {
			n++
		}
	}
	return n
}

// Twenty of ours and some programs at once: every address once, all freed.
func TestManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := inside(hostlocal.New(), dir), program(t, dir)
	c := conf("1.0.0", `"subnet":"10.1.2.0/24"`, "")
	var wg sync.WaitGroup
	for i := range 24 {
		s := ours
		if i%6 == 0 {
			s = theirs
		}
		wg.Go(func() {
			out, err := s.run(core.Add, ours.call(c, fmt.Sprintf("c%d", i), ""))
			if err != nil || !strings.Contains(string(out), "10.1.2.") {
				t.Errorf("%d: %s %v", i, out, err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 24, held(t, dir))
	for i := range 24 {
		wg.Go(func() {
			if _, err := ours.run(core.Del, ours.call(c, fmt.Sprintf("c%d", i), "")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Zero(t, held(t, dir))
}

// Who waits for the lock of another process can be called off, and the lock
// is not handed on to programs that are started meanwhile.
func TestLockOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	p := hostlocal.New()
	ours := inside(p, dir)
	c := ours.call(conf("1.0.0", `"subnet":"10.1.2.0/24"`, ""), "a", "")
	_, err := ours.run(core.Add, c)
	require.NoError(t, err)
	fd, err := unix.Open(filepath.Join(dir, "net", "lock"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	require.NoError(t, unix.Flock(fd, unix.LOCK_EX))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Del(ctx, c), context.DeadlineExceeded)
	require.Equal(t, 1, held(t, dir))
	released := make(chan error, 1)
	go func() { released <- p.Del(t.Context(), c) }()
	require.NoError(t, unix.Flock(fd, unix.LOCK_UN))
	require.NoError(t, <-released)
	require.Zero(t, held(t, dir))
}

func TestCancelledAddHoldsNothing(t *testing.T) {
	dir := t.TempDir()
	p := hostlocal.New()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Add(ctx, inside(p, dir).call(conf("1.0.0", `"subnet":"10.1.2.0/24"`, ""), "a", ""))
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, held(t, dir))
}

// A pipe where a file should be hangs a program; the agent must go on.
func TestOddFiles(t *testing.T) {
	dir := t.TempDir()
	p := hostlocal.New()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "net", "10.1.2.9"), 0o755))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "net", "10.1.2.8"), 0o600))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "resolv.conf"), 0o600))
	s := inside(p, dir)
	out, err := s.run(core.Add, s.call(conf("1.0.0", `"subnet":"10.1.2.0/24","rangeStart":"10.1.2.8"`, ""), "a", ""))
	require.NoError(t, err)
	require.Contains(t, string(out), "10.1.2.10/24")
	_, err = s.run(core.Del, s.call(conf("1.0.0", `"subnet":"10.1.2.0/24"`, ""), "a", ""))
	require.NoError(t, err)
	_, err = s.run(core.Add, s.call(conf("1.0.0", `"subnet":"10.1.2.0/24","resolvConf":"DIR/resolv.conf"`, ""), "a", ""))
	require.ErrorContains(t, err, "not a regular file")
}

func TestAccepts(t *testing.T) {
	p := hostlocal.New()
	for ipam, ok := range map[string]bool{
		`"subnet":"10.0.0.0/8"`:                      true,
		`"subnet":"10.0.0.0/8","dataDir":"/x"`:       true,
		`"dataDir":"x"`:                              false,
		`"resolvConf":"../x"`:                        false,
		`"dataDir":1`:                                false,
		`"Subnet":"10.0.0.0/8"`:                      false,
		`"new":1`:                                    false,
		`"ranges":[[{"subnet":"10.0.0.0/8"}]]`:       true,
		`"ranges":[[{"subnet":"10.0.0.0/8","x":1}]]`: false,
		`"ranges":{}`:                                false,
	} {
		err := p.Accepts(json.RawMessage(`{"ipam":{"type":"host-local",` + ipam + `}}`))
		require.Equal(t, ok, err == nil, "%s: %v", ipam, err)
	}
	require.Error(t, p.Accepts(json.RawMessage(`{"ipam":[]}`)))
}

// TestCheckSeesALeaseOfSomebodyElse: every address of the result that is of the
// ranges is to be held by the attachment itself.
func TestCheckSeesALeaseOfSomebodyElse(t *testing.T) {
	s := inside(hostlocal.New(), t.TempDir())
	both := `"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00:1::/64"}]]`
	out, err := s.run(core.Add, s.call(conf("1.0.0", both, ""), "c1", ""))
	require.NoError(t, err)
	check := func() error {
		_, err := s.run(core.Check, s.call(conf("1.0.0", both, `,"prevResult":`+string(out)), "c1", ""))
		return err
	}
	require.NoError(t, check())
	stolen := filepath.Join(s.dir, "net", "10.1.0.2")
	require.NoError(t, os.Remove(stolen))
	require.ErrorIs(t, check(), core.ErrDrift)
	require.ErrorContains(t, check(), "address 10.1.0.2 is leased to nobody")
	require.NoError(t, os.WriteFile(stolen, []byte("c2\r\nnet1"), 0o600))
	require.ErrorContains(t, check(), "address 10.1.0.2 is leased to container c2, net1")
}
