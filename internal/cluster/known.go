package cluster

import (
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/resolve"
)

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
