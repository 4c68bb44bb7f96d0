package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/checkpoint"
	"github.com/fairlead/fairlead/internal/cri/label"
)

// ready tells that a sandbox serves its pod: it runs, and its network was made.
// Without a record (it was damaged, or another program made the sandbox) running
// is all that is known.
func (s *Service) ready(id string, running bool) bool {
	r, ok := s.Records.Get(id)
	return running && (!ok || r.Phase == checkpoint.Ready || r.Phase == checkpoint.Host)
}

func (s *Service) state(id string, running bool) cri.PodSandboxState {
	if s.ready(id, running) {
		return cri.PodSandboxState_SANDBOX_READY
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

// PodSandboxStatus tells what is known of a sandbox; addresses come from the
// record.
func (s *Service) PodSandboxStatus(ctx context.Context, req *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	c, err := s.inspect(ctx, req.PodSandboxId)
	if err == nil && !label.IsSandbox(c.Config.Labels) {
		err = errdefs.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("status of sandbox %s: %w", req.PodSandboxId, err)
	}
	labels, annotations := label.Read(c.Config.Labels)
	status := &cri.PodSandboxStatus{
		Id: c.ID, Metadata: label.SandboxMetadata(c.Name, c.Config.Labels), State: s.state(c.ID, c.State.Running),
		CreatedAt: nanoseconds(c.Created), Network: s.addresses(ctx, c),
		Linux:  &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: namespaces(c.HostConfig)}},
		Labels: labels, Annotations: annotations, RuntimeHandler: c.Config.Labels[label.Handler],
	}
	resp := &cri.PodSandboxStatusResponse{Status: status, Timestamp: time.Now().UnixNano()}
	if req.Verbose {
		resp.Info, err = s.info(ctx, c, status.Network)
	}
	return resp, err
}

// Netns is the path of the network namespace of a sandbox that is ready; it is
// the host's for a pod in the host's network. Errors: NotFound,
// FailedPrecondition.
func (s *Service) Netns(ctx context.Context, id string) (string, error) {
	c, err := s.inspect(ctx, id)
	if err == nil && !label.IsSandbox(c.Config.Labels) {
		err = errdefs.ErrNotFound
	}
	if err == nil && !s.ready(c.ID, c.State.Running) {
		err = fmt.Errorf("%w: it is not ready", errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return "", fmt.Errorf("sandbox %s: %w", id, err)
	}
	return netnsOf(c), nil
}

// nanoseconds since 1970; 0 for what is no time.
func nanoseconds(text string) int64 {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// addresses of the pod; none in the host's network namespace, where the node's
// are. Without a plugin that tells them they are those of Docker's own network.
func (s *Service) addresses(ctx context.Context, c container.InspectResponse) *cri.PodSandboxNetworkStatus {
	ips := s.podAddresses(ctx, c)
	if len(ips) == 0 && c.NetworkSettings != nil && c.State.Running {
		for _, n := range c.NetworkSettings.Networks {
			ips = append(ips, n.IPAddress, n.GlobalIPv6Address)
		}
	}
	out := &cri.PodSandboxNetworkStatus{}
	for _, ip := range ips {
		switch {
		case !ip.IsValid():
		case out.Ip == "":
			out.Ip = ip.String()
		default:
			out.AdditionalIps = append(out.AdditionalIps, &cri.PodIP{Ip: ip.String()})
		}
	}
	return out
}

// podAddresses are the plugin's, also of a pod that has ended. One whose namespace
// cannot be read now is told without addresses rather than not at all.
func (s *Service) podAddresses(ctx context.Context, c container.InspectResponse) []netip.Addr {
	if !s.ready(c.ID, true) || c.HostConfig.NetworkMode.IsHost() {
		return nil
	}
	st, err := s.Network.GetPodNetworkStatus(ctx, s.pod(c))
	if err != nil {
		s.Log.Warn("sandbox told without addresses: the network plugin gave no status of it", "sandbox", c.ID, "err", err)
	}
	if st == nil {
		return nil
	}
	return st.IPs
}

func namespaces(h *container.HostConfig) *cri.NamespaceOption {
	mode := func(host bool) cri.NamespaceMode {
		if host {
			return cri.NamespaceMode_NODE
		}
		return cri.NamespaceMode_POD
	}
	return &cri.NamespaceOption{Network: mode(h.NetworkMode.IsHost()), Pid: mode(h.PidMode.IsHost()), Ipc: mode(h.IpcMode.IsHost())}
}

// info is the verbose part, in the shape that containerd gave to the field.
func (s *Service) info(ctx context.Context, c container.InspectResponse, net *cri.PodSandboxNetworkStatus) (map[string]string, error) {
	r, _ := s.Records.Get(c.ID)
	type namespace struct {
		Type string `json:"type"`
		Path string `json:"path,omitempty"`
	}
	var spaces []namespace
	if p := netnsOf(c); p != "" && !c.HostConfig.NetworkMode.IsHost() {
		spaces = append(spaces, namespace{"network", p})
	}
	b, err := json.Marshal(map[string]any{
		"pid": c.State.Pid, "processStatus": c.State.Status, "image": c.Config.Image,
		"cgroupParent": c.HostConfig.CgroupParent, "networkPhase": r.Phase, "ips": texts(net), "networkCheck": s.checked(ctx, c),
		"runtimeSpec": map[string]any{"linux": map[string]any{"namespaces": spaces}},
	})
	if err != nil {
		return nil, fmt.Errorf("status of sandbox %s: %w", c.ID, err)
	}
	return map[string]string{"info": string(b)}, nil
}

// texts are all addresses, the primary one first.
func texts(net *cri.PodSandboxNetworkStatus) (out []string) {
	if net.Ip != "" {
		out = append(out, net.Ip)
	}
	for _, ip := range net.AdditionalIps {
		out = append(out, ip.Ip)
	}
	return out
}

// checked says whether the pod's network is as it was made.
func (s *Service) checked(ctx context.Context, c container.InspectResponse) string {
	if !s.ready(c.ID, c.State.Running) || c.HostConfig.NetworkMode.IsHost() {
		return ""
	}
	if err := s.Network.CheckPod(ctx, s.pod(c)); err != nil {
		return err.Error()
	}
	return "ok"
}

// ListPodSandbox lists sandboxes, also those that the engine has lost but whose
// network is still to be given back.
func (s *Service) ListPodSandbox(ctx context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	f := req.GetFilter()
	list, err := s.Docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters(f)})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	out := &cri.ListPodSandboxResponse{}
	known := map[string]bool{}
	for _, c := range list.Items {
		known[c.ID] = true
		out.Items = append(out.Items, s.item(c))
	}
	if f.GetId() == "" && len(f.GetLabelSelector()) == 0 {
		out.Items = append(out.Items, s.lost(known)...)
	}
	out.Items = slices.DeleteFunc(out.Items, func(p *cri.PodSandbox) bool {
		return f.GetState() != nil && f.State.State != p.State
	})
	return out, nil
}

