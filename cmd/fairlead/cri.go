package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	docker "github.com/moby/moby/client"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/usage"
	"github.com/fairlead/fairlead/internal/cri"
	"github.com/fairlead/fairlead/internal/cri/cninet"
	"github.com/fairlead/fairlead/internal/cri/image"
	"github.com/fairlead/fairlead/internal/cri/label"
	"github.com/fairlead/fairlead/internal/cri/logs"
	"github.com/fairlead/fairlead/internal/cri/owngroup"
	"github.com/fairlead/fairlead/internal/cri/podnet"
)

// Network plugins of `fairlead cri`.
const (
	pluginCNI  = "cni"
	pluginNoop = "noop"
)

// criOptions are the flags of `fairlead cri`.
type criOptions struct {
	listen, dockerHost, rootDir, sandboxImage string
	plugin, confDir, cgroupDriver             string
	streamAddress, runtimeCgroups             string
	binDirs                                   []string
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
	f.StringVar(&o.plugin, "network-plugin", pluginCNI, "who gives pods their network: cni, or noop for Docker's own bridge")
	f.StringVar(&o.confDir, "cni-conf-dir", "/etc/cni/net.d", "CNI configurations; the first valid one by name is used")
	f.StringArrayVar(&o.binDirs, "cni-bin-dir", []string{"/opt/cni/bin"}, "where CNI plugins are (repeatable)")
	f.StringVar(&o.cgroupDriver, "cgroup-driver", "", "cgroupfs or systemd (default: Docker's)")
	f.StringVar(&o.runtimeCgroups, "runtime-cgroups", "", "cgroup for this process, e.g. /runtime.slice (default: where it was started)")
	f.StringVar(&o.streamAddress, "stream-address", "", "host:port for exec, attach and port-forward (default: a free port on 127.0.0.1)")
	return cmd
}

func (o criOptions) validate() error {
	var errs []error
	if !slices.Contains([]string{pluginCNI, pluginNoop}, o.plugin) {
		errs = append(errs, usage.Errorf("--network-plugin %q is neither cni nor noop", o.plugin))
	}
	if o.listen == "" {
		errs = append(errs, usage.Errorf("--listen is empty"))
	}
	return errors.Join(errs...)
}

// network is who gives pods theirs.
func (o criOptions) network() podnet.Network {
	if o.plugin == pluginNoop {
		return podnet.Engine{}
	}
	return cninet.New(cninet.Config{ConfDir: o.confDir, BinDirs: o.binDirs, CacheDir: filepath.Join(o.rootDir, "cni")})
}

func runCRI(ctx context.Context, o criOptions, log *slog.Logger) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.runtimeCgroups != "" {
		if err := owngroup.Join(o.runtimeCgroups); err != nil {
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
		return usage.Error{Err: fmt.Errorf("--sandbox-image: %w", err)}
	}
	output := logs.New(ctx, engine, label.LogPath, log)
	defer output.Close()
	server, err := cri.New(ctx, cri.Config{
		Docker: engine, Network: o.network(), Images: images, Logs: output, StreamAddress: o.streamAddress,
		Dir: o.rootDir, SandboxImage: o.sandboxImage, CgroupDriver: o.cgroupDriver, Bridged: o.plugin == pluginNoop,
		Version: version, Log: log,
	})
	if err != nil {
		return usage.Hint(err, "`docker info` tells whether Docker runs; --docker-host names its socket")
	}
	return server.Run(ctx, o.listen)
}
