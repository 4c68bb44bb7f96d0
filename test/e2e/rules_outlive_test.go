package e2e

import (
	"fmt"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// TestForeignRulesWhereTheNamespaceWentFirst: bridge and ptp run as programs and
// masquerade, by iptables and by nftables. Whether the namespace goes before DEL,
// while no agent runs, or while an ADD is killed: afterwards rules, chains, links
// and leases are those of before.
func TestForeignRulesWhereTheNamespaceWentFirst(t *testing.T) {
	t.Parallel()
	rounds := 9
	if soak() {
		rounds = 300
	}
	n := testbed.New(t)
	n.WriteObjects("objects.yaml", together(
		subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/24"}),
		nadObject("br", `{"cniVersion":"1.0.0","type":"bridge","bridge":"brm","isGateway":true,"ipMasq":true,
			"ipam":{"type":"host-local","ranges":[[{"subnet":"10.61.0.0/24"}],[{"subnet":"fd00:61::/64"}]]}}`),
		nadObject("pt", `{"cniVersion":"0.4.0","type":"ptp","ipMasq":true,"ipMasqBackend":"nftables",
			"ipam":{"type":"host-local","subnet":"10.62.0.0/24"}}`),
		podObject("p", map[string]string{networksKey: "br,pt"}),
	))
	a := n.Agent()
	a.WaitReady()
	warm := n.NewPod("p") // what is made for all pods stays
	warm.CNI("ADD", ownConf).Must()
	require.Contains(t, n.Run("nft", "list", "ruleset"), "10.61.0.2")
	warm.CNI("DEL", ownConf).Must()
	warm.Delete()
	before := n.Inventory()
	for round := range rounds {
		p := n.NewPod("p")
		switch round % 3 {
		case 0: // the namespace first, then DEL
			p.CNI("ADD", ownConf).Must()
			p.Delete()
			p.CNI("DEL", ownConf).Must()
			continue
		case 1: // DEL and the namespace's end while no agent runs
			p.CNI("ADD", ownConf).Must()
			a.Kill()
		case 2: // in the middle of ADD
			added := make(chan testbed.Answer)
			go func() { added <- p.CNI("ADD", ownConf) }()
			time.Sleep(mathrand.N(400 * time.Millisecond)) // the instant is what is random
			a.Kill()
			<-added
		}
		p.CNI("DEL", ownConf).Must()
		p.Delete()
		a = n.Agent()
		a.WaitReady()
	}
	eventually(t, func() string {
		if leaks := n.Leaks(before); len(leaks) > 0 {
			return fmt.Sprint(leaks)
		}
		return ""
	})
}
