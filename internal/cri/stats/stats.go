// Package stats is CRI's RPCs about what pods and their containers use, from
// Docker's counters and, for the network, from the pod's own namespace. It keeps
// no samples: rates are the caller's to compute.
package stats

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/label"
)

// atOnce is how many containers the engine is asked about at the same time.
const atOnce = 8

// Service implements the RPCs.
type Service struct {
	docker *client.Client
	root   string // of the engine: the filesystem that holds writable layers
}

// New makes the service; root is the engine's data folder.
func New(docker *client.Client, root string) *Service { return &Service{docker, root} }

// ContainerStats tells what one container uses.
func (s *Service) ContainerStats(ctx context.Context, req *cri.ContainerStatsRequest) (*cri.ContainerStatsResponse, error) {
	out, err := s.list(ctx, &cri.ContainerStatsFilter{Id: req.ContainerId}, true)
	if err = found(out, err); err != nil {
		return nil, fmt.Errorf("stats of container %s: %w", req.ContainerId, err)
	}
	return &cri.ContainerStatsResponse{Stats: out[0]}, nil
}

// ListContainerStats tells what the running containers use that fit a filter.
func (s *Service) ListContainerStats(ctx context.Context, req *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	out, err := s.list(ctx, req.GetFilter(), false)
	if err != nil {
		return nil, fmt.Errorf("stats of containers: %w", err)
	}
	return &cri.ListContainerStatsResponse{Stats: out}, nil
}

// StreamContainerStats is ListContainerStats with an answer for each container.
func (s *Service) StreamContainerStats(req *cri.StreamContainerStatsRequest, to cri.RuntimeService_StreamContainerStatsServer) error {
	out, err := s.list(to.Context(), req.GetFilter(), false)
	return each(out, err, func(c *cri.ContainerStats) error {
		return to.Send(&cri.StreamContainerStatsResponse{ContainerStats: []*cri.ContainerStats{c}})
	})
}

// found is the error of a question for one thing: none is not found.
func found[T any](out []*T, err error) error {
	if err == nil && len(out) == 0 {
		return errdefs.ErrNotFound
	}
	return err
}

// each sends the answers to a question one by one, unless that failed.
func each[T any](out []*T, err error, send func(*T) error) error {
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	for _, o := range out {
		if err := send(o); err != nil {
			return err
		}
	}
	return nil
}

// list samples the containers, several at a time. One that is removed meanwhile
// is left out.
func (s *Service) list(ctx context.Context, f *cri.ContainerStatsFilter, all bool) ([]*cri.ContainerStats, error) {
	selector := label.Containers(f.GetLabelSelector())
	if f.GetId() != "" {
		selector.Add("id", f.Id)
	}
	if f.GetPodSandboxId() != "" {
		selector.Add("label", label.Sandbox+"="+f.PodSandboxId)
	}
	list, err := s.docker.ContainerList(ctx, client.ContainerListOptions{All: all, Filters: selector})
	if err != nil {
		return nil, err
	}
	return parallel(list.Items, func(c container.Summary) (*cri.ContainerStats, error) { return s.container(ctx, c) })
}

// parallel calls f for each item and leaves out those that are not found.
func parallel[I, O any](items []I, f func(I) (*O, error)) ([]*O, error) {
	got, errs := make([]*O, len(items)), make([]error, len(items))
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			got[i], errs[i] = f(item)
			<-slots
		})
	}
	wg.Wait()
	var out []*O
	for i, err := range errs {
		switch {
		case err == nil:
			out = append(out, got[i])
		case !errdefs.IsNotFound(err):
			return nil, err
		}
	}
	return out, nil
}

func (s *Service) container(ctx context.Context, c container.Summary) (*cri.ContainerStats, error) {
	sample, err := s.sample(ctx, c.ID)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", c.ID, err)
	}
	sized, err := s.docker.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{Size: true})
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", c.ID, err)
	}
	labels, annotations := label.Read(c.Labels)
	name := ""
	if len(c.Names) > 0 {
		name = c.Names[0]
	}
	now := time.Now().UnixNano()
	out := &cri.ContainerStats{
		Attributes: &cri.ContainerAttributes{Id: c.ID, Metadata: label.ContainerMetadata(name, c.Labels), Labels: labels, Annotations: annotations},
		Cpu:        cpu(sample, now), Memory: memory(sample, now),
		WritableLayer: &cri.FilesystemUsage{Timestamp: now, FsId: &cri.FilesystemIdentifier{Mountpoint: s.root}},
	}
	if sized.Container.SizeRw != nil {
		out.WritableLayer.UsedBytes = value(uint64(max(*sized.Container.SizeRw, 0)))
	}
	return out, nil
}

// sample reads Docker's counters once.
func (s *Service) sample(ctx context.Context, id string) (out container.StatsResponse, err error) {
	r, err := s.docker.ContainerStats(ctx, id, client.ContainerStatsOptions{})
	if err != nil {
		return out, err
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("decode stats: %w", err)
	}
	return out, nil
}

func value(v uint64) *cri.UInt64Value { return &cri.UInt64Value{Value: v} }

func cpu(s container.StatsResponse, now int64) *cri.CpuUsage {
	return &cri.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: value(s.CPUStats.CPUUsage.TotalUsage)}
}

// memory reads counters by the names of cgroup v1, then those of v2.
func memory(s container.StatsResponse, now int64) *cri.MemoryUsage {
	m := s.MemoryStats
	first := func(names ...string) uint64 {
		for _, n := range names {
			if v, ok := m.Stats[n]; ok {
				return v
			}
		}
		return 0
	}
	// What can be had back at once is not needed for work (kubelet's notion).
	working := m.Usage - min(m.Usage, first("total_inactive_file", "inactive_file"))
	out := &cri.MemoryUsage{
		Timestamp: now, WorkingSetBytes: value(working), UsageBytes: value(m.Usage),
		RssBytes:   value(first("total_rss", "anon")),
		PageFaults: value(first("total_pgfault", "pgfault")), MajorPageFaults: value(first("total_pgmajfault", "pgmajfault")),
	}
	if m.Limit > working {
		out.AvailableBytes = value(m.Limit - working)
	}
	return out
}
