package engine

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/exec"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/network/plan"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// silentServer is a source whose server does not answer: it knows what nads says, and
// of anything else it waits until nobody asks any more.
type silentServer struct {
	t      *testing.T
	nads   map[string]string // name in kube-system -> spec.config
	others error             // what is said of others without waiting
}

func (a silentServer) wait(ctx context.Context) error {
	if ctx.Err() == nil {
		a.t.Error("somebody waits for the API server")
	}
	return fmt.Errorf("not heard: %w", core.ErrUnavailable)
}

func (a silentServer) Pod(ctx context.Context, _ core.Pod) (*resolve.Pod, error) {
	return nil, a.wait(ctx)
}
func (a silentServer) Subnets(context.Context) ([]core.Subnet, error) { return nil, nil }

func (a silentServer) NAD(ctx context.Context, _, name string) (*resolve.NAD, error) {
	if n, err := a.KnownNAD("", name); err == nil {
		return n, nil
	}
	return nil, a.wait(ctx)
}

// KnownPod implements resolve.Prompt.
func (a silentServer) KnownPod(context.Context, core.Pod) (*resolve.Pod, error) {
	return nil, fmt.Errorf("not heard: %w", core.ErrUnavailable)
}

func (a silentServer) KnownNAD(_, name string) (*resolve.NAD, error) {
	conf, ok := a.nads[name]
	if !ok {
		return nil, fmt.Errorf("NAD %s: %w", name, a.others)
	}
	return &resolve.NAD{Namespace: "kube-system", Name: name, Config: conf}, nil
}

// newAway is an engine whose default network is a NAD of a server that is away;
// its plugin notes what it is called for.
func newAway(t *testing.T, nads map[string]string, others error) (e *Engine, req core.Request, called func() string) {
	t.Helper()
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	script := fmt.Sprintf("#!/bin/sh\necho $CNI_COMMAND $(cat) >>%s\n", log)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "noter"), []byte(script), 0o755)) //nolint:gosec // a program
	e = newEngine(t, &nics{})
	e.Source, e.Drivers, e.Node = silentServer{t, nads, others}, driver.Set{"ovs": &nics{}, core.DriverExec: exec.New(nil)}, plan.Node{BinDirs: []string{bin}}
	req = core.Request{Conf: core.Conf{
		CNIVersion: "1.1.0", Name: "net", Type: "fairlead", ClusterNetwork: "main", HasValid: true, CNIDir: t.TempDir(),
	}}
	return e, req, func() string {
		text, _ := os.ReadFile(log)
		return string(text)
	}
}

const noter = `{"cniVersion":"1.1.0","name":"main-net","type":"noter"}`

// TestGCAndStatusWithoutServer: both answer from what is known of the network
// that the conf names, and wait for nobody.
func TestGCAndStatusWithoutServer(t *testing.T) {
	e, req, called := newAway(t, map[string]string{"main": noter}, nil)
	require.NoError(t, e.Status(t.Context(), req))
	require.Contains(t, called(), "STATUS ")
	require.NoError(t, e.GC(t.Context(), req))
	require.Contains(t, called(), "GC ")
}

// TestGCOfUnknownNetwork: where nothing was heard yet, or the network is not
// among what was heard, GC collects on the networks in use, which the journal
// knows, and STATUS says that the node is not ready.
func TestGCOfUnknownNetwork(t *testing.T) {
	for _, others := range []error{core.ErrUnavailable, core.ErrNotFound} {
		e, req, called := newAway(t, nil, others)
		err := e.Status(t.Context(), req)
		require.Equal(t, core.CodeNotReady, core.CodeOf(err))
		require.ErrorContains(t, err, "clusterNetwork")
		require.NoError(t, e.GC(t.Context(), req))
		require.Empty(t, called())

		key := core.Key{Container: "c1", IfName: "eth0"}
		spec := core.Spec{Key: key, Driver: core.DriverExec, Exec: &core.Exec{
			Type: "noter", CNIVersion: "1.1.0", Conf: []byte(noter), Network: "main-net", Path: e.Node.BinDirs,
		}}
		require.NoError(t, e.Journal.Begin(t.Context(), core.Record{
			Key: key, Network: "net", Phase: core.Added, Netns: core.Netns{BootID: e.BootID}, Specs: []core.Spec{spec}, Begun: 1,
		}))
		req.Conf.Valid = []core.Key{key}
		require.NoError(t, e.GC(t.Context(), req))
		require.Contains(t, called(), "GC ")
		require.Contains(t, called(), `"containerID":"c1"`)
	}
}

