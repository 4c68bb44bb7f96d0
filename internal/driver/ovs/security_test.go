package ovs_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

// neighbours are pods of one network: a victim, its peer, and one that would take
// the victim's place.
type neighbours struct {
	*node
	ns    [4]*netns.Handle
	specs [4]core.Spec
}

const (
	peer, victim, thief = 1, 2, 3
)

func newNeighbours(t *testing.T, change func(*core.Spec)) *neighbours {
	n := &neighbours{node: newNode(t)}
	for i := peer; i <= thief; i++ {
		n.ns[i], n.specs[i] = n.pod(i)
		n.specs[i].NIC.QoS = core.QoS{}
		if i == thief && change != nil {
			change(&n.specs[i])
		}
		n.attach(n.specs[i])
	}
	n.reaches(peer, victim)
	n.reaches(thief, peer)
	return n
}

// ip is a pod's address of a family, 4 or 6.
func (n *neighbours) ip(i, family int) string { return n.specs[i].NIC.Addrs[family/6].Addr().String() }

// pings tells whether an answer comes, from an address that the pod has.
func (n *neighbours) pings(from int, src, dst string) bool {
	_, err := ovstest.Run(n.ns[from], "ping", "-c", "2", "-i", "0.2", "-W", "1", "-I", src, dst)
	return err == nil
}

func (n *neighbours) reaches(from, to int) {
	n.Helper()
	for _, family := range []int{4, 6} {
		n.eventually(fmt.Sprintf("pod %d reaches pod %d by IPv%d", from, to, family), func() bool {
			return n.pings(from, n.ip(from, family), n.ip(to, family))
		})
	}
}

// takes has the thief use the victim's addresses once that is gone, and tells for
// which families it gets answers.
func (n *neighbours) takes() (four, six bool) {
	n.Helper()
	require.NoError(n, n.driver.Detach(n.Context(), driver.Run{}, n.specs[victim]))
	n.in(n.ns[peer], "ip neigh flush dev eth0")
	n.in(n.ns[thief], "ip addr add "+n.ip(victim, 4)+"/16 dev eth0")
	n.in(n.ns[thief], "ip addr add "+n.ip(victim, 6)+"/64 dev eth0 nodad")
	return n.pings(thief, n.ip(victim, 4), n.ip(peer, 4)), n.pings(thief, n.ip(victim, 6), n.ip(peer, 6))
}

func TestPortSecurity(t *testing.T) {
	n := newNeighbours(t, nil)
	// Told without being asked, which is how one takes over what is in use.
	address := " " + n.ip(victim, 4) + "/16 dev eth0"
	n.in(n.ns[thief], "ip addr add"+address)
	n.in(n.ns[thief], "arping -A -c 2 -I eth0 "+n.ip(victim, 4))
	n.in(n.ns[thief], "ip addr del"+address)
	require.NotContains(t, n.in(n.ns[peer], "ip neigh show "+n.ip(victim, 4)), n.specs[thief].NIC.MAC.String())
	n.reaches(peer, victim)

	// The victim's MAC in the frame, with addresses of its own.
	mac := "ip link set eth0 address "
	n.in(n.ns[thief], mac+n.specs[victim].NIC.MAC.String())
	require.False(t, n.pings(thief, n.ip(thief, 4), n.ip(peer, 4)))
	n.reaches(peer, victim)
	n.in(n.ns[thief], mac+n.specs[thief].NIC.MAC.String())
	n.reaches(thief, peer)

	four, six := n.takes()
	require.False(t, four, "IPv4")
	require.False(t, six, "IPv6")
}

// The same is possible where it is allowed, so that TestPortSecurity proves something.
func TestOpenPort(t *testing.T) {
	for name, change := range map[string]func(*core.Spec){
		"by the pod":           func(s *core.Spec) { s.NIC.Open = true },
		"by an earlier agent":  func(s *core.Spec) { s.NIC.OVS.Secure = false },
		"without addresses":    func(s *core.Spec) { s.NIC.VIPs = "" },
		"as a virtual address": func(s *core.Spec) { s.NIC.VIPs = "100.100.1.2,fd00:100::102" },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNeighbours(t, change)
			if name == "without addresses" {
				bare := n.specs[thief]
				bare.ChangeNIC().Addrs = nil
				found, err := n.driver.Repair(t.Context(), driver.Run{}, bare)
				require.NoError(t, err)
				require.ErrorIs(t, found, core.ErrDrift)
			}
			four, six := n.takes()
			require.True(t, four, "IPv4")
			require.True(t, six, "IPv6")
		})
	}
}

