//go:build vm

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/testbed"
)

// TestKernelClockSetBack: a day that the machine's clock loses (a battery, a wrong time
// server) stops nothing. What somebody goes on changing is put right after the pause
// that was meant, and not a day later; an older sandbox's DEL takes nothing from the
// newer one; an agent that starts then knows what there is. Not beside other tests: the
// clock is everybody's.
func TestKernelClockSetBack(t *testing.T) {
	n := testbed.New(t)
	n.WriteObjects("p.yaml", together(podObject("default/p", nil), subnetObject("ovn-default", map[string]any{
		"default": true, "natOutgoing": true, "cidrBlock": "10.16.0.0/16",
	})))
	a := n.Agent()
	a.WaitReady()
	awaitGateways(t, n)
	p, _ := attached(n, "p")
	spoil := func() {
		t.Helper()
		n.Run("sysctl", "-qw", "net.ipv4.ip_forward=0")
		eventually(t, func() string {
			if strings.TrimSpace(n.Run("sysctl", "-n", "net.ipv4.ip_forward")) != "1" {
				return "ip_forward is not put back"
			}
			return ""
		})
	}
	for range 8 { // from the sixth on each is waited for
		spoil()
	}
	const back = 24 * time.Hour
	set := func(by time.Duration) {
		t.Helper()
		n.Run("date", "-s", time.Now().Add(by).Format(time.RFC3339))
	}
	set(-back)
	defer set(back)
	spoil()

	p.CNI("CHECK", ownConf).Must()
	second, addrs := attached(n, "p") // the pod's next sandbox
	p.CNI("DEL", ownConf).Must()
	q, _ := attached(n, "q")
	reaches(t, q, addrs...)
	a.Kill()
	n.Agent().WaitReady()
	second.CNI("CHECK", ownConf).Must()
	reaches(t, q, addrs...)
	for _, pod := range []*testbed.Pod{second, q} {
		pod.CNI("DEL", ownConf).Must()
	}
}
