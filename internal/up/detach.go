package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/internal/lib/hint"
)

// detachedLog is where the log of a process without a terminal goes.
const detachedLog = "/var/log/fairlead-up.log"

// args are the flags for another process that does the same.
func (o *Config) args() []string {
	out := []string{"up"}
	for _, name := range slices.Sorted(maps.Keys(o.Given)) {
		for _, v := range o.Given[name] {
			out = append(out, "--"+name+"="+v)
		}
	}
	return out
}

// Detach starts a process of its own, unless one has the folder up already, and
// waits for the pods.
func (o *Config) Detach(ctx context.Context, out, errOut io.Writer) error {
	rt, r, err := o.preflight(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(errOut, "runtime:", rt)
	lock, err := TakeLock(o.StateDir, 0)
	running := (*RunningError)(nil)
	if err != nil && !errors.As(err, &running) {
		return err
	}
	ended := make(<-chan error)
	if running != nil {
		if r != nil && len(r.Flags["log-file"]) > 0 {
			o.LogFile = r.Flags["log-file"][0]
		}
	} else {
		lock.Release()
		if o.LogFile == "" {
			o.LogFile, o.Given["log-file"] = detachedLog, []string{detachedLog}
		}
		if ended, err = o.spawn(); err != nil {
			return err
		}
	}
	return o.await(ctx, out, ended)
}

// spawn starts the process; the channel gets its end.
func (o *Config) spawn() (<-chan error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(o.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("--log-file: %w", err)
	}
	defer log.Close()
	child := exec.Command(self, o.args()...) //nolint:noctx // it outlives this command
	child.Stderr = log
	child.Dir = "/"
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("start the process: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	return ended, nil
}

// await waits until all pods are up and shows them; of those that are not it
// says why.
func (o *Config) await(ctx context.Context, out io.Writer, ended <-chan error) error {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case err := <-ended:
			stop(fmt.Errorf("it ended (%w): %s", cmp.Or(err, errQuiet), o.lastLine()))
		case <-waiting.Done():
		}
	}()
	look := o.looker()
	sight, err := look.Wait(waiting)
	if cause := context.Cause(waiting); cause != nil && ctx.Err() == nil {
		return hint.On(cause, o.logHint())
	}
	if err != nil {
		return hint.On(fmt.Errorf("nothing is known of the pods yet: %w; the log's last line: %s", err, o.lastLine()), o.logHint())
	}
	if err := sight.Print(out); err != nil {
		return err
	}
	var why []string
	for _, r := range sight.Missing() {
		why = append(why, r.Name+": "+r.Why)
	}
	if why = append(why, sight.Problems...); len(why) > 0 {
		return hint.On(fmt.Errorf("not all is up: %s", strings.Join(why, "; ")), "it is tried on; `fairlead describe pod NAME` tells more, and `fairlead up --detach` waits again")
	}
	return nil
}

// errQuiet is the end of a process that should go on.
var errQuiet = errors.New("without an error")

func (o *Config) logHint() string {
	if o.LogFile == "" {
		return "its log is where `fairlead up` was started"
	}
	return "its log is " + o.LogFile
}

// lastLine is what the process said last; its error comes before all others.
func (o *Config) lastLine() string {
	text, err := os.ReadFile(o.LogFile)
	if err != nil {
		return "not known"
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, l := range slices.Backward(lines) {
		if strings.HasPrefix(l, "fairlead: ") {
			return strings.Join(lines[i:], " ")
		}
	}
	return lines[len(lines)-1]
}

// unitName of the systemd service that `up --install` makes.
const (
	unitName = "fairlead-up.service"
	unitFile = "/etc/systemd/system/" + unitName
)

// unit is the service that runs the folder at every boot.
func (o *Config) unit(self string) string {
	args := append([]string{self}, o.args()...)
	for i, a := range args {
		args[i] = systemdWord(a)
	}
	return `[Unit]
Description=Fairlead: the pods of ` + strings.ReplaceAll(o.Dir, "%", "%%") + `
Documentation=https://github.com/fairlead/fairlead
Wants=openvswitch-switch.service network-online.target
After=openvswitch-switch.service containerd.service docker.service network-online.target
# One agent; this one is a part of it.
Conflicts=fairlead.service

[Service]
Type=notify
ExecStart=` + strings.Join(args, " ") + `
# Pods do not notice a crash, nor a restart.
Restart=on-failure
RestartSec=2
KillMode=mixed
TimeoutStartSec=300
TimeoutStopSec=60
RuntimeDirectory=fairlead
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes
LimitNOFILE=65536
OOMScoreAdjust=-999
# Every pod that starts waits for it. Between services their weights count, and
# nice values on a kernel without groups of processes.
CPUWeight=500
Nice=-10

[Install]
WantedBy=multi-user.target
`
}

// systemdWord quotes an argument (systemd.service(5), "Command lines").
func systemdWord(s string) string {
	s = strings.NewReplacer("%", "%%", "$", "$$", `\`, `\\`, `"`, `\"`).Replace(s)
	if strings.ContainsAny(s, " \t'\"\\;") || s == "" {
		return `"` + s + `"`
	}
	return s
}

// Install writes the unit and starts it where systemd runs.
func (o *Config) Install(ctx context.Context, out io.Writer) error {
	if _, _, err := o.preflight(ctx); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.WriteFile(unitFile, []byte(o.unit(self)), 0o644); err != nil {
		return fmt.Errorf("--install: %w", err)
	}
	_, _ = fmt.Fprintln(out, "written", unitFile)
	if booted() { // the service takes over from a process that runs; pods do not notice
		lock, err := Stop(ctx, o.StateDir)
		if err != nil {
			return err
		}
		lock.Release()
	}
	return systemctl(ctx, out, []string{"daemon-reload"}, []string{"enable", unitName}, []string{"restart", unitName})
}

// booted tells that systemd runs this machine (sd_booted(3)).
func booted() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}

// systemctl runs the calls, or says them where systemd does not run.
func systemctl(ctx context.Context, out io.Writer, calls ...[]string) error {
	if !booted() {
		_, _ = fmt.Fprintln(out, "systemd does not run here; where it does:")
		for _, c := range calls {
			_, _ = fmt.Fprintln(out, "  systemctl", strings.Join(c, " "))
		}
		return nil
	}
	for _, c := range calls {
		limited, cancel := context.WithTimeout(ctx, systemdLimit)
		said, err := exec.CommandContext(limited, "systemctl", c...).CombinedOutput()
		cancel()
		if err != nil {
			return hint.On(fmt.Errorf("systemctl %s: %w: %s", strings.Join(c, " "), err, strings.TrimSpace(string(said))), "`journalctl -u "+unitName+"` tells why")
		}
		_, _ = fmt.Fprintln(out, "systemctl", strings.Join(c, " "))
	}
	return nil
}

// systemdLimit bounds one call: the unit itself may take TimeoutStartSec.
const systemdLimit = 6 * time.Minute
