package callback

import (
	"bufio"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

func call(token, container, kind string) core.Request {
	return core.Request{Token: token, Key: core.Key{Container: container, IfName: "net1"}, Conf: core.Conf{Type: kind}}
}

// TestWhoMayJoin: the plugins of the operation, for its container, for addresses,
// and while it lasts.
func TestWhoMayJoin(t *testing.T) {
	var hs Hosts
	h := &Host{Rec: &core.Record{Key: core.Key{Container: "c", IfName: "eth0"}}}
	token, end := hs.Invite(h)
	other, endOther := hs.Invite(&Host{Rec: &core.Record{}})
	require.NotEqual(t, token, other)
	got, err := hs.Of(call(token, "c", "macvlan"))
	require.NoError(t, err)
	require.Same(t, h, got)
	_, err = hs.Of(call(token, "d", "macvlan"))
	require.Equal(t, core.CodeEnv, core.CodeOf(err))
	_, err = hs.Of(call(token, "c", "fairlead"))
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	_, err = hs.Of(call("", "c", "macvlan"))
	require.ErrorIs(t, err, ErrOver)
	end()
	endOther()
	_, err = hs.Of(call(token, "c", "macvlan"))
	require.ErrorIs(t, err, ErrOver)
	_, _, err = h.Leased(core.Key{Container: "c", IfName: "net1"}, "s")
	require.ErrorIs(t, err, ErrOver, "a call that was under way")
	_, err = h.Leases(core.Key{Container: "c", IfName: "net1"})
	require.ErrorIs(t, err, ErrOver)
}

// TestEndWaitsForTheCallUnderWay: after it nobody touches the record.
func TestEndWaitsForTheCallUnderWay(t *testing.T) {
	var hs Hosts
	h := &Host{Rec: &core.Record{}}
	_, end := hs.Invite(h)
	h.Lock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		end()
	}()
	select {
	case <-ended:
		t.Fatal("the host ended during a call")
	default:
	}
	h.Unlock()
	<-ended
}

// TestLeased: an interface has its addresses once.
func TestLeased(t *testing.T) {
	k := func(ifName string) core.Key { return core.Key{Container: "c", IfName: ifName} }
	mine := core.Lease{Subnet: "s", Owner: core.Owner{Key: k("net1")}, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}
	h := &Host{Rec: &core.Record{Leases: []core.Lease{mine}, Specs: []core.Spec{{Key: k("net2"), NIC: &core.NICSpec{}}}}}
	l, known, err := h.Leased(k("net1"), "s")
	require.NoError(t, err)
	require.True(t, known)
	require.Equal(t, mine, l)
	_, _, err = h.Leased(k("net1"), "other")
	require.Equal(t, core.CodeConflict, core.CodeOf(err))
	_, _, err = h.Leased(k("net2"), "s")
	require.Equal(t, core.CodeConflict, core.CodeOf(err), "an interface of ours")
	_, known, err = h.Leased(k("net3"), "s")
	require.NoError(t, err)
	require.False(t, known)
	_, err = h.Leases(k("net3"))
	require.Equal(t, core.CodeUnknown, core.CodeOf(err))
	all, err := h.Leases(k("net1"))
	require.NoError(t, err)
	require.Equal(t, []core.Lease{mine}, all)
}

// TestGuestWithoutToken: a plugin that handed on no environment is known by its
// process group, or by that of an ancestor, while the operation lasts.
func TestGuestWithoutToken(t *testing.T) {
	var hs Hosts
	token, end := hs.Invite(&Host{Rec: &core.Record{}})
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "setsid --wait sh -c 'echo $$; exec cat'")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	grandchild, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)

	require.Empty(t, hs.TokenOf(grandchild), "nobody runs anything")
	hs.Runs(token, cmd.Process.Pid)
	require.Equal(t, token, hs.TokenOf(cmd.Process.Pid))
	require.Equal(t, token, hs.TokenOf(grandchild), "in a session of its own")
	for _, stranger := range []int{os.Getpid(), 1, 0, -1} {
		require.Empty(t, hs.TokenOf(stranger))
	}
	end()
	require.Empty(t, hs.TokenOf(grandchild), "the operation is over")
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
}
