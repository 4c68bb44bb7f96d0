package metrics

import (
	"context"
	"runtime/debug"
	gauges "runtime/metrics"
	"time"
)

const (
	// GCPercent lets the heap, which is a few MiB, grow further between two
	// collections: they would cost more than all allocations of an ADD.
	GCPercent = 400
	// memoryGoal bounds that growth, in bytes of the Go runtime: with the
	// program's own pages it keeps a full node's agent (250 pods, 1,000 NADs)
	// below 60 MB after a storm too.
	memoryGoal = 22 << 20
	// liveShare and memoryRoom raise the goal where more than that is in use:
	// a goal that cannot be met would only burn CPU.
	liveShare, memoryRoom = 2, 8 << 20
	memoryPace            = 10 * time.Second
)

// BoundMemory keeps the goal in force until ctx ends.
func BoundMemory(ctx context.Context) {
	tick := time.NewTicker(memoryPace)
	defer tick.Stop()
	for {
		debug.SetMemoryLimit(max(memoryGoal, liveShare*liveHeap()+memoryRoom))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// liveHeap is what the last collection left, in bytes.
func liveHeap() int64 {
	s := []gauges.Sample{{Name: "/gc/heap/live:bytes"}}
	gauges.Read(s)
	if s[0].Value.Kind() != gauges.KindUint64 {
		return 0
	}
	return int64(min(s[0].Value.Uint64(), 1<<62)) //nolint:gosec // bounded
}
