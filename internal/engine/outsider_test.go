package engine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// leave writes the record of a running container of default/p that Multus
// attached to its first network, and makes its eth0.
func leave(t *testing.T, dir, id string) {
	t.Helper()
	ns := netnstest.New(t)
	path := netnstest.Bind(t, ns)
	c, err := rtnl.Open(ns)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	mac := core.MAC{2, 0, 0, 0, 0, 7}
	_, err = c.EnsureVeth(rtnl.Veth{Name: "far", Peer: ns, PeerName: "eth0", PeerMAC: mac, MTU: 1400})
	require.NoError(t, err)
	list, err := json.Marshal([]map[string]any{{"Bytes": []byte(`{"cniVersion":"1.0.0","name":"main","type":"bridge"}`), "Name": ""}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, id), list, 0o600))
	cached := fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"ifName":"eth0","networkName":"main","netns":%q,
		"cniArgs":[["K8S_POD_NAMESPACE","default"],["K8S_POD_NAME","p"]],
		"result":{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":%q,"sandbox":%q}],"ips":[{"address":"10.0.0.2/24","interface":0}]}}`, id, path, mac, path)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "results"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "results", "main-"+id+"-eth0"), []byte(cached), 0o600))
}

// TestReplugOfPodOfMultus: a pod that Multus attached and nobody imported has an
// event and a condition when its annotation changes, once for each difference.
func TestReplugOfPodOfMultus(t *testing.T) {
	r := newReplugged(t)
	r.ConfDir = t.TempDir()
	dir := t.TempDir()
	conf := func(kind string) {
		text := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","plugins":[{"type":%q,"cniDir":%q}]}`, kind, dir)
		require.NoError(t, os.WriteFile(filepath.Join(r.ConfDir, "00.conflist"), []byte(text), 0o600))
	}
	replug := func() []string {
		t.Helper()
		require.NoError(t, r.Replug(t.Context(), r.pod))
		return r.take()
	}
	leave(t, dir, "c9")
	conf("bridge")
	require.Empty(t, replug(), "another program serves the pods")
	conf("multus")
	require.Empty(t, replug(), "Multus does")
	conf("fairlead")
	require.Equal(t, []string{"failed HOTPLUG eth0", "condition False FailedAttachment"}, replug())
	require.Empty(t, replug(), "said already")
	a, ok := r.Journal.Attempt(r.pod)
	require.True(t, ok, "`fairlead describe pod` has it")
	require.Contains(t, a.Error, "its annotation asks for default/second as net1; `fairlead import multus --apply`")
	r.annotate("")
	require.Equal(t, []string{"condition True AsAnnotated"}, replug())
	r.declare("other", "second")
	require.Empty(t, replug(), "a pod that is gone")

	r.annotate("second,second")
	require.Len(t, replug(), 2)
	require.NoError(t, os.Remove(filepath.Join(dir, "c9")))
	require.Empty(t, replug())
	require.Empty(t, r.outsiders.pods)
}
