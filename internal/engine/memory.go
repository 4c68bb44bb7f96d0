package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/resolve"
)

// fromMemory is a source that nobody waits for, and that asks nobody. A DEL of
// a container that is not known comes for every pod, after the one that did the
// work, and mostly when the object is gone too: of that no source would hear any
// more, however long it waited. GC and STATUS are asked also while the API
// server is away, and say what is known. What the configuration says remains.
type fromMemory struct{ resolve.Source }

// Pod implements resolve.Source.
func (m fromMemory) Pod(ctx context.Context, p core.Pod) (*resolve.Pod, error) {
	return heard(m).Pod(ctx, p)
}

// NAD implements resolve.Source.
func (m fromMemory) NAD(ctx context.Context, namespace, name string) (*resolve.NAD, error) {
	if p, ok := m.Source.(resolve.Prompt); ok {
		return p.KnownNAD(namespace, name)
	}
	return m.Source.NAD(over(ctx), namespace, name)
}

// KnownNAD implements resolve.Prompt.
func (m fromMemory) KnownNAD(namespace, name string) (*resolve.NAD, error) {
	if p, ok := m.Source.(resolve.Prompt); ok {
		return p.KnownNAD(namespace, name)
	}
	return nil, core.ErrNotFound // of such a source NAD does not wait
}

// over is ctx at its end: what is known is given also then.
func over(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	stop()
	return ctx
}

// heard is a source of pods that it has heard of: another one is not found. Of
// those it tells when it hears of them, and a container's turn must not be held
// until then.
type heard struct{ resolve.Source }

// Pod implements resolve.Source.
func (h heard) Pod(ctx context.Context, p core.Pod) (*resolve.Pod, error) {
	found, err := h.Source.Pod(over(ctx), p)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		err = fmt.Errorf("pod %s: %w", p, core.ErrNotFound)
	}
	return found, err
}
