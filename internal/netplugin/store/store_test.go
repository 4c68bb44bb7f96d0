package store_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/netplugin/store"
)

func record(id string) store.Record {
	return store.Record{
		Pod:   netplugin.Pod{Sandbox: id, Namespace: "ns", Name: "web", DNS: netplugin.DNS{Servers: []string{"10.0.0.10"}}},
		Ports: []netplugin.PortMapping{{HostPort: 80, ContainerPort: 8080, Protocol: "tcp"}},
		Conf:  []byte(`{"name":"n"}`), Port: "veth1", Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")},
	}
}

func TestRecordsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := store.Open(dir)
	require.NoError(t, err)
	before := record("a")
	before.Addrs = nil
	require.NoError(t, s.Put(before))
	require.NoError(t, s.Update(record("a")))
	require.NoError(t, s.Put(record("b")))
	require.NoError(t, s.Forget("b"))
	require.NoError(t, s.Forget("b"), "once more")
	require.NoError(t, s.Forget("../x"), "no sandbox has such an id")
	require.Error(t, s.Put(record("../x")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pods", ".a.1.tmp"), nil, 0o600))

	s, err = store.Open(dir)
	require.NoError(t, err)
	require.Equal(t, []store.Record{record("a")}, s.All())
	require.Equal(t, "a", s.Pods()[0].Sandbox)
	require.Equal(t, map[string]bool{"a": true, "unrecorded": true}, s.Known(map[string]bool{"unrecorded": true}))
	require.Equal(t, map[string]bool{"a": true}, s.Known(nil))
	require.NoFileExists(t, filepath.Join(dir, "pods", ".a.1.tmp"))
	_, ok := s.Get("b")
	require.False(t, ok)
}

func TestDamagedRecordsAreSetAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := store.Open(dir)
	require.NoError(t, err)
	require.NoError(t, s.Put(record("good")))
	for name, text := range map[string]string{"cut": `{"pod":{"sandbox":"cut"`, "empty": "", "other": `{"pod":{"sandbox":"good"}}`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pods", name), []byte(text), 0o600))
	}
	s, err = store.Open(dir)
	require.ErrorContains(t, err, "network record of cut set aside")
	require.NotNil(t, s)
	require.Len(t, s.All(), 1)
	require.FileExists(t, filepath.Join(dir, "pods", "cut.corrupt"))
	require.NoError(t, s.Forget("cut"))
	require.NoFileExists(t, filepath.Join(dir, "pods", "cut.corrupt"))
	_, err = store.Open(dir)
	require.NoError(t, err, "told once")
}

func TestPodCIDRs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := store.Open(dir)
	require.NoError(t, err)
	require.Empty(t, s.CIDRs())
	for _, wrong := range []string{"", "x", "10.0.0.0", "10.0.0.0/8,", "10.0.0.0/8,10.1.0.0/16"} {
		_, err := s.Tell(wrong)
		require.Error(t, err, wrong)
	}
	counts, err := s.Tell("10.1.2.3/24, fd00::/64")
	require.NoError(t, err)
	require.True(t, counts)
	want := []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("fd00::/64")}
	require.Equal(t, want, s.CIDRs())
	counts, err = s.Tell("10.9.0.0/24")
	require.NoError(t, err)
	require.False(t, counts, "the first value wins")
	s, err = store.Open(dir)
	require.NoError(t, err)
	require.Equal(t, want, s.CIDRs())
	counts, err = s.Tell("10.9.0.0/24")
	require.NoError(t, err)
	require.True(t, counts, "in the next process another one may be first")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pod-cidrs"), []byte("nonsense"), 0o600))
	s, err = store.Open(dir)
	require.ErrorContains(t, err, "pod CIDRs of an earlier process")
	require.Empty(t, s.CIDRs())
}
