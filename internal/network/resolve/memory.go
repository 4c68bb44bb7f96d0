package resolve

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// FromMemory is a source that nobody waits for, and that asks nobody. A DEL of
// a container that is not known comes for every pod, after the one that did the
// work, and mostly when the object is gone too: of that no source would hear any
// more, however long it waited. GC and STATUS are asked also while the API
// server is away, and say what is known. What the configuration says remains.
type FromMemory struct{ Source }

// Pod implements Source.
func (m FromMemory) Pod(ctx context.Context, p core.Pod) (*Pod, error) {
	return Heard(m).Pod(ctx, p)
}

// NAD implements Source.
func (m FromMemory) NAD(ctx context.Context, namespace, name string) (*NAD, error) {
	if p, ok := m.Source.(Prompt); ok {
		return p.KnownNAD(namespace, name)
	}
	return m.Source.NAD(over(ctx), namespace, name)
}

// KnownPod implements Prompt.
func (m FromMemory) KnownPod(ctx context.Context, p core.Pod) (*Pod, error) { return m.Pod(ctx, p) }

// KnownNAD implements Prompt.
func (m FromMemory) KnownNAD(namespace, name string) (*NAD, error) {
	if p, ok := m.Source.(Prompt); ok {
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

// Heard is a source of pods that it has heard of: another one is not found. Of
// those it tells when it hears of them, and a container's turn must not be held
// until then.
type Heard struct{ Source }

// Pod implements Source.
func (h Heard) Pod(ctx context.Context, p core.Pod) (*Pod, error) {
	found, err := h.Source.Pod(over(ctx), p)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		err = fmt.Errorf("pod %s: %w", p, core.ErrNotFound)
	}
	return found, err
}

// Unknown tells an error that says nothing but that networks are not
// there, or not known yet.
func Unknown(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !Unknown(err) })
	}
	return errors.Is(err, core.ErrUnavailable) || errors.Is(err, core.ErrNotFound)
}
