// Package nodeloop is the command `fairlead node`: its flags, and the parts of
// the node loop put together. `fairlead up` runs the same in its own process.
package nodeloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/cmd/fairlead/usage"
	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/internal/node"
	"github.com/fairlead/fairlead/internal/node/checkpoint"
	"github.com/fairlead/fairlead/internal/node/gc"
	"github.com/fairlead/fairlead/internal/node/mux"
	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/node/source"
	"github.com/fairlead/fairlead/internal/node/volume"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// Options are the flags of `fairlead node`.
type Options struct {
	// Pods is a folder, URL an address, Kubeconfig a file: where pods come from;
	// "" is nowhere. Headers, "NAME: VALUE", are sent with questions to URL.
	Pods, URL, Kubeconfig string
	Folder                *folder.Folder // of Pods, if other parts read it too
	Headers               []string
	// Runtime is the runtime's CRI endpoint, Name and IP the node's own.
	Runtime, Name, IP string
	// RootDir and LogDir are pods' folders; CgroupRoot is their cgroup, "" the
	// runtime's choice.
	RootDir, LogDir, CgroupRoot string
	// Listen is the socket for people, HTTP an address that serves what may be
	// read; "" is none.
	Listen, HTTP       string
	Kubelet            Kubelet
	ResolvConf, Domain string
	DNS                []string
	// ImageHigh, ImageLow (in % of their file system, 0 is never), ImageMinAge and
	// ImagePeriod say when unused images are removed; LogSize (bytes) and LogFiles
	// how long containers' logs may be, 0 is the default.
	ImageHigh, ImageLow      int
	ImageMinAge, ImagePeriod time.Duration
	LogSize                  int64
	LogFiles                 int
	Shared                   bool   // Pods holds the agent's objects too
	Version                  string // ours
}

// Command is `fairlead node`.
func Command(version string) *cobra.Command {
	o := Options{Version: version}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run the pods of a folder, a URL or an API server over any container runtime, without kubelet",
		Long: `Run the pods that stand as files in a folder, behind a URL, or that an API server
binds to this node, over any runtime that serves CRI. A pod that is changed or
removed there is changed or ended. The sources may be used together.

With an API server the node registers itself, renews its lease, and writes its
pods' status; static pods have mirror pods there. It needs a user
system:node:NAME of the group system:nodes. With --client-ca-file, kubectl's logs,
exec, attach, cp and port-forward work as with kubelet.

SIGTERM leaves every pod as it is; whoever is started next goes on with them.`,
		Args: usage.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Run(cmd.Context(), o, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Pods, "pod-dir", "", "folder of pods, YAML or JSON")
	f.StringVar(&o.URL, "url", "", "URL of a Pod or PodList")
	f.StringArrayVar(&o.Headers, "url-header", nil, "header that is sent with questions to --url, \"NAME: VALUE\" (repeatable)")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "file that leads to the API server whose pods of this node are run")
	f.StringVar(&o.Runtime, "runtime", "unix:///run/containerd/containerd.sock", "the runtime's CRI endpoint")
	f.StringVar(&o.Name, "node-name", "", "name of this node, a part of its pods' names (default: the host's)")
	f.StringVar(&o.IP, "node-ip", "", "address of this node, for pods that ask for it (default: the one that leads to the API server, else the machine's own)")
	f.StringVar(&o.RootDir, "root-dir", "/var/lib/fairlead/node", "volumes and other files of pods")
	f.StringVar(&o.LogDir, "log-dir", "/var/log/pods", "logs of containers")
	f.StringVar(&o.CgroupRoot, "cgroup-root", "", "cgroup of all pods, with the cgroupfs driver (default: the runtime's)")
	f.StringVar(&o.Listen, "listen", "unix:///run/fairlead/node.sock", "the socket of `fairlead logs`, `exec` and `describe pod`, for root alone; empty for none")
	f.StringVar(&o.HTTP, "http", "", "address to serve pods and logs on, for anybody, ADDRESS:PORT (default: none)")
	o.Kubelet.flags(f)
	f.StringVar(&o.ResolvConf, "resolv-conf", "/etc/resolv.conf", "name servers of pods without a policy of their own")
	f.StringArrayVar(&o.DNS, "cluster-dns", nil, "name server of pods with DNS policy ClusterFirst (repeatable)")
	f.StringVar(&o.Domain, "cluster-domain", "", "search domain of pods with DNS policy ClusterFirst")
	o.diskFlags(f)
	return cmd
}

