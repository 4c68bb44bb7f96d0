// Package sched is how the kernel schedules this process: before others (First),
// and with a Go runtime whose monitor thread rests while there is little to do
// (Pace). Nothing in a program depends on either but its speed.
package sched

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// alone is the slack with at most one call: a processor that a call in the
	// kernel blocks is free for others after that at the latest.
	alone = 4 * time.Millisecond
	// busy is what Linux gives every thread.
	busy = 50 * time.Microsecond
)

// Pace has the runtime's monitor (sysmon) rest while the process serves one call
// at a time. The thread wakes every 20 us as long as anything runs, 40 times in a
// call of 3 ms, to see whether a thread that is blocked in the kernel keeps others
// from a processor. With one call there are hardly others; its waking is a
// twentieth of the call's processor time. With several it is needed: their rate
// falls by as much when it comes late. The thread's timer slack (timerslack_ns of
// proc(5)) says by how much the kernel may wake it later.
//
// Its methods may be called from many goroutines; those of nil do nothing.
type Pace struct {
	thread *os.File // timerslack_ns of the monitor
	calls  atomic.Int64

	mu    sync.Mutex
	slack time.Duration
}

// NewPace finds the monitor. It is an error where /proc or the right to set another
// thread's slack (CAP_SYS_NICE) is missing.
func NewPace() (*Pace, error) {
	tid, err := monitor()
	if err != nil {
		return nil, fmt.Errorf("find the runtime's monitor thread: %w", err)
	}
	f, err := os.OpenFile("/proc/"+strconv.Itoa(tid)+"/timerslack_ns", os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	p := &Pace{thread: f}
	if err := p.set(); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("set the timer slack of the runtime's monitor thread: %w", err)
	}
	return p, nil
}

// monitor is the first thread that the process started: the runtime does
// nothing before (runtime.main).
func monitor() (tid int, err error) {
	tids, err := threads()
	if err != nil {
		return 0, err
	}
	if len(tids) < 2 || tids[0] != os.Getpid() {
		return 0, fmt.Errorf("/proc/self/task lists %v", tids)
	}
	return tids[1], nil
}

// Begin is the start of a call.
func (p *Pace) Begin() {
	if p != nil && p.calls.Add(1) == 2 {
		_ = p.set() // it could be set before
	}
}

// End is the end of a call.
func (p *Pace) End() {
	if p != nil && p.calls.Add(-1) == 0 {
		_ = p.set()
	}
}

// set makes the slack what the present number of calls asks for.
func (p *Pace) set() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	want := alone
	if p.calls.Load() > 1 {
		want = busy
	}
	if want == p.slack {
		return nil
	}
	_, err := p.thread.Write(strconv.AppendInt(nil, int64(want), 10))
	if err == nil {
		p.slack = want
	}
	return err
}
