package watch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/multus/records"
	"github.com/fairlead/fairlead/internal/multus/watch"
	"github.com/fairlead/fairlead/internal/source/local"
)

// bed is a node with one running pod of Multus', default/p, and who hears of it.
type bed struct {
	*watch.Teller

	t               *testing.T
	multus, objects string
	heard           []string
	status          string // of the condition
}

func (b *bed) Attached(core.Record) {}
func (b *bed) Detached(core.Record) {}
func (b *bed) Failed(a core.Attempt) {
	b.heard = append(b.heard, fmt.Sprintf("failed %s %s", a.Op, a.Key))
}

func (b *bed) Condition(pod core.Pod, kind, status, reason, _ string) {
	b.status = status
	b.heard = append(b.heard, fmt.Sprintf("%s: %s %s %s", pod, kind, status, reason))
}

func (b *bed) Told(core.Pod, string) string { return b.status }

func newBed(t *testing.T) *bed {
	t.Helper()
	j, err := journal.Open(t.TempDir(), journal.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	b := &bed{t: t, multus: t.TempDir(), objects: t.TempDir()}
	b.Teller = watch.New(watch.Config{
		Journal: j, Files: os.DirFS("/"), ConfDir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Multus:  func(r core.Request) records.Folder { return records.Folder{Dir: r.Conf.CNIDir} },
		Notices: b, Conditions: b, Condition: "Networks",
	})
	b.leave("c9")
	return b
}

// leave writes the record of a container that has its first network, and makes
// its eth0.
func (b *bed) leave(id string) {
	b.t.Helper()
	ns := netnstest.New(b.t)
	path := netnstest.Bind(b.t, ns)
	c, err := rtnl.Open(ns)
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, c.Close()) }()
	mac := core.MAC{2, 0, 0, 0, 0, 7}
	_, err = c.EnsureVeth(rtnl.Veth{Name: "far", Peer: ns, PeerName: "eth0", PeerMAC: mac, MTU: 1400})
	require.NoError(b.t, err)
	list, err := json.Marshal([]map[string]any{{"Bytes": []byte(`{"cniVersion":"1.0.0","name":"main","type":"bridge"}`), "Name": ""}})
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(b.multus, id), list, 0o600))
	cached := fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"ifName":"eth0","networkName":"main","netns":%q,
		"cniArgs":[["K8S_POD_NAMESPACE","default"],["K8S_POD_NAME","p"]],
		"result":{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":%q,"sandbox":%q}],"ips":[{"address":"10.0.0.2/24","interface":0}]}}`, id, path, mac, path)
	require.NoError(b.t, os.MkdirAll(filepath.Join(b.multus, "results"), 0o700))
	require.NoError(b.t, os.WriteFile(filepath.Join(b.multus, "results", "main-"+id+"-eth0"), []byte(cached), 0o600))
}

// served makes kind the plugin that the runtime calls.
func (b *bed) served(kind string) {
	b.t.Helper()
	text := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","plugins":[{"type":%q,"cniDir":%q}]}`, kind, b.multus)
	require.NoError(b.t, os.WriteFile(filepath.Join(b.ConfDir, "00.conflist"), []byte(text), 0o600))
}

// changed makes name the only pod, which asks for networks, and gives what is told
// of default/p.
func (b *bed) changed(name, networks string) []string {
	b.t.Helper()
	text := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: default, annotations: {k8s.v1.cni.cncf.io/networks: %q}}}
---
{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: second, namespace: default}, spec: {config: '{"cniVersion":"1.0.0","type":"macvlan"}'}}
`, name, networks)
	require.NoError(b.t, os.WriteFile(filepath.Join(b.objects, "all.yaml"), []byte(text), 0o600))
	source, err := local.Open(b.objects, b.Log)
	require.NoError(b.t, err)
	require.Empty(b.t, source.Problems())
	b.Source = source
	b.PodChanged(b.t.Context(), core.Pod{Namespace: "default", Name: "p", UID: "u"})
	out := b.heard
	b.heard = nil
	return out
}

// TestPodOfMultus: an event and a condition when its annotation changes, once
// for each difference; none where another program serves the pods.
func TestPodOfMultus(t *testing.T) {
	b := newBed(t)
	for _, kind := range []string{"bridge", "multus"} {
		b.served(kind)
		require.Empty(t, b.changed("p", "second"), kind)
	}
	b.served("fairlead")
	problem := []string{"failed HOTPLUG c9/eth0", "default/p: Networks False FailedAttachment"}
	require.Equal(t, problem, b.changed("p", "second"))
	require.Empty(t, b.changed("p", "second"), "said already")
	a, ok := b.Journal.Attempt(core.Pod{Namespace: "default", Name: "p"})
	require.True(t, ok, "`fairlead describe pod` has it")
	require.Contains(t, a.Error, "its annotation asks for default/second as net1; `fairlead import multus --apply`")
	require.Equal(t, problem, b.changed("p", "second@data0"))
	b.Teller = watch.New(b.Config) // of the agent's next process
	require.Equal(t, []string{"default/p: Networks True AsAnnotated"}, b.changed("p", ""))
	require.Empty(t, b.changed("p", ""), "said already")
	require.Empty(t, b.changed("other", "second"), "a pod that is gone")

	require.Equal(t, problem, b.changed("p", "second"))
	require.NoError(t, os.Remove(filepath.Join(b.multus, "c9")))
	require.Empty(t, b.changed("p", "second,second"), "it was detached")
}

// TestPodOfOurs: one that was imported is followed, and not told of here.
func TestPodOfOurs(t *testing.T) {
	b := newBed(t)
	b.served("fairlead")
	boot, err := netns.BootID()
	require.NoError(t, err)
	importer := records.Importer{
		Folder: records.Folder{Dir: b.multus}, Network: "net", IfName: "eth0", BootID: boot, Journal: b.Journal, Lock: noLock,
	}
	_, err = importer.Import(t.Context(), "c9")
	require.NoError(t, err)
	require.Empty(t, b.changed("p", "second"))
}

func noLock(context.Context, string) (func(), error) { return func() {}, nil }
