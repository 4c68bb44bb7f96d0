package nodeup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/usage"
	"github.com/fairlead/fairlead/internal/up"
)

// detachedLog is where the log of a process without a terminal goes.
const detachedLog = "/var/log/fairlead-up.log"

// args are the flags for another process that does the same.
func (o *options) args() []string {
	out := []string{"up"}
	for _, name := range slices.Sorted(maps.Keys(o.changed)) {
		for _, v := range o.changed[name] {
			out = append(out, "--"+name+"="+v)
		}
	}
	return out
}

// detach starts a process of its own, unless one has the folder up already, and
// waits for the pods.
func (o *options) detach(cmd *cobra.Command) error {
	limit, err := cmd.Flags().GetDuration("timeout")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	rt, r, err := o.preflight(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "runtime:", rt)
	lock, err := up.TakeLock(o.stateDir, 0)
	running := (*up.RunningError)(nil)
	if err != nil && !errors.As(err, &running) {
		return err
	}
	ended := make(<-chan error)
	if running != nil {
		if r != nil && len(r.Flags["log-file"]) > 0 {
			o.logFile = r.Flags["log-file"][0]
		}
	} else {
		lock.Release()
		if o.logFile == "" {
			o.logFile, o.changed["log-file"] = detachedLog, []string{detachedLog}
		}
		if ended, err = o.spawn(); err != nil {
			return err
		}
	}
	return o.await(ctx, cmd, ended)
}

// spawn starts the process; the channel gets its end.
func (o *options) spawn() (<-chan error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(o.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
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
func (o *options) await(ctx context.Context, cmd *cobra.Command, ended <-chan error) error {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case err := <-ended:
			stop(fmt.Errorf("it ended (%w): %s", cmp.Or(err, errEnded), o.lastLine()))
		case <-waiting.Done():
		}
	}()
	look := o.looker()
	sight, err := look.Wait(waiting)
	if cause := context.Cause(waiting); cause != nil && ctx.Err() == nil {
		return usage.Hint(cause, o.logHint())
	}
	if err != nil {
		return usage.Hint(fmt.Errorf("nothing is known of the pods yet: %w; the log's last line: %s", err, o.lastLine()), o.logHint())
	}
	if err := sight.Print(cmd.OutOrStdout()); err != nil {
		return err
	}
	var why []string
	for _, r := range sight.Missing() {
		why = append(why, r.Name+": "+r.Why)
	}
	if why = append(why, sight.Problems...); len(why) > 0 {
		return usage.Hint(fmt.Errorf("not all is up: %s", strings.Join(why, "; ")), "it is tried on; `fairlead describe pod NAME` tells more, and `fairlead up --detach` waits again")
	}
	return nil
}

// errEnded is the end of a process that should go on.
var errEnded = errors.New("without an error")

func (o *options) logHint() string {
	if o.logFile == "" {
		return "its log is where `fairlead up` was started"
	}
	return "its log is " + o.logFile
}

// lastLine is what the process said last; its error comes before all others.
func (o *options) lastLine() string {
	text, err := os.ReadFile(o.logFile)
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
func (o *options) unit(self string) string {
	args := append([]string{self}, o.args()...)
	for i, a := range args {
		args[i] = systemdWord(a)
	}
	return `[Unit]
Description=Fairlead: the pods of ` + strings.ReplaceAll(o.dir, "%", "%%") + `
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

// install writes the unit and starts it where systemd runs.
func (o *options) install(cmd *cobra.Command) error {
	if _, _, err := o.preflight(cmd.Context()); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.WriteFile(unitFile, []byte(o.unit(self)), 0o644); err != nil {
		return fmt.Errorf("--install: %w", err)
	}
	_, _ = fmt.Fprintln(cmd.OutOrStdout(), "written", unitFile)
	if booted() { // the service takes over from a process that runs; pods do not notice
		lock, err := up.Stop(cmd.Context(), o.stateDir)
		if err != nil {
			return err
		}
		lock.Release()
	}
	return systemctl(cmd, []string{"daemon-reload"}, []string{"enable", unitName}, []string{"restart", unitName})
}

// booted tells that systemd runs this machine (sd_booted(3)).
func booted() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}

// systemctl runs the calls, or says them where systemd does not run.
func systemctl(cmd *cobra.Command, calls ...[]string) error {
	if !booted() {
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), "systemd does not run here; where it does:")
		for _, c := range calls {
			_, _ = fmt.Fprintln(cmd.OutOrStdout(), "  systemctl", strings.Join(c, " "))
		}
		return nil
	}
	for _, c := range calls {
		ctx, cancel := context.WithTimeout(cmd.Context(), systemdLimit)
		out, err := exec.CommandContext(ctx, "systemctl", c...).CombinedOutput()
		cancel()
		if err != nil {
			return usage.Hint(fmt.Errorf("systemctl %s: %w: %s", strings.Join(c, " "), err, strings.TrimSpace(string(out))), "`journalctl -u "+unitName+"` tells why")
		}
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), "systemctl", strings.Join(c, " "))
	}
	return nil
}

// systemdLimit bounds one call: the unit itself may take TimeoutStartSec.
const systemdLimit = 6 * time.Minute