// StreamPodSandboxes is ListPodSandbox with an answer for each sandbox.
func (s *Service) StreamPodSandboxes(req *cri.StreamPodSandboxesRequest, to cri.RuntimeService_StreamPodSandboxesServer) error {
	list, err := s.ListPodSandbox(to.Context(), &cri.ListPodSandboxRequest{Filter: req.Filter})
	if err != nil {
		return err
	}
	for _, p := range list.Items {
		if err := to.Send(&cri.StreamPodSandboxesResponse{PodSandboxes: []*cri.PodSandbox{p}}); err != nil {
			return err
		}
	}
	return nil
}

func filters(f *cri.PodSandboxFilter) client.Filters {
	out := label.Sandboxes(f.GetLabelSelector())
	if f.GetId() != "" {
		out.Add("id", f.Id)
	}
	return out
}

func (s *Service) item(c container.Summary) *cri.PodSandbox {
	labels, annotations := label.Read(c.Labels)
	name := ""
	if len(c.Names) > 0 {
		name = c.Names[0]
	}
	return &cri.PodSandbox{
		Id: c.ID, Metadata: label.SandboxMetadata(name, c.Labels),
		State: s.state(c.ID, c.State == container.StateRunning), CreatedAt: time.Unix(c.Created, 0).UnixNano(),
		Labels: labels, Annotations: annotations, RuntimeHandler: c.Labels[label.Handler],
	}
}

// lost are the records of sandboxes that the engine does not know.
func (s *Service) lost(known map[string]bool) []*cri.PodSandbox {
	var out []*cri.PodSandbox
	for _, id := range s.Records.IDs() {
		r, ok := s.Records.Get(id)
		if ok && !known[id] {
			out = append(out, &cri.PodSandbox{
				Id: id, State: cri.PodSandboxState_SANDBOX_NOTREADY,
				Metadata:    &cri.PodSandboxMetadata{Name: r.Pod.Name, Namespace: r.Pod.Namespace, Uid: r.Pod.UID, Attempt: r.Attempt},
				Annotations: r.Pod.Annotations,
			})
		}
	}
	return out
}
