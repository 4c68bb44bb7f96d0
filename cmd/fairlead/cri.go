package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	docker "github.com/moby/moby/client"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/agent/metrics"
	"github.com/fairlead/fairlead/internal/cri"
	"github.com/fairlead/fairlead/internal/cri/image"
	"github.com/fairlead/fairlead/internal/cri/label"
	"github.com/fairlead/fairlead/internal/cri/logs"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/httpserve"
	"github.com/fairlead/fairlead/internal/netplugin"
)

// criOptions are the flags of `fairlead cri`.
type criOptions struct {
	listen, dockerHost, rootDir, sandboxImage string
	cgroupDriver, streamAddress               string
	runtimeCgroups, http                      string

	// About pods' networks; what is empty has its default, see crinetwork.go.
	plugin, pluginDir, confDir string
	binDirs, nonMasquerade     []string
	syncPeriod                 time.Duration
	hairpin, podCIDR           string
	mtu                        int
}

func criCommand() *cobra.Command {
	o := criOptions{}
	cmd := &cobra.Command{
		Use:   "cri",
		Short: "Serve kubelet's runtime interface (CRI) over Docker Engine",
		Long: `Serve CRI v1, RuntimeService and ImageService, over Docker Engine on a unix
socket, for kubelet --container-runtime-endpoint and for crictl.

SIGTERM lets running requests finish and leaves every pod as it is.`,
		Args: usage.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runCRI(cmd.Context(), o, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "unix:///run/fairlead/cri.sock", "the socket to serve")
	f.StringVar(&o.dockerHost, "docker-host", "", "Docker's socket (default: DOCKER_HOST, else Docker's own)")
	f.StringVar(&o.rootDir, "root-dir", "/var/lib/fairlead/cri", "checkpoints of sandboxes and what plugins were called with")
	f.StringVar(&o.sandboxImage, "sandbox-image", "registry.k8s.io/pause:3.10", "image of the process that keeps a pod's namespaces")
	f.StringVar(&o.cgroupDriver, "cgroup-driver", "", "cgroupfs or systemd (default: Docker's)")
	f.StringVar(&o.runtimeCgroups, "runtime-cgroups", "", "cgroup for this process, e.g. /runtime.slice (default: where it was started)")
	f.StringVar(&o.streamAddress, "stream-address", "", "host:port for exec, attach and port-forward (default: a free port on 127.0.0.1)")
	f.StringVar(&o.http, "http", "", "serve /metrics on this address, e.g. 127.0.0.1:10666")
	o.networkFlags(f)
	return cmd
}

func (o criOptions) validate() error {
	if o.listen == "" {
		return hint.Usagef("--listen is empty")
	}
	return nil
}

func runCRI(ctx context.Context, o criOptions, log *slog.Logger) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.runtimeCgroups != "" {
		if err := cri.JoinCgroup(o.runtimeCgroups); err != nil {
			return fmt.Errorf("--runtime-cgroups: %w", err)
		}
	}
	opts := []docker.Opt{docker.FromEnv}
	if o.dockerHost != "" {
		opts = append(opts, docker.WithHost(o.dockerHost))
	}
	engine, err := docker.New(opts...)
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	defer func() { _ = engine.Close() }()
	images, err := image.New(engine, o.sandboxImage)
	if err != nil {
		return hint.UsageError{Err: fmt.Errorf("--sandbox-image: %w", err)}
	}
	plugin, settings, err := o.network(log)
	if err != nil {
		return err
	}
	counted := metrics.NewNetworkPlugin(metrics.Options{Version: version, Revision: usage.Commit()})
	if err := serveMetrics(ctx, o.http, counted.Handler(), log); err != nil {
		return err
	}
	output := logs.New(ctx, engine, label.LogPath, log)
	defer output.Close()
	server, err := cri.New(ctx, cri.Config{
		Docker: engine, Network: netplugin.NewManager(plugin, counted), Settings: settings, PodCIDR: o.podCIDR,
		Images: images, Logs: output, StreamAddress: o.streamAddress,
		Dir: o.rootDir, SandboxImage: o.sandboxImage, CgroupDriver: o.cgroupDriver, Bridged: plugin.Name() == netplugin.NoOp,
		Version: version, Log: log,
	})
	if err != nil {
		return hint.On(err, "`docker info` tells whether Docker runs; --docker-host names its socket")
	}
	return server.Run(ctx, o.listen)
}

// serveMetrics serves them on address until ctx ends; on "" nowhere.
func serveMetrics(ctx context.Context, address string, h http.Handler, log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.Handle("GET "+agent.PathMetrics, h)
	serve, err := httpserve.Open(ctx, address, mux)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	go func() {
		if err := serve(); err != nil {
			log.Error("metrics not served any more; pods are", "err", err)
		}
	}()
	return nil
}
