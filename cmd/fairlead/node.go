package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/cmd/fairlead/usage"
	"github.com/fairlead/fairlead/internal/node"
	"github.com/fairlead/fairlead/internal/node/checkpoint"
	"github.com/fairlead/fairlead/internal/node/mux"
	"github.com/fairlead/fairlead/internal/node/object"
	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/node/source"
	"github.com/fairlead/fairlead/internal/node/volume"
)

// nodeOptions are the flags of `fairlead node`.
type nodeOptions struct {
	pods, podsURL, kubeconfig   string
	headers                     []string // for podsURL, "NAME: VALUE"
	runtime, name, ip           string
	rootDir, logDir, cgroupRoot string
	listen, resolvConf, domain  string
	dns                         []string
	shared                      bool // the folder holds the agent's objects too
}

func nodeCommand() *cobra.Command {
	o := nodeOptions{}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run the pods of a folder, a URL or an API server over any container runtime, without kubelet",
		Long: `Run the pods that stand as files in a folder, behind a URL, or that an API server
binds to this node, over any runtime that serves CRI. A pod that is changed or
removed there is changed or ended. The sources may be used together.

With an API server the node registers itself, renews its lease, and writes its
pods' status; static pods have mirror pods there. It needs a user
system:node:NAME of the group system:nodes.

SIGTERM leaves every pod as it is; whoever is started next goes on with them.`,
		Args: usage.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runNode(cmd.Context(), o, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.pods, "pod-dir", "", "folder of pods, YAML or JSON")
	f.StringVar(&o.podsURL, "url", "", "URL of a Pod or PodList")
	f.StringArrayVar(&o.headers, "url-header", nil, "header that is sent with questions to --url, \"NAME: VALUE\" (repeatable)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "file that leads to the API server whose pods of this node are run")
	f.StringVar(&o.runtime, "runtime", "unix:///run/containerd/containerd.sock", "the runtime's CRI endpoint")
	f.StringVar(&o.name, "node-name", "", "name of this node, a part of its pods' names (default: the host's)")
	f.StringVar(&o.ip, "node-ip", "", "address of this node, for pods that ask for it")
	f.StringVar(&o.rootDir, "root-dir", "/var/lib/fairlead/node", "volumes and other files of pods")
	f.StringVar(&o.logDir, "log-dir", "/var/log/pods", "logs of containers")
	f.StringVar(&o.cgroupRoot, "cgroup-root", "", "cgroup of all pods, with the cgroupfs driver (default: the runtime's)")
	f.StringVar(&o.listen, "listen", "unix:///run/fairlead/node.sock", "the socket to serve /pods and /livez on; empty for none")
	f.StringVar(&o.resolvConf, "resolv-conf", "/etc/resolv.conf", "name servers of pods without a policy of their own")
	f.StringArrayVar(&o.dns, "cluster-dns", nil, "name server of pods with DNS policy ClusterFirst (repeatable)")
	f.StringVar(&o.domain, "cluster-domain", "", "search domain of pods with DNS policy ClusterFirst")
	return cmd
}

func (o *nodeOptions) complete() error {
	if o.pods == "" && o.podsURL == "" && o.kubeconfig == "" {
		return usage.Errorf("none of --pod-dir, --url and --kubeconfig says where pods are")
	}
	if _, err := o.header(); err != nil {
		return err
	}
	if o.runtime == "" {
		return usage.Errorf("--runtime is empty")
	}
	if o.name != "" {
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of the host: %w", err)
	}
	o.name = strings.ToLower(name)
	return nil
}

func runNode(ctx context.Context, o nodeOptions, log *slog.Logger) error {
	if err := o.complete(); err != nil {
		return err
	}
	lock, err := lockDir(o.rootDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	conn, err := podruntime.Dial(o.runtime)
	if err != nil {
		return usage.Error{Err: fmt.Errorf("--runtime: %w", err)}
	}
	defer conn.Close()
	return o.run(ctx, conn, log)
}

// run builds the parts and runs them.
func (o *nodeOptions) run(ctx context.Context, conn *grpc.ClientConn, log *slog.Logger) error {
	pods := filepath.Join(o.rootDir, "pods")
	merged := mux.New(log)
	capacity, err := podruntime.Capacity(o.rootDir)
	if err != nil {
		return err
	}
	objects := o.objects(log)
	volumes := volume.New(volume.Config{Root: pods, Objects: objects, Capacity: capacity, Log: log})
	engine := runtimeapi.NewRuntimeServiceClient(conn)
	conf := node.Config{
		Sources: merged,
		Runtime: podruntime.New(podruntime.Config{
			Runtime: engine, Images: runtimeapi.NewImageServiceClient(conn),
			LogDir: o.logDir, PodDir: pods, CgroupParent: o.cgroupRoot, NodeName: o.name, NodeIP: o.ip,
			ClusterDNS: o.dns, ClusterDomain: o.domain, ResolvConf: o.resolvConf, Now: time.Now, Log: log,
			Objects: objects, Volumes: volumes, Capacity: capacity,
		}),
		Volumes: volumes, Objects: objects, PodDir: pods, NodeIP: o.ip,
		Checkpoints: checkpoint.New(filepath.Join(o.rootDir, "checkpoints")), Log: log,
	}
	server, err := o.apiServer(&conf, engine)
	if err != nil {
		return usage.Error{Err: fmt.Errorf("--kubeconfig: %w", err)}
	}
	n := node.New(conf)
	parts := append(o.sources(ctx, merged, log), n.Run, func(ctx context.Context) error { return serveHTTP(ctx, o.listen, n.Handler()) })
	if server != nil {
		parts = append(parts, server.parts(ctx, merged, n)...)
	}
	return together(ctx, parts...)
}

// header reads --url-header.
func (o *nodeOptions) header() (http.Header, error) {
	out := http.Header{}
	for _, h := range o.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, usage.Errorf("--url-header %q is not NAME: VALUE", h)
		}
		out.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return out, nil
}

// objects are those of the pods' folder.
func (o *nodeOptions) objects(log *slog.Logger) object.Store {
	if o.pods == "" {
		return object.None{}
	}
	return object.NewFolder(o.pods, log)
}

// sources are registered before any of them runs: only then it is known when
// all have spoken.
func (o *nodeOptions) sources(ctx context.Context, m *mux.Mux, log *slog.Logger) []func(context.Context) error {
	var out []func(context.Context) error
	add := func(name string, run func(context.Context, chan<- []*v1.Pod) error) {
		to := m.Channel(ctx, name)
		out = append(out, func(ctx context.Context) error { return run(ctx, to) })
	}
	static := source.Static{Node: o.name, Shared: o.shared}
	if o.pods != "" {
		add(mux.File, source.NewFile(source.FileConfig{Static: source.Static{Node: o.name, Shared: o.shared, Objects: true}, Path: o.pods, Log: log}).Run)
	}
	if o.podsURL != "" {
		header, _ := o.header() // complete has read it
		add(mux.URL, source.NewURL(source.URLConfig{Static: static, URL: o.podsURL, Header: header, Log: log}).Run)
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
// the file is open: two nodes would end each other's pods.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("--root-dir: another process uses %s: %w", dir, err)
	}
	return f, nil
}

// serveHTTP serves on a unix socket until ctx ends. A socket that a killed
// process left is replaced.
func serveHTTP(ctx context.Context, listen string, h http.Handler) error {
	path := strings.TrimPrefix(listen, "unix://")
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--listen: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(err, l.Close())
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", listen, err)
	}
	return nil
}
