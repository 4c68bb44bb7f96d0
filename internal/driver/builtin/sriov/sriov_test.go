package sriov

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
)

const pci = "0000:01:10.0"

// onPaper is a plugin over a sysfs of files, with one VF.
func onPaper(t *testing.T) (p *Plugin, root string) {
	t.Helper()
	root = t.TempDir()
	devices := filepath.Join(root, "bus/pci/devices")
	require.NoError(t, os.MkdirAll(filepath.Join(devices, "0000:01:00.0/net/pf0"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(devices, pci), 0o755))
	require.NoError(t, os.Symlink("../0000:01:00.0", filepath.Join(devices, pci, "physfn")))
	require.NoError(t, os.Symlink("../"+pci, filepath.Join(devices, "0000:01:00.0/virtfn0")))
	return &Plugin{sys: sriov.At(root), host: rtnl.NewPool(nil), marks: marks{dir: t.TempDir()}}, root
}

func callFor(t *testing.T) driver.PluginCall {
	t.Helper()
	id, err := netns.Identify(netnstest.Bind(t, netnstest.New(t)))
	require.NoError(t, err)
	return driver.PluginCall{
		Key: core.Key{Container: "c", IfName: "net1"}, Netns: id,
		Conf: json.RawMessage(`{"cniVersion":"1.0.0","name":"db","type":"sriov","deviceID":"` + pci + `"}`),
	}
}

// TestReadOnlyMachine: where drivers cannot be bound no VF is given: it would be dirty for
// ever. Nothing is touched.
func TestReadOnlyMachine(t *testing.T) {
	p, _ := onPaper(t)
	_, err := p.Add(t.Context(), callFor(t))
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	require.ErrorContains(t, err, "drivers cannot be bound")
	require.ErrorContains(t, err, "writable /sys")
	left, err := os.ReadDir(p.marks.dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestVFThatIsNoMore: a Del of a VF that somebody took away leaves nothing of it behind,
// and no mark that another one of that address would have to answer for; what cannot be
// looked at is not gone.
func TestVFThatIsNoMore(t *testing.T) {
	p, root := onPaper(t)
	call := callFor(t)
	require.NoError(t, p.marks.save(pci, Mark{Owner: call.Key, Name: "eth0"}))
	spoilt := filepath.Join(root, "bus/pci/devices/0000:01:00.0/net")
	require.NoError(t, os.Rename(spoilt, spoilt+"-was"))
	require.Error(t, p.Del(t.Context(), call))
	_, ok, err := p.marks.load(pci)
	require.NoError(t, err)
	require.True(t, ok, "it was not looked at")

	require.NoError(t, os.RemoveAll(filepath.Join(root, "bus/pci/devices", pci)))
	other := call
	other.Key.Container = "other"
	require.NoError(t, p.Del(t.Context(), other))
	_, ok, err = p.marks.load(pci)
	require.NoError(t, err)
	require.True(t, ok, "it is another's")
	require.NoError(t, p.Del(t.Context(), call))
	_, ok, err = p.marks.load(pci)
	require.NoError(t, err)
	require.False(t, ok)
}

// TestCleanLeavesLiving: a VF of programs whose mark nobody vouches for is not cleaned while
// the namespace of its pod is there, or not known of one that the program sriov gave.
func TestCleanLeavesLiving(t *testing.T) {
	p, root := onPaper(t)
	require.NoError(t, os.Symlink("../../../drivers/vfio-pci", filepath.Join(root, "bus/pci/devices", pci, "driver")))
	key := core.Key{Container: "c", IfName: "net1"}
	h := netnstest.New(t)
	path := netnstest.Bind(t, h)
	id, err := netns.Identify(path)
	require.NoError(t, err)
	for _, c := range []struct {
		m   Mark
		why string
	}{
		{Mark{Netns: id}, "the pod's namespace " + path + " is there still"},
		{Mark{Netns: id, Former: []string{"file"}}, "the pod's namespace " + path + " is there still"},
		{Mark{Former: []string{"file"}}, "`fairlead import sriov --rollback`"},
	} {
		c.m.Owner = key
		require.NoError(t, p.marks.save(pci, c.m))
		require.ErrorContains(t, p.Clean(t.Context(), pci, key), c.why)
		marked, err := p.Marked()
		require.NoError(t, err)
		require.Equal(t, map[string]core.Key{pci: key}, marked)
	}
	netnstest.Unbind(t, path)
	require.NoError(t, h.Close())
	for _, m := range []Mark{{Netns: id}, {Netns: id, Former: []string{"file"}}, {Netns: core.Netns{Path: path}, Former: []string{"file"}}} {
		m.Owner = key
		require.NoError(t, p.marks.save(pci, m))
		require.ErrorContains(t, p.Clean(t.Context(), pci, key), "pf0", "it is cleaned, for which the card is not here")
	}
}

// TestDelGivesUp: a Del whose caller has given up asks the IPAM plugin with that caller's
// context.
func TestDelGivesUp(t *testing.T) {
	p, root := onPaper(t)
	require.NoError(t, os.RemoveAll(filepath.Join(root, "bus/pci/devices", pci)))
	call := callFor(t)
	call.Conf = json.RawMessage(`{"cniVersion":"1.0.0","name":"db","type":"sriov","deviceID":"` + pci + `","ipam":{"type":"static"}}`)
	ctx, stop := context.WithCancel(t.Context())
	call.IPAM = func(asked context.Context, op core.Op) (json.RawMessage, error) {
		require.Equal(t, core.Del, op)
		stop()
		return nil, asked.Err()
	}
	require.ErrorIs(t, p.Del(ctx, call), context.Canceled)
}

// TestProve: values that no VF can have are refused before anything is touched, with
// their reasons.
func TestProve(t *testing.T) {
	p, _ := onPaper(t)
	for keys, reason := range map[string]string{
		`"vlan":4095`: core.ReasonInvalidVLAN, `"vlan":-1`: core.ReasonInvalidVLAN, `"vlanQoS":3`: core.ReasonInvalidVLAN, `"vlan":1,"vlanQoS":8`: core.ReasonInvalidVLAN,
		`"vlanProto":"802.1ad"`: core.ReasonInvalidVLAN, `"vlan":1,"vlanProto":"qinq"`: core.ReasonInvalidVLAN,
		`"mac":"01:00:00:00:00:01"`: core.ReasonInvalidMAC, `"mac":"00:00:00:00:00:00"`: core.ReasonInvalidMAC, `"mac":"x"`: core.ReasonInvalidMAC,
		`"min_tx_rate":5,"max_tx_rate":4`: core.ReasonRateInvalid, `"max_tx_rate":-1`: core.ReasonRateInvalid,
		`"spoofchk":"yes"`: "", `"link_state":"up"`: "",
	} {
		call := callFor(t)
		call.Conf = json.RawMessage(`{"cniVersion":"1.0.0","type":"sriov","deviceID":"` + pci + `",` + keys + `}`)
		err := p.Prove(call)
		require.Error(t, err, keys)
		require.Equal(t, reason, core.ReasonOf(err), "%s: %v", keys, err)
	}
	call := callFor(t)
	call.Conf = json.RawMessage(`{"type":"sriov","deviceID":"` + pci + `","vlan":4094,"vlanQoS":7,"vlanProto":"802.1AD","mac":"02-00-00-00-00-01","min_tx_rate":5,"trust":"on","link_state":"auto"}`)
	require.NoError(t, p.Prove(call))
}
