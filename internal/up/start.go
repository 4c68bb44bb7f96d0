package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	docker "github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/lib/hint"
)

// finder looks for runtimes as the flags say.
func (o *Config) finder() Finder {
	opts := []docker.Opt{docker.FromEnv}
	if o.DockerHost != "" {
		opts = append(opts, docker.WithHost(o.DockerHost))
	}
	return Finder{Docker: opts, Runc: func(ctx context.Context) error {
		if err := exec.CommandContext(ctx, "runc", "--version").Run(); err != nil {
			return fmt.Errorf("runc does not run: %w", err)
		}
		return nil
	}}
}

// find finds the runtime. The one that has the pods already counts more than
// `auto`.
func (o *Config) find(ctx context.Context, r *Record) (Runtime, error) {
	wish := o.Runtime
	if r != nil && wish == Auto {
		wish = r.Runtime
	}
	rt, err := o.finder().Find(ctx, wish)
	if err != nil {
		return rt, hint.On(err, o.runtimeHint(err, wish))
	}
	if len(o.BinDirs) == 0 {
		o.BinDirs = rt.BinDirs
	}
	if len(o.BinDirs) == 0 {
		o.BinDirs = []string{runtimes.DefaultBinDir}
	}
	for _, dir := range []string{rt.ConfDir, runtimes.DefaultConfDir} {
		if o.ConfDir == "" {
			o.ConfDir = dir
		}
	}
	if r != nil && r.Runtime != rt.Key() {
		return rt, hint.On(fmt.Errorf("pods of %s are up on %s", r.Dir, r.Runtime), "`fairlead down` removes them; then another runtime can have them")
	}
	return rt, nil
}

// runtimeHint says what to install or to start.
func (o *Config) runtimeHint(err error, wish string) string {
	none := errors.As(err, new(*NoRuntimeError))
	switch {
	case installed("dockerd") && (none || wish == Docker):
		return "start Docker (`systemctl start docker`), or name its socket with --docker-host"
	case installed("containerd") && (none || wish == Containerd):
		return "start containerd (`systemctl start containerd`) with its CRI plugin, and install runc"
	case none || wish == Docker:
		return "install Docker (`apt-get install docker.io`), or containerd (`apt-get install containerd runc`)"
	case wish == Containerd:
		return "install containerd (`apt-get install containerd runc`)"
	}
	return "start the runtime that serves it, or name another one with --runtime"
}

func installed(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// checkFolder wants the folder to be there: a misspelt one would end all pods.
func (o *Config) checkFolder() error {
	info, err := os.Stat(o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return hint.On(fmt.Errorf("--dir: there is no folder %s", o.Dir), "`mkdir -p "+o.Dir+"`, or name the folder with --dir")
	}
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	if !info.IsDir() {
		return hint.Usagef("--dir: %s is not a folder", o.Dir)
	}
	return nil
}

// checkSwitch dials Open vSwitch, so that its absence is told at once.
func (o *Config) checkSwitch() error {
	path, local := strings.CutPrefix(o.OVSDB, "unix:")
	if !local {
		return nil
	}
	err := dialUnix(path)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("open vSwitch does not answer at %s: %w", path, err)
	if !installed("ovs-vswitchd") {
		return hint.On(err, "install it (`apt-get install openvswitch-switch`)")
	}
	return hint.On(err, "start it (`systemctl start openvswitch-switch`), or name its database with --ovsdb")
}

// preflight finds out what can be known before anything is done.
func (o *Config) preflight(ctx context.Context) (Runtime, *Record, error) {
	if err := errors.Join(o.checkFolder(), o.checkSwitch()); err != nil {
		return Runtime{}, nil, err
	}
	r, err := Load(o.StateDir)
	if err != nil {
		return Runtime{}, nil, err
	}
	if r != nil && r.Dir != o.Dir {
		return Runtime{}, r, hint.On(fmt.Errorf("%s is up on this machine", r.Dir), "`fairlead down` removes its pods; then another folder can be up")
	}
	rt, err := o.find(ctx, r)
	if err == nil {
		err = o.alone(ctx, rt)
	}
	return rt, r, err
}

// alone wants nobody else to run pods with the runtime; of Docker only our own
// CRI can tell, later.
func (o *Config) alone(ctx context.Context, rt Runtime) error {
	pid, err := Beside("kubelet")
	if err != nil {
		return err
	}
	if pid != 0 {
		return hint.On(fmt.Errorf("kubelet runs on this machine (process %d)", pid), "a node has one program that runs its pods: `systemctl stop kubelet`, or leave the pods to it")
	}
	if rt.Endpoint == "" {
		return nil
	}
	return o.foreign(ctx, rt.Endpoint)
}

// lockWait is how long a start waits for one that is just ending, or only looks.
const lockWait = time.Second

// Run runs all parts until ctx ends, and shows on out how the pods are.
func (o *Config) Run(ctx context.Context, out io.Writer) error {
	lock, err := TakeLock(o.StateDir, lockWait)
	if err != nil {
		return hint.On(err, "`fairlead get pods` shows what runs; `fairlead down` ends it")
	}
	defer lock.Release()
	rt, r, err := o.preflight(ctx)
	if err != nil {
		return err
	}
	if r, err = o.prepare(r, rt); err != nil {
		return err
	}
	first := r.Untried
	log, closeLog, err := o.openLog()
	if err != nil {
		return err
	}
	defer closeLog()
	log.Info("starting", "dir", o.Dir, "runtime", rt.String(), "version", o.Parts.Agent.Build.Version)
	o.openFolder(log.With("part", "folder"))
	look := o.looker()
	running, stop := context.WithCancel(ctx)
	defer stop()
	group := Group{
		Parts: o.list(rt, *r, o.Dir, log), Log: log.With("part", "up"),
		Ready: func() {
			first = false
			_, _ = daemon.SdNotify(false, daemon.SdNotifyReady) // without systemd nobody listens
			go look.Follow(running, out)
		},
	}
	err = group.Run(running)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	stop()
	if first && err != nil { // no pod was begun
		return errors.Join(err, o.clear(ctx), removeOurs(r.Wrote, io.Discard), Forget(o.StateDir))
	}
	log.Info("stopped; pods go on running")
	return err
}

// openLog opens the one log of all parts.
func (o *Config) openLog() (log *slog.Logger, done func(), err error) {
	if o.LogFile != "" {
		out, err := OpenLog(o.LogFile, LogSize, os.Stderr)
		if err != nil {
			return nil, nil, fmt.Errorf("--log-file: %w", err)
		}
		return slog.New(slog.NewJSONHandler(out, nil)), func() { _ = out.Close() }, nil
	}
	// A terminal shows the table: there only what goes wrong is worth a line.
	if _, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS); err == nil {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), func() {}, nil
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, nil)), func() {}, nil
}
