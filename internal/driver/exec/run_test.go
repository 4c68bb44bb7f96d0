package exec_test

import (
	"context"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/exec"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

const testConf = `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"p"}]}`

// scripted is a spec whose plugin is a shell script.
func scripted(t *testing.T, body string) core.Spec {
	_, id := pod(t)
	return spec(id, call(t, testConf, 0, script(t, "p", body)))
}

func TestPluginGetsItsCallAndNothingElse(t *testing.T) {
	t.Setenv("FAIRLEAD_SECRET", "x")
	out := filepath.Join(t.TempDir(), "seen")
	s := scripted(t, `cat >`+out+`.stdin; env | sort >`+out+`.env; echo '{"cniVersion":"1.0.0"}'`)
	s.Exec.Prev = []byte(`{"cniVersion":"1.0.0"}`)
	l, err := exec.New(nil).Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	require.JSONEq(t, `{"cniVersion":"1.0.0"}`, string(l.CNIResult))

	stdin, err := os.ReadFile(out + ".stdin")
	require.NoError(t, err)
	require.JSONEq(t, `{"cniVersion":"1.0.0","name":"net","type":"p","prevResult":{"cniVersion":"1.0.0"}}`, string(stdin))
	env, err := os.ReadFile(out + ".env")
	require.NoError(t, err)
	var names []string
	for _, line := range strings.Split(strings.TrimSpace(string(env)), "\n") {
		k, _, _ := strings.Cut(line, "=")
		if k != "PWD" { // the shell's own
			names = append(names, k)
		}
	}
	require.Equal(t, []string{"CNI_ARGS", "CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_PATH", "PATH"}, names)
	require.Contains(t, string(env), "CNI_NETNS="+s.Netns.Path+"\n")
	require.Contains(t, string(env), "CNI_ARGS=K8S_POD_NAME=p;IgnoreUnknown=1\n")

	require.NoError(t, exec.New(nil).Detach(t.Context(), driver.Run{}, s))
	del, err := os.ReadFile(out + ".stdin")
	require.NoError(t, err)
	require.Equal(t, string(stdin), string(del), "DEL gets what ADD got")

	netnstest.Unbind(t, s.Netns.Path)
	require.NoError(t, exec.New(nil).Detach(t.Context(), driver.Run{}, s))
	env, err = os.ReadFile(out + ".env")
	require.NoError(t, err)
	require.Contains(t, string(env), "CNI_NETNS=\n")
}

// TestPluginMayCallBack: it finds its way into the operation that runs it, by
// every verb, and only where there is one.
func TestPluginMayCallBack(t *testing.T) {
	out := filepath.Join(t.TempDir(), "env")
	s := scripted(t, `cat >/dev/null; env >>`+out+`; echo '{"cniVersion":"1.0.0"}'`)
	run := driver.Run{Caller: driver.Caller{Token: "t1", Socket: "/run/a.sock"}}
	l, err := exec.New(nil).Attach(t.Context(), run, s)
	require.NoError(t, err)
	require.NoError(t, exec.New(nil).Check(t.Context(), run, s, l))
	require.NoError(t, exec.New(nil).Detach(t.Context(), run, s))
	env, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(string(env), "FAIRLEAD_TOKEN=t1\n"))
	require.Equal(t, 3, strings.Count(string(env), "FAIRLEAD_SOCKET=/run/a.sock\n"))
}

// Versions before 0.4.0 have no prevResult on DEL and no CHECK.
func TestOldVersionsGetNoMoreThanTheyKnow(t *testing.T) {
	out := filepath.Join(t.TempDir(), "stdin")
	s := scripted(t, `cat >`+out)
	s.Exec.CNIVersion, s.Exec.Prev = "0.3.1", []byte(`{"cniVersion":"0.3.1"}`)
	require.NoError(t, exec.New(nil).Check(t.Context(), driver.Run{}, s, core.Link{}))
	require.NoFileExists(t, out)
	require.NoError(t, exec.New(nil).Detach(t.Context(), driver.Run{}, s))
	stdin, err := os.ReadFile(out)
	require.NoError(t, err)
	require.NotContains(t, string(stdin), "prevResult")
}

