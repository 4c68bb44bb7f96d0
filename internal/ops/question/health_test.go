package question

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/doctor"
	"github.com/fairlead/fairlead/internal/ovs/rows"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// lookedAt is an examination that reaches nothing but what the flags name.
func lookedAt(t *testing.T, flags map[string]string) health {
	t.Helper()
	none := filepath.Join(t.TempDir(), "none")
	a := Asked{Flags: map[string]string{
		"install-namespace": "kube-system", "ovsdb": "unix:" + none, "central-run-dir": none, "central-dir": none, "state-dir": none,
	}}
	for k, v := range flags {
		a.Flags[k] = v
	}
	return health{a, time.Now()}
}

// until looks until a finding has a verdict: members find each other in their time.
func until(t *testing.T, want doctor.Verdict, look func() doctor.Finding) doctor.Finding {
	t.Helper()
	var f doctor.Finding
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if f = look(); f.Verdict == want {
			break
		}
	}
	require.Equal(t, want, f.Verdict, "%+v", f)
	if want != doctor.OK {
		require.NotEmpty(t, f.Next)
	}
	return f
}

// TestRaft: of a real cluster of three, as a member sees it and as each says of itself:
// who leads, whom it hears, that one is lost, and that too many are.
func TestRaft(t *testing.T) {
	t.Parallel()
	n := testbed.Bare(t)
	c := ovn.NewCluster(t, n, 3)
	leader := c.Leader()
	h := lookedAt(t, map[string]string{"nb": c.Endpoint()})
	ctl := func(i int) func() doctor.Finding {
		return func() doctor.Finding {
			return h.raft(t.Context(), north0, filepath.Join(n.Dir, fmt.Sprintf("run/ovn/nb%d.ctl", i)))
		}
	}
	servers := func() doctor.Finding { return h.servers(t.Context(), north0, rows.Place{Endpoint: c.Endpoint()}) }
	addr := func(i int) string { return fmt.Sprintf("tcp:127.0.0.1:%d", 16431+i) }
	follower, lost := (leader+1)%3, (leader+2)%3

	f := until(t, doctor.OK, ctl(leader))
	require.Regexp(t, `^this one leads 3 members, term \d+$`, f.Reason)
	require.Contains(t, f.Details, addr(leader)+": this one, leader")
	require.Contains(t, strings.Join(f.Details, "\n"), addr(lost)+": follows, heard of ")
	f = until(t, doctor.OK, ctl(follower))
	require.Regexp(t, `^`+addr(leader)+` leads 3 members, term \d+$`, f.Reason)
	require.Contains(t, strings.Join(f.Details, "\n"), addr(leader)+": leader, heard of ")
	require.Contains(t, strings.Join(f.Details, "\n"), addr(lost)+": follows") // it may have asked for its vote
	f = until(t, doctor.OK, func() doctor.Finding { return h.cluster(t.Context(), north0)[0] })
	require.Equal(t, "3 servers are connected", f.Reason)
	require.Regexp(t, `nb`+fmt.Sprint(leader)+`\.sock: leader, entry \d+`, strings.Join(f.Details, "\n"))
	require.Regexp(t, `nb`+fmt.Sprint(lost)+`\.sock: follows, entry \d+`, strings.Join(f.Details, "\n"))

	c.Kill(lost)
	f = until(t, doctor.Warning, ctl(leader))
	require.Contains(t, f.Reason, "2 of 3 members are connected")
	require.Contains(t, f.Reason, ": 0 more may be lost")
	require.Contains(t, strings.Join(f.Details, "\n"), addr(lost)+": NOT CONNECTED")
	require.Contains(t, f.Next, `"A member is lost"`)
	f = until(t, doctor.Warning, servers)
	require.Equal(t, "2 of 3 servers are connected", f.Reason)

	c.Kill(leader)
	f = until(t, doctor.Failed, ctl(follower))
	require.Contains(t, f.Reason, "nothing can be changed; 1 of 3 members are connected")
	require.Contains(t, ctl(lost)().Reason, "the member here does not answer")
	until(t, doctor.Failed, servers)
}

