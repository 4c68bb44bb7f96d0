package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait of the harness. It decides how late a failure is
// seen, never whether a test passes.
const patience = 90 * time.Second

// tick is the pause between two looks at something that gives no event.
const tick = 50 * time.Millisecond

// limited bounds what has no end of its own.
func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// until repeats look until it returns nil; after patience it returns the last
// error. final errors end the wait at once.
func until(ctx context.Context, what string, look func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := look()
		if err == nil || errors.Is(err, errFinal) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s: %w", what, patience, err)
		case <-time.After(tick):
		}
	}
}

// errFinal marks what no waiting mends.
var errFinal = errors.New("no use to wait")

// process is a daemon, known by its pid alone.
type process struct {
	name string
	log  string // path of its output
	cmd  *exec.Cmd
	done chan struct{} // closed once it was reaped
}

// lean has a command use one processor: on machines of two cores, threads of
// Go that wait for work of others cost a third of what such a program computes.
func lean(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	return cmd
}

// nursery runs functions on one thread that lives as long as this process. The
// kernel sends a child its parent-death signal when the thread that made it
// ends, and Go's threads come and go: only here the signal means the process.
var nursery = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// start runs cmd as a daemon with its output in a file, appended. It dies with
// this process, even by SIGKILL or a test's timeout.
func start(name, log string, cmd *exec.Cmd) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // Ctrl-C is for this process, which ends them in order
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p := &process{name: name, log: log, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	nursery() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // ProcessState holds the outcome
		close(p.done)
	}()
	return p, nil
}

// ended returns an error that holds the end of the log, or nil for a process
// that runs.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%w: %s ended: %s:\n%s", errFinal, p.name, p.cmd.ProcessState, p.tail())
	default:
		return nil
	}
}

// signal sends a signal to this very process. SIGSTOP has taken effect on its
// return: before that a thread may still answer somebody.
func (p *process) signal(s syscall.Signal) error {
	err := p.cmd.Process.Signal(s)
	if err == nil && s == syscall.SIGSTOP {
		err = unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
	}
	if err != nil {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// kill ends the process and waits until it is gone. SIGKILL ends a stopped one
// too; killing a dead one is nothing.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop asks the process to end and waits; after patience it is killed, which
// is an error.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error: it has ended
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		p.kill()
		return fmt.Errorf("%s did not end on SIGTERM:\n%s", p.name, p.tail())
	}
}

// tail is the end of the log.
func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 12 << 10 // bytes
	if len(b) > most {
		b = b[len(b)-most:]
		b = b[bytes.IndexByte(b, '\n')+1:]
	}
	return string(b)
}

// mentioning lists processes whose command line contains text: what was
// started for a cluster names the cluster's folder.
func mentioning(text string) []string {
	var out []string
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, d := range dirs {
		args, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if err == nil && bytes.Contains(args, []byte(text)) && filepath.Base(d) != strconv.Itoa(os.Getpid()) {
			out = append(out, fmt.Sprintf("pid %s: %s", filepath.Base(d), bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
		}
	}
	return out
}
