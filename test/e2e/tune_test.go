package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// TestRatesFollowTheAnnotation: rates and mirror of running pods, of both their
// networks, become what the annotations say, without a lost packet; CHECK and a
// restart agree. A value that cannot be read changes nothing, and is told.
func TestRatesFollowTheAnnotation(t *testing.T) {
	t.Parallel()
	const second = "net.default.ovn.kubernetes.io/"
	objects := func(notes map[string]string) map[string]string {
		all := map[string]string{"k8s.v1.cni.cncf.io/networks": "net"}
		for k, v := range notes {
			all[k] = v
		}
		return map[string]string{"all.yaml": together(
			nadObject("default/net", `{"cniVersion":"1.0.0","name":"net","type":"fairlead","provider":"net.default.ovn"}`),
			subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}),
			subnetObject("second", map[string]any{"cidrBlock": "10.30.0.0/24", "provider": "net.default.ovn"}),
			podObject("default/p", all), podObject("default/q", nil),
		)}
	}
	n := startNode(t, objects(nil))
	p, q := n.NewPod("p"), n.NewPod("q")
	p.CNI("ADD", ownConf).Must()
	ip := bare(q.CNI("ADD", ownConf).Must().IPs()[0])
	host, host1 := hostIf(p, "eth0"), hostIf(p, "net1")
	// state is what Open vSwitch has of a port: policing rate, QoS' and Queue's
	// rate, and how many such rows there are.
	state := func(host string) string {
		find := func(table, column string) string {
			return strings.Join(strings.Fields(n.OVS.Vsctl("--bare", "--columns="+column, "find", table, "external_ids:port="+host)), " ")
		}
		rate := n.OVS.Vsctl("get", "Interface", host, "ingress_policing_rate")
		return fmt.Sprintf("%s|%s|%s", rate, find("QoS", "other_config"), find("Queue", "other_config"))
	}
	mirrored := func(host string) bool {
		port := n.OVS.Vsctl("get", "Port", host, "_uuid")
		return strings.Contains(n.OVS.Vsctl("--bare", "--columns=select_dst_port", "list", "Mirror"), port)
	}
	becomes := func(notes map[string]string, eth0, net1 string, mirror bool) {
		t.Helper()
		n.WriteObjects("all.yaml", objects(notes)["all.yaml"])
		eventually(t, func() string {
			if a, b, m := state(host), state(host1), mirrored(host); a != eth0 || b != net1 || m != mirror {
				return fmt.Sprint(notes, " eth0 ", a, " net1 ", b, " mirrored ", m)
			}
			return ""
		})
		p.CNI("CHECK", ownConf).Must()
	}
	ping := p.StartPing(ip, 10*time.Millisecond)
	const none = "0||"
	require.Equal(t, none, state(host))
	becomes(map[string]string{
		"ovn.kubernetes.io/ingress_rate": "300", "ovn.kubernetes.io/egress_rate": "200", second + "ingress_rate": "20", "ovn.kubernetes.io/mirror": "true",
	}, "200000|max-rate=300000000|burst=240000000 max-rate=300000000", "0|max-rate=20000000|burst=16000000 max-rate=20000000", true)
	becomes(map[string]string{"ovn.kubernetes.io/ingress_rate": "400", "ovn.kubernetes.io/mirror": "true"},
		"0|max-rate=400000000|burst=320000000 max-rate=400000000", none, true)

	n.WriteObjects("all.yaml", objects(map[string]string{"ovn.kubernetes.io/ingress_rate": "fast", second + "egress_rate": "5"})["all.yaml"])
	eventually(t, func() string {
		if out, _ := n.TryFairlead("status"); !strings.Contains(out, "ingress_rate") {
			return out
		}
		return ""
	})
	require.Equal(t, "0|max-rate=400000000|burst=320000000 max-rate=400000000", state(host))
	require.Equal(t, none, state(host1))
	require.True(t, mirrored(host))

	becomes(nil, none, none, false)
	ping.Answers(20)
	_, lost := ping.Stop()
	require.Zero(t, lost)
	require.Empty(t, n.OVS.Vsctl("--bare", "--columns=_uuid", "list", "QoS"))
	require.Empty(t, n.OVS.Vsctl("--bare", "--columns=_uuid", "list", "Queue"))
	p.CNI("DEL", ownConf).Must()
	q.CNI("DEL", ownConf).Must()
}

// TestRateChangeSurvivesACrash: an agent that dies between the record and the
// port leaves a record that no annotation differs from any more. The next start
// gives the port what the record says: rates and mirror that came, that changed,
// and that went.
func TestRateChangeSurvivesACrash(t *testing.T) {
	t.Parallel()
	objects := func(notes map[string]string) string {
		return together(subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}), podObject("default/p", notes))
	}
	n := testbed.New(t)
	n.WriteObjects("all.yaml", objects(nil))
	a := n.Agent()
	a.WaitReady()
	p := n.NewPod("p")
	p.CNI("ADD", ownConf).Must()
	host := hostIf(p, "eth0")
	state := func() string {
		rate := n.OVS.Vsctl("get", "Interface", host, "ingress_policing_rate")
		qos := n.OVS.Vsctl("--bare", "--columns=other_config", "find", "QoS", "external_ids:port="+host)
		mirrored := strings.Contains(n.OVS.Vsctl("--bare", "--columns=select_dst_port", "list", "Mirror"), n.OVS.Vsctl("get", "Port", host, "_uuid"))
		return fmt.Sprintf("%s|%s|%v", rate, qos, mirrored)
	}
	const none = "0||false"
	former := none
	for _, c := range []struct {
		notes map[string]string
		want  string
	}{
		{map[string]string{"ovn.kubernetes.io/ingress_rate": "30", "ovn.kubernetes.io/egress_rate": "20", "ovn.kubernetes.io/mirror": "true"}, "20000|max-rate=30000000|true"},
		{map[string]string{"ovn.kubernetes.io/ingress_rate": "40"}, "0|max-rate=40000000|false"},
		{nil, none},
	} {
		require.Equal(t, former, state())
		n.Crash("tune.recorded")
		n.WriteObjects("all.yaml", objects(c.notes))
		require.Error(t, a.Wait())
		require.True(t, a.Killed())
		require.Equal(t, former, state(), "the port had its turn yet")
		a = n.Agent()
		a.WaitReady()
		eventually(t, func() string {
			if got := state(); got != c.want {
				return got + ", not " + c.want
			}
			return ""
		})
		p.CNI("CHECK", ownConf).Must()
		former = c.want
	}
	p.CNI("DEL", ownConf).Must()
}
