// Package fault turns what Docker Engine answers into the gRPC status that CRI
// promises its callers: a code that tells kubelet what to do, and a text that
// names what was tried and why it failed. It must not know which call it is for.
package fault

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	docker "github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// kinds are asked in this order: what a context says outweighs the engine's
// words, which are about a connection that the context closed.
var kinds = []struct {
	is   func(error) bool
	code codes.Code
}{
	{func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }, codes.DeadlineExceeded},
	{func(err error) bool { return errors.Is(err, context.Canceled) }, codes.Canceled},
	{docker.IsErrConnectionFailed, codes.Unavailable},
	{errdefs.IsNotFound, codes.NotFound},
	{errdefs.IsInvalidArgument, codes.InvalidArgument},
	{errdefs.IsAlreadyExists, codes.AlreadyExists},
	// Docker's 409: the object is there, in a state that does not allow this.
	{errdefs.IsConflict, codes.FailedPrecondition},
	{errdefs.IsFailedPrecondition, codes.FailedPrecondition},
	{errdefs.IsUnauthorized, codes.Unauthenticated},
	{errdefs.IsPermissionDenied, codes.PermissionDenied},
	{errdefs.IsResourceExhausted, codes.ResourceExhausted},
	{errdefs.IsNotImplemented, codes.Unimplemented},
	{errdefs.IsUnavailable, codes.Unavailable},
}

// Code is the gRPC code of an error: its own if it carries one, else what the
// engine's kind of error means. An error of no known kind is codes.Internal.
func Code(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	for _, k := range kinds {
		if k.is(err) {
			return k.code
		}
	}
	return codes.Internal
}

// Of is err as a status: "<what>: <why>" under Code(err). It is nil for nil.
func Of(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	why := err.Error()
	if s, ok := status.FromError(err); ok {
		why = s.Message()
	}
	return status.Error(Code(err), fmt.Sprintf(format, args...)+": "+why)
}
