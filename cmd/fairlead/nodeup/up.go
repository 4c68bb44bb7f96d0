// Package nodeup is the commands `fairlead up` and `fairlead down`: their flags,
// and the agent, the CRI shim and the node loop as parts of one process. How the
// shim is run is told by whoever makes the commands; what a part does is its own.
package nodeup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	docker "github.com/moby/moby/client"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/cmd/fairlead/nodeagent"
	"github.com/fairlead/fairlead/cmd/fairlead/usage"
	"github.com/fairlead/fairlead/internal/confexplain"
	"github.com/fairlead/fairlead/internal/hostruntime"
	"github.com/fairlead/fairlead/internal/source/folder"
	"github.com/fairlead/fairlead/internal/up"
)

// options are the flags of `fairlead up`.
type options struct {
	dir, runtime, dockerHost, sandboxImage string
	nodeName, ovsdb, bridge, iface         string
	stateDir, logDir, cgroupRoot, confDir  string
	socket, logFile                        string
	binDirs                                []string

	changed map[string][]string // flags that were given, for whoever does the rest
	parts   Parts
	ending  bool           // pods are removed, and none begins
	folder  *folder.Folder // of dir, where this process runs its parts
}

// Parts tells how to run what is a command of its own too.
type Parts struct {
	Build nodeagent.Build
	CRI   func(context.Context, CRI, *slog.Logger) error
	Ask   confexplain.Ask
}

// CRI are flags of `fairlead cri`.
type CRI struct {
	Listen, DockerHost, RootDir, SandboxImage, ConfDir string
	BinDirs                                            []string
}

func (o *options) flags(f *pflag.FlagSet) {
	f.StringVar(&o.dir, "dir", "/etc/fairlead/objects", "folder of Pod, Subnet, NetworkAttachmentDefinition and Vlan YAML")
	f.StringVar(&o.runtime, "runtime", up.Auto, "auto (containerd if that runs containers, else Docker), docker, containerd, or a CRI endpoint")
	f.StringVar(&o.dockerHost, "docker-host", "", "Docker's socket (default: DOCKER_HOST, else Docker's own)")
	f.StringVar(&o.sandboxImage, "sandbox-image", "registry.k8s.io/pause:3.10", "with Docker, image of the process that keeps a pod's namespaces")
	f.StringVar(&o.nodeName, "node-name", "", "name of this node, a part of its pods' names (default: the host's)")
	f.StringVar(&o.ovsdb, "ovsdb", nodeagent.DefaultOVSDB, "Open vSwitch database")
	f.StringVar(&o.bridge, "bridge", nodeagent.DefaultBridge, "integration bridge")
	f.StringVar(&o.iface, "iface", "", "underlay interface, for the pods' MTU (default: that of the default route)")
	f.StringVar(&o.stateDir, "state-dir", nodeagent.DefaultStateDir, "journal, checkpoints, volumes, and what is up")
	f.StringVar(&o.logDir, "log-dir", "/var/log/pods", "logs of containers")
	f.StringVar(&o.cgroupRoot, "cgroup-root", "", "cgroup of all pods, with the cgroupfs driver (default: the runtime's)")
	f.StringVar(&o.confDir, "cni-conf-dir", "", "where the runtime reads CNI configurations (default: what it says, else "+hostruntime.DefaultConfDir+")")
	f.StringArrayVar(&o.binDirs, "cni-bin-dir", nil, "where CNI plugins are; the first gets ours if it is missing (repeatable; default: what the runtime says, else "+hostruntime.DefaultBinDir+")")
	f.StringVar(&o.logFile, "log-file", "", "where the log goes (default: standard error; with --detach /var/log/fairlead-up.log)")
}

