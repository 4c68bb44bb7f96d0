package e2e

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// newcomers is how many pods prove that an ADD's answer is true.
const newcomers = 500

// wave is how many of them are added at once.
const wave = 5

// firstPackets proves that a pod is ready when its ADD is answered: the first
// packet that it sends then reaches a pod of the other node, in both families.
func (m *matrixBed) firstPackets() {
	m.t.Helper()
	to := []*ovnPod{m.pods["far mate"], m.pods["mate"]} // of the other node than the sender's
	before := m.echoes(to)
	for i := 0; i < newcomers; i += wave {
		var pods []*ovnPod
		for k := i; k < min(i+wave, newcomers); k++ {
			pods = append(pods, m.o.nodes[k%2].pod(fmt.Sprintf("web/first-%d", k)))
		}
		answers := make([]testbed.Answer, len(pods))
		each := func(do func(k int, p *ovnPod)) {
			var wg sync.WaitGroup
			for k, p := range pods {
				wg.Go(func() { do(k, p) })
			}
			wg.Wait()
		}
		each(func(k int, p *ovnPod) {
			answers[k] = p.add()
			for _, ip := range to[(i+k)%2].ips {
				_, _ = p.Try("ping", "-n", "-c", "1", "-W", "1", ip) // who has it counts, not when the answer is back
			}
		})
		for _, a := range answers {
			a.Must()
		}
		each(func(k int, p *ovnPod) { answers[k] = p.call("DEL") })
		for k, p := range pods {
			answers[k].Must()
			p.gone()
		}
	}
	var want []int
	for i, n := range before {
		want = append(want, n+(newcomers+1-i/2)/2)
	}
	eventually(m.t, func() string {
		if got := m.echoes(to); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Sprintf("echo requests that have come by IPv4 and IPv6 to the second node and to the first: %v, not %v", got, want)
		}
		return ""
	})
}

// echoes are the echo requests that pods have had, of both families each.
func (m *matrixBed) echoes(pods []*ovnPod) (out []int) {
	m.t.Helper()
	for _, p := range pods {
		for _, name := range []string{"IcmpInEchos", "Icmp6InEchos"} {
			n, err := strconv.Atoi(p.counter(name))
			require.NoError(m.t, err)
			out = append(out, n)
		}
	}
	return out
}
