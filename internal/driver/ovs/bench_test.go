package ovs_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

// BenchmarkAttach is one pod at a time, BenchmarkBurst fifty at once: Attach
// to the OpenFlow number, and Detach; namespaces are made outside.
func BenchmarkAttach(b *testing.B) { benchmark(b, 1) }

func BenchmarkBurst(b *testing.B) { benchmark(b, 50) }

// benchmark tells what port security costs too.
func benchmark(b *testing.B, parallel int) {
	for name, secure := range map[string]bool{"secure": true, "open": false} {
		b.Run(name, func(b *testing.B) { attaches(b, parallel, secure) })
	}
}

func attaches(b *testing.B, parallel int, secure bool) {
	n := newNode(b)
	specs := make([]core.Spec, parallel)
	for i := range specs {
		id, err := netns.Identify(netnstest.Path(netnstest.New(b)))
		if err != nil {
			b.Fatal(err)
		}
		specs[i] = spec(i+1, id)
	}
	var detaching time.Duration
	for serial := 0; b.Loop(); serial += parallel {
		b.StopTimer()
		for i := range specs { // a new sandbox each time
			fresh := spec(serial+i+1, specs[i].Netns)
			fresh.NIC.Addrs, fresh.NIC.MAC = specs[i].NIC.Addrs, specs[i].NIC.MAC
			fresh.NIC.OVS.Secure = secure
			specs[i] = fresh
		}
		b.StartTimer()
		burst(b, specs, func(s core.Spec) error { _, err := n.driver.Attach(b.Context(), driver.Run{}, s); return err })
		b.StopTimer()
		begun := time.Now()
		burst(b, specs, func(s core.Spec) error { return n.driver.Detach(b.Context(), driver.Run{}, s) })
		detaching += time.Since(begun)
		// spec/performance.md: the switch is busy with a mass DEL for a while.
		if err := errors.Join(n.driver.Flush(b.Context()), n.client.Settle(b.Context())); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.N*parallel)/detaching.Seconds(), "detach/s")
	b.ReportMetric(float64(b.N*parallel)/b.Elapsed().Seconds(), "attach/s")
}

func burst(b *testing.B, specs []core.Spec, do func(core.Spec) error) {
	b.Helper()
	var wg sync.WaitGroup
	for _, s := range specs {
		wg.Go(func() {
			if err := do(s); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}