// A pod's port security follows its annotation while it runs, without a packet lost.
func TestPortSecurityChanges(t *testing.T) {
	n := newNeighbours(t, nil)
	s := n.specs[thief]
	s.ChangeNIC().VIPs = "100.100.9.9"
	_, err := n.driver.Repair(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	n.in(n.ns[thief], "ip addr add 100.100.9.9/16 dev eth0")
	require.True(t, n.pings(thief, "100.100.9.9", n.ip(peer, 4)))

	s.ChangeNIC().Open = true
	_, err = n.driver.Repair(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	require.Empty(t, n.flowsOf(s), "none where it is open")

	_, err = n.driver.Repair(t.Context(), driver.Run{}, n.specs[thief])
	require.NoError(t, err)
	require.NotEmpty(t, n.flowsOf(s))
	require.False(t, n.pings(thief, "100.100.9.9", n.ip(peer, 4)))
	n.reaches(thief, peer)
}

// flowsOf are the flows of one port.
func (n *neighbours) flowsOf(s core.Spec) (out []string) {
	port := "in_port=" + n.sw.Get("Interface", s.NIC.OVS.HostIf, "ofport")
	for _, f := range n.flows() {
		if strings.Contains(f, port+" ") || strings.Contains(f, port+",") {
			out = append(out, f)
		}
	}
	return out
}

// What somebody removes or changes is told by Check and put back by Repair; what an
// ovs-vswitchd lost that was killed comes back by Resync.
func TestFlowsComeBack(t *testing.T) {
	n := newNeighbours(t, nil)
	all, s := n.flows(), n.specs[thief]
	require.NotEmpty(t, all)
	socket := filepath.Join(filepath.Dir(n.sw.Socket), "br-int.mgmt")
	for _, change := range [][]string{
		{"del-flows", socket, "cookie=0x0fa1000000000000/0xffff000000000000"},
		{"-O", "OpenFlow14", "mod-flows", socket, "in_port=" + n.sw.Get("Interface", s.NIC.OVS.HostIf, "ofport") + ",ip,actions=NORMAL"},
	} {
		n.sw.In("ovs-ofctl", change...)
		require.NotEqual(t, all, n.flows())
		require.ErrorIs(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}), core.ErrDrift)
		for i := peer; i <= thief; i++ {
			_, err := n.driver.Repair(t.Context(), driver.Run{}, n.specs[i])
			require.NoError(t, err)
		}
		require.Equal(t, all, n.flows())
		require.NoError(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}))
	}
	n.sw.KillSwitchd()
	n.sw.StartSwitchd()
	n.eventually("the bridge is back", func() bool { return n.driver.Running(t.Context()) == nil && len(n.flows()) == 0 })
	n.eventually("its flows are back", func() bool {
		return n.driver.Resync(t.Context(), n.specs[1:]) == nil && n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}) == nil
	})
	n.reaches(thief, peer)
	four, six := n.takes()
	require.False(t, four || six)
}

// A Spec without a network of its own family takes nothing of that family.
func TestOneFamily(t *testing.T) {
	n := newNeighbours(t, nil)
	s := n.specs[thief]
	s.ChangeNIC().Addrs = []netip.Prefix{s.NIC.Addrs[0]}
	_, err := n.driver.Repair(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	require.True(t, n.pings(thief, n.ip(thief, 4), n.ip(peer, 4)))
	require.False(t, n.pings(thief, n.ip(thief, 6), n.ip(peer, 6)))
}

// TestOthers: a neighbour that takes the addresses of a running pod of an underlay Subnet
// is found by one question, with its MAC; nobody else is.
func TestOthers(t *testing.T) {
	n := newNeighbours(t, func(s *core.Spec) { s.NIC.Open = true })
	subnet := core.Subnet{Name: "s1", Underlay: "net1"}
	link := core.Link{PodSide: core.PodSide{MAC: n.specs[victim].NIC.MAC}}
	require.Empty(t, n.driver.Others(t.Context(), n.specs[victim], link, subnet))
	n.in(n.ns[thief], "ip addr add "+n.ip(victim, 4)+"/16 dev eth0")
	n.in(n.ns[thief], "ip addr add "+n.ip(victim, 6)+"/64 dev eth0 nodad")
	n.eventually("both are found", func() bool {
		found := n.driver.Others(t.Context(), n.specs[victim], link, subnet)
		for _, c := range found {
			require.Equal(t, n.specs[thief].NIC.MAC, c.MAC)
			require.Equal(t, n.specs[victim].Pod, c.Pod)
		}
		return len(found) == 2
	})
	require.Empty(t, n.driver.Others(t.Context(), n.specs[victim], link, core.Subnet{Name: "s1"}), "of no VLAN")
}

// A port that is removed while Repair looks at it is put back like one that had been
// removed before.
func TestRemovedMeanwhile(t *testing.T) {
	n := newNode(t)
	_, s := n.pod(1)
	n.attach(s)
	for range 20 {
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			n.sw.Vsctl("del-port", s.NIC.OVS.HostIf)
		}()
		for found := error(nil); found == nil; {
			var err error
			found, err = n.driver.Repair(t.Context(), driver.Run{}, s)
			require.NoError(t, err)
		}
		<-gone
	}
}
