// Package loop is the node loop's life: a Config in, and its parts put together,
// sources, pod workers, reports, housekeeping and what is served, run until its
// context ends. It knows no flag; what a part does is the part's.
package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/lib/filelock"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/parts"
	"github.com/fairlead/fairlead/internal/node"
	"github.com/fairlead/fairlead/internal/node/checkpoint"
	"github.com/fairlead/fairlead/internal/node/gc"
	"github.com/fairlead/fairlead/internal/node/mux"
	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/node/source"
	"github.com/fairlead/fairlead/internal/node/volume"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// Config is what a node loop is told. Its fields are the flags of `fairlead node`.
type Config struct {
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

// complete refuses what makes no sense, and fills in the node's name.
func (o *Config) complete() error {
	if o.Pods == "" && o.URL == "" && o.Kubeconfig == "" {
		return hint.Usagef("none of --pod-dir, --url and --kubeconfig says where pods are")
	}
	if _, err := o.header(); err != nil {
		return err
	}
	if o.Runtime == "" {
		return hint.Usagef("--runtime is empty")
	}
	if o.ImageHigh < 0 || o.ImageHigh > 100 || o.ImageLow < 0 || o.ImageLow > o.ImageHigh {
		return hint.Usagef("--image-gc-low and --image-gc-high are 0 to 100, and low is not above high")
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
func Run(ctx context.Context, o Config, log *slog.Logger) error {
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
		return hint.UsageError{Err: fmt.Errorf("--runtime: %w", err)}
	}
	defer conn.Close()
	return o.run(ctx, conn, log)
}

// run builds the parts and runs them.
func (o *Config) run(ctx context.Context, conn *grpc.ClientConn, log *slog.Logger) error {
	pods := filepath.Join(o.RootDir, "pods")
	merged := mux.New(log)
	capacity, err := podruntime.Capacity(o.RootDir)
	if err != nil {
		return err
	}
	to, err := o.server(log)
	if err != nil {
		return hint.UsageError{Err: fmt.Errorf("--kubeconfig: %w", err)}
	}
	o.open(log)
	objects, tokens, err := o.objects(to, log)
	if err != nil {
		return hint.UsageError{Err: fmt.Errorf("--kubeconfig: %w", err)}
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
		return hint.UsageError{Err: fmt.Errorf("--kubeconfig: %w", err)}
	}
	conf.Labels = o.labels(server)
	n := node.New(conf)
	disk := gc.New(gc.Config{
		Runtime: engine, Images: images, High: o.ImageHigh, Low: o.ImageLow, MinAge: o.ImageMinAge, Period: o.ImagePeriod,
		LogSize: o.LogSize, LogFiles: o.LogFiles, Now: time.Now, Log: log,
	})
	all := append(o.sources(ctx, merged, files, url), n.Run, disk.Run,
		func(ctx context.Context) error { return serveSocket(ctx, o.Listen, n.Handler()) },
		func(ctx context.Context) error { return serveHTTP(ctx, o.HTTP, n.Public()) })
	if server != nil {
		all = append(all, server.parts(ctx, merged, n)...)
		all = append(all, func(ctx context.Context) error { return o.serveKubelet(ctx, to, n.Kubelet(), log) })
	}
	return parts.Run(ctx, all...)
}

// header reads --url-header.
func (o *Config) header() (http.Header, error) {
	out := http.Header{}
	for _, h := range o.Headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, hint.Usagef("--url-header %q is not NAME: VALUE", h)
		}
		out.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return out, nil
}

func (o *Config) static() source.Static {
	return source.Static{Node: o.Name, Shared: o.Shared, Objects: true}
}

// open makes pods, ConfigMaps and Secrets come out of one reader of the folder.
func (o *Config) open(log *slog.Logger) {
	if o.Folder == nil && o.Pods != "" {
		o.Folder = folder.New(folder.Config{Path: o.Pods, All: !o.Shared, Kinds: o.static().Kinds(), Log: log})
	}
}

// files are the pods of the folder; nil without one.
func (o *Config) files(log *slog.Logger) *source.File {
	if o.Pods == "" {
		return nil
	}
	return source.NewFile(source.FileConfig{Static: o.static(), Path: o.Pods, Folder: o.Folder, Log: log})
}

// origin says where exactly a source has a pod from.
func (o *Config) origin(files *source.File) func(string, types.UID) string {
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
func (o *Config) sources(ctx context.Context, m *mux.Mux, files *source.File, url *source.URL) []func(context.Context) error {
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
