package ovn_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/testbed"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// BenchmarkApply: one more port comes and goes in a database of many; a policy
// of many rules is compared with itself.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			nb := bed.NewNB(b, testbed.Bare(b))
			c := ovn.New(ovn.Config{Endpoint: nb.NB(), Log: slog.New(slog.DiscardHandler)})
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() { c.Run(ctx) })
			b.Cleanup(func() { cancel(); wg.Wait() })
			require.Eventually(b, func() bool { return c.Connected() == nil }, patient, 5*time.Millisecond)
			_, err := c.Take(ctx, "bench")
			require.NoError(b, err)
			for i := range n / 200 {
				require.NoError(b, c.Apply(ctx, subnet(fmt.Sprintf("s%d", i))))
			}
			many := &ovn.Set{Owner: "many"}
			for i := range n {
				many.Put(&ovn.LogicalSwitchPort{Name: fmt.Sprintf("p%d", i)}, ovn.InSwitch(fmt.Sprintf("s%d", i/200)))
			}
			require.NoError(b, c.Apply(ctx, many))
			rules := &ovn.Set{Owner: "rules"}
			rules.Put(&ovn.PortGroup{Name: "g"})
			for i := range n {
				rules.PutKeyed(fmt.Sprint("rule", i), &ovn.ACL{Direction: "to-lport", Priority: 2001, Match: fmt.Sprintf("ip4.src == 10.0.%d.%d", i/256, i%256), Action: "allow-related"},
					ovn.Place{Table: ovn.TablePortGroup, Key: "g", Column: "acls"})
			}
			require.NoError(b, c.Apply(ctx, rules))
			b.Run("port", func(b *testing.B) {
				for b.Loop() {
					require.NoError(b, c.Apply(ctx, pod("one.more", "s0", "00:00:00:00:00:01 10.0.0.1")))
					require.NoError(b, c.Apply(ctx, &ovn.Set{Owner: "pod/one.more"}))
				}
			})
			b.Run("rules", func(b *testing.B) {
				for b.Loop() {
					require.NoError(b, c.Apply(ctx, rules))
				}
			})
		})
	}
}
