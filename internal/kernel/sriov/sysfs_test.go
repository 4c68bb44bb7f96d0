package sriov

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

const (
	pf = "0000:01:00.0"
	vf = "0000:01:10.2"
)

// tree is a machine's sysfs with one card, whose second virtual function is vf.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	devices := filepath.Join(root, "bus/pci/devices")
	for _, d := range []string{pf + "/net/pf0", vf + "/net/eth1", "0000:01:10.0"} {
		require.NoError(t, os.MkdirAll(filepath.Join(devices, d), 0o755))
	}
	for link, to := range map[string]string{
		pf + "/virtfn0": "../0000:01:10.0", pf + "/virtfn1": "../" + vf, vf + "/physfn": "../" + pf, vf + "/driver": "../../drivers/igbvf",
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(devices, link)))
	}
	return root
}

// TestVF reads a function, and tells one that is not there from one that cannot be looked at.
func TestVF(t *testing.T) {
	root := tree(t)
	device := func(more string) string { return filepath.Join(root, "bus/pci/devices", more) }
	v, err := At(root).VF(vf)
	require.NoError(t, err)
	require.Equal(t, VF{PCI: vf, PF: "pf0", Index: 1, Driver: "igbvf"}, v)
	name, err := At(root).Netdev(vf)
	require.NoError(t, err)
	require.Equal(t, "eth1", name)

	for _, none := range []string{"0000:09:00.0", pf, "eth0", "../" + vf, ""} {
		_, err := At(root).VF(none)
		require.ErrorIs(t, err, core.ErrNotFound, none)
	}
	require.NoError(t, os.Remove(device(vf+"/driver")))
	v, err = At(root).VF(vf)
	require.NoError(t, err)
	require.Empty(t, v.Driver)

	// Nothing of this says that the function is gone.
	for _, spoil := range []func() error{
		func() error { return os.WriteFile(device(vf+"/driver"), nil, 0o600) },
		func() error { return os.Remove(device(pf + "/virtfn1")) },
		func() error { return os.WriteFile(device(pf+"/virtfn1"), nil, 0o600) },
		func() error { return os.Remove(device(pf + "/net/pf0")) },
		func() error {
			return os.Rename(device(pf+"/net"), device(pf+"/was"))
		},
		func() error { return os.WriteFile(device(pf+"/net"), nil, 0o600) },
	} {
		require.NoError(t, spoil())
		_, err := At(root).VF(vf)
		require.Error(t, err)
		require.NotErrorIs(t, err, core.ErrNotFound, "%v", err)
	}
}

// TestWritable: where the agent could not bind a driver it says so.
func TestWritable(t *testing.T) {
	root := tree(t)
	require.Error(t, At(root).Writable())
	require.NoError(t, os.WriteFile(root+probe, nil, 0o600))
	require.NoError(t, At(root).Writable())
}

// TestPFs: a card whose device is down has neither carrier nor speed; what cannot be looked
// at is no card that is down.
func TestPFs(t *testing.T) {
	root := tree(t)
	card := filepath.Join(root, "bus/pci/devices", pf)
	put := func(file, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(card, file), []byte(text), 0o600))
	}
	put("sriov_totalvfs", "7")
	put("sriov_numvfs", "2")
	put("net/pf0/type", "1")
	all, err := At(root).PFs()
	require.NoError(t, err)
	require.Equal(t, []PF{{PCI: pf, Name: "pf0", VFs: 2, Most: 7, LinkType: "ether"}}, all)
	put("net/pf0/carrier", "1\n")
	put("net/pf0/speed", "10000\n")
	all, err = At(root).PFs()
	require.NoError(t, err)
	require.True(t, all[0].Up)
	require.Equal(t, 10000, all[0].Mbps)
	require.NoError(t, os.Remove(filepath.Join(card, "net/pf0/carrier")))
	require.NoError(t, os.Mkdir(filepath.Join(card, "net/pf0/carrier"), 0o755))
	_, err = At(root).PFs()
	require.Error(t, err)
}

// TestRDMANodes: what cannot be looked at is not left out.
func TestRDMANodes(t *testing.T) {
	root := tree(t)
	of := filepath.Join(root, "bus/pci/devices", vf)
	for _, d := range []string{"infiniband/mlx5_2", "infiniband_verbs/uverbs2"} {
		require.NoError(t, os.MkdirAll(filepath.Join(of, d), 0o755))
	}
	for _, id := range []string{"vendor", "device"} {
		require.NoError(t, os.WriteFile(filepath.Join(of, id), []byte("0x8086"), 0o600))
	}
	f := Function{VF: VF{PCI: vf}}
	require.NoError(t, At(root).describe(&f))
	require.Equal(t, []string{"/dev/infiniband/uverbs2", "/dev/infiniband/rdma_cm"}, f.RDMANodes)
	require.NoError(t, os.WriteFile(filepath.Join(of, "infiniband_mad"), nil, 0o600))
	require.Error(t, At(root).describe(&f))
}
