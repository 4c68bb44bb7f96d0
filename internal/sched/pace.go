// Package sched is how the kernel schedules this process: before others (First),
// and with a Go runtime whose monitor thread rests in a call that is alone
// (Pace). Nothing in a program depends on either but its speed.
package sched

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// alone is the monitor's timer slack while one call is served.
	alone = 4 * time.Millisecond
	// usual is what Linux gives every thread.
	usual = 50 * time.Microsecond

	tasks = "/proc/self/task"
)

// Pace has the runtime's monitor (sysmon) rest while the process serves exactly
// one call. The thread wakes every 20 us as long as anything runs, 40 times in a
// call of 3 ms, to see whether a thread that is blocked in the kernel keeps
// others from a processor. A call that is alone has hardly others; the waking is
// a twentieth of its processor time. With several calls it is needed: fewer of
// them end in a second when it comes late. The thread's timer slack
// (timerslack_ns of proc(5)) says by how much the kernel may wake it later.
//
// Its methods may be called from many goroutines; those of nil do nothing.
type Pace struct {
	monitor *os.File // its timerslack_ns
	calls   atomic.Int64

	mu      sync.Mutex
	slack   time.Duration
	threads int // how many there were when all of them had the usual slack
}

// NewPace finds the monitor. It is an error where /proc or the right to set
// another thread's slack (CAP_SYS_NICE) is missing, and with one processor, which
// a call in the kernel would keep from everything else.
func NewPace() (*Pace, error) {
	if runtime.GOMAXPROCS(0) == 1 {
		return nil, errors.New("there is one processor only")
	}
	tids, err := threads()
	if err != nil {
		return nil, err
	}
	// The first thread that the process started: the runtime does nothing before
	// (runtime.main).
	if len(tids) < 2 || tids[0] != os.Getpid() {
		return nil, fmt.Errorf("%s lists %v, not the runtime's monitor", tasks, tids)
	}
	f, err := openSlack(tids[1])
	if err != nil {
		return nil, err
	}
	if err := write(f, usual); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("timer slack of another thread: %w", err)
	}
	return &Pace{monitor: f, slack: usual}, nil
}

func openSlack(tid int) (*os.File, error) { return os.OpenFile(slackFile(tid), os.O_WRONLY, 0) }

func slackFile(tid int) string { return "/proc/" + strconv.Itoa(tid) + "/timerslack_ns" }

func write(f *os.File, slack time.Duration) error {
	_, err := f.Write(strconv.AppendInt(nil, int64(slack), 10))
	return err
}

// Begin is the start of a call.
func (p *Pace) Begin() {
	if p != nil && p.calls.Add(1) <= 2 {
		p.set()
	}
}

// End is the end of a call.
func (p *Pace) End() {
	if p != nil && p.calls.Add(-1) == 0 {
		p.set()
	}
}

// set makes the slack what the present number of calls asks for. It could be set
// before; where it cannot be now, the call is slower or dearer, and no more.
func (p *Pace) set() {
	p.mu.Lock()
	defer p.mu.Unlock()
	want, calls := usual, p.calls.Load()
	if calls == 1 {
		want = alone
	}
	if want != p.slack && write(p.monitor, want) == nil {
		p.slack = want
	}
	if calls == 0 {
		p.mend()
	}
}

// mend gives all threads the usual slack: the monitor starts some, too, and a
// thread begins with the slack of the one that starts it.
func (p *Pace) mend() {
	var st syscall.Stat_t
	if syscall.Stat(tasks, &st) != nil || int(st.Nlink) == p.threads {
		return
	}
	tids, err := threads()
	if err != nil {
		return
	}
	for _, tid := range tids {
		if f, err := openSlack(tid); err == nil { // else it has ended
			_ = write(f, usual)
			_ = f.Close()
		}
	}
	p.threads = int(st.Nlink)
}
