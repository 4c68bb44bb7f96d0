package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

const (
	maxOutput = 1 << 20 // bytes of standard output
	maxStderr = 4 << 10 // bytes kept of standard error, the last ones
	// searchPath is the plugin's PATH: the agent's own is not handed on.
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// lingering is how long a plugin's output stays open for helpers that it
	// left running and that hold it.
	lingering = time.Second
	busyTries = 10
	busyPause = 50 * time.Millisecond
)

var errTooMuch = errors.New("more than 1 MiB of output")

// invocation is one execution of a plugin.
type invocation struct {
	run     driver.Run // of the operation
	exec    core.Exec
	command core.Op
	key     core.Key
	netns   core.Netns // the zero value where the namespace is gone
	prev    json.RawMessage
	// prepare, if any, runs when the plugin is on record and before it has its
	// configuration.
	prepare func() error
	// saw, if any, is told the MTU of the pod's interface by a Plugin that knows.
	saw   func(mtu int)
	alone []netip.Addr // as in driver.PluginCall
	// nested: for another plugin, which adds its own heading to an answer.
	nested bool
	// usual is exec.Conf without what only this attachment has, where that is
	// not exec.Conf itself.
	usual json.RawMessage
}

// way is how an invocation goes: inside the agent, or by the program where
// plugin is nil.
type way struct {
	plugin driver.Plugin
	conf   json.RawMessage // with prevResult
}

func (d *Driver) way(v invocation) (way, error) {
	conf, err := cniconf.WithPrev(v.exec.Conf, v.prev)
	if err != nil {
		return way{}, err
	}
	usual := v.usual
	if usual == nil {
		usual = v.exec.Conf
	}
	return way{conf: conf, plugin: d.inside(v.exec.Type, v.exec.Path, usual, v.command == core.GC)}, nil
}

// call carries the invocation out and returns the plugin's standard output.
func (d *Driver) call(ctx context.Context, v invocation) ([]byte, error) {
	w, err := d.way(v)
	if err != nil {
		return nil, err
	}
	return d.carryOut(ctx, v, w)
}

func (d *Driver) carryOut(ctx context.Context, v invocation, w way) ([]byte, error) {
	if w.plugin != nil {
		return d.runInside(ctx, v, w.plugin, w.conf)
	}
	if err := v.declared(); err != nil {
		return nil, refusal(err)
	}
	return v.runProgram(ctx, w.conf)
}

// declared refuses an ADD by a program of settings that no program knows.
func (v invocation) declared() error {
	if v.command != core.Add || v.nested || !cniconf.HasSettings(v.exec.Conf) {
		return nil
	}
	return core.Reasoned(core.CodeValue, core.ReasonDriverCannot,
		"what is declared of interface %s needs the agent's own plugin %s, and the file of that name in %s is somebody's own, or has keys that the agent's own does not know",
		v.key.IfName, v.exec.Type, strings.Join(v.exec.Path, ", "))
}

// runProgram executes the plugin and returns its standard output. A CNI error that
// the plugin printed comes back with its own code, a death without words as
// code 5 with the last of its standard error.
func (v invocation) runProgram(ctx context.Context, conf json.RawMessage) (out []byte, err error) {
	done := v.run.Time.Step("exec." + v.exec.Type + "." + string(v.command))
	defer func() { done(err) }()
	path, err := find(v.exec.Type, v.exec.Path)
	if err != nil {
		return nil, refusal(err)
	}
	p := process{path: path, env: append(v.env(), callBack(v.run.Caller)...), report: v.report, prepare: v.prepare}
	if err := p.run(ctx, conf); err != nil {
		return nil, v.explain(err, &p)
	}
	return p.stdout.data.Bytes(), nil
}

// env is all that a plugin gets to see of the agent.
func (v invocation) env() []string {
	return []string{
		"CNI_COMMAND=" + string(v.command),
		"CNI_CONTAINERID=" + v.key.Container,
		"CNI_NETNS=" + v.netns.Path,
		"CNI_IFNAME=" + v.key.IfName,
		"CNI_ARGS=" + v.exec.Args,
		"CNI_PATH=" + strings.Join(v.exec.Path, ":"),
		"PATH=" + searchPath,
	}
}

// callBack is the part of the environment by which a plugin joins the operation
// that runs it (package api/cni).
func callBack(c driver.Caller) []string {
	if c == (driver.Caller{}) {
		return nil
	}
	env := []string{cni.EnvToken + "=" + c.Token}
	if c.Socket != "" {
		env = append(env, cni.EnvSocket+"="+c.Socket)
	}
	return env
}

// explain makes a CNI error of a failed run.
func (v invocation) explain(err error, p *process) error {
	exit, ended := errors.AsType[*exec.ExitError](err)
	if !ended {
		return core.WithCode(codeOr(err, core.CodeIO), v.heading(), err)
	}
	var said struct {
		Code         uint
		Msg, Details string
	}
	if json.Unmarshal(p.stdout.data.Bytes(), &said) == nil && (said.Code != 0 || said.Msg != "") {
		if said.Code == 0 {
			said.Code = core.CodeIO
		}
		return v.answered(&core.Error{Code: said.Code, Msg: said.Msg, Details: said.Details, Err: errPlugin})
	}
	return &core.Error{Code: core.CodeIO, Msg: v.heading() + " ended without an answer", Details: exit.Error() + ": " + p.lastWords(), Err: err}
}

