package records_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/multus/records"
)

// node has a folder as Multus leaves it, a journal and a pod's namespace with a
// lo, whose MAC is known.
type node struct {
	records.Importer

	t     *testing.T
	netns string
}

func newNode(t *testing.T) node {
	t.Helper()
	boot, err := netns.BootID()
	require.NoError(t, err)
	j, err := journal.Open(t.TempDir(), journal.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "results"), 0o700))
	return node{records.Importer{
		Folder: records.Folder{Dir: dir, BinPath: []string{"/opt/cni/bin"}}, Network: "multus-cni-network", IfName: "eth0",
		BootID: boot, Journal: j,
		Lock: func(context.Context, string) (func(), error) { return func() {}, nil },
	}, t, netnstest.Bind(t, netnstest.New(t))}
}

// left writes the record of a container on one network, of one plugin.
func (n node) left(id, plugin, netnsPath, mac string) {
	n.t.Helper()
	chain := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"main","type":%q}`, plugin)
	list, err := json.Marshal([]map[string]any{{"Bytes": []byte(chain), "Name": ""}})
	require.NoError(n.t, err)
	require.NoError(n.t, os.WriteFile(filepath.Join(n.Dir, id), list, 0o600))
	if netnsPath == "" {
		return
	}
	cached := fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"ifName":"eth0","networkName":"main","netns":%q,
		"cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","ns"],["K8S_POD_NAME","p"],["K8S_POD_UID","u"]],
		"result":{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":%q,"sandbox":%q}],"ips":[{"address":"10.0.0.2/24","interface":0}]}}`, id, netnsPath, mac, netnsPath)
	require.NoError(n.t, os.WriteFile(filepath.Join(n.Dir, "results", "main-"+id+"-eth0"), []byte(cached), 0o600))
}

// link gives the namespace an eth0 and returns its MAC.
func (n node) link() string {
	n.t.Helper()
	ns, err := netns.Open(n.netns)
	require.NoError(n.t, err)
	defer ns.Close()
	c, err := rtnl.Open(ns)
	require.NoError(n.t, err)
	defer c.Close()
	mac := core.MAC{2, 0, 0, 0, 0, 7}
	_, err = c.EnsureVeth(rtnl.Veth{Name: "far", Peer: ns, PeerName: "eth0", PeerMAC: mac, MTU: 1400})
	require.NoError(n.t, err)
	return mac.String()
}

func TestImportMakesTheRecordOfAnAdd(t *testing.T) {
	n := newNode(t)
	n.left("c1", "bridge", n.netns, n.link())
	rec, err := n.Import(t.Context(), "c1")
	require.NoError(t, err)
	kept, ok := n.Journal.Get(core.Key{Container: "c1", IfName: "eth0"})
	require.True(t, ok)
	require.Equal(t, rec.Specs, kept.Specs)
	require.True(t, records.Inherited(kept))
	require.Equal(t, core.Pod{Namespace: "ns", Name: "p", UID: "u"}, kept.Pod)
	require.Equal(t, "multus-cni-network", kept.Network)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}, kept.Links[0].Addrs)
	require.True(t, kept.Delivered)
	require.Equal(t, 1, kept.Begun)
	require.Len(t, kept.FormerFiles, 2)
	require.Nil(t, kept.AddCall, "its networks stay what they are")
	again, err := n.Import(t.Context(), "c1")
	require.NoError(t, err)
	require.Equal(t, kept, again)

	// Another record says that it has the same namespace.
	n.left("c2", "bridge", n.netns, "02:00:00:00:00:07")
	_, err = n.Import(t.Context(), "c2")
	require.ErrorIs(t, err, records.ErrUnfit)
	require.ErrorContains(t, err, "container c1 has its namespace")

	require.NoError(t, n.Release(t.Context(), kept.Key))
	require.NoError(t, n.Release(t.Context(), kept.Key), "and again")
	require.Empty(t, n.Journal.Container("c1"))
	require.FileExists(t, filepath.Join(n.Dir, "c1"), "Multus' again")
}