func (o *Options) diskFlags(f *pflag.FlagSet) {
	f.IntVar(&o.ImageHigh, "image-gc-high", gc.ImageHigh, "use of the images' file system, in %, from which on unused images are removed (0: never)")
	f.IntVar(&o.ImageLow, "image-gc-low", gc.ImageLow, "use of the images' file system, in %, at which that ends")
	f.DurationVar(&o.ImageMinAge, "image-gc-min-age", gc.ImageMinAge, "how long an image has to have been there")
	f.DurationVar(&o.ImagePeriod, "image-gc-period", gc.ImagePeriod, "how often that is looked after")
	f.Int64Var(&o.LogSize, "log-max-size", gc.LogSize, "bytes of a container's log from which on a new file is begun")
	f.IntVar(&o.LogFiles, "log-max-files", gc.LogFiles, "files that a container's log may have")
}

func (o *Options) complete() error {
	if o.Pods == "" && o.URL == "" && o.Kubeconfig == "" {
		return usage.Errorf("none of --pod-dir, --url and --kubeconfig says where pods are")
	}
	if _, err := o.header(); err != nil {
		return err
	}
	if o.Runtime == "" {
		return usage.Errorf("--runtime is empty")
	}
	if o.ImageHigh < 0 || o.ImageHigh > 100 || o.ImageLow < 0 || o.ImageLow > o.ImageHigh {
		return usage.Errorf("--image-gc-low and --image-gc-high are 0 to 100, and low is not above high")
	}
	if o.Name != "" {
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of the host: %w", err)
	}
	o.Name = strings.ToLower(name)
	return nil
}

// Run runs pods until ctx ends; they go on running.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	if err := o.complete(); err != nil {
		return err
	}
	if err := o.Kubelet.complete(); err != nil {
		return err
	}
	lock, err := lockDir(o.RootDir)
	if err != nil {
		return err
	}
	defer lock.Release()
	conn, err := podruntime.Dial(o.Runtime)
	if err != nil {
		return usage.Error{Err: fmt.Errorf("--runtime: %w", err)}
	}
	defer conn.Close()
	return o.run(ctx, conn, log)
}

// run builds the parts and runs them.
func (o *Options) run(ctx context.Context, conn *grpc.ClientConn, log *slog.Logger) error {
	pods := filepath.Join(o.RootDir, "pods")
	merged := mux.New(log)
	capacity, err := podruntime.Capacity(o.RootDir)
	if err != nil {
		return err
	}
	to, err := o.server(log)
	if err != nil {
		return usage.Error{Err: fmt.Errorf("--kubeconfig: %w", err)}
	}
	o.open(log)
	objects, tokens, err := o.objects(to, log)
	if err != nil {
		return usage.Error{Err: fmt.Errorf("--kubeconfig: %w", err)}
	}
	files, url := o.files(log), o.url(log)
	ip := o.hostIP()
	volumes := volume.New(volume.Config{Root: pods, Objects: objects, Tokens: tokens, Capacity: capacity, Log: log})
	engine, images := runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	conf := node.Config{
		Sources: merged,
		Runtime: podruntime.New(podruntime.Config{
			Runtime: engine, Images: images,
			LogDir: o.LogDir, PodDir: pods, CgroupParent: o.CgroupRoot, NodeName: o.Name, NodeIP: o.IP, HostIP: ip,
			ClusterDNS: o.DNS, ClusterDomain: o.Domain, ResolvConf: o.ResolvConf, Hosts: "/etc/hosts", Now: time.Now, Log: log,
			Objects: objects, Volumes: volumes, Capacity: capacity, Credentials: o.credentials(),
		}),
		Volumes: volumes, Objects: objects, PodDir: pods, NodeIP: o.IP, HostIP: ip,
		Checkpoints: checkpoint.New(filepath.Join(o.RootDir, "checkpoints")), Origin: o.origin(files), Log: log,
		Warnings: warnings(files, url), Capacity: capacity, Machine: o.machine(),
	}
	server, err := o.apiServer(&conf, engine, to)
	if err != nil {
		return usage.Error{Err: fmt.Errorf("--kubeconfig: %w", err)}
	}
	conf.Labels = o.labels(server)
	n := node.New(conf)
	disk := gc.New(gc.Config{
		Runtime: engine, Images: images, High: o.ImageHigh, Low: o.ImageLow, MinAge: o.ImageMinAge, Period: o.ImagePeriod,
		LogSize: o.LogSize, LogFiles: o.LogFiles, Now: time.Now, Log: log,
	})
	parts := append(o.sources(ctx, merged, files, url), n.Run, disk.Run,
		func(ctx context.Context) error { return serveSocket(ctx, o.Listen, n.Handler()) },
		func(ctx context.Context) error { return serveHTTP(ctx, o.HTTP, n.Public()) })
	if server != nil {
		parts = append(parts, server.parts(ctx, merged, n)...)
		parts = append(parts, func(ctx context.Context) error { return o.serveKubelet(ctx, to, n.Kubelet(), log) })
	}
	return together(ctx, parts...)
}

