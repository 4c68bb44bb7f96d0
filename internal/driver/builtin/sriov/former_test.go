package sriov

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// left is a file as sriov-cni 2.10 leaves it.
const left = `{"cniVersion":"1.0.0","name":"db","type":"sriov","ipam":{"type":"static"},"OrigVfState":{"HostIFName":"eth7","SpoofChk":true,"Trust":false,
"AdminMAC":"00:00:00:00:00:00","EffectiveMAC":"02:00:00:00:00:07","Vlan":0,"VlanQoS":0,"VlanProto":33024,"MinTxRate":0,"MaxTxRate":0,"LinkState":0},
"DPDKMode":false,"Master":"pf0","MAC":"02:0a:09:00:00:11","vlan":1200,"vlanQoS":0,"deviceID":"` + pci + `","VFID":0,"ContIFNames":"net-1","trust":"on"}`

// TestImport: what the program sriov has given is adopted and given back, as often as it is
// asked; what is not understood, and what is another's by now, stays as it is.
func TestImport(t *testing.T) {
	p, root := onPaper(t)
	dir := t.TempDir()
	i := &Import{dir: dir, marks: &p.marks, sys: p.sys}
	states := func(all []Former, err error) (out []string) {
		t.Helper()
		require.NoError(t, err)
		for _, f := range all {
			out = append(out, filepath.Base(f.File)+" "+f.State)
		}
		return out
	}
	require.Empty(t, states((&Import{dir: dir + "/none", marks: &p.marks, sys: p.sys}).Plan()))
	require.NoError(t, os.Mkdir(dir+"/pci", 0o700))
	require.NoError(t, os.WriteFile(dir+"/pci/"+pci, []byte("/run/netns/none"), 0o600))
	for name, text := range map[string]string{
		"abc-net-1": left, "broken-net1": "{", "gone-net1": `{"deviceID":"0000:09:10.0"}`, "strange-net1": `{}`,
		"mac-net1": `{"deviceID":"` + pci + `","MAC":"x"}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	found := []string{"abc-net-1 found", "broken-net1 broken", "gone-net1 gone", "mac-net1 broken", "strange-net1 broken"}
	adopted := append([]string{"abc-net-1 adopted"}, found[1:]...)
	require.Equal(t, found, states(i.Plan()))
	for range 2 {
		require.Equal(t, adopted, states(i.Apply()))
		require.Equal(t, adopted, states(i.Plan()))
	}
	m, ok, err := p.marks.load(pci)
	require.NoError(t, err)
	require.True(t, ok)
	owner := core.Key{Container: "abc", IfName: "net-1"}
	require.Equal(t, Mark{
		Owner: owner, Netns: core.Netns{Path: "/run/netns/none"}, Name: "eth7", MAC: core.MAC{2, 0, 0, 0, 0, 7}, Given: core.MAC{2, 0x0a, 9, 0, 0, 0x11},
		Former: []string{dir + "/abc-net-1", dir + "/pci/" + pci},
	}, m)
	require.Equal(t, found, states(i.Rollback()))
	require.Equal(t, found, states(i.Rollback()))
	_, ok, err = p.marks.load(pci)
	require.NoError(t, err)
	require.False(t, ok)

	require.NoError(t, p.marks.save(pci, Mark{Owner: core.Key{Container: "other", IfName: "net1"}}))
	held := append([]string{"abc-net-1 held"}, found[1:]...)
	require.Equal(t, held, states(i.Apply()))
	require.Equal(t, held, states(i.Rollback()))
	require.NoError(t, p.marks.remove(pci, Mark{}))

	// One of a pod that is gone beside that of the pod which has the device now.
	require.NoError(t, os.WriteFile(dir+"/old-net1", []byte(strings.Replace(left, "net-1", "net1", 1)), 0o600))
	both := []string{"abc-net-1 broken", "broken-net1 broken", "gone-net1 gone", "mac-net1 broken", "old-net1 broken", "strange-net1 broken"}
	require.Equal(t, both, states(i.Apply()))
	all, err := i.Plan()
	require.NoError(t, err)
	require.Contains(t, all[0].Why, dir+"/old-net1 names device "+pci)
	_, ok, err = p.marks.load(pci)
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, os.Remove(dir+"/old-net1"))

	require.Equal(t, adopted, states(i.Apply()))
	require.NoError(t, os.RemoveAll(filepath.Join(root, "bus/pci/devices", pci)))
	call := callFor(t)
	call.Key, call.Conf = owner, []byte(`{"cniVersion":"1.0.0","name":"db","type":"sriov"}`)
	require.NoError(t, p.Del(t.Context(), call), "by the mark alone: its configuration names no device")
	_, ok, err = p.marks.load(pci)
	require.NoError(t, err)
	require.False(t, ok)
	require.NoFileExists(t, dir+"/abc-net-1")
	require.NoFileExists(t, dir+"/pci/"+pci)
}
