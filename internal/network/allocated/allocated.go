// Package allocated resolves what a pod should get where a controller gives the
// addresses: it waits until the pod's annotations tell them.
package allocated

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// limit bounds how long an ADD waits for the controller: the runtime comes again,
// and an ADD that waits holds its pod's DEL up.
const limit = 30 * time.Second

// Follower is a Source that hears of changes of pods.
type Follower interface {
	resolve.Source
	// Differs returns nil as soon as the annotations of the pod with p's UID are
	// others than seen; core.ErrNotFound when another pod has its name.
	Differs(ctx context.Context, p core.Pod, seen map[string]string) error
}

// Host is a Follower whose pods are there from their ADD on: it learns of them here.
type Host interface {
	Follower
	Announce(req core.Request)
}

// Teller is a Source that knows why a pod has no address, beside what the pod's own
// annotations say.
type Teller interface {
	// Why is asked once, when the pod was waited for in vain; "" for nothing.
	Why(ctx context.Context, p core.Pod) string
}

// Resolve is resolve.Resolve as soon as it gives no *annotation.UnallocatedError
// any more. After 30 s without the addresses, or when the pod is gone, it is code
// 11 and says what is missing.
func Resolve(ctx context.Context, src resolve.Source, in resolve.Input) ([]core.Want, error) {
	return wait(ctx, src, in, resolve.Resolve)
}

// Addresses is resolve.Addresses, and waits as Resolve does.
func Addresses(ctx context.Context, src resolve.Source, in resolve.Input) (*core.NIC, error) {
	return wait(ctx, src, in, resolve.Addresses)
}

func wait[T any](ctx context.Context, src resolve.Source, in resolve.Input, try func(context.Context, resolve.Source, resolve.Input) (T, error)) (none T, err error) {
	waiting, stop := context.WithTimeout(ctx, limit)
	defer stop()
	if host, ok := src.(Host); ok {
		host.Announce(in.Request)
	}
	for {
		got, err := try(ctx, src, in)
		missing := (*annotation.UnallocatedError)(nil)
		if !errors.As(err, &missing) {
			return got, err
		}
		f, ok := src.(Follower)
		if !ok {
			return none, core.WithCode(core.CodeTryAgain, "addresses", err)
		}
		pod := in.Request.Pod
		switch changed := f.Differs(waiting, pod, missing.Seen); {
		case changed == nil:
		case ctx.Err() != nil:
			return none, ctx.Err()
		case errors.Is(changed, core.ErrNotFound):
			return none, core.WithCode(core.CodeTryAgain, "pod "+pod.String()+" is gone", err)
		default:
			return none, &core.Error{
				Code: core.CodeTryAgain, Err: err, Msg: fmt.Sprintf("pod %s has no address after %s", pod, limit),
				Details: err.Error() + "; " + why(ctx, src, pod, missing),
			}
		}
	}
}

// maxSaid bounds what is repeated of an annotation, in bytes: its pod's author may have
// written it.
const maxSaid = 1000

// why is what stands in the way of a pod's address, or who knows more.
func why(ctx context.Context, src resolve.Source, pod core.Pod, missing *annotation.UnallocatedError) string {
	if t, ok := src.(Teller); ok {
		if said := t.Why(ctx, pod); said != "" {
			return said
		}
	}
	if said := missing.Seen[v1.AnnNoAddress]; said != "" {
		return "the controller says: " + said[:min(len(said), maxSaid)]
	}
	if _, ok := src.(Host); ok {
		return "the agent's log says more"
	}
	return "the pod's events say why, or no controller runs (`kubectl describe pod`)"
}