// TestGCOfMultusFileBesideARecord: Multus had us as a delegate, the container
// went without a DEL: its other networks, our own attachment and the file go
// with the GC of the runtime's network, once the namespace is gone.
func TestGCOfMultusFileBesideARecord(t *testing.T) {
	e, req, called := newAway(t, nil, core.ErrNotFound)
	req.Conf.Name, req.Conf.ClusterNetwork = "runtime-net", ""
	file := filepath.Join(req.Conf.CNIDir, "c1")
	list := fmt.Sprintf(`[{"Bytes":"%s","Name":"ours"},{"Bytes":"%s","Name":"default/side"}]`,
		base64.StdEncoding.EncodeToString([]byte(`{"cniVersion":"1.0.0","name":"ours","plugins":[{"type":"kube-ovn"}]}`)),
		base64.StdEncoding.EncodeToString([]byte(`{"cniVersion":"1.0.0","name":"side","plugins":[{"type":"noter"}]}`)))
	require.NoError(t, os.WriteFile(file, []byte(list), 0o600))
	key := core.Key{Container: "c1", IfName: "eth0"}
	living, err := e.identify(netnstest.Path(netnstest.New(t)))
	require.NoError(t, err)
	rec := core.Record{
		Key: key, Network: "ours", Phase: core.Added, Netns: living,
		Specs: []core.Spec{(&nics{}).Guess(key, core.Netns{})}, Links: []core.Link{{}}, Begun: 1,
	}
	require.NoError(t, e.Journal.Begin(t.Context(), rec))
	require.NoError(t, e.GC(t.Context(), req))
	require.FileExists(t, file, "the container lives")

	rec.Netns = core.Netns{Path: "/run/netns/gone", Cookie: 1, BootID: e.BootID}
	require.NoError(t, e.Journal.Save(t.Context(), rec))
	require.NoError(t, e.GC(t.Context(), req))
	require.NoFileExists(t, file)
	require.Empty(t, e.Journal.Records())
	require.Contains(t, called(), "DEL ")
}

// TestDelOfMultusRecordNotTaken: a DEL that could not take over what Multus recorded of a
// container is no success, so that it is sent again; on a node that never learns that its journal
// is whole, too.
func TestDelOfMultusRecordNotTaken(t *testing.T) {
	e, req, called := newAway(t, nil, core.ErrNotFound)
	j, err := journal.Open(t.TempDir(), journal.Options{})
	require.NoError(t, err)
	e.Journal, e.Drivers = j, driver.Set{core.DriverExec: exec.New(nil)} // no switch
	require.False(t, j.Whole())
	req.Key, req.Conf.ClusterNetwork = core.Key{Container: "c1", IfName: "eth0"}, ""
	file := filepath.Join(req.Conf.CNIDir, "c1")
	list := fmt.Sprintf(`[{"Bytes":"%s","Name":"default/side"}]`,
		base64.StdEncoding.EncodeToString([]byte(`{"cniVersion":"1.0.0","name":"side","plugins":[{"type":"noter"}]}`)))
	require.NoError(t, os.WriteFile(file, []byte(list), 0o600))
	require.NoError(t, j.Close()) // as a full disk
	require.ErrorContains(t, e.Del(t.Context(), req), "take over from Multus")
	require.NotContains(t, called(), "DEL ")
	require.FileExists(t, file)
}