// Command is `fairlead up`; the root command has its flags --socket and --timeout.
func Command(p Parts) *cobra.Command {
	o, detach, install := options{parts: p}, false, false
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the pods of a folder, with all their networks, on this machine",
		Long: `Run the pods of a folder, with all their networks, on this machine: the agent,
the node loop and, over Docker, our CRI in one process. Pods, Subnets,
NetworkAttachmentDefinitions and Vlans stand in the folder, and what changes
there changes on the machine.

The command stays in the foreground. Ctrl-C and SIGTERM leave every pod as it
is, and the next "up" goes on with them; "fairlead down" removes them.`,
		Example: "  fairlead up --dir ./pods --detach && fairlead get pods\n  fairlead down",
		Args:    usage.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	o.flags(f)
	f.BoolVarP(&detach, "detach", "d", false, "return when all pods are ready, or after --timeout say which are not, and why")
	f.BoolVar(&install, "install", false, "write a systemd unit that runs this at every boot, and start it")
	cmd.MarkFlagsMutuallyExclusive("detach", "install")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.complete(cmd); err != nil {
			return err
		}
		switch {
		case install:
			return o.install(cmd)
		case detach:
			return o.detach(cmd)
		}
		return o.foreground(cmd)
	}
	return cmd
}

// kept are the flags that say how, not what: they are not for others.
var kept = []string{"detach", "install", "uninstall", "timeout", "help"}

// complete fills in what does not depend on the runtime.
func (o *options) complete(cmd *cobra.Command) error {
	o.socket, _ = cmd.Flags().GetString("socket") // the root command's flag
	o.changed = map[string][]string{}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains(kept, f.Name) {
			return
		}
		o.changed[f.Name] = []string{f.Value.String()}
		if many, ok := f.Value.(pflag.SliceValue); ok {
			o.changed[f.Name] = many.GetSlice()
		}
	})
	if host := os.Getenv(docker.EnvOverrideHost); host != "" && o.dockerHost == "" {
		o.dockerHost = host
		o.changed["docker-host"] = []string{host}
	}
	abs, err := filepath.Abs(o.dir)
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	o.dir, o.changed["dir"] = abs, []string{abs}
	return o.settle()
}

// settle makes defaults of what flags leave open.
func (o *options) settle() error {
	if o.socket == "" {
		o.socket = cni.DefaultSocket
	}
	if o.nodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name of the host: %w", err)
		}
		o.nodeName = name
	}
	o.nodeName = strings.ToLower(o.nodeName)
	return nil
}

// recorded are the options of what is up.
func (p Parts) recorded(r *up.Record) (options, error) {
	o := options{parts: p}
	f := pflag.NewFlagSet("up", pflag.ContinueOnError)
	o.flags(f)
	f.StringVar(&o.socket, "socket", "", "")
	for name, values := range r.Flags {
		for _, v := range values {
			if err := f.Set(name, v); err != nil {
				return o, fmt.Errorf("what is up: %w", err)
			}
		}
	}
	o.dir, o.runtime, o.changed = r.Dir, r.Runtime, r.Flags
	err := o.settle()
	return o, err
}

// finder looks for runtimes as the flags say.
func (o *options) finder() up.Finder {
	opts := []docker.Opt{docker.FromEnv}
	if o.dockerHost != "" {
		opts = append(opts, docker.WithHost(o.dockerHost))
	}
	return up.Finder{Docker: opts, Runc: func(ctx context.Context) error {
		if err := exec.CommandContext(ctx, "runc", "--version").Run(); err != nil {
			return fmt.Errorf("runc does not run: %w", err)
		}
		return nil
	}}
}

// find finds the runtime. The one that has the pods already counts more than
// `auto`.
func (o *options) find(ctx context.Context, r *up.Record) (up.Runtime, error) {
	wish := o.runtime
	if r != nil && wish == up.Auto {
		wish = r.Runtime
	}
	rt, err := o.finder().Find(ctx, wish)
	if err != nil {
		return rt, usage.Hint(err, o.runtimeHint(err, wish))
	}
	if len(o.binDirs) == 0 {
		o.binDirs = rt.BinDirs
	}
	if len(o.binDirs) == 0 {
		o.binDirs = []string{hostruntime.DefaultBinDir}
	}
	for _, dir := range []string{rt.ConfDir, hostruntime.DefaultConfDir} {
		if o.confDir == "" {
			o.confDir = dir
		}
	}
	if r != nil && r.Runtime != rt.Key() {
		return rt, usage.Hint(fmt.Errorf("pods of %s are up on %s", r.Dir, r.Runtime), "`fairlead down` removes them; then another runtime can have them")
	}
	return rt, nil
}

