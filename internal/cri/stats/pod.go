package stats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/label"
)

// firstInterface is the one that a pod's network figures are those of.
const firstInterface = "eth0"

// PodSandboxStats tells what a pod uses: its containers and its sandbox.
func (s *Service) PodSandboxStats(ctx context.Context, req *cri.PodSandboxStatsRequest) (*cri.PodSandboxStatsResponse, error) {
	out, err := s.pods(ctx, &cri.PodSandboxStatsFilter{Id: req.PodSandboxId})
	if err = found(out, err); err != nil {
		return nil, fmt.Errorf("stats of sandbox %s: %w", req.PodSandboxId, err)
	}
	return &cri.PodSandboxStatsResponse{Stats: out[0]}, nil
}

// ListPodSandboxStats tells what the running pods use that fit a filter.
func (s *Service) ListPodSandboxStats(ctx context.Context, req *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	out, err := s.pods(ctx, req.GetFilter())
	if err != nil {
		return nil, fmt.Errorf("stats of sandboxes: %w", err)
	}
	return &cri.ListPodSandboxStatsResponse{Stats: out}, nil
}

// StreamPodSandboxStats is ListPodSandboxStats with an answer for each pod.
func (s *Service) StreamPodSandboxStats(req *cri.StreamPodSandboxStatsRequest, to cri.RuntimeService_StreamPodSandboxStatsServer) error {
	out, err := s.pods(to.Context(), req.GetFilter())
	return each(out, err, func(p *cri.PodSandboxStats) error {
		return to.Send(&cri.StreamPodSandboxStatsResponse{PodSandboxStats: []*cri.PodSandboxStats{p}})
	})
}

func (s *Service) pods(ctx context.Context, f *cri.PodSandboxStatsFilter) ([]*cri.PodSandboxStats, error) {
	selector := label.Sandboxes(f.GetLabelSelector())
	if f.GetId() != "" {
		selector.Add("id", f.Id)
	}
	list, err := s.docker.ContainerList(ctx, client.ContainerListOptions{Filters: selector})
	if err != nil {
		return nil, err
	}
	var out []*cri.PodSandboxStats
	for _, c := range list.Items { // their containers are sampled in parallel
		p, err := s.pod(ctx, c)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (s *Service) pod(ctx context.Context, c container.Summary) (*cri.PodSandboxStats, error) {
	own, err := s.sample(ctx, c.ID)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", c.ID, err)
	}
	containers, err := s.list(ctx, &cri.ContainerStatsFilter{PodSandboxId: c.ID}, false)
	if err != nil {
		return nil, err
	}
	links, err := s.links(ctx, c.ID)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", c.ID, err)
	}
	labels, annotations := label.Read(c.Labels)
	name := ""
	if len(c.Names) > 0 {
		name = c.Names[0]
	}
	now := time.Now().UnixNano()
	linux := &cri.LinuxPodSandboxStats{
		Cpu: cpu(own, now), Memory: memory(own, now), Network: network(links, now), Containers: containers,
		Process: &cri.ProcessUsage{Timestamp: now, ProcessCount: value(own.PidsStats.Current)},
	}
	for _, k := range containers {
		add(linux.Cpu.UsageCoreNanoSeconds, k.Cpu.UsageCoreNanoSeconds)
		add(linux.Memory.WorkingSetBytes, k.Memory.WorkingSetBytes)
		add(linux.Memory.UsageBytes, k.Memory.UsageBytes)
		add(linux.Memory.RssBytes, k.Memory.RssBytes)
	}
	linux.Memory.AvailableBytes = nil // the pause process has no limit worth telling
	return &cri.PodSandboxStats{
		Attributes: &cri.PodSandboxAttributes{Id: c.ID, Metadata: label.SandboxMetadata(name, c.Labels), Labels: labels, Annotations: annotations},
		Linux:      linux,
	}, nil
}

func add(to, more *cri.UInt64Value) { to.Value += more.GetValue() }

// links reads the counters of the pod's interfaces; none of a pod that has ended
// or has no namespace of its own.
func (s *Service) links(ctx context.Context, sandbox string) ([]*cri.NetworkInterfaceUsage, error) {
	r, err := s.docker.ContainerInspect(ctx, sandbox, client.ContainerInspectOptions{})
	if err != nil {
		return nil, err
	}
	c := r.Container
	if !c.State.Running || c.HostConfig.NetworkMode.IsHost() {
		return nil, nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", c.State.Pid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseLinks(b), nil
}

// parseLinks reads /proc/net/dev (proc(5)): two lines of headings, then for each
// interface 8 numbers received and 8 sent.
func parseLinks(b []byte) []*cri.NetworkInterfaceUsage {
	var out []*cri.NetworkInterfaceUsage
	for line := range bytes.Lines(b) {
		name, rest, ok := strings.Cut(string(line), ":")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 16 || strings.TrimSpace(name) == "lo" {
			continue
		}
		n := make([]uint64, len(fields))
		for i, f := range fields {
			n[i], _ = strconv.ParseUint(f, 10, 64) // the kernel writes numbers
		}
		out = append(out, &cri.NetworkInterfaceUsage{
			Name: strings.TrimSpace(name), RxBytes: value(n[0]), RxErrors: value(n[2]), TxBytes: value(n[8]), TxErrors: value(n[10]),
		})
	}
	return out
}

func network(links []*cri.NetworkInterfaceUsage, now int64) *cri.NetworkUsage {
	out := &cri.NetworkUsage{Timestamp: now}
	for _, l := range links {
		if l.Name == firstInterface {
			out.DefaultInterface = l
			continue
		}
		out.Interfaces = append(out.Interfaces, l)
	}
	return out
}
