package cri

import (
	"context"
	"fmt"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/label"
)

// kinds are the engine's events that CRI has a word for.
var kinds = map[events.Action]cri.ContainerEventType{
	events.ActionCreate:  cri.ContainerEventType_CONTAINER_CREATED_EVENT,
	events.ActionStart:   cri.ContainerEventType_CONTAINER_STARTED_EVENT,
	events.ActionDie:     cri.ContainerEventType_CONTAINER_STOPPED_EVENT,
	events.ActionDestroy: cri.ContainerEventType_CONTAINER_DELETED_EVENT,
}

// GetContainerEvents tells of each change of a sandbox or container, with the
// state of its pod just then, until the caller goes or the engine ends.
func (s *Server) GetContainerEvents(_ *cri.GetEventsRequest, to cri.RuntimeService_GetContainerEventsServer) error {
	ctx := to.Context()
	wanted := label.Parts().Add("type", string(events.ContainerEventType))
	for k := range kinds {
		wanted.Add("event", string(k))
	}
	stream := s.conf.Docker.Events(ctx, client.EventsListOptions{Filters: wanted})
	for {
		select {
		case m := <-stream.Messages:
			if err := to.Send(s.event(ctx, m)); err != nil {
				return err
			}
		case err := <-stream.Err:
			return fmt.Errorf("events: %w", err)
		}
	}
}

// event adds the state of the pod; of one that is gone it tells what is known.
func (s *Server) event(ctx context.Context, m events.Message) *cri.ContainerEventResponse {
	out := &cri.ContainerEventResponse{ContainerId: m.Actor.ID, ContainerEventType: kinds[m.Action], CreatedAt: m.TimeNano}
	sandbox := m.Actor.Attributes[label.Sandbox]
	if label.IsSandbox(m.Actor.Attributes) {
		sandbox = m.Actor.ID
	}
	p, err := s.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sandbox})
	if err != nil { // removed: kubelet wants its metadata all the same
		out.PodSandboxStatus = &cri.PodSandboxStatus{
			Id: sandbox, State: cri.PodSandboxState_SANDBOX_NOTREADY,
			Metadata: podOf(m.Actor.Attributes), Network: &cri.PodSandboxNetworkStatus{},
		}
		return out
	}
	out.PodSandboxStatus = p.Status
	list, err := s.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: sandbox}})
	if err != nil {
		return out
	}
	for _, c := range list.Containers {
		if st, err := s.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.Id}); err == nil {
			out.ContainersStatuses = append(out.ContainersStatuses, st.Status)
		}
	}
	return out
}

// podOf reads the pod from the name of any of its parts.
func podOf(attributes map[string]string) *cri.PodSandboxMetadata {
	m := label.SandboxMetadata(attributes["name"], nil)
	if label.IsSandbox(attributes) {
		m = label.SandboxMetadata(attributes["name"], attributes)
	}
	return m
}
