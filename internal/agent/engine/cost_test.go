package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
)

// BenchmarkAdd is what the engine and the journal add to the work of the
// drivers: ADD and DEL of a pod with one network, 25 at a time for each CPU.
func BenchmarkAdd(b *testing.B) {
	e := newEngine(b, nil)
	e.Drivers["ovs"] = &silent{}
	req := add(b)
	req.Pod.Name = "unknown"
	req.Conf.Raw = []byte(`{"cniVersion":"1.0.0","name":"net","type":"fairlead"}`)
	req.RawArgs = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=unknown;K8S_POD_INFRA_CONTAINER_ID=c1"
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(25)
	var size atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			mine := req
			mine.Key.Container = fmt.Sprintf("c%d", n.Add(1))
			a, err := e.Add(b.Context(), mine)
			require.NoError(b, err)
			size.Store(int64(len(a.Result)))
			e.Delivered(mine.Key)
			require.NoError(b, e.Del(b.Context(), mine))
		}
	})
}

// silent is a driver that makes nothing and remembers nothing.
type silent struct{ nics }

func (*silent) Detach(context.Context, driver.Run, core.Spec) error { return nil }
