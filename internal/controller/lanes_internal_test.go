package controller

import (
	"context"
	"testing"

	"github.com/fairlead/fairlead/internal/controller/object"
)

// TestGatewaysWaitForNoPods: another gateway is taken while all workers are busy.
func TestGatewaysWaitForNoPods(t *testing.T) {
	t.Parallel()
	l := newLanes()
	ctx, stop := context.WithCancel(t.Context())
	busy, done, ended := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		l.Run(ctx, 1, func(ctx context.Context, k object.Key) error {
			if k.Kind == kindExits {
				close(done)
				return nil
			}
			close(busy)
			<-ctx.Done()
			return nil
		})
	}()
	l.Add(object.KindPod.Named("web", "a"))
	<-busy
	l.Add(object.Key{Kind: kindExits})
	<-done
	stop()
	<-ended
}
