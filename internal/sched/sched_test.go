package sched

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// slacks are those of all threads, in their order.
func slacks(t *testing.T) (all []time.Duration) {
	t.Helper()
	tids, err := threads()
	require.NoError(t, err)
	for _, tid := range tids {
		b, err := os.ReadFile(slackFile(tid))
		require.NoError(t, err)
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		require.NoError(t, err)
		all = append(all, time.Duration(n))
	}
	return all
}

func TestPaceFollowsTheCalls(t *testing.T) {
	p, err := NewPace()
	require.NoError(t, err)
	require.Equal(t, usual, slacks(t)[1])
	for _, step := range []struct {
		do   func()
		want time.Duration
	}{
		{p.Begin, alone},
		{p.Begin, usual},
		{p.Begin, usual},
		{p.End, usual},
		{p.End, usual}, // the next one may come at once
		{p.Begin, usual},
		{p.End, usual},
		{p.End, usual},
		{p.Begin, alone},
		{p.End, usual},
	} {
		step.do()
		require.Equal(t, step.want, slacks(t)[1])
	}
	(*Pace)(nil).Begin()
	(*Pace)(nil).End()
}

// Threads that the monitor starts while it rests do not keep its slack.
func TestOnlyTheMonitorRests(t *testing.T) {
	p, err := NewPace()
	require.NoError(t, err)
	p.Begin()
	var sleepers sync.WaitGroup
	for range 20 { // each keeps a processor until the monitor gives it to another thread
		sleepers.Go(func() { _ = syscall.Nanosleep(&syscall.Timespec{Nsec: 5e7}, nil) })
	}
	sleepers.Wait()
	p.End()
	for _, slack := range slacks(t) {
		require.Equal(t, usual, slack)
	}
}

// The thread is the monitor: while anything runs it is found asleep. Others wait
// on a futex or for events.
func TestThreadIsTheMonitor(t *testing.T) {
	p, err := NewPace()
	require.NoError(t, err)
	call := strings.Replace(p.monitor.Name(), "timerslack_ns", "syscall", 1)
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
			require.Equal(t, os.Getenv("FAIRLEAD_TEST_NICE"), strconv.Itoa(niceOf(t, tid)))
		}
		return
	}
	for given, want := range map[int]int{0: -10, 5: 5, -3: -3} {
		more := strconv.Itoa(given - niceOf(t, os.Getpid())) // nice(1) adds
		cmd := exec.Command("nice", "-n", more, os.Args[0], "-test.run=^TestFirst$")
		cmd.Env = append(os.Environ(), "FAIRLEAD_TEST_NICE="+strconv.Itoa(want))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

func niceOf(t *testing.T, tid int) int {
	t.Helper()
	have, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	require.NoError(t, err)
	return 20 - have
}
