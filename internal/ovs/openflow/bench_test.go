package openflow_test

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/internal/ovs/openflow"
)

func BenchmarkSet(b *testing.B) {
	bed := newBed(b)
	for _, n := range []int{1, 4, 24} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				flows := make([]openflow.Flow, n)
				for p := range flows {
					flows[p] = openflow.Flow{Priority: uint16(p), Match: openflow.From(i%200 + 1).MAC(mac), Forward: true}
				}
				if err := bed.flow.Set(b.Context(), ours&mark|uint64(i%200+1), flows...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
