package e2e

import (
	"fmt"
	"sync"

	"github.com/fairlead/fairlead/internal/testbed"
)

// newcomers is how many pods prove that an ADD's answer is true. They come one after
// the other: in user space Open vSwitch loses tunnelled packets of the moment in which
// a link comes or goes (docs/cluster.md), so that a pod's first packet may be lost to
// another one's ADD or DEL.
const newcomers = 500

// atOnceGone is how many of them are deleted together.
const atOnceGone = 25

// firstPackets proves that a pod is ready when its ADD is answered: the first packet
// that it sends then reaches a pod of the other node, in both families.
func (m *matrixBed) firstPackets() {
	m.t.Helper()
	to := []*ovnPod{m.pods["far mate"], m.pods["mate"]} // of the other node than the sender's
	for i := range newcomers / atOnceGone {
		var pods []*ovnPod
		for k := range atOnceGone {
			p := m.o.nodes[k%2].run(fmt.Sprintf("web/first-%d-%d", i, k))
			p.reaches(to[k%2])
			pods = append(pods, p)
		}
		answers := make([]testbed.Answer, len(pods))
		var wg sync.WaitGroup
		for k, p := range pods {
			wg.Go(func() { answers[k] = p.call("DEL") })
		}
		wg.Wait()
		for k, p := range pods {
			answers[k].Must()
			p.gone()
		}
		for _, n := range m.o.nodes {
			n.Inventory() // waits for the links' end
		}
	}
}
