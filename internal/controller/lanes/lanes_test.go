package lanes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/controller/object"
)

var kinds = Of{Records: map[object.Kind]bool{object.KindIP: true}, Alone: object.KindExits}

// TestGatewaysWaitForNoPods: another gateway is taken while all workers are busy.
func TestGatewaysWaitForNoPods(t *testing.T) {
	t.Parallel()
	l := New(kinds)
	ctx, stop := context.WithCancel(t.Context())
	busy, done, ended := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		l.Run(ctx, 1, func(ctx context.Context, k object.Key) error {
			if k.Kind == kinds.Alone {
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
	l.Add(object.Key{Kind: kinds.Alone})
	<-done
	stop()
	<-ended
}

// TestRecordsLetPodsPass: a record is written when the pods that wait have what they need, or
// after patience where they have no end.
func TestRecordsLetPodsPass(t *testing.T) {
	t.Parallel()
	const each = 20 * time.Millisecond // a pod
	for name, pods := range map[string]int{"burst": 10, "storm": 100} {
		synctest.Test(t, func(t *testing.T) {
			l := New(kinds)
			for i := range pods {
				l.Add(object.KindPod.Named("web", string(rune('a'+i))))
			}
			l.Add(object.KindIP.Named("", "a.web"))
			ctx, stop := context.WithTimeout(t.Context(), time.Duration(pods)*each+patience)
			defer stop()
			begun, wrote := time.Now(), time.Duration(-1)
			l.Run(ctx, 1, func(_ context.Context, k object.Key) error {
				if k.Kind == object.KindIP {
					wrote = time.Since(begun)
				} else {
					time.Sleep(each)
				}
				return nil
			})
			require.GreaterOrEqual(t, wrote, min(time.Duration(pods)*each, patience), name)
			require.LessOrEqual(t, wrote, patience, name)
		})
	}
}