func TestImportLeavesTheOthersAlone(t *testing.T) {
	n := newNode(t)
	mac := n.link()
	n.left("own", "fairlead", n.netns, mac)
	n.left("lost", "bridge", "", "")
	home, err := netns.Current() // of this thread; /proc/self is the first one's
	require.NoError(t, err)
	defer home.Close()
	n.left("host", "bridge", netnstest.Bind(t, home), mac)
	n.left("gone", "bridge", "/run/netns/is-not-there", mac)
	n.left("other", "bridge", n.netns, "02:00:00:00:00:08")
	require.NoError(t, os.WriteFile(filepath.Join(n.Dir, "torn"), nil, 0o600))
	for id, want := range map[string]error{
		"own": records.ErrUnfit, "lost": records.ErrUnfit, "host": records.ErrUnfit, "other": records.ErrUnfit,
		"gone": core.ErrNetnsGone, "none": core.ErrNotFound, "../own": core.ErrNotFound,
	} {
		rec, err := n.Import(t.Context(), id)
		require.ErrorIs(t, err, want, id)
		require.Equal(t, id, rec.Key.Container)
	}
	_, err = n.Import(t.Context(), "torn")
	require.Equal(t, core.CodeDecode, core.CodeOf(err))
	require.Empty(t, n.Journal.Records())

	mine := core.Record{
		Key: core.Key{Container: "own", IfName: "eth0"}, Phase: core.Added, Begun: 1,
		Specs: []core.Spec{{Key: core.Key{Container: "own", IfName: "eth0"}, Driver: "ovs", NIC: &core.NICSpec{OVS: &core.OVSPort{HostIf: "x_h"}}}},
	}
	require.NoError(t, n.Journal.Begin(t.Context(), mine))
	_, err = n.Import(t.Context(), "own")
	require.ErrorIs(t, err, core.ErrExists)
	require.ErrorIs(t, n.Release(t.Context(), mine.Key), records.ErrOnlyOurs)
	require.Len(t, n.Journal.Records(), 1)
}

// TestExportIsWhatWeRead: what Multus gets of a record leads to the same calls,
// also where it gets two records in one file, in whichever order.
func TestExportIsWhatWeRead(t *testing.T) {
	n := newNode(t)
	n.left("c1", "bridge", n.netns, n.link())
	rec, err := n.Import(t.Context(), "c1")
	require.NoError(t, err)
	kept := rec
	rec.FormerFiles = nil // as if we had attached it
	second := rec
	second.Key.IfName = "second0"
	second.Specs = slices.Clone(rec.Specs)
	for i := range second.Specs {
		second.Specs[i].Key = second.Key
	}
	exported := func(list ...core.Record) *records.Left {
		t.Helper()
		dir := t.TempDir()
		for _, r := range list {
			files, err := records.Export(r, list, dir)
			require.NoError(t, err)
			require.Len(t, files, 2)
			for _, f := range files {
				require.NoError(t, os.MkdirAll(filepath.Dir(f.Path), 0o700))
				require.NoError(t, os.WriteFile(f.Path, f.Data, 0o600))
			}
		}
		l, err := records.Folder{Dir: dir, BinPath: n.BinPath}.Of(core.Request{Key: list[0].Key})
		require.NoError(t, err)
		require.NoError(t, l.Fit())
		require.Equal(t, rec.Pod, l.Pod())
		return l
	}
	for _, list := range [][]core.Record{{rec}, {rec, second}, {second, kept}} {
		l := exported(list...)
		got := l.Record(rec.Key, rec.Network, rec.Netns)
		require.Len(t, got.Specs, len(list))
		for i, key := range []core.Key{rec.Key, second.Key}[:len(list)] {
			want := rec.Specs[0].Exec
			require.Equal(t, key, got.Specs[i].Key)
			require.JSONEq(t, string(want.Conf), string(got.Specs[i].Exec.Conf))
			require.JSONEq(t, string(want.Prev), string(got.Specs[i].Exec.Prev))
			require.Equal(t, want.Args, got.Specs[i].Exec.Args)
		}
	}

	own := second
	own.Leases = []core.Lease{{Subnet: "s"}}
	require.Len(t, exported(rec).Specs, 1)
	files, err := records.Export(rec, []core.Record{rec, own}, t.TempDir())
	require.NoError(t, err)
	require.Len(t, files, 2, "what is ours alone is none of Multus' business")
	files, err = records.Export(kept, []core.Record{kept, own}, t.TempDir())
	require.NoError(t, err)
	require.Nil(t, files[0].Data, "Multus' own is where it was")
}
