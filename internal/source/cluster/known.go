package cluster

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// KnownPod implements resolve.Prompt. An agent that has just connected has
// questions beyond the pod, which could not be answered yet: it waits for all
// of it, as Pod does.
func (s *Source) KnownPod(ctx context.Context, want core.Pod) (*resolve.Pod, error) {
	if !s.isComplete() {
		patience := podPatience
		if staticUID.MatchString(want.UID) {
			patience = staticPatience
		}
		waiting, stop := s.health.Patient(ctx, patience, downPatience)
		s.awaitComplete(waiting)
		stop()
	}
	return s.Known(want)
}

// KnownNAD implements resolve.Prompt: what is in memory, without waiting.
func (s *Source) KnownNAD(namespace, name string) (*resolve.NAD, error) {
	i := id{Namespace: namespace, Name: name}
	if n, ok := s.nads.get(i); ok {
		return n.answer(i), nil
	}
	if err := s.nads.unsynced(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("NetworkAttachmentDefinition %s: %w", i, core.ErrNotFound)
}

var _ resolve.Prompt = (*Source)(nil)
