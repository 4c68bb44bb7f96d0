package exec

import (
	"bufio"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// plugin is a process group: a leader and a child, each with its pid.
type plugin struct {
	cmd    *exec.Cmd
	child  int
	record core.Proc
}

// spawn starts a shell that starts a sleeper and waits for it.
func spawn(t *testing.T, env ...string) *plugin {
	t.Helper()
	return spawnChild(t, "sleep 1000", env...)
}

// spawnChild is spawn with another child.
func spawnChild(t *testing.T, child string, env ...string) *plugin {
	t.Helper()
	cmd := exec.Command("sh", "-c", child+" & echo $!; wait")
	cmd.Env = append([]string{"PATH=" + searchPath}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	st, err := readStat(cmd.Process.Pid)
	require.NoError(t, err)
	p := &plugin{cmd, pid, core.Proc{PGID: cmd.Process.Pid, StartTime: st.start}}
	t.Cleanup(func() {
		if alive(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return p
}

func alive(pid int) bool {
	st, err := readStat(pid)
	return err == nil && !st.dead
}

// behead kills and reaps the leader only.
func (p *plugin) behead(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	require.True(t, alive(p.child))
}

func TestKill(t *testing.T) {
	p := spawn(t, "CNI_COMMAND=ADD")
	require.NoError(t, New(nil).Kill(p.record))
	require.False(t, alive(p.child))
	require.False(t, alive(p.record.PGID))
	require.NoError(t, New(nil).Kill(p.record), "gone is success")
	_ = p.cmd.Wait()
	require.NoError(t, New(nil).Kill(p.record))
}

func TestKillGroupFindsTheRestOfADeadLeader(t *testing.T) {
	p := spawn(t, "CNI_COMMAND=ADD")
	p.behead(t)
	require.NoError(t, New(nil).Kill(p.record))
	require.False(t, alive(p.child))
}

// A process in the middle of execve(2) shows no environment: here it has none
// for a while, and then that of a CNI call.
func TestKillGroupWaitsForAnEnvironment(t *testing.T) {
	p := spawnChild(t, "exec env -i sh -c 'sleep 0.1; CNI_COMMAND=ADD exec sleep 1000'", "CNI_COMMAND=ADD")
	require.Eventually(t, func() bool {
		_, known, err := calledByCNI(p.child)
		return err == nil && !known
	}, time.Minute, time.Millisecond)
	p.behead(t)
	require.NoError(t, New(nil).Kill(p.record))
	require.False(t, alive(p.child))
}

func TestKillGroupSparesStrangers(t *testing.T) {
	later := spawn(t, "CNI_COMMAND=ADD")
	record := later.record
	record.StartTime-- // a leader of that number that started before
	require.NoError(t, New(nil).Kill(record))
	require.True(t, alive(later.child))
	require.True(t, alive(later.record.PGID))

	leaderless := spawn(t) // no CNI call
	leaderless.behead(t)
	require.NoError(t, New(nil).Kill(leaderless.record))
	require.True(t, alive(leaderless.child))

	old := spawn(t, "CNI_COMMAND=ADD")
	old.behead(t)
	record = old.record
	record.StartTime += 1 << 40 // recorded after they began
	require.NoError(t, New(nil).Kill(record))
	require.True(t, alive(old.child))

	for _, pgid := range []int{-1, 0, 1} {
		require.Error(t, New(nil).Kill(core.Proc{PGID: pgid}))
	}
}

func TestParseStat(t *testing.T) {
	line := "42 (a) b (c)) Z 1 77 42 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 123456 0 0"
	st, err := parseStat(line)
	require.NoError(t, err)
	require.Equal(t, stat{dead: true, pgrp: 77, start: 123456}, st)
	for _, bad := range []string{"", "42 (x)", "1 (x) S a b", strings.Replace(line, "123456", "x", 1)} {
		_, err := parseStat(bad)
		require.Error(t, err, bad)
	}
}
