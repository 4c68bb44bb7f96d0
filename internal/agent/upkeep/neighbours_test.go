package upkeep

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestNeighbours: an address that somebody takes while its pod runs is told once, and again
// when the other has gone and come back; pods of no VLAN are not asked for, nor are those
// that come or go.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	synctest.Test(t, neighbours)
}

func neighbours(t *testing.T) {
	t.Helper()
	record := func(name, subnet string, phase core.Phase) core.Record {
		return core.Record{Pod: core.Pod{Name: name}, Phase: phase, Links: []core.Link{{IfName: "eth0"}, {IfName: "eth0"}}, Specs: []core.Spec{
			{DefaultRoute: &core.DefaultRoute{}}, {Pod: core.Pod{Name: name}, NIC: &core.NICSpec{Subnet: subnet}},
		}}
	}
	taken := false
	asked := map[string]int{}
	var told []string
	n := Neighbours{
		Records: func() []core.Record {
			return []core.Record{record("a", "vlan", core.Added), record("b", "web", core.Added), record("c", "vlan", core.Adding)}
		},
		Subnets: func(context.Context) ([]core.Subnet, error) {
			return []core.Subnet{{Name: "vlan", Underlay: "net1"}, {Name: "web"}}, nil
		},
		Others: func(_ context.Context, s core.Spec, _ core.Link, subnet core.Subnet) (out []core.Conflict) {
			asked[s.Pod.Name+" "+subnet.Name]++
			if taken {
				out = append(out, core.Conflict{Pod: s.Pod, Addr: netip.MustParseAddr("10.10.0.9"), MAC: core.MAC{2, 0, 0, 0, 0, 9}})
			}
			return out
		},
		Tell: func(c core.Conflict) { told = append(told, c.Pod.Name) },
	}
	ctx, stop := context.WithCancel(t.Context())
	tick, done := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(done)
		n.Run(ctx, tick)
	}()
	for _, now := range []bool{false, true, true, false, true} {
		taken = now
		tick <- time.Time{}
		synctest.Wait()
	}
	stop()
	<-done
	require.Equal(t, []string{"a", "a"}, told)
	require.Equal(t, map[string]int{"a vlan": 5}, asked)
}
