//go:build vm

package sriov_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
)

// netdevsim is the kernel's simulated card with VFs, which takes what the VM's emulated one
// refuses (test/vm/netdevsim). It has no PCI and no traffic.
func netdevsim(t *testing.T) (pf string) {
	t.Helper()
	module := os.Getenv("FAIRLEAD_NETDEVSIM")
	require.NotEmpty(t, module, "test/vm/netdevsim makes it")
	run := func(argv ...string) string {
		t.Helper()
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		require.NoError(t, err, "%v: %s", argv, out)
		return string(out)
	}
	for needed := range strings.SplitSeq(strings.TrimSpace(run("modinfo", "-F", "depends", module)), ",") {
		run("modprobe", needed)
	}
	run("insmod", module)
	t.Cleanup(func() { run("rmmod", "netdevsim") })
	require.NoError(t, os.WriteFile("/sys/bus/netdevsim/new_device", []byte("7 1"), 0))
	const device = "/sys/bus/netdevsim/devices/netdevsim7"
	require.NoError(t, os.WriteFile(device+"/sriov_numvfs", []byte("2"), 0))
	names, err := os.ReadDir(device + "/net")
	require.NoError(t, err)
	require.Len(t, names, 1)
	return names[0].Name()
}

// TestKernelAttributes: every attribute is set as it is wanted and read back, those too of
// which the emulated card has none: a minimum rate, 802.1ad, the state of the link. What
// the driver refuses is told by its name.
func TestKernelAttributes(t *testing.T) {
	v := sriov.VF{PF: netdevsim(t), Index: 1}
	full := sriov.Attrs{
		MAC: core.MAC{2, 0x0a, 9, 0, 0, 0x11}, VLAN: 1200, QoS: 3, Proto: sriov.Proto8021AD, MinMbps: 50, MaxMbps: 100,
		SpoofChk: true, Trust: true, LinkState: sriov.LinkDisable,
	}
	other := full
	other.VLAN, other.QoS, other.Proto, other.MinMbps, other.MaxMbps, other.SpoofChk, other.Trust, other.LinkState = 7, 0, sriov.Proto8021Q, 0, 10, false, false, sriov.LinkEnable
	for _, set := range []struct {
		how  func(sriov.VF, sriov.Attrs) error
		want sriov.Attrs
	}{{sriov.Write, full}, {sriov.Write, full}, {sriov.Adjust, other}, {sriov.Adjust, full}, {sriov.Write, sriov.Attrs{SpoofChk: true}}} {
		require.NoError(t, set.how(v, set.want))
		require.NoError(t, sriov.Prove(v, set.want))
	}
	beside, err := sriov.Read(sriov.VF{PF: v.PF})
	require.NoError(t, err)
	require.Zero(t, beside.VLAN, "another VF of the card")

	require.True(t, sriov.HasState(v))
	for _, state := range []int{sriov.LinkDisable, sriov.LinkAuto} {
		require.NoError(t, sriov.SetState(v, state))
		require.NoError(t, sriov.Prove(v, sriov.Attrs{SpoofChk: true, LinkState: state}), "nothing else has changed")
	}

	bad := full
	bad.MinMbps = 500
	var no *sriov.Refused
	require.True(t, errors.As(sriov.Write(v, bad), &no))
	require.Equal(t, "rate", no.Attr)
	require.True(t, errors.As(sriov.Prove(v, full), &no), "it has been set as far as that")
	require.Equal(t, "rate is 0 to 0 Mbit/s, not 50 to 100 Mbit/s", no.Attr)
	require.ErrorIs(t, sriov.Write(sriov.VF{PF: v.PF, Index: 4}, full), core.ErrNotFound)
}
