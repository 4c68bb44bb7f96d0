package podruntime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/pleg"
)

// States lists what the runtime has of pods, for a pleg.PLEG.
func (r *Runtime) States(ctx context.Context) (map[pleg.Key]pleg.State, error) {
	boxes, err := r.conf.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	all, err := r.conf.Runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	out := map[pleg.Key]pleg.State{}
	for _, b := range boxes.GetItems() {
		state := pleg.Exited
		if b.GetState() == cri.PodSandboxState_SANDBOX_READY {
			state = pleg.Running
		}
		out[pleg.Key{UID: types.UID(b.GetMetadata().GetUid()), ID: b.GetId()}] = state
	}
	for _, c := range all.GetContainers() {
		state := pleg.Unknown
		switch c.GetState() {
		case cri.ContainerState_CONTAINER_RUNNING:
			state = pleg.Running
		case cri.ContainerState_CONTAINER_EXITED:
			state = pleg.Exited
		}
		out[pleg.Key{UID: types.UID(c.GetLabels()[labelUID]), ID: c.GetId()}] = state
	}
	return out, nil
}

// Watch calls news for each event of the runtime, until ctx ends. A runtime
// without events is asked again now and then: another may take its place.
func (r *Runtime) Watch(ctx context.Context, news func()) {
	const again = 5 * time.Second
	for ctx.Err() == nil {
		if err := r.watch(ctx, news); err != nil && ctx.Err() == nil {
			r.conf.Log.Debug("no events from the runtime: changes are seen at the next look", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

func (r *Runtime) watch(ctx context.Context, news func()) error {
	stream, err := r.conf.Runtime.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	if err != nil {
		return err
	}
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		news()
	}
}
