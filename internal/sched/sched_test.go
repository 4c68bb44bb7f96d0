package sched

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func slackOf(t *testing.T, p *Pace) time.Duration {
	t.Helper()
	b, err := os.ReadFile(p.thread.Name())
	require.NoError(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	require.NoError(t, err)
	return time.Duration(n)
}

func TestPaceFollowsTheCalls(t *testing.T) {
	p, err := NewPace()
	require.NoError(t, err)
	require.Equal(t, alone, slackOf(t, p))
	for _, step := range []struct {
		do   func()
		want time.Duration
	}{
		{p.Begin, alone},
		{p.Begin, busy},
		{p.Begin, busy},
		{p.End, busy},
		{p.End, busy}, // the next one may come at once
		{p.Begin, busy},
		{p.End, busy},
		{p.End, alone},
		{p.Begin, alone},
		{p.End, alone},
	} {
		step.do()
		require.Equal(t, step.want, slackOf(t, p))
	}
	(*Pace)(nil).Begin()
	(*Pace)(nil).End()
}

// The thread is the monitor: while anything runs it is found asleep. Others wait
// on a futex or for events.
func TestThreadIsTheMonitor(t *testing.T) {
	p, err := NewPace()
	require.NoError(t, err)
	call := strings.Replace(p.thread.Name(), "timerslack_ns", "syscall", 1)
	found := map[string]int{}
	for n := 0; n < 50; {
		b, err := os.ReadFile(call)
		require.NoError(t, err)
		if number, _, ok := strings.Cut(string(b), " "); ok { // else it says "running"
			found[number]++
			n++
		}
	}
	require.Greater(t, found[strconv.Itoa(syscall.SYS_NANOSLEEP)], 40, "system calls by number: %v", found)
}

func TestFirst(t *testing.T) {
	if os.Getenv("FAIRLEAD_TEST_NICE") != "" { // below
		require.NoError(t, First())
		tids, err := threads()
		require.NoError(t, err)
		for _, tid := range tids {
			have, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
			require.NoError(t, err)
			require.Equal(t, os.Getenv("FAIRLEAD_TEST_NICE"), strconv.Itoa(20-have))
		}
		return
	}
	for given, want := range map[string]string{"0": "-10", "5": "5", "-3": "-3"} {
		cmd := exec.Command("nice", "-n", given, os.Args[0], "-test.run=^TestFirst$")
		cmd.Env = append(os.Environ(), "FAIRLEAD_TEST_NICE="+want)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