// TestLag: who has not carried out the last change is named: northd, or a chassis.
func TestLag(t *testing.T) {
	t.Parallel()
	c := ovn.New(t, testbed.Bare(t), "127.0.0.1")
	c.Nbctl("--wait=sb", "sync")
	h := lookedAt(t, map[string]string{"nb": c.NB(), "sb": c.SB()})
	look := func() doctor.Finding {
		f, err := h.lag(t.Context(), rows.Place{Endpoint: c.NB()}, rows.Place{Endpoint: c.SB()})
		require.NoError(t, err)
		return f
	}
	require.Contains(t, h.changes(t.Context())[0].Reason, "all 0 chassis have change ")
	for i, name := range []string{"n1", "n2"} {
		c.Sbctl("chassis-add", name, "geneve", fmt.Sprintf("192.0.2.%d", i+1), "--", "create", "chassis_private", "name="+name, "nb_cfg=0")
	}
	f := until(t, doctor.Warning, look)
	require.Contains(t, f.Reason, "2 of 2 chassis do not have change ")
	require.Equal(t, []string{"chassis n1 has change 0", "chassis n2 has change 0"}, f.Details)
	require.Contains(t, f.Next, "chassis-del")
	for _, name := range []string{"n1", "n2"} {
		c.Sbctl("set", "chassis_private", name, "nb_cfg=99")
	}
	c.Nbctl("set", "nb_global", ".", "external_ids:fairlead-holder=ctl-1", "external_ids:fairlead-epoch=7")
	require.Equal(t, []string{"controller ctl-1 writes, epoch 7"}, until(t, doctor.OK, look).Details)
	packed(t, c)
	back := func(ago time.Duration) doctor.Finding {
		c.Nbctl("set", "nb_global", ".", fmt.Sprintf(`external_ids:fairlead-api-went-back="%s 900 20"`, time.Now().Add(-ago).UTC().Format(time.RFC3339)))
		return h.changes(t.Context())[0]
	}
	require.Equal(t, doctor.Warning, back(time.Hour).Verdict)
	require.Contains(t, back(time.Hour).Reason, "its revision was 900 and became 20")
	require.Equal(t, "changes carried out", back(25*time.Hour).Name)
	c.KillNorthd()
	c.Nbctl("set", "nb_global", ".", "nb_cfg=50")
	require.Contains(t, until(t, doctor.Failed, look).Reason, "ovn-northd is behind: change ")
}

// packed proves that a support bundle has how a cluster's databases are, how far changes
// have come, and until when certificates are good.
func packed(t *testing.T, c *ovn.Central) {
	t.Helper()
	state := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(state, "ovn"), 0o700))
	for _, file := range []string{"cert.pem", "ca.pem"} {
		require.NoError(t, os.WriteFile(filepath.Join(state, "ovn", file), pemOf(t, "n1", -time.Hour, 30*24*time.Hour), 0o600))
	}
	cfg := doctor.Config{StateDir: state, OVSDB: "unix:/nonexistent", Run: func(context.Context, doctor.Command) ([]byte, error) { return nil, os.ErrNotExist }}
	flags := lookedAt(t, map[string]string{"nb": c.NB(), "sb": c.SB()}).Flags
	Beside(&cfg, client.Origin{}, func(name string) string { return flags[name] })
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	require.NoError(t, doctor.BundleFile(t.Context(), file, doctor.BundleConfig{
		Config: cfg, Raw: func(context.Context, string) ([]byte, error) { return nil, os.ErrNotExist },
	}))
	found, err := exec.CommandContext(t.Context(), "tar", "-xzOf", file, "fairlead/doctor.txt").Output()
	require.NoError(t, err)
	for _, want := range []string{"northbound raft ", "southbound raft ", "changes carried out ", "all 2 chassis have change ", "controller ctl-1 writes, epoch 7", "n1, until "} {
		require.Contains(t, string(found), want)
	}
}

// pemOf is a certificate with a life around now.
func pemOf(t *testing.T, name string, from, to time.Duration) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now()
	like := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(from), NotAfter: now.Add(to)}
	der, err := x509.CreateCertificate(rand.Reader, like, like, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestCertificates: their ends are told, with what to do about one that is over, has
// not been renewed, is to come, or is none; of CAs the last one counts.
func TestCertificates(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	good := pemOf(t, "n1", -hour, 30*24*hour)
	for name, c := range map[string]struct {
		cert, ca []byte
		want     [2]doctor.Verdict
		says     string
	}{
		"good":        {good, good, [2]doctor.Verdict{doctor.OK, doctor.OK}, "n1, until " + day(time.Now().Add(30*24*hour))},
		"over":        {pemOf(t, "n1", -3*hour, -hour), good, [2]doctor.Verdict{doctor.Failed, doctor.OK}, "it ended"},
		"not renewed": {pemOf(t, "n1", -9*hour, hour), good, [2]doctor.Verdict{doctor.Warning, doctor.OK}, "has not been renewed"},
		"to come":     {pemOf(t, "n1", hour, 2*hour), good, [2]doctor.Verdict{doctor.Failed, doctor.OK}, "to come by this machine's clock"},
		"none":        {[]byte("?"), good, [2]doctor.Verdict{doctor.Failed, doctor.OK}, "there is no certificate in it"},
		"CA over":     {good, pemOf(t, "ca", -3*hour, -hour), [2]doctor.Verdict{doctor.OK, doctor.Failed}, "the last one ended"},
		"former CA":   {good, slices.Concat(pemOf(t, "ca", -3*hour, -hour), good), [2]doctor.Verdict{doctor.OK, doctor.OK}, ": 2, until"},
		"CA lost":     {good, nil, [2]doctor.Verdict{doctor.OK, doctor.Failed}, "no such file"},
	} {
		state := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(state, "ovn"), 0o700))
		for file, text := range map[string][]byte{"cert.pem": c.cert, "ca.pem": c.ca} {
			if text != nil {
				require.NoError(t, os.WriteFile(filepath.Join(state, "ovn", file), text, 0o600))
			}
		}
		out := lookedAt(t, map[string]string{"state-dir": state}).certificates(t.Context())
		require.Len(t, out, 2, name)
		require.Equal(t, c.want, [2]doctor.Verdict{out[0].Verdict, out[1].Verdict}, "%s: %+v", name, out)
		require.Contains(t, out[0].Reason+"\n"+out[1].Reason, c.says, name)
		for _, f := range out {
			require.Equal(t, f.Verdict != doctor.OK, f.Next != "", name)
		}
	}
	require.Empty(t, lookedAt(t, nil).certificates(t.Context()))
}

