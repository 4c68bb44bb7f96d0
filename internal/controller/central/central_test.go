package central_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authentication "k8s.io/api/authentication/v1"
	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/controller/kube"
	"github.com/fairlead/fairlead/internal/controller/pki"
	"github.com/fairlead/fairlead/internal/ovn/raft"
	"github.com/fairlead/fairlead/internal/testbed"
	kubebed "github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kubebed.Main(m)) }

const (
	patience = 2 * time.Minute // it decides how late a failure is seen
	tick     = 100 * time.Millisecond
	certLife = 30 * time.Second
	dir, run = "disk/central", "run/ovn"
)

// site is a central of three members, each on a node of its own.
type site struct {
	t       *testing.T
	c       *kubebed.Cluster
	ns      string
	members [3]*member
}

type member struct {
	*testbed.Node
	s    *site
	addr string
	p    *testbed.Process
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, c: kubebed.Shared(t)}
	s.ns = s.c.Namespace()
	s.c.Apply(strings.ReplaceAll(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NS-asks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:serviceaccounts:NS"}]
`, "NS", s.ns))
	s.c.Apply(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s}}", fairlead.CentralName, s.ns))
	authority, err := kube.NewAuthority(s.c.Admin(), s.ns, certLife, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() { authority.Run(ctx) })
	under := testbed.NewUnderlay(t)
	for i := range s.members {
		m := &member{Node: testbed.Bare(t), s: s}
		m.addr = under.Join(m.Node).IP4
		s.c.Link(m.NetnsPath())
		s.members[i] = m
	}
	return s
}

// start starts a member's program, as one of all three or of some.
func (m *member) start(members ...*member) {
	m.s.t.Helper()
	if members == nil {
		members = m.s.members[:]
	}
	var all []string
	for _, one := range members {
		all = append(all, one.addr)
	}
	m.p = m.Start("central", testbed.Controller(m.s.t), "central", "--namespace", m.s.ns, "--address", m.addr,
		"--members", strings.Join(all, ","), "--dir", filepath.Join(m.Dir, dir), "--run-dir", filepath.Join(m.Dir, run),
		"--kubeconfig", m.s.c.Kubeconfig(m.s.c.ServiceAccountConfig(m.s.ns, fairlead.CentralAccount)))
	m.s.t.Cleanup(func() {
		if m.p.Running() {
			m.p.Stop()
		}
	})
}

// get is what the member serves over HTTP.
func (m *member) get(path string) string {
	out, err := m.Try("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/10668; printf 'GET "+path+" HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3")
	if err != nil {
		return err.Error()
	}
	return out
}

func (m *member) ready() {
	m.s.t.Helper()
	m.s.until(func() error {
		if got := m.get("/readyz"); !strings.Contains(got, " 200 OK") {
			return errors.New(got)
		}
		return nil
	}, m.addr+" is ready")
}

func (s *site) until(look func() error, what string) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(tick) {
		err := look()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			require.FailNow(s.t, what, "in vain: %v", err)
		}
	}
}

// examined proves that the operator is told of the member's clusters, of its certificate
// and of what northd has carried out, by its sockets and files alone.
func (m *member) examined() {
	m.s.t.Helper()
	m.s.until(func() error {
		out, _ := m.TryFairlead("doctor", "--cluster", "--central-run-dir", filepath.Join(m.Dir, run), "--central-dir", filepath.Join(m.Dir, dir),
			"--state-dir", filepath.Join(m.Dir, "none"), "--ovsdb", "unix:/nonexistent")
		for _, want := range []string{`✓ northbound raft .* leads 3 members`, `✓ southbound raft .* leads 3 members`, `ssl:\S+: this one`, `✓ changes carried out`, `central's certificate .* 20`, `CA .*chassis-ca.pem: `} {
			if !regexp.MustCompile(want).MatchString(out) {
				return fmt.Errorf("no %s in: %s", want, out)
			}
		}
		return nil
	}, m.addr+" is examined")
}

// ctl runs a program over one of the member's own sockets.
func (m *member) ctl(program, db string, args ...string) (string, error) {
	return m.Try(append([]string{program, "--timeout=20", "--no-leader-only", "--db=unix:" + filepath.Join(m.Dir, run, db+".sock")}, args...)...)
}

func (m *member) appctl(db string, args ...string) string {
	m.s.t.Helper()
	return m.Run(append([]string{"ovs-appctl", "-t", filepath.Join(m.Dir, run, db+".ctl")}, args...)...)
}