func TestCheckAsksThePluginUnlessTheNetworkForbidsIt(t *testing.T) {
	s := scripted(t, `echo '{"code":42,"msg":"rules differ"}'; exit 1`)
	s.Exec.Prev = []byte(`{"cniVersion":"1.0.0"}`)
	err := exec.New(nil).Check(t.Context(), driver.Run{}, s, core.Link{})
	require.ErrorIs(t, err, core.ErrDrift)
	require.ErrorContains(t, err, "rules differ")
	s.Exec.NoCheck = true
	require.NoError(t, exec.New(nil).Check(t.Context(), driver.Run{}, s, core.Link{}))
}

func TestFailuresHaveCodesAndWords(t *testing.T) {
	for _, c := range []struct {
		name, body string
		code       uint
		words      string
	}{
		{"own error", `echo '{"code":103,"msg":"no address","details":"pool full"}'; exit 1`, 103, "no address: pool full"},
		{"own error without code", `echo '{"msg":"bad"}'; exit 1`, 5, "bad"},
		{"silent death", `exit 3`, 5, "it printed nothing"},
		{"last words", `for i in 1 2 3 4 5 6 7; do echo line$i >&2; done; exit 1`, 5, "line3 | line4 | line5 | line6 | line7"},
		{"killed", `echo dying >&2; kill -9 $$`, 5, "killed: dying"},
		{"garbage", `echo hello`, 6, "JSON"},
		{"garbage and failure", `echo hello; exit 1`, 5, "hello"},
		{"nothing", `exit 0`, 6, "nothing"},
		{"null", `echo null`, 6, "null"},
		{"null interface", `echo '{"cniVersion":"1.0.0","interfaces":[null]}'`, 6, "null"},
		{"other version", `echo '{"cniVersion":"6.0.0"}'`, 6, "6.0.0"},
		{"too much", `yes`, 5, "1 MiB"},
	} {
		_, err := exec.New(nil).Attach(t.Context(), driver.Run{}, scripted(t, c.body))
		require.Error(t, err, c.name)
		require.Equal(t, c.code, core.CodeOf(err), "%s: %v", c.name, err)
		require.ErrorContains(t, err, c.words, c.name)
		require.ErrorContains(t, err, "c1/net1", c.name)
	}
}

func TestBigConfigurationAndNoReader(t *testing.T) {
	s := scripted(t, `exec 0<&-; echo '{"cniVersion":"1.0.0"}'`)
	s.Exec.Conf = []byte(`{"name":"net","type":"p","pad":"` + strings.Repeat("x", 900<<10) + `"}`)
	_, err := exec.New(nil).Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err, "a plugin need not read")
}

func TestOnlyWhatRootControlsIsRun(t *testing.T) {
	good := script(t, "p", `echo '{"cniVersion":"1.0.0"}'`)
	empty := t.TempDir()
	_, id := pod(t)
	try := func(typ string, dirs ...string) error {
		s := spec(id, call(t, testConf, 0, dirs...))
		s.Exec.Type = typ
		_, err := exec.New(nil).Attach(t.Context(), driver.Run{}, s)
		return err
	}
	require.NoError(t, try("p", empty, "/nonexistent", "relative", good))
	linked := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(good, "p"), filepath.Join(linked, "p")))
	require.NoError(t, try("p", linked))

	writable := script(t, "p", `exit 0`)
	require.NoError(t, os.Chmod(writable, 0o777))
	require.NoError(t, os.Symlink(filepath.Join(writable, "p"), filepath.Join(empty, "q")))
	openFile := script(t, "p", `exit 0`)
	require.NoError(t, os.Chmod(filepath.Join(openFile, "p"), 0o775))
	foreign := script(t, "p", `exit 0`)
	require.NoError(t, os.Chown(filepath.Join(foreign, "p"), 1000, 1000))
	foreignDir := script(t, "p", `exit 0`)
	require.NoError(t, os.Chown(foreignDir, 1000, 1000))
	plain := script(t, "p", `exit 0`)
	require.NoError(t, os.Chmod(filepath.Join(plain, "p"), 0o644))
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "p"), 0o755))
	for name, c := range map[string]struct{ typ, dir, words string }{
		"missing":            {"p", t.TempDir(), `"p" is in none of`},
		"path as type":       {"../p", good, "plain file name"},
		"parent":             {"..", good, "plain file name"},
		"writable directory": {"p", writable, "written by others"},
		"symlink out of it":  {"q", empty, "written by others"},
		"writable file":      {"p", openFile, "written by others"},
		"file of another":    {"p", foreign, "belong to root"},
		"folder of another":  {"p", foreignDir, "belong to root"},
		"not executable":     {"p", plain, "not an executable"},
		"a directory":        {"p", folder, "not an executable"},
	} {
		// the first hit decides, so a good one later does not help
		err := try(c.typ, c.dir)
		require.ErrorContains(t, err, c.words, name)
		require.Equal(t, core.CodeConfig, core.CodeOf(err), name)
		if name != "missing" {
			require.Error(t, try(c.typ, c.dir, good), name)
		}
	}
	s := spec(id, call(t, testConf, 0, empty))
	require.ErrorContains(t, exec.New(nil).Detach(t.Context(), driver.Run{}, s), `"p"`, "DEL names the missing plugin")
}

