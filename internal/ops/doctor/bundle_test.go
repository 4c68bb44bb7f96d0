package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

// unpack reads a bundle into its files.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		require.EqualValues(t, 0o600, h.Mode)
		b, err := io.ReadAll(r)
		require.NoError(t, err)
		files[strings.TrimPrefix(h.Name, "fairlead/")] = string(b)
	}
}

// planted are secrets, each in another place and dress.
var planted = map[string]string{
	"conf":        "hunter2-of-the-conf",
	"annotation":  "hunter2-of-the-annotation",
	"nad":         "hunter2-of-the-nad",
	"environment": "hunter2-of-the-environment",
	"log":         "hunter2-of-the-log",
	"bearer":      "hunter2.of.the.bearer",
	"url":         "hunter2-of-the-url",
	"config":      "hunter2-of-a-logged-config",
	"external_id": "hunter2-of-ovs",
	"nft":         "hunter2-of-nft",
	"pem":         "SHVudGVyMlBFTQ",
	"jwt":         "eyJhbGciOiJIUzI1NiJ9.eyJodW50ZXIyIjoxfQ.c2lnbmF0dXJl",
}

// logOf is an agent's log with secrets as attributes, in texts and in errors.
func logOf() string {
	return strings.Join([]string{
		`{"level":"INFO","msg":"attached","container":"0123456789ab","took":"8ms"}`,
		`{"level":"ERROR","msg":"delegate","config":{"type":"x","note":"` + planted["config"] + `"}}`,
		`{"level":"ERROR","msg":"delegate","error":"bad key \"password\":\"` + planted["log"] + `\" in line 3"}`,
		`plain text: Authorization: Bearer ` + planted["bearer"],
		`dial https://admin:` + planted["url"] + `@registry/v2`,
		`token=` + planted["jwt"],
		`-----BEGIN PRIVATE KEY-----` + "\n" + planted["pem"] + "\n-----END PRIVATE KEY-----",
	}, "\n") + "\n"
}

