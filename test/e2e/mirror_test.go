package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube/relay"
)

// heard pings a pod until mirror0 of the node copied what came to another one, and tells
// of which pods it copied anything meanwhile.
func heard(t *testing.T, n *testbed.Node, from *testbed.Pod, last string, others ...string) map[string]bool {
	t.Helper()
	fd := -1
	eventually(t, func() string {
		err := relay.InNetns(n.NetnsPath(), func() error {
			dev, err := net.InterfaceByName("mirror0")
			if err != nil {
				return err
			}
			if dev.Flags&net.FlagUp == 0 {
				return fmt.Errorf("mirror0 is down")
			}
			if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
				return err
			}
			all := uint16(unix.ETH_P_ALL)
			return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: dev.Index})
		})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	defer unix.Close(fd)
	require.NoError(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}))
	found := map[string]bool{}
	frame := make([]byte, 2048)
	eventually(t, func() string {
		for _, addr := range append(others, last) {
			if err := from.Ping(addr); err != nil {
				return err.Error()
			}
		}
		for deadline := time.Now().Add(time.Second); !found[last] && time.Now().Before(deadline); {
			size, _, err := unix.Recvfrom(fd, frame, 0)
			for _, addr := range append(others, last) {
				to := netip.MustParseAddr(addr).AsSlice()
				if err == nil && size >= 34 && bytes.Equal(frame[30:34], to) {
					found[addr] = true
				}
			}
		}
		if !found[last] {
			return "nothing that came to " + last
		}
		return ""
	})
	return found
}

// TestMirror: what comes to a pod that asks for it, or with --enable-mirror to any, is
// heard at mirror0, from the moment of the annotation on, and after a restart of
// ovs-vswitchd, of the agent and of the database, with all that it knew or without.
func TestMirror(t *testing.T) {
	t.Parallel()
	objects := func(mirror string) string {
		return together(subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}),
			podObject("default/p", map[string]string{"ovn.kubernetes.io/mirror": mirror}))
	}
	n := testbed.New(t)
	n.WriteObjects("all.yaml", objects("false"))
	a := n.Agent()
	a.WaitReady()
	p, at := attached(n, "p")
	q, others := attached(n, "q")
	r, _ := attached(n, "r")
	one := func() {
		t.Helper()
		eventually(t, func() string { // a switch that has just learnt of the mirror floods, to the pod too
			if found := heard(t, n, r, at[0], others[0]); found[others[0]] {
				return "what came to another pod is heard as well"
			}
			return ""
		})
	}
	n.WriteObjects("all.yaml", objects("true"))
	one()
	n.OVS.KillVswitchd()
	n.OVS.StartVswitchd()
	one()
	a.Kill()
	n.Run("ip", "link", "set", "mirror0", "down")
	a = n.Agent()
	a.WaitReady()
	one()
	n.OVS.LoseConfDB()
	one()

	a.Stop()
	a = n.Agent("--enable-mirror")
	a.WaitReady()
	all := func() {
		t.Helper()
		require.Equal(t, map[string]bool{at[0]: true, others[0]: true}, heard(t, n, r, others[0], at[0]))
	}
	all()
	n.OVS.LoseConfDB()
	all()
	a.Stop()
	a = n.Agent("--enable-mirror=false")
	a.WaitReady()
	one()
	for _, pod := range []*testbed.Pod{p, q, r} {
		pod.CNI("DEL", ownConf).Must()
	}
}
