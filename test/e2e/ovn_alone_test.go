package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/inside"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// aloneNetworks are two Subnets that a router joins, a private one, and a Service.
const aloneNetworks = `
{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: web}, spec: {cidrBlock: "10.16.0.0/16,fd00:10:16::/112", default: true, natOutgoing: true}}
---
{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: data}, spec: {cidrBlock: "10.17.0.0/16,fd00:10:17::/112", namespaces: [data]}}
---
{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: vault}, spec: {cidrBlock: "10.18.0.0/16,fd00:10:18::/112", namespaces: [vault], private: true}}
---
apiVersion: v1
kind: Service
metadata: {name: svc, namespace: web}
spec: {clusterIPs: [10.96.0.10, "fd00:10:96::10"], selector: {app: server}, ports: [{port: 80, targetPort: http}]}
`

// aloneLock lets only friends in to the servers of namespace web.
const aloneLock = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: lock, namespace: web}
spec:
  podSelector: {matchLabels: {app: server}}
  ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: friend}}}], ports: [{port: http}]}]
`

// alone is a machine with OVN and an agent whose objects stand in a folder.
type alone struct {
	*testbed.Node
	t       *testing.T
	central *ovn.Central
	agent   *testbed.Agent
}

func newAlone(t *testing.T, objects map[string]string) *alone {
	t.Helper()
	a := &alone{Node: testbed.New(t), t: t}
	a.central = ovn.New(t, a.Node, "127.0.0.1")
	ovn.NewChassis(t, a.Node, a.central, "node1", "127.0.0.1")
	for name, yaml := range objects {
		a.WriteObjects(name, yaml)
	}
	a.start()
	a.agent.WaitReady()
	return a
}

func (a *alone) start() { a.agent = a.Agent("--ovn", "--mtu", ovn.PodMTU, "--nb", a.central.NB()) }

// alonePod is a pod with its addresses, one of each family.
type alonePod struct {
	*testbed.Pod
	a   *alone
	ips []string
}

// run declares a pod with a label, and adds it as a runtime does.
func (a *alone) run(name, app string) *alonePod {
	a.t.Helper()
	p := &alonePod{Pod: a.NewPod(name), a: a}
	a.WriteObjects(p.Namespace+"-"+p.Name+".yaml", fmt.Sprintf(
		"{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, labels: {app: %s}}, spec: {containers: [{name: c, image: none, ports: [{name: http, containerPort: 8080}]}]}}",
		p.Name, p.Namespace, app))
	p.add(ownConf)
	inside.Serve(a.t, inside.Open(a.t, p.NetnsPath()), p.Name, 8080)
	return p
}

func (p *alonePod) add(conf string) {
	t := p.a.t
	t.Helper()
	p.ips = nil
	for _, ip := range p.CNI("ADD", conf).Must().IPs() {
		p.ips = append(p.ips, bare(ip))
	}
	require.Len(t, p.ips, 2, "an address of each family")
}

// gets waits until what a pod hears from an address is want, "" for nothing; by is
// the one that answers.
func (p *alonePod) gets(want, host string, port int) {
	t := p.a.t
	t.Helper()
	ns := inside.Open(t, p.NetnsPath())
	eventually(t, func() string {
		for _, network := range []string{"tcp", "udp"} {
			if network == "udp" && port == 80 {
				continue // the Service has no such port
			}
			got := inside.Query(ns, inside.Peer{Network: network, Host: host, Port: port, Limit: time.Second})
			if got != want {
				return fmt.Sprintf("%s to %s by %s: %q, not %q", p.Name, host, network, got, want)
			}
		}
		return ""
	})
}

func (p *alonePod) reaches(to *alonePod) {
	p.a.t.Helper()
	for i, ip := range to.ips {
		p.gets(to.Name+" sees "+p.ips[i], ip, 8080)
	}
}

func (p *alonePod) cutFrom(to *alonePod) {
	p.a.t.Helper()
	for _, ip := range to.ips {
		p.gets("", ip, 8080)
	}
}

// TestOVNAlone: one machine with OVN and a folder: pods of two Subnets, a private
// one, a Service and a NetworkPolicy reach and are cut off as declared, through
// changes of the folder and a kill of the agent.
func TestOVNAlone(t *testing.T) {
	t.Parallel()
	a := newAlone(t, map[string]string{"networks.yaml": aloneNetworks})
	server, friend, other := a.run("web/server", "server"), a.run("data/friend", "friend"), a.run("data/other", "other")
	vault, second := a.run("vault/one", "friend"), a.run("vault/two", "other")
	noProblems(t, a.Node)
	eventually(t, func() string {
		claim := a.OVS.Vsctl("--timeout=20", "get", "interface", "ovn0", "external_ids:ovn-installed-ts")
		if since := a.OVS.Vsctl("--timeout=20", "--if-exists", "get", "open_vswitch", ".", "external_ids:fairlead-settled"); since != claim {
			return "ovn-controller has not computed its flows since claim " + claim + ", but " + since
		}
		return ""
	})

	friend.reaches(server)
	other.reaches(server)
	vault.reaches(second)
	friend.cutFrom(vault)
	vault.cutFrom(server)
	for i, ip := range []string{"10.96.0.10", "fd00:10:96::10"} {
		friend.gets("server sees "+friend.ips[i], ip, 80)
	}

	a.WriteObjects("policy.yaml", aloneLock)
	other.cutFrom(server)
	for i, ip := range server.ips {
		require.Equal(t, "server sees "+friend.ips[i], inside.Query(inside.Open(t, friend.NetnsPath()), inside.Peer{Network: "tcp", Host: ip, Port: 8080, Limit: time.Minute}))
	}
	require.NoError(t, os.Remove(filepath.Join(a.Objects(), "policy.yaml")))
	other.reaches(server)

	ping := other.StartPing(server.ips[0], 20*time.Millisecond)
	port := func() string {
		out, err := a.Try("ip", "-o", "link", "show", "ovn0")
		require.NoError(t, err)
		index, _, _ := strings.Cut(out, ":")
		return index
	}
	before := port()
	for range 2 {
		a.agent.Kill()
		ping.Answers(5)
		a.start()
		a.agent.WaitReady()
	}
	ping.Answers(5)
	_, lost := ping.Stop()
	require.Zero(t, lost)
	require.Equal(t, before, port(), "the machine's own port has stayed, as the controller had said")
	friend.reaches(server)
	third := a.run("data/third", "other")
	require.NotContains(t, [][]string{server.ips, friend.ips, other.ips}, third.ips)
	third.reaches(server)
	a.agrees(server, friend, other, vault, second, third)
	other.CNI("DEL", ownConf).Must()
	require.NoError(t, os.Remove(filepath.Join(a.Objects(), "data-other.yaml")))
	other.Delete()
	a.agrees(server, friend, vault, second, third)
}

// agrees waits until the databases have ports of the node and of these pods, and of
// nobody else, with the addresses that the pods have.
func (a *alone) agrees(pods ...*alonePod) {
	a.t.Helper()
	at, want := map[string]string{}, []string{}
	for _, p := range pods {
		at[p.Name+"."+p.Namespace] = "node1"
		want = append(want, p.Name+"."+p.Namespace+" "+strings.Join(p.ips, " "))
	}
	slices.Sort(want)
	eventually(a.t, func() string {
		var got []string
		for _, row := range rows(a.central) {
			if f := strings.Fields(row); f[0] != "node-node1" {
				got = append(got, strings.Join(slices.Delete(f, 1, 2), " "))
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Sprintf("rows of the database: %q, want %q", got, want)
		}
		return cmp.Or(unbound(a.central, at), learnt(a.central))
	})
}