func (v invocation) heading() string {
	if v.nested { // the other plugin's heading names the verb
		return fmt.Sprintf("plugin %q (network %q)", v.exec.Type, v.exec.Network)
	}
	return fmt.Sprintf("plugin %q (%s, network %q)", v.exec.Type, v.command, v.exec.Network)
}

// answered puts the heading on what a plugin answered.
func (v invocation) answered(e *core.Error) error {
	e.Err = &answer{core.Failure{Code: e.Code, Msg: e.Msg}, e.Err}
	if !v.nested {
		e.Msg = v.heading() + ": " + e.Msg
	}
	return e
}

// errPlugin marks an error that a plugin answered with, as against one to run it.
var errPlugin = errors.New("the plugin refused")

// codeOr is the code that err stands for, or code where it stands for none.
func codeOr(err error, code uint) uint {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return core.CodeTryAgain
	}
	return code
}

// process is a program under way.
type process struct {
	path    string
	env     []string
	report  func(ctx context.Context, pid int) error // nil: nobody keeps a record
	prepare func() error
	stdout  capped
	stderr  tail
}

// run starts the program, has it recorded, feeds it and waits for its end.
// When ctx ends first the whole process group is killed.
func (p *process) run(caller context.Context, stdin []byte) error {
	if caller.Err() != nil {
		return ended(caller)
	}
	ctx, stop := context.WithCancelCause(caller)
	defer stop(nil)
	p.stdout.full = func() { stop(errTooMuch) }
	cmd, in, err := p.start(ctx)
	if err != nil {
		return err
	}
	fail.Here("exec.started")
	if err = p.recorded(ctx, cmd.Process.Pid); err != nil {
		stop(err)
		_ = in.Close()
		_ = cmd.Wait() // it was killed unfed
		return err
	}
	_, werr := in.Write(stdin)
	_ = in.Close()
	fail.Here("exec.fed")
	err = cmd.Wait()
	fail.Here("exec.done")
	if caller.Err() != nil {
		return ended(caller)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // too much output
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended well; a helper of its still holds the output
	}
	if err == nil && werr != nil && !errors.Is(werr, syscall.EPIPE) {
		err = fmt.Errorf("write its configuration: %w", werr)
	}
	return err
}

// recorded does what comes before the program has its configuration.
func (p *process) recorded(ctx context.Context, pid int) error {
	if p.report != nil {
		if err := p.report(ctx, pid); err != nil {
			return err
		}
	}
	if p.prepare != nil {
		return p.prepare()
	}
	return nil
}

// ended is the cause for which ctx ended. errors.Is finds ctx.Err in it too.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

// start starts the program in a process group of its own, waiting for input.
// A binary that is just being installed ("text file busy") is tried again.
func (p *process) start(ctx context.Context) (*exec.Cmd, io.WriteCloser, error) {
	for try := 1; ; try++ {
		cmd := exec.CommandContext(ctx, p.path)
		cmd.Env, cmd.Dir = p.env, "/"
		cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.WaitDelay = lingering
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, nil, err
		}
		if err = cmd.Start(); err == nil {
			expendable(cmd.Process.Pid)
			return cmd, in, nil
		}
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			return nil, nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(busyPause):
		}
	}
}

// expendable has the kernel kill the plugin and not the agent when the memory
// of the group that both live in runs out: the agent serves all pods. Where
// that cannot be set, the larger of the two goes.
func expendable(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0)
}

// report hands the process group on to whoever keeps the record; pid is 0 where
// no process is needed.
func (v invocation) report(ctx context.Context, pid int) error {
	if v.run.Report == nil {
		return nil
	}
	proc := core.Proc{PGID: pid}
	if pid != 0 {
		st, err := readStat(pid)
		if err != nil {
			return fmt.Errorf("start time of the plugin: %w", err)
		}
		proc.StartTime = st.start
	}
	if err := v.run.Report(ctx, proc); err != nil {
		return fmt.Errorf("record the plugin's process: %w", err)
	}
	return nil
}

// lastWords is what the program said last, on one line.
func (p *process) lastWords() string {
	words := p.stderr.data
	if len(bytes.TrimSpace(words)) == 0 {
		words = p.stdout.data.Bytes()
		words = words[max(0, len(words)-maxStderr):]
	}
	lines := strings.FieldsFunc(strings.ToValidUTF8(string(words), "?"), func(r rune) bool { return r == '\n' || r == '\r' })
	lines = lines[max(0, len(lines)-5):]
	if len(lines) == 0 {
		return "it printed nothing"
	}
	return strings.Join(lines, " | ")
}

// capped keeps at most maxOutput bytes and calls full on the first too many.
type capped struct {
	data bytes.Buffer
	full func()
}

func (c *capped) Write(b []byte) (int, error) {
	if c.data.Len()+len(b) > maxOutput {
		c.full()
		return 0, errTooMuch
	}
	return c.data.Write(b)
}

// tail keeps the last maxStderr bytes.
type tail struct{ data []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.data = append(t.data, b...)
	t.data = t.data[max(0, len(t.data)-maxStderr):]
	return len(b), nil
}