// TestControllers: of a real API server: who leads, who has not renewed its Lease, that
// nobody ever did; the CAs that are published. Nothing of a cluster without OVN, nor
// where nothing is reached.
func TestControllers(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	api, err := query.New(query.Options{Files: []string{c.AdminKubeconfig()}, Note: func(string) {}})
	require.NoError(t, err)
	a := lookedAt(t, map[string]string{"install-namespace": ns}).Asked
	require.Empty(t, Health(t.Context(), a))
	a.Origin = client.Origin{API: api}
	require.Empty(t, Health(t.Context(), a))

	by := func(name string) doctor.Finding {
		out := Health(t.Context(), a)
		i := slices.IndexFunc(out, func(f doctor.Finding) bool { return f.Name == name })
		require.GreaterOrEqual(t, i, 0, "%+v", out)
		require.Equal(t, out[i].Verdict != doctor.OK, out[i].Next != "")
		return out[i]
	}
	c.Apply(strings.ReplaceAll(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: fairlead-controller, namespace: NS}
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: none, args: ["--nb=ssl:192.0.2.1:6641"]}]}}
`, "NS", ns))
	require.Contains(t, by("controller").Reason, "none has ever led")
	f := by("northbound raft")
	require.Equal(t, doctor.Warning, f.Verdict)
	require.Contains(t, f.Next, "exec ds/fairlead-central -- fairlead doctor --cluster")

	lease := func(name, holder string, ago time.Duration) {
		c.Apply(fmt.Sprintf("apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: %s, namespace: %s}\nspec: {holderIdentity: %q, leaseDurationSeconds: 3600, renewTime: %q}\n",
			name, ns, holder, time.Now().Add(-ago).UTC().Format("2006-01-02T15:04:05.000000Z")))
	}
	lease("fairlead-controller", "ctl-1", time.Minute)
	lease("fairlead-ca", "ctl-2", 2*time.Hour)
	require.Regexp(t, "^ctl-1, which renewed its Lease 1m", by("controller").Reason)
	f = by("keeper of the CAs")
	require.Equal(t, doctor.Failed, f.Verdict)
	require.Regexp(t, `^ctl-2 led, and has not renewed its Lease for 2h.*: no certificate is signed or renewed$`, f.Reason)
	lease("fairlead-controller", "", 0)
	require.Contains(t, by("controller").Reason, "nobody leads")

	_, err = c.TryKubectl("", "create", "configmap", "fairlead-ca", "-n", ns, "--from-literal=central="+string(pemOf(t, "ca", -time.Hour, 24*time.Hour)))
	require.NoError(t, err)
	require.Contains(t, by("CA").Reason, "ConfigMap fairlead-ca, central: 1, until ")
}

// TestBeside: a doctor has the cluster's findings, unless its machine is one alone.
func TestBeside(t *testing.T) {
	state := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(state, "ovn"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(state, "ovn/cert.pem"), nil, 0o600))
	flag := func(name string) string { return lookedAt(t, nil).Flags[name] }
	alone := doctor.Config{Objects: "pods"}
	Beside(&alone, client.Origin{}, flag)
	require.Nil(t, alone.More)
	cfg := doctor.Config{StateDir: state, OVSDB: "unix:/nonexistent", Run: func(context.Context, doctor.Command) ([]byte, error) { return nil, os.ErrNotExist }}
	Beside(&cfg, client.Origin{}, flag)
	r, err := doctor.Run(t.Context(), cfg)
	require.NoError(t, err)
	require.False(t, r.OK)
	require.Greater(t, len(r.Findings), 1)
	require.True(t, slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool {
		return f.Group == "Cluster" && f.Name == "chassis' certificate" && f.Verdict == doctor.Failed
	}))

	cfg = doctor.Config{StateDir: t.TempDir(), OVSDB: "unix:/nonexistent"}
	Beside(&cfg, client.Origin{}, func(name string) string {
		if name == onlyCluster {
			return "true"
		}
		return flag(name)
	})
	r, err = doctor.Run(t.Context(), cfg)
	require.NoError(t, err)
	require.False(t, r.OK)
	require.Len(t, r.Findings, 1)
	require.Contains(t, r.Findings[0].Reason, "nothing of a cluster with OVN is reached")
}