// header reads --url-header.
func (o *Options) header() (http.Header, error) {
	out := http.Header{}
	for _, h := range o.Headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, usage.Errorf("--url-header %q is not NAME: VALUE", h)
		}
		out.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return out, nil
}

func (o *Options) static() source.Static {
	return source.Static{Node: o.Name, Shared: o.Shared, Objects: true}
}

// open makes pods, ConfigMaps and Secrets come out of one reader of the folder.
func (o *Options) open(log *slog.Logger) {
	if o.Folder == nil && o.Pods != "" {
		o.Folder = folder.New(folder.Config{Path: o.Pods, All: !o.Shared, Kinds: o.static().Kinds(), Log: log})
	}
}

// files are the pods of the folder; nil without one.
func (o *Options) files(log *slog.Logger) *source.File {
	if o.Pods == "" {
		return nil
	}
	return source.NewFile(source.FileConfig{Static: o.static(), Path: o.Pods, Folder: o.Folder, Log: log})
}

// origin says where exactly a source has a pod from.
func (o *Options) origin(files *source.File) func(string, types.UID) string {
	return func(from string, uid types.UID) string {
		switch {
		case from == mux.File && files != nil:
			return files.Where(uid)
		case from == mux.URL:
			return o.URL
		case from == mux.API:
			return o.Kubeconfig
		}
		return ""
	}
}

// sources are registered before any of them runs: only then it is known when
// all have spoken.
func (o *Options) sources(ctx context.Context, m *mux.Mux, files *source.File, url *source.URL) []func(context.Context) error {
	var out []func(context.Context) error
	add := func(name string, run func(context.Context, chan<- []*v1.Pod) error) {
		to := m.Channel(ctx, name)
		out = append(out, func(ctx context.Context) error { return run(ctx, to) })
	}
	if files != nil {
		add(mux.File, files.Run)
	}
	if url != nil {
		add(mux.URL, url.Run)
	}
	return out
}

// together runs all until ctx ends or one of them fails, which ends the others.
func together(ctx context.Context, all ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, run := range all {
		running.Go(func() {
			if errs[i] = run(ctx); errs[i] != nil {
				cancel()
			}
			if errors.Is(errs[i], context.Canceled) {
				errs[i] = nil // told to end by one of us, or by a signal
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// lockDir makes a folder and keeps any other process from using it, as long as
// the lock is held: two nodes would end each other's pods.
func lockDir(dir string) (*filelock.Lock, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	lock, err := filelock.Take(filepath.Join(dir, "lock"), 0)
	if errors.As(err, new(*filelock.HeldError)) {
		return nil, fmt.Errorf("--root-dir: another process uses %s", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	return lock, nil
}