func TestBundleHoldsNoSecret(t *testing.T) {
	sw := ovstest.New(t)
	sw.Vsctl("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev")
	sw.Vsctl("add-port", "br-int", "p0", "--", "set", "interface", "p0", "type=internal",
		"external_ids:iface-id=web.ns1", "external_ids:note="+planted["external_id"])

	cfg := bare(t)
	cfg.OVSDB, cfg.Objects = sw.Endpoint(), t.TempDir()
	require.NoError(t, os.MkdirAll(cfg.ConfDir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(cfg.ConfDir, "00-x.conf"), []byte(`{"name":"x","type":"x","apiToken":"`+planted["conf"]+`"}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Objects, "pod.yaml"), []byte(`
metadata:
  annotations: {example.com/db-password: `+planted["annotation"]+`}
---
spec:
  config: '{"type":"x","credentials":{"value":"`+planted["nad"]+`"}}'
`), 0o600))

	// What an agent, a log or a kernel table might say of them.
	cfg.Run = func(ctx context.Context, c Command) ([]byte, error) {
		switch line := strings.Join(c.Argv, " "); {
		case c.Argv[0] == "journalctl":
			return []byte(logOf()), nil
		case line == "nft list tables":
			return []byte("table ip other\ntable ip fairlead\n"), nil
		case strings.HasPrefix(line, "nft -s list table ip fairlead"):
			return []byte("table ip fairlead { }\n"), nil
		case strings.HasPrefix(line, "nft -s list table"):
			return []byte(planted["nft"]), nil
		}
		return start(ctx, c)
	}
	quoting := "annotation example.com/db-password: value " + planted["annotation"] + " is bad; " + planted["nad"] + "; " + planted["conf"] + "; " + planted["environment"]
	pod := agent.Pod{Namespace: "ns1", Name: "web", LastFailure: &agent.Failure{Cause: quoting}}
	raw := func(_ context.Context, path string) ([]byte, error) {
		switch path {
		case agent.PathPods:
			return json.Marshal(agent.PodList{Items: []agent.Pod{{Namespace: "ns1", Name: "web"}}})
		case agent.PathPod + "ns1/web":
			return json.Marshal(pod)
		case agent.PathStatus:
			return json.Marshal(agent.Status{Version: "v1", Problems: []agent.Problem{{File: "/o/x.yaml", Reason: quoting}}})
		case agent.PathMetrics:
			return []byte("fairlead_build_info 1\n"), nil
		}
		return nil, errors.New("agent: " + quoting)
	}
	var archive bytes.Buffer
	require.NoError(t, Bundle(t.Context(), BundleConfig{
		Config: cfg, Raw: raw, Version: "v1", Now: time.Unix(1700000000, 0), Secrets: []string{planted["environment"]},
	}, &archive))

	files := unpack(t, archive.Bytes())
	for name, content := range files {
		for where, secret := range planted {
			require.NotContains(t, content, secret, "the secret of the %s stands in %s", where, name)
		}
	}
	// And what should be there is.
	require.Contains(t, files["ovs.txt"], "iface-id=web.ns1")
	require.Contains(t, files["metrics.txt"], "fairlead_build_info")
	require.Contains(t, files["status.json"], `"version": "v1"`)
	require.Contains(t, files["pods/ns1_web.json"], redacted)
	require.True(t, json.Valid([]byte(files["pods/ns1_web.json"])))
	require.Contains(t, files["nft.txt"], "table ip fairlead")
	require.Contains(t, files["log.txt"], `"msg":"attached"`)
	require.Contains(t, files["links.txt"], "1: lo")
	require.Contains(t, files["doctor.txt"], "Open vSwitch")
	require.Contains(t, files["versions.txt"], "Linux")
	require.Contains(t, files["errors.txt"], "subnets.json: agent:")
	require.Contains(t, files["README.txt"], "look through it")
}

func TestBundleWithoutAnything(t *testing.T) {
	cfg := bare(t)
	var archive bytes.Buffer
	// As journalctl does for a unit that has never run (systemd 252).
	cfg.Run = func(ctx context.Context, c Command) ([]byte, error) {
		switch {
		case c.Argv[0] != "journalctl":
			return start(ctx, c)
		case slices.Contains(c.Argv, "-q"):
			return nil, nil
		}
		return []byte("-- No entries --\n"), nil
	}
	none := errors.New("no agent")
	require.NoError(t, Bundle(t.Context(), BundleConfig{
		Config: cfg, Raw: func(context.Context, string) ([]byte, error) { return nil, none },
	}, &archive))
	files := unpack(t, archive.Bytes())
	require.Contains(t, files["errors.txt"], "status.json: no agent")
	require.Contains(t, files["errors.txt"], "ovs.txt: ")
	require.Contains(t, files["errors.txt"], "log.txt: the agent's log is not in systemd's journal")
	require.NotContains(t, files, "log.txt")
	require.Contains(t, files["doctor.txt"], "✗ OVSDB")
}

func TestBundleEndsWithItsContextOrItsWriter(t *testing.T) {
	raw := func(context.Context, string) ([]byte, error) { return nil, errors.New("no agent") }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Bundle(ctx, BundleConfig{Config: bare(t), Raw: raw}, io.Discard), context.Canceled)
	require.ErrorIs(t, Bundle(t.Context(), BundleConfig{Config: bare(t), Raw: raw}, full{}), errFull)
}

var errFull = errors.New("disk full")

// full is a writer whose disk is full.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestRedactorLeavesTheRest(t *testing.T) {
	r := newRedactor([]string{"short", "a-long-secret", "a-long-secret-too"})
	for in, want := range map[string]string{
		"the short one stays":                  "the short one stays",
		"x a-long-secret-too y a-long-secret":  "x [redacted] y [redacted]",
		`{"password":"x y","mtu":1400}`:        `{"password":"[redacted]","mtu":1400}`,
		`{\"token\":\"x\",\"mtu\":1400}`:       `{\"token\":\"[redacted]\",\"mtu\":1400}`,
		"client-key-data: QUJD\nmtu: 1400":     "client-key-data: [redacted]\nmtu: 1400",
		"api_key=abc, mtu=1400":                "api_key=[redacted], mtu=1400",
		"unix:/run/openvswitch/db.sock":        "unix:/run/openvswitch/db.sock",
		"fd00:100::3/64 via fd00:100::1":       "fd00:100::3/64 via fd00:100::1",
		"iface-id=web.ns1 ip=10.16.0.5":        "iface-id=web.ns1 ip=10.16.0.5",
		`go_gc_duration_seconds{quantile="0"}`: `go_gc_duration_seconds{quantile="0"}`,
	} {
		require.Equal(t, want, string(r.clean([]byte(in))))
	}
}

func TestSecretsIn(t *testing.T) {
	got := secretsIn([]byte(`
a: {token: one, list: [{secretRef: {name: two}}]}
b: '{"password":"three"}'
c: plain
`))
	require.ElementsMatch(t, []string{"one", "two", "three"}, got)
	require.Empty(t, secretsIn([]byte("\t{")))
}

// TestRouteText: a route without gateway and source shows neither.
func TestRouteText(t *testing.T) {
	dst, gw := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParseAddr("10.0.0.1")
	require.Equal(t, "10.0.0.0/8 dev-index 2 proto 2 metric 0", routeText(rtnl.Route{Dst: dst, Index: 2, Protocol: 2}))
	require.Equal(t, "10.0.0.0/8 via 10.0.0.1 src 10.0.0.1 dev-index 2 proto 4 metric 5",
		routeText(rtnl.Route{Dst: dst, GW: gw, Src: gw, Index: 2, Protocol: 4, Priority: 5}))
}