// The process is on record before it gets its configuration; a plugin whose
// record failed has done nothing.
func TestProcessIsRecordedBeforeItActs(t *testing.T) {
	out := filepath.Join(t.TempDir(), "did")
	body := `conf=$(cat); [ -n "$conf" ] && echo "$conf" >` + out + `; echo '{"cniVersion":"1.0.0"}'`
	s := scripted(t, body)
	var got []core.Proc
	no := errors.New("disk full")
	run := driver.Run{Report: func(_ context.Context, p core.Proc) error {
		require.NoFileExists(t, out)
		require.NoError(t, syscall.Kill(p.PGID, 0))
		require.NotZero(t, p.StartTime)
		got = append(got, p)
		return no
	}}
	_, err := exec.New(nil).Attach(t.Context(), run, s)
	require.ErrorIs(t, err, no)
	require.Len(t, got, 1)
	// The script's own child is a zombie until init has reaped it.
	gone := func() bool { return errors.Is(syscall.Kill(-got[0].PGID, 0), syscall.ESRCH) }
	require.Eventually(t, gone, time.Minute, 5*time.Millisecond)
	require.NoFileExists(t, out)

	no = nil
	_, err = exec.New(nil).Attach(t.Context(), run, s)
	require.NoError(t, err)
	require.FileExists(t, out)
}

// An agent that dies between start and record leaves a plugin that reads an
// empty configuration and ends.
func TestUnfedPluginEnds(t *testing.T) {
	dir := upstreamDir(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	ns, id := pod(t)
	cmd := osexec.Command(filepath.Join(dir, "loopback"))
	cmd.Env = []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=c", "CNI_NETNS=" + id.Path, "CNI_IFNAME=lo", "CNI_PATH=" + dir}
	cmd.Stdin = r
	require.NoError(t, cmd.Start())
	require.NoError(t, r.Close())
	require.NoError(t, w.Close())
	require.Error(t, cmd.Wait())
	require.NotContains(t, ip(t, ns, "link", "show", "lo"), "UP")
}

func TestCancelKillsTheWholeGroup(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	s := scripted(t, `sleep 1000 & echo $$ $! >`+pids+`.new; mv `+pids+`.new `+pids+`; wait`)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("DEL came")
	go func() {
		for {
			if _, err := os.Stat(pids); err == nil {
				cancel(why)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	_, err := exec.New(nil).Attach(ctx, driver.Run{}, s)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, why)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	raw, err := os.ReadFile(pids)
	require.NoError(t, err)
	for _, f := range strings.Fields(string(raw)) {
		gone(t, f)
	}
}

// gone waits until a process cannot act any more.
func gone(t *testing.T, pid string) {
	t.Helper()
	require.Eventually(t, func() bool {
		raw, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(raw), ") Z ")
	}, time.Minute, 5*time.Millisecond)
}

// A plugin may leave a daemon that holds its output; the answer counts.
func TestLingeringHelperDoesNotBlock(t *testing.T) {
	s := scripted(t, `sleep 300 & echo $! >$CNI_PATH/pid; echo '{"cniVersion":"1.0.0"}'`)
	_, err := exec.New(nil).Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	raw, err := os.ReadFile(filepath.Join(s.Exec.Path[0], "pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL), "it lives on")
}

func TestAttachWithoutPluginOrNamespace(t *testing.T) {
	s := scripted(t, `exit 0`)
	none := s
	none.Exec = nil
	_, err := exec.New(nil).Attach(t.Context(), driver.Run{}, none)
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	require.Error(t, exec.New(nil).Check(t.Context(), driver.Run{}, none, core.Link{}))
	require.Error(t, exec.New(nil).Detach(t.Context(), driver.Run{}, none))
	netnstest.Unbind(t, s.Netns.Path)
	_, err = exec.New(nil).Attach(t.Context(), driver.Run{}, s)
	require.ErrorIs(t, err, core.ErrNetnsGone)
}