// runtimeHint says what to install or to start.
func (o *options) runtimeHint(err error, wish string) string {
	none := errors.As(err, new(*up.NoRuntimeError))
	switch {
	case installed("dockerd") && (none || wish == up.Docker):
		return "start Docker (`systemctl start docker`), or name its socket with --docker-host"
	case installed("containerd") && (none || wish == up.Containerd):
		return "start containerd (`systemctl start containerd`) with its CRI plugin, and install runc"
	case none || wish == up.Docker:
		return "install Docker (`apt-get install docker.io`), or containerd (`apt-get install containerd runc`)"
	case wish == up.Containerd:
		return "install containerd (`apt-get install containerd runc`)"
	}
	return "start the runtime that serves it, or name another one with --runtime"
}

func installed(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// checkFolder wants the folder to be there: a misspelt one would end all pods.
func (o *options) checkFolder() error {
	info, err := os.Stat(o.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return usage.Hint(fmt.Errorf("--dir: there is no folder %s", o.dir), "`mkdir -p "+o.dir+"`, or name the folder with --dir")
	}
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	if !info.IsDir() {
		return usage.Errorf("--dir: %s is not a folder", o.dir)
	}
	return nil
}

// checkSwitch dials Open vSwitch, so that its absence is told at once.
func (o *options) checkSwitch() error {
	path, local := strings.CutPrefix(o.ovsdb, "unix:")
	if !local {
		return nil
	}
	err := dialUnix(path)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("open vSwitch does not answer at %s: %w", path, err)
	if !installed("ovs-vswitchd") {
		return usage.Hint(err, "install it (`apt-get install openvswitch-switch`)")
	}
	return usage.Hint(err, "start it (`systemctl start openvswitch-switch`), or name its database with --ovsdb")
}

// preflight finds out what can be known before anything is done.
func (o *options) preflight(ctx context.Context) (up.Runtime, *up.Record, error) {
	if err := errors.Join(o.checkFolder(), o.checkSwitch()); err != nil {
		return up.Runtime{}, nil, err
	}
	r, err := up.Load(o.stateDir)
	if err != nil {
		return up.Runtime{}, nil, err
	}
	if r != nil && r.Dir != o.dir {
		return up.Runtime{}, r, usage.Hint(fmt.Errorf("%s is up on this machine", r.Dir), "`fairlead down` removes its pods; then another folder can be up")
	}
	rt, err := o.find(ctx, r)
	if err == nil {
		err = o.alone(ctx, rt)
	}
	return rt, r, err
}

// alone wants nobody else to run pods with the runtime; of Docker only our own
// CRI can tell, later.
func (o *options) alone(ctx context.Context, rt up.Runtime) error {
	pid, err := up.Beside("kubelet")
	if err != nil {
		return err
	}
	if pid != 0 {
		return usage.Hint(fmt.Errorf("kubelet runs on this machine (process %d)", pid), "a node has one program that runs its pods: `systemctl stop kubelet`, or leave the pods to it")
	}
	if rt.Endpoint == "" {
		return nil
	}
	return o.foreign(ctx, rt.Endpoint)
}

// lockWait is how long a start waits for one that is just ending, or only looks.
const lockWait = time.Second

// foreground runs all parts until a signal comes.
func (o *options) foreground(cmd *cobra.Command) error {
	lock, err := up.TakeLock(o.stateDir, lockWait)
	if err != nil {
		return usage.Hint(err, "`fairlead get pods` shows what runs; `fairlead down` ends it")
	}
	defer lock.Release()
	ctx := cmd.Context()
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
	log.Info("starting", "dir", o.dir, "runtime", rt.String(), "version", o.parts.Build.Version)
	o.openFolder(log.With("part", "folder"))
	look := o.looker()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group := up.Group{
		Parts: o.list(rt, *r, o.dir, log), Log: log.With("part", "up"),
		Ready: func() {
			first = false
			_, _ = daemon.SdNotify(false, daemon.SdNotifyReady) // without systemd nobody listens
			go look.Follow(ctx, cmd.OutOrStdout())
		},
	}
	err = group.Run(ctx)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	stop()
	if first && err != nil { // no pod was begun
		return errors.Join(err, o.clear(cmd.Context()), removeOurs(r.Wrote, io.Discard), up.Forget(o.stateDir))
	}
	log.Info("stopped; pods go on running")
	return err
}

// openLog opens the one log of all parts.
func (o *options) openLog() (log *slog.Logger, done func(), err error) {
	if o.logFile != "" {
		out, err := up.OpenLog(o.logFile, up.LogSize, os.Stderr)
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