// chassis has a certificate of a chassis issued, by a token of that node, and gives
// the flags for it.
func (s *site) chassis(name, into string) []string {
	t := s.t
	t.Helper()
	as := s.c.ServiceAccountConfig(s.ns, "fairlead")
	if _, err := s.c.Client().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		s.c.RegisterNode(name)
		s.c.Apply(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s}\n"+
			"spec: {nodeName: %s, serviceAccountName: fairlead, containers: [{name: c, image: none}]}\n", name, s.ns, name))
	}
	pod, err := s.c.Client().CoreV1().Pods(s.ns).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	token, err := s.c.Client().CoreV1().ServiceAccounts(s.ns).CreateToken(t.Context(), "fairlead", &authentication.TokenRequest{
		Spec: authentication.TokenRequestSpec{BoundObjectRef: &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	as.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(as)
	require.NoError(t, err)
	key, text, err := pki.NewRequest(name, fairlead.OrganizationChassis)
	require.NoError(t, err)
	all := client.CertificatesV1().CertificateSigningRequests()
	csr, err := all.Create(t.Context(), &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		Spec: certificates.CertificateSigningRequestSpec{Request: text, SignerName: fairlead.SignerChassis,
			Usages: []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.until(func() error {
		if csr, err = all.Get(t.Context(), csr.Name, metav1.GetOptions{}); err == nil && len(csr.Status.Certificate) == 0 {
			err = fmt.Errorf("%+v", csr.Status)
		}
		return err
	}, "certificate of "+name)
	require.NoError(t, os.MkdirAll(into, 0o700))
	bundle := s.bundle(fairlead.BundleCentral)
	for file, text := range map[string]string{"key.pem": string(key), "cert.pem": string(csr.Status.Certificate), "ca.pem": bundle} {
		require.NoError(t, os.WriteFile(filepath.Join(into, file), []byte(text), 0o600))
	}
	return []string{"--private-key=" + into + "/key.pem", "--certificate=" + into + "/cert.pem", "--ca-cert=" + into + "/ca.pem"}
}

// bundle is who is trusted, as the ConfigMap has it.
func (s *site) bundle(key string) string {
	s.t.Helper()
	m, err := s.c.Client().CoreV1().ConfigMaps(s.ns).Get(s.t.Context(), fairlead.CAName, metav1.GetOptions{})
	require.NoError(s.t, err)
	return m.Data[key]
}

// ask is an OVSDB transaction, or the list of databases, at one of the member's ports.
func (m *member) ask(keys []string, scheme string, port int, transaction string) string {
	argv := append([]string{"timeout", "10", "ovsdb-client"}, keys...)
	at := fmt.Sprintf("%s:%s:%d", scheme, m.addr, port)
	if transaction == "" {
		argv = append(argv, "list-dbs", at)
	} else {
		argv = append(argv, "transact", at, transaction)
	}
	out, err := m.Try(argv...)
	if err != nil {
		return "refused: " + err.Error()
	}
	return out
}

func insert(name string) string {
	return fmt.Sprintf(`["OVN_Southbound",{"op":"insert","table":"Encap","uuid-name":"e","row":{"type":"geneve","ip":%q,"chassis_name":%q}},`+
		`{"op":"insert","table":"Chassis","row":{"name":%q,"encaps":["named-uuid","e"]}}]`, name, name, name)
}

func update(name string) string {
	return fmt.Sprintf(`["OVN_Southbound",{"op":"update","table":"Chassis","where":[["name","==",%q]],"row":{"nb_cfg":5}}]`, name)
}

// matrix proves what a chassis' certificate opens at a member, and what it does not.
func (m *member) matrix(one, two string, keysOne, keysTwo []string) {
	t := m.s.t
	t.Helper()
	// northd makes the role when it has begun, and the relay closes its port for a
	// moment when the members of its database change.
	answers := func(keys []string, transaction, want string) {
		t.Helper()
		m.s.until(func() error {
			out := m.ask(keys, "ssl", fairlead.PortChassis, transaction) // which says itself what it asked
			if strings.HasPrefix(out, "refused") || !strings.Contains(out, want) || strings.Contains(out, "error") != strings.Contains(want, "error") {
				return errors.New(out)
			}
			return nil
		}, want+" for "+transaction)
	}
	answers(keysOne, insert(one), "uuid")
	answers(keysTwo, insert(two), "uuid")
	answers(keysOne, update(one), `"count":1`)
	answers(keysOne, update(two), "permission error")
	for _, table := range []string{"Chassis", "Logical_Flow", "Connection", "RBAC_Role"} {
		answers(keysOne, `["OVN_Southbound",{"op":"delete","table":"`+table+`","where":[]}]`, "permission error")
	}
	m.shared(answers, keysOne)
	for _, port := range []int{fairlead.PortNB, fairlead.PortSB, fairlead.PortNBRaft, fairlead.PortSBRaft} {
		require.Contains(t, m.ask(keysOne, "ssl", port, ""), "refused", port)
	}
	for _, port := range []int{fairlead.PortNB, fairlead.PortChassis, fairlead.PortSB, fairlead.PortNBRaft, fairlead.PortSBRaft} {
		require.Contains(t, m.ask(nil, "tcp", port, ""), "refused", port)
	}
}

// shared proves what a chassis may change in tables whose rows OVN lets no chassis own: of
// a port where it is and whether it works, and what MAC an address has; neither what a
// port is, nor which there are.
func (m *member) shared(answers func(keys []string, transaction, want string), keys []string) {
	t := m.s.t
	t.Helper()
	_, err := m.ctl("ovn-nbctl", "nb", "--wait=sb", "ls-add", "shared", "--", "lsp-add", "shared", "shared-port")
	require.NoError(t, err)
	of := func(table, column string) string {
		id, err := m.ctl("ovn-sbctl", "sb", "--bare", "--columns="+column, "find", table, "logical_port=shared-port")
		require.NoError(t, err)
		return `["uuid","` + strings.TrimSpace(id) + `"]`
	}
	datapath := of("Port_Binding", "datapath")
	port := func(row string) string {
		return `["OVN_Southbound",{"op":"update","table":"Port_Binding","where":[["logical_port","==","shared-port"]],"row":{` + row + `}}]`
	}
	answers(keys, port(`"up":true`), `"count":1`)
	for _, row := range []string{`"mac":"0a:00:00:00:00:01 10.0.0.1"`, `"tunnel_key":9`} {
		answers(keys, port(row), "permission error")
	}
	answers(keys, `["OVN_Southbound",{"op":"delete","table":"Port_Binding","where":[]}]`, "permission error")
	answers(keys, `["OVN_Southbound",{"op":"insert","table":"Port_Binding","row":{"logical_port":"mine","tunnel_key":7,"datapath":`+datapath+`}}]`, "permission error")
	answers(keys, `["OVN_Southbound",{"op":"insert","table":"MAC_Binding","row":{"logical_port":"shared-port","ip":"10.0.0.1","mac":"0a:00:00:00:00:01","datapath":`+datapath+`}}]`, "uuid")
	answers(keys, `["OVN_Southbound",{"op":"delete","table":"MAC_Binding","where":[]}]`, `"count":1`)
	_, err = m.ctl("ovn-nbctl", "nb", "ls-del", "shared")
	require.NoError(t, err)
}

// TestCentral: three members find each other, over TLS; a chassis changes its own
// rows and nothing else; what dies is started again, a member that lost its disk
// comes back, and both CAs are replaced while the database is written. Databases of an
// older OVN are converted, those of a newer one are not. A chassis of another cluster stays.
func TestCentral(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.members[0].old()
	for _, m := range s.members {
		m.start()
	}
	for _, m := range s.members {
		m.ready()
	}
	first, last := s.members[0], s.members[2]
	one, two := s.ns+"-1", s.ns+"-2"
	keys := s.chassis(one, filepath.Join(first.Dir, "disk", one))
	_, err := first.ctl("ovn-nbctl", "nb", "set", "nb_global", ".", "nb_cfg=1") // as a controller does when all rows are there
	require.NoError(t, err)
	first.matrix(one, two, keys, s.chassis(two, filepath.Join(first.Dir, "disk", two)))
	for _, m := range s.members {
		m.examined()
		m.schemas(installed, installed)
	}

	// A chassis whose node is gone, with the address of one that comes: it goes in the meantime.
	_, err = first.ctl("ovn-sbctl", "sb", "chassis-add", s.ns+"-gone", "geneve", "192.0.2.9")
	require.NoError(t, err)
	_, err = first.ctl("ovn-sbctl", "sb", "create", "Chassis_Private", "name="+s.ns+"-gone")
	require.NoError(t, err)

	s.joined(first)

	// A database's server dies.
	pid := regexp.MustCompile(`(?m)^\s*(\d+).*nb\.db`)
	found := pid.FindStringSubmatch(last.Run("pgrep", "-af", filepath.Join(last.Dir, dir, "nb.db")))
	require.NotNil(t, found)
	last.Run("kill", "-9", found[1])
	s.until(func() error {
		if got := last.get("/metrics"); !strings.Contains(got, `fairlead_central_restarts_total{part="ovsdb-nb"} 1`) {
			return errors.New("it was not started again")
		}
		return nil
	}, "restart")
	last.ready()

	// A newer OVN was here. What this one lacks stays.
	first.Run("ovsdb-client", "--no-leader-only", "convert", "unix:"+filepath.Join(first.Dir, run, "sb.sock"), first.schema("sb", "99.0.0"))

	// A member and its disk are lost: it joins anew, and what it was is taken out.
	_, err = first.ctl("ovn-nbctl", "nb", "ls-add", "before")
	require.NoError(t, err)
	was := map[string]string{"nb": last.self("nb"), "sb": last.self("sb")}
	last.p.Stop()
	require.NoError(t, os.RemoveAll(filepath.Join(last.Dir, dir)))
	last.start()
	last.ready()
	last.schemas(installed, "99.0.0")
	last.says("a newer OVN has converted this database")
	for db, id := range was {
		first.without(db, id)
	}
	require.Contains(t, last.Fairlead("ovn", "nbctl", "--central-run-dir", filepath.Join(last.Dir, run), "ls-list"), "before")

	// The API server has an old note of which southbound cluster there is. The northbound one was begun
	// anew just now, by a member that is away.
	const nobodys = "00000000-1111-4222-8333-444444444444"
	s.note("OVN_Northbound", nobodys, "OVN_Northbound-anew", time.Now().UTC().Format(time.RFC3339), "OVN_Southbound", nobodys)
	s.replaced(first, one, keys)
	s.until(func() error {
		if now := s.noted("OVN_Southbound"); now == nobodys {
			return errors.New(now)
		}
		return nil
	}, "what runs is noted")
	first.says("nobody serves the cluster that was begun anew")
	require.Equal(t, nobodys, s.noted("OVN_Northbound"))
	s.note("OVN_Northbound-anew", "2026-01-01T00:00:00Z")
	s.until(func() error {
		if now := s.noted("OVN_Northbound"); now == nobodys {
			return errors.New(now)
		}
		return nil
	}, "what runs is noted after a while")
	for _, m := range s.members {
		m.ready()
	}
	s.until(func() error {
		_, err := first.ctl("ovn-sbctl", "sb", "chassis-add", two+"-comes", "geneve", "192.0.2.9")
		return err
	}, "the address of a node that is gone is free")
	if os.Getenv("FAIRLEAD_SOAK") != "" { // a minute and a half
		s.stays(first)
		s.fewer()
	}
	for _, table := range []string{"Chassis", "Chassis_Private"} {
		all, err := first.ctl("ovn-sbctl", "sb", "--bare", "--columns=name", "list", table)
		require.NoError(t, err)
		require.NotContains(t, all, s.ns+"-gone", table)
		if table == "Chassis" {
			require.Contains(t, all, one)
			require.Contains(t, all, two)
			require.Contains(t, all, s.ns+"-far")
		}
	}

	// The first member alone, without its disk: what has begun does not begin again.
	for _, m := range s.members {
		m.p.Stop()
	}
	require.NoError(t, os.RemoveAll(filepath.Join(first.Dir, dir)))
	first.start()
	first.says("the cluster of OVN_Northbound has begun already")
	require.NoFileExists(t, filepath.Join(first.Dir, dir, "nb.db"))
	s.restored()
}

// without waits until a server is none of a database's cluster, of which all three members
// are left.
func (m *member) without(db, id string) {
	m.s.t.Helper()
	m.s.until(func() error {
		v := m.view(db)
		if len(v.Servers) != 3 || slices.ContainsFunc(v.Servers, func(s raft.Server) bool { return s.ID == id }) {
			return fmt.Errorf("%+v", v)
		}
		return nil
	}, "what the member was is taken out")
}

func (m *member) view(db string) raft.View {
	m.s.t.Helper()
	name := map[string]string{"nb": "OVN_Northbound", "sb": "OVN_Southbound"}[db]
	return raft.Read(m.appctl(db, "cluster/status", name))
}

// self is the member's id in a database's cluster.
func (m *member) self(db string) string {
	m.s.t.Helper()
	v := m.view(db)
	i := slices.IndexFunc(v.Servers, func(s raft.Server) bool { return s.Self })
	require.GreaterOrEqual(m.s.t, i, 0, "%+v", v)
	return v.Servers[i].ID
}

// fewer proves that one of --members that is gone stays a member, until it is none of
// them, and comes back on another disk.
func (s *site) fewer() {
	s.t.Helper()
	last := s.members[2]
	last.p.Stop()
	time.Sleep(90 * time.Second)
	require.Len(s.t, s.members[0].view("nb").Servers, 3)
	for _, m := range s.members[:2] {
		m.p.Stop()
		m.start(s.members[:2]...)
		m.ready()
	}
	for _, db := range []string{"nb", "sb"} {
		s.until(func() error {
			if v := s.members[0].view(db); len(v.Servers) != 2 {
				return fmt.Errorf("%+v", v)
			}
			return nil
		}, "the third member is taken out")
	}
	require.NoError(s.t, os.RemoveAll(filepath.Join(last.Dir, dir)))
	for _, m := range s.members {
		if m.p.Running() {
			m.p.Stop()
		}
		m.start()
	}
	for _, m := range s.members {
		m.ready()
	}
}

// stays proves that a chassis which comes back after it was removed for want of a Node
// is left alone, since somebody lives there.
func (s *site) stays(m *member) {
	s.t.Helper()
	comes := func() error {
		_, err := m.ctl("ovn-sbctl", "sb", "chassis-add", s.ns+"-lives", "geneve", "192.0.2.10")
		return err
	}
	require.NoError(s.t, comes())
	s.until(comes, "it is removed once") // an address that another has is refused
	time.Sleep(40 * time.Second)         // two looks and more
	require.Error(s.t, comes(), "it was removed once more")
}

// replaced proves that both CAs are replaced while the database is written.
func (s *site) replaced(m *member, one string, keys []string) {
	t := s.t
	t.Helper()
	central, chassis := s.bundle(fairlead.BundleCentral), s.bundle(fairlead.BundleChassis)
	for _, name := range []string{"central", "chassis"} {
		s.until(func() error {
			_, err := s.c.TryKubectl("", "annotate", "--overwrite", "secret", "-n", s.ns, fairlead.CAName, fairlead.AnnReplaceCA+"="+name)
			return err
		}, "annotate")
		s.until(func() error {
			if s.c.Kubectl("get", "secret", "-n", s.ns, fairlead.CAName, "-o", `jsonpath={.metadata.annotations.fairlead\.io/replace-ca}`) != "" {
				return errors.New("the controller has not taken it")
			}
			return nil
		}, "next CA of "+name)
	}
	writes := 0
	s.until(func() error {
		if _, err := m.ctl("ovn-nbctl", "nb", "set", "nb_global", ".", fmt.Sprintf("external_ids:n=%d", writes)); err != nil {
			return err
		}
		writes++
		if strings.Contains(s.bundle(fairlead.BundleCentral), central) || strings.Contains(s.bundle(fairlead.BundleChassis), chassis) {
			return errors.New("the former CA is trusted")
		}
		return nil
	}, "both CAs are replaced")
	for _, one := range s.members {
		s.until(func() error { // databases that began anew have a leader again
			text, err := os.ReadFile(filepath.Join(one.Dir, dir, "central-ca.pem"))
			if err != nil || strings.Contains(string(text), central) {
				return fmt.Errorf("the former CA is trusted here: %w", err)
			}
			if got := one.get("/metrics"); strings.Contains(got, `fairlead_central_restarts_total{part="ovsdb-sb"} 0`) {
				return errors.New("what trusted it has not begun anew")
			}
			return nil
		}, one.addr)
		one.ready()
	}
	require.Contains(t, m.ask(keys, "ssl", fairlead.PortChassis, update(one)), "refused", "a certificate of the former CA")
	keys = s.chassis(one, filepath.Join(m.Dir, "disk/again"))
	s.until(func() error {
		if out := m.ask(keys, "ssl", fairlead.PortChassis, update(one)); !strings.Contains(out, `"count":1`) {
			return errors.New(out)
		}
		return nil
	}, "a certificate of the next CA")
}

// says waits for a line of the member's log.
func (m *member) says(line string) {
	m.s.t.Helper()
	m.s.until(func() error {
		if text, err := os.ReadFile(m.p.Log); err != nil || !strings.Contains(string(text), line) {
			return fmt.Errorf("the log does not have it: %w", err)
		}
		return nil
	}, line)
}
