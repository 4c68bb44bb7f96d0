package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/spec"
)

// apiVersion of the CRI that is served.
const apiVersion = "v1"

// kubeVersion is the version of kubelet's runtime API, which has been this ever
// since.
const kubeVersion = "0.1.0"

// Version tells who serves. The name is the engine's: tools know it. So is the
// version, as the engine told it when it was last asked for its status: a client
// that begins while the engine is down waits for Status, not for this.
func (s *Server) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	engine, _ := s.engine.Load().(string)
	return &cri.VersionResponse{
		Version: kubeVersion, RuntimeName: "docker", RuntimeVersion: semantic(engine), RuntimeApiVersion: apiVersion,
	}, nil
}

// semantic leaves out what a distribution appends: kubelet reads a semantic
// version, of which 20.10.24+dfsg1 is one, but "dev" is none.
func semantic(v string) string {
	if v == "" || strings.Trim(v[:1], "0123456789") != "" {
		return "0.0.0"
	}
	return v
}

// Conditions' reasons when they do not hold.
const (
	reasonRuntime = "DockerDaemonNotReady"
	reasonNetwork = "NetworkPluginNotReady"
)

// Status tells whether the engine answers and pods can get a network, and why
// not.
func (s *Server) Status(ctx context.Context, req *cri.StatusRequest) (*cri.StatusResponse, error) {
	info, err := s.conf.Docker.Info(ctx, client.InfoOptions{})
	if err == nil {
		s.engine.Store(info.Info.ServerVersion)
	}
	resp := &cri.StatusResponse{
		Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
			condition(cri.RuntimeReady, reasonRuntime, err),
			condition(cri.NetworkReady, reasonNetwork, s.conf.Network.Status(ctx)),
		}},
		Features: &cri.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
	features := &cri.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}
	resp.RuntimeHandlers = []*cri.RuntimeHandler{{Features: features}} // "" is the default
	for name := range info.Info.Runtimes {
		resp.RuntimeHandlers = append(resp.RuntimeHandlers, &cri.RuntimeHandler{Name: name, Features: features})
	}
	slices.SortFunc(resp.RuntimeHandlers, func(a, b *cri.RuntimeHandler) int { return strings.Compare(a.Name, b.Name) })
	if !req.Verbose {
		return resp, nil
	}
	config, err := json.Marshal(map[string]any{
		"sandboxImage": s.conf.SandboxImage, "cgroupDriver": s.driver, "version": s.conf.Version,
		"dockerVersion": info.Info.ServerVersion, "storageDriver": info.Info.Driver, "dockerRoot": info.Info.DockerRootDir,
	})
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	resp.Info = map[string]string{"config": string(config)}
	return resp, nil
}

func condition(kind, reason string, err error) *cri.RuntimeCondition {
	c := &cri.RuntimeCondition{Type: kind, Status: err == nil}
	if err != nil {
		c.Reason, c.Message = reason, err.Error()
	}
	return c
}

// RuntimeConfig tells kubelet the cgroup driver, so that nobody configures it
// twice.
func (s *Server) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	driver := cri.CgroupDriver_CGROUPFS
	if s.driver == spec.SystemdDriver {
		driver = cri.CgroupDriver_SYSTEMD
	}
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// UpdateRuntimeConfig passes the node's pod CIDR on to the network.
func (s *Server) UpdateRuntimeConfig(ctx context.Context, req *cri.UpdateRuntimeConfigRequest) (*cri.UpdateRuntimeConfigResponse, error) {
	if cidr := req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr(); cidr != "" {
		if err := s.conf.Network.SetPodCIDR(ctx, cidr); err != nil {
			return nil, err
		}
	}
	return &cri.UpdateRuntimeConfigResponse{}, nil
}

// ReopenContainerLog begins a new file, after the caller has moved the old one.
func (s *Server) ReopenContainerLog(ctx context.Context, req *cri.ReopenContainerLogRequest) (*cri.ReopenContainerLogResponse, error) {
	if err := s.conf.Logs.Reopen(ctx, req.ContainerId); err != nil {
		return nil, fmt.Errorf("reopen log of container %s: %w", req.ContainerId, err)
	}
	return &cri.ReopenContainerLogResponse{}, nil
}

// UpdatePodSandboxResources has nothing to do: pods' limits are those of their
// cgroup, which is the caller's.
func (s *Server) UpdatePodSandboxResources(context.Context, *cri.UpdatePodSandboxResourcesRequest) (*cri.UpdatePodSandboxResourcesResponse, error) {
	return &cri.UpdatePodSandboxResourcesResponse{}, nil
}

// CheckpointContainer is what Docker's experimental checkpoints cannot do: they
// give no archive.
func (s *Server) CheckpointContainer(context.Context, *cri.CheckpointContainerRequest) (*cri.CheckpointContainerResponse, error) {
	return nil, fmt.Errorf("%w: Docker gives no archive of a running container", errdefs.ErrNotImplemented)
}

// ListMetricDescriptors and the two after it are kubelet's alternative to
// cAdvisor, behind a feature gate; with Docker cAdvisor reads the cgroups.
func (s *Server) ListMetricDescriptors(context.Context, *cri.ListMetricDescriptorsRequest) (*cri.ListMetricDescriptorsResponse, error) {
	return nil, fmt.Errorf("%w: metrics of pods", errdefs.ErrNotImplemented)
}

// ListPodSandboxMetrics is not there: see ListMetricDescriptors.
func (s *Server) ListPodSandboxMetrics(context.Context, *cri.ListPodSandboxMetricsRequest) (*cri.ListPodSandboxMetricsResponse, error) {
	return nil, fmt.Errorf("%w: metrics of pods", errdefs.ErrNotImplemented)
}

// StreamPodSandboxMetrics is not there: see ListMetricDescriptors.
func (s *Server) StreamPodSandboxMetrics(*cri.StreamPodSandboxMetricsRequest, cri.RuntimeService_StreamPodSandboxMetricsServer) error {
	return fmt.Errorf("%w: metrics of pods", errdefs.ErrNotImplemented)
}
