package kubenet_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/netplugin"
)

// BenchmarkPod is one pod that comes and goes beside 20 others.
func BenchmarkPod(b *testing.B) {
	for name, ports := range map[string][]netplugin.PortMapping{
		"none": nil, "three": {tcp(8001, 80), tcp(8002, 80), udp(8003, 80)},
	} {
		b.Run("hostPorts="+name, func(b *testing.B) {
			bed := newBed(b, defaults)
			bed.told(cidrs)
			for i := range 20 {
				require.NoError(b, bed.m.SetUpPod(b.Context(), bed.sandbox(fmt.Sprint("other", i), tcp(9000+int32(i), 80)).Pod))
			}
			p := bed.sandbox("pod", ports...)
			for b.Loop() {
				require.NoError(b, bed.m.SetUpPod(b.Context(), p.Pod))
				require.NoError(b, bed.m.TearDownPod(b.Context(), p.Pod))
			}
		})
	}
}
