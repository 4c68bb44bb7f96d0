package podruntime

import (
	"context"
	"time"
)

// startGrace is how much longer than whoever wants it a start may go on. A
// runtime whose client goes in the middle of one may forget what it has begun:
// of containerd 2.3.7 a shim stays that it does not know.
const startGrace = 10 * time.Second

// through does what should not be interrupted: ctx's end keeps it from
// beginning, and ends it only after a while.
func through[T any](ctx context.Context, grace time.Duration, do func(context.Context) (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, err
	}
	during, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		select {
		case <-during.Done():
		case <-time.After(grace):
			cancel(context.Cause(ctx))
		}
	})()
	return do(during)
}
