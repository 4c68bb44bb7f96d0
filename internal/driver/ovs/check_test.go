package ovs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// tampering is one change behind our back: shell words, run where it says.
type tampering struct {
	where string // pod, host or db (ovs-vsctl)
	line  string // HOST stands for the host interface, QOS and QUEUE for the rows
	says  string // part of what Check answers
}

var tamperings = []tampering{
	{"pod", "ip link set eth0 down", "link in the pod is down"},
	{"pod", "ip link set eth0 mtu 1300", "MTU in the pod is 1300"},
	{"pod", "ip link set eth0 address 02:00:00:00:ff:ff", "MAC in the pod is 02:00:00:00:ff:ff"},
	{"pod", "ip link set eth0 name eth9", "is called eth9"},
	{"pod", "ip link del eth0", "link is missing in the pod"},
	{"pod", "ip addr del 100.100.1.1/16 dev eth0", "address 100.100.1.1/16 is missing"},
	{"pod", "ip addr del fd00:100::101/64 dev eth0", "address fd00:100::101/64 is missing"},
	{"pod", "ip addr add 192.0.2.1/24 dev eth0", "192.0.2.1/24 is not ours"},
	{"pod", "ip -6 addr add 2001:db8::1/64 dev eth0", "2001:db8::1/64 is not ours"},
	{"pod", "ip route del default", "route 0.0.0.0/0 via 100.100.0.1 is missing"},
	{"pod", "ip -6 route del default", "route ::/0"},
	{"pod", "ip route replace default via 100.100.0.66", "via 100.100.0.66 (metric 0) is not ours"},
	{"pod", "ip route add default via 100.100.0.66 metric 5", "via 100.100.0.66 (metric 5) is not ours"},
	{"pod", "ip route del 10.9.0.0/16", "route 10.9.0.0/16"},
	{"pod", "ip route add 192.168.0.0/24 via 100.100.0.9", "route 192.168.0.0/24 via 100.100.0.9 (metric 0) is not ours"},
	{"pod", "ip route del 100.100.0.0/16", "route 100.100.0.0/16 of address 100.100.1.1/16 is missing"},
	{"pod", "sysctl -w net.ipv6.conf.eth0.accept_ra=2", "accept_ra is 2"},
	{"pod", "sysctl -w net.ipv6.conf.all.disable_ipv6=1", "disable_ipv6 is 1"},
	{"host", "ip link set HOST down", "HOST is down"},
	{"host", "ip link set HOST mtu 1300", "MTU of link HOST"},
	{"host", "ip link set HOST group 7", "group of link HOST"},
	{"host", "ip link set HOST alias somebody", "alias of link HOST"},
	{"host", "ip link del HOST", "link HOST is missing"},
	{"db", "del-port HOST", "port HOST is missing"},
	{"db", "del-port HOST -- add-br br-x -- set bridge br-x datapath_type=netdev -- add-port br-x HOST", "bridge of port HOST is br-x"},
	{"db", "clear Port HOST tag", "tag of port HOST is 0"},
	{"db", "set Port HOST tag=7", "tag of port HOST is 7"},
	{"db", "set Port HOST trunks=5,6", "trunks of port HOST"},
	{"db", "set Port HOST vlan_mode=trunk", "vlan_mode of port HOST"},
	{"db", "set Interface HOST ingress_policing_rate=0", "ingress_policing_rate"},
	{"db", "set Interface HOST ingress_policing_burst=1", "ingress_policing_burst"},
	{"db", "remove Interface HOST external_ids iface-id", "iface-id is"},
	{"db", "set Interface HOST external_ids:pod_name=other", "pod_name is"},
	{"db", "set Interface HOST external_ids:ip=192.0.2.1", "ip is"},
	{"db", "set Interface HOST external_ids:container_id=other", "container_id is"},
	{"db", "clear Port HOST qos", "no QoS"},
	{"db", "set QoS QOS other_config:max-rate=9", "max-rate is"},
	{"db", "set QoS QOS type=linux-hfsc", "QoS type"},
	{"db", "set QoS QOS other_config:extra=1", "extra"},
	{"db", "clear QoS QOS queues", "queue 0 of"},
	{"db", "set Queue QUEUE other_config:burst=1", "burst is"},
	{"db", "set Queue QUEUE other_config:max-rate=1", "max-rate is"},
	{"db", "clear QoS QOS external_ids", "external_ids of the QoS"},
	{"db", "clear Mirror m0 select_dst_port", "mirroring of port HOST"},
}

func TestCheckFindsTampering(t *testing.T) {
	n := newNode(t)
	before := n.inventory()
	for i, tamper := range tamperings {
		h, s := n.pod(1)
		s.NIC.Mirror = true
		n.attach(s)
		qos := n.sw.Get("Port", s.NIC.OVS.HostIf, "qos")
		expand := strings.NewReplacer("HOST", s.NIC.OVS.HostIf, "QOS", qos, "QUEUE", n.sw.Get("QoS", qos, "queues:0")).Replace
		require.NoError(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}), "before %q", tamper.line)
		n.tamper(tamper.where, h, expand(tamper.line))
		var err error
		n.eventually(fmt.Sprintf("case %d: %s: %s", i, tamper.line, tamper.says), func() bool { // OVSDB tells of one row after the other
			err = n.driver.Check(t.Context(), driver.Run{}, s, core.Link{})
			return err != nil && strings.Contains(err.Error(), expand(tamper.says))
		})
		require.ErrorIs(t, err, core.ErrDrift)
		if strings.Contains(tamper.line, "container_id=") {
			n.sw.Vsctl("set", "Interface", s.NIC.OVS.HostIf, "external_ids:container_id="+s.Key.Container)
			n.eventually("mended", func() bool { return n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}) == nil })
		}
		require.NoError(t, n.driver.Detach(t.Context(), driver.Run{}, s), "after %q", tamper.line)
	}
	n.sw.Vsctl("--if-exists", "del-br", "br-x", "--", "clear", "bridge", "br-int", "mirrors", "--", "del-port", "mirror0")
	after := n.inventory()
	require.Equal(t, before, without(after, "link br-x"))
}

func (n *node) tamper(where string, h *netns.Handle, line string) {
	n.Helper()
	switch where {
	case "pod":
		n.in(h, line)
	case "host":
		f := strings.Fields(line)
		n.sw.In(f[0], f[1:]...)
	case "db":
		n.sw.Vsctl(strings.Fields(line)...)
	}
}

func without(list []string, drop string) (out []string) {
	for _, s := range list {
		if s != drop && s != "link mirror0" { // OVS takes a device away in its own time
			out = append(out, s)
		}
	}
	return out
}

// What others add for good reason is no drift.
func TestCheckNoFalseAlarm(t *testing.T) {
	n := newNode(t)
	h, s := n.pod(1)
	n.attach(s)
	for _, fine := range []tampering{
		{where: "pod", line: "ip link add br0 type bridge"},
		{where: "pod", line: "ip link set br0 up"},
		{where: "pod", line: "ip route add 192.168.0.0/24 dev br0"},
		{where: "pod", line: "ethtool -K eth0 tx off"},
		{where: "pod", line: "sysctl -w net.ipv4.ip_forward=1"},
		{where: "db", line: "set Interface " + s.NIC.OVS.HostIf + " external_ids:ovn-installed=true"},
		{where: "db", line: "set Interface " + s.NIC.OVS.HostIf + " other_config:x=y"},
		{where: "db", line: "add-port br-int another"},
	} {
		n.tamper(fine.where, h, fine.line)
	}
	for range 200 {
		require.NoError(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}))
	}
}
