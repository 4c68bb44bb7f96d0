package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/cluster"
	"github.com/fairlead/fairlead/internal/source/cluster/share"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// sharer is an agent as far as it gives addresses.
type sharer struct {
	*agent
	cluster.Shares
	c     *kube.Cluster
	name  string
	pools *ipam.Allocator
}

// TestJoinUnknown: before the Nodes were read nothing is known of them, which is not
// that there are none.
func TestJoinUnknown(t *testing.T) {
	_, err := cluster.New(cluster.Config{Node: "n1"}).Join()
	require.ErrorIs(t, err, core.ErrUnavailable)
}

// TestJoinWithoutItsNode: while the node's own object is away nothing is known of what it has,
// though the others are: what it was given stays.
func TestJoinWithoutItsNode(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	file, _ := account(c, ns)
	src := cluster.New(cluster.Config{Kubeconfig: file, Node: ns, UserAgent: "fairlead/test"})
	a := &agent{t: t, Source: src, journal: map[core.Key]core.Record{}}
	a.start()
	register := func() {
		c.RegisterNode(ns)
		require.Eventually(t, func() bool { _, err := src.Join(); return err == nil }, time.Minute, 50*time.Millisecond)
	}
	register()
	c.Kubectl("label", "node", ns, "edge=true")
	require.Eventually(t, func() bool { j, err := src.Join(); return err == nil && j.Labels["edge"] == "true" }, time.Minute, 50*time.Millisecond)
	c.Kubectl("delete", "node", ns)
	require.Eventually(t, func() bool { _, err := src.Join(); return errors.Is(err, core.ErrUnavailable) }, time.Minute, 50*time.Millisecond)
	register()
}

// TestStraysAreHeld: with a controller a Node says of which addresses its pods are no
// more, for as long as they are held, where OVN does not carry the Subnet.
func TestStraysAreHeld(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	c.RegisterNode(ns)
	c.Apply(`{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: ` + ns + `}, spec: {cidrBlock: 192.0.2.0/24, provider: ` + ns + `.default}}`)
	file, _ := account(c, ns)
	src := cluster.New(cluster.Config{Kubeconfig: file, Node: ns, UserAgent: "fairlead/test"})
	s := &sharer{c: c, name: ns, pools: ipam.New(), agent: &agent{t: t, Source: src, journal: map[core.Key]core.Record{}}}
	s.Shares = cluster.NewShares(src, src.Strays(s.pools.LeasesOf), true)
	stays, goes := makePod(c, ns, "stays", ns), makePod(c, ns, "goes", ns)
	var leases []core.Lease
	for _, p := range []core.Pod{stays, goes} {
		for _, n := range []core.Subnet{{Name: ns, CIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, {Name: "ovn-default", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.16.0.0/16")}}} {
			l, err := s.pools.Acquire(ipam.Request{Subnet: n, Owner: core.Owner{Key: core.Key{Container: p.Name, IfName: n.Name}, Pod: p}})
			require.NoError(t, err)
			leases = append(leases, l)
		}
	}
	s.start()
	done := make(chan struct{})
	go func() { defer close(done); s.Shares.Run(t.Context()) }()
	t.Cleanup(func() { <-done })
	s.synced()
	says := func() string { return s.node().Annotations[share.Annotation] }
	require.Empty(t, says())

	deletePod(c, goes)
	want := fmt.Sprintf(`{%q:["%s/32"]}`, ns, leases[2].IPs[0])
	eventually(t, "what is held", func() bool { return says() == want })
	require.Empty(t, s.told())
	s.pools.Release(leases[2])
	s.pools.Release(leases[3])
	s.Released()
	eventually(t, "that it is free", func() bool { return says() == "" })
}

// TestStraysCostNothing: each Subnet is asked for at each change of any, so that where
// nothing is stray none may be copied.
func TestStraysCostNothing(t *testing.T) {
	strays := cluster.New(cluster.Config{Node: "n", Log: slog.New(slog.DiscardHandler)}).Strays(ipam.New().LeasesOf)
	require.Zero(t, testing.AllocsPerRun(10, func() { require.Empty(t, strays("ovn-default")) }))
}

// newSharer runs an agent on a node that is registered. given are addresses of
// ovn-default that its pods have already.
func newSharer(t *testing.T, c *kube.Cluster, name string, given ...string) *sharer {
	t.Helper()
	file, _ := account(c, c.Namespace())
	s := shareAs(t, c, name, file, given...)
	s.synced()
	return s
}

func shareAs(t *testing.T, c *kube.Cluster, name, kubeconfig string, given ...string) *sharer {
	t.Helper()
	s := &sharer{c: c, name: name, pools: ipam.New()}
	for _, ip := range given {
		s.give(t, core.Subnet{Name: "ovn-default", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.16.0.0/16")}}, ip)
	}
	src := cluster.New(cluster.Config{Kubeconfig: kubeconfig, Node: name, UserAgent: "fairlead/test"})
	s.agent = &agent{t: t, Source: src, journal: map[core.Key]core.Record{}}
	s.Shares = cluster.NewShares(src, s.pools.Held, false)
	s.start()
	done := make(chan struct{})
	go func() { defer close(done); s.Shares.Run(t.Context()) }()
	t.Cleanup(func() { <-done })
	return s
}

// give is what the engine does for one address; "" chooses.
func (s *sharer) give(t *testing.T, n core.Subnet, fixed string) core.Lease {
	t.Helper()
	l, err := s.tryGive(t, n, fixed)
	require.NoError(t, err)
	return l
}

var pods struct {
	sync.Mutex
	made int
}

func (s *sharer) tryGive(t *testing.T, n core.Subnet, fixed string) (core.Lease, error) {
	t.Helper()
	pods.Lock()
	pods.made++
	container := fmt.Sprintf("%s-%d", s.name, pods.made)
	pods.Unlock()
	r := ipam.Request{Subnet: n, Owner: core.Owner{Key: core.Key{Container: container, IfName: "eth0"}}}
	if fixed != "" {
		r.IPs = []netip.Addr{netip.MustParseAddr(fixed)}
	}
	if s.Keeper != nil {
		within, done, err := s.Share(t.Context(), n)
		if err != nil {
			return core.Lease{}, err
		}
		defer done()
		r.Within = within
	}
	return s.pools.Acquire(r)
}

// subnet is a Subnet as the agent knows it.
func (s *sharer) subnet(name string) core.Subnet {
	s.t.Helper()
	all, err := s.Subnets(s.t.Context())
	require.NoError(s.t, err)
	i := slices.IndexFunc(all, func(n core.Subnet) bool { return n.Name == name })
	require.GreaterOrEqual(s.t, i, 0, name)
	return all[i]
}

func (s *sharer) node() *corev1.Node {
	s.t.Helper()
	n, err := s.c.Client().CoreV1().Nodes().Get(s.t.Context(), s.name, metav1.GetOptions{})
	require.NoError(s.t, err)
	return n
}

// told is the condition of the Node: "status reason".
func (s *sharer) told() string {
	for _, c := range s.node().Status.Conditions {
		if string(c.Type) == share.Condition {
			assert.False(s.t, c.LastHeartbeatTime.IsZero() || c.LastTransitionTime.IsZero(), "kubectl shows both: %+v", c)
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// awaitTold waits until the Node says so.
func (s *sharer) awaitTold(want string) {
	s.t.Helper()
	var told string
	if !assert.Eventually(s.t, func() bool { told = s.told(); return told == want }, patience, 50*time.Millisecond) {
		require.FailNow(s.t, s.name+" does not say "+want, "%q: %+v", told, s.node())
	}
}

// awaitRefused waits until the agent gives no address for this reason, and
// gives all it says. What it gave before it heard of the other node is one
// node's still.
func (s *sharer) awaitRefused(n core.Subnet, why string) error {
	s.t.Helper()
	var err error
	told := func() bool {
		var done func()
		if _, done, err = s.Share(s.t.Context(), n); err == nil {
			done()
		}
		return err != nil && strings.Contains(err.Error(), why)
	}
	if !assert.Eventually(s.t, told, patience, 50*time.Millisecond) {
		require.FailNow(s.t, s.name+" does not refuse: "+why, "%v: %+v", err, s.node())
	}
	return err
}

func dropNode(t *testing.T, c *kube.Cluster, name string) {
	t.Helper()
	require.NoError(t, c.Client().CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// TestSharesOfOneSubnet: one node alone gives addresses; the second to come
// gives none, says why, and gives them once the first is gone.
func TestSharesOfOneSubnet(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	c.RegisterNode("a")
	a := newSharer(t, c, "a")
	def := a.subnet("ovn-default")
	first := a.give(t, def, "")
	a.awaitTold("True Given")

	c.RegisterNode("b")
	b := newSharer(t, c, "b")
	err := b.awaitRefused(def, "node a gives them")
	require.ErrorContains(t, err, "fairlead.io/allocate=node-block")
	require.Equal(t, core.CodeAddress, core.CodeOf(err))
	require.Equal(t, err, b.Barred(def), "STATUS")
	b.awaitTold("False Refused")

	require.NotEqual(t, first.IPs, a.give(t, def, "").IPs, "the first goes on")
	require.NoError(t, a.Barred(def))
	// After a reboot it holds none, and is still the one.
	for _, l := range a.pools.Leases() {
		a.pools.Release(l)
	}
	a.Released()
	a.give(t, def, "")

	dropNode(t, c, "a")
	eventually(t, "b is the only node", func() bool { return b.Barred(def) == nil })
	b.give(t, def, "")
	a.awaitRefused(def, "no Node of this name")
}

// TestSharesInConflict: two nodes hold addresses when they hear of each other.
// Neither gives more, until one of them holds none.
func TestSharesInConflict(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	c.RegisterNode("a")
	c.RegisterNode("b")
	a, b := newSharer(t, c, "a", "10.16.0.2"), newSharer(t, c, "b", "10.16.0.2")
	def := a.subnet("ovn-default")
	a.awaitTold("False Conflict")
	b.awaitTold("False Conflict")
	for _, s := range []*sharer{a, b} {
		err := s.awaitRefused(def, "either could give one that a pod of the other has")
		require.ErrorContains(t, err, "kubectl drain")
		require.NoError(t, s.Barred(def), "STATUS: it holds addresses")
	}
	b.pools.Release(b.pools.Leases()[0])
	b.Released()
	a.awaitTold("True Given")
	require.Equal(t, "10.16.0.3", a.give(t, def, "").IPs[0].String())
	b.awaitRefused(def, "node a gives them")
	require.Error(t, b.Barred(def))
}

// TestSharesByBlock: each node gives the addresses of its own block, in both
// families, also while the Subnet's annotation comes and goes, and never one
// address is given twice.
func TestSharesByBlock(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	subnet := func(notes string) {
		c.Apply(`{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: web, annotations: {` + notes + `}}, spec: {cidrBlock: "10.20.0.0/16,fd20::/48", provider: web.default}}`)
	}
	subnet("")
	c.RegisterNode("a", "10.20.1.0/24", "fd20:0:0:1::/64")
	a := newSharer(t, c, "a")
	old := a.give(t, a.subnet("web"), "")
	require.Equal(t, "10.20.0.2", old.IPs[0].String(), "outside of its block")

	c.RegisterNode("b", "10.20.0.0/24", "fd20::/64")
	b := newSharer(t, c, "b")
	b.awaitRefused(b.subnet("web"), "node a gives them")
	subnet(`fairlead.io/allocate: node-block`)
	for _, s := range []*sharer{a, b} {
		eventually(t, "the annotation is known", func() bool { return s.subnet("web").NodeBlock })
	}
	b.awaitRefused(b.subnet("web"), "node a gives them")
	require.Equal(t, "10.20.1.1", a.give(t, a.subnet("web"), "").IPs[0].String())
	a.pools.Release(old)
	a.Released()
	eventually(t, "b gives addresses", func() bool { return b.Barred(b.subnet("web")) == nil })
	l := b.give(t, b.subnet("web"), "")
	require.Equal(t, "10.20.0.2", l.IPs[0].String())
	require.True(t, netip.MustParsePrefix("fd20::/64").Contains(l.IPs[1]))
	_, err := b.tryGive(t, b.subnet("web"), "10.20.1.9")
	require.ErrorContains(t, err, "outside of this node's block 10.20.0.0/24")

	c.RegisterNode("c", "10.244.0.0/24")
	d := newSharer(t, c, "c")
	d.awaitRefused(d.subnet("web"), "has no block inside cidrBlock 10.20.0.0/16")

	subnet(`fairlead.io/allocate: null`)
	a.awaitTold("False Conflict")
	b.awaitTold("False Conflict")
	subnet(`fairlead.io/allocate: nodeblock`)
	eventually(t, "a misspelt value is told", func() bool {
		return slices.ContainsFunc(a.Source.Problems(), func(p resolve.Problem) bool { return p.File == "Subnet web" })
	})
}

const readPods = `{apiGroups: [""], resources: [pods], verbs: [get, list, watch]},`

// bare is an account with the right to read networks, and to do more, as a
// kubeconfig.
func bare(c *kube.Cluster, ns, more string) string {
	cfg := c.ServiceAccountConfig(ns, "bare")
	c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: bare-` + ns + `}, rules: [` + more + `
  {apiGroups: [k8s.cni.cncf.io, kubeovn.io], resources: [network-attachment-definitions, subnets, vlans], verbs: [get, list, watch]}]}`)
	c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: bare-` + ns + `},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bare-` + ns + `}, subjects: [{kind: ServiceAccount, name: bare, namespace: ` + ns + `}]}`)
	awaitRights(c, "system:serviceaccount:"+ns+":bare")
	return c.Kubeconfig(cfg)
}

// TestSharesUnknown: an agent that may not read nodes, or not write its own, or
// whose Node does not exist, gives none, and says what it lacks.
func TestSharesUnknown(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	c.RegisterNode("a")
	ghost := newSharer(t, c, "ghost")
	def := ghost.subnet("ovn-default")
	ghost.awaitRefused(def, "no Node of this name")

	blind := shareAs(t, c, "a", bare(c, c.Namespace(), readPods), "10.16.0.2")
	blind.synced()
	err := blind.awaitRefused(def, "whether this cluster has other nodes is not known")
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))

	ns := c.Namespace()
	mute := shareAs(t, c, "a", bare(c, ns, readPods+`{apiGroups: [""], resources: [nodes], verbs: [list, watch]},`))
	mute.synced()
	err = mute.awaitRefused(def, "patch of nodes/status")
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: bare-` + ns + `}, rules: [
  {apiGroups: ["", k8s.cni.cncf.io, kubeovn.io], resources: [pods, nodes, nodes/status, network-attachment-definitions, subnets, vlans], verbs: [get, list, watch, patch]}]}`)
	eventually(t, "rights that come later count", func() bool {
		_, done, err := mute.Share(t.Context(), def)
		if err == nil {
			done()
		}
		return err == nil
	})
}

// TestSharesSoonKnown: a pod that comes before the API server's first answer
// waits for it.
func TestSharesSoonKnown(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	c.RegisterNode("a")
	file, _ := account(c, c.Namespace())
	c.Pause()
	a := shareAs(t, c, "a", file)
	time.AfterFunc(200*time.Millisecond, c.Resume)
	a.give(t, core.Subnet{Name: "ovn-default", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.16.0.0/16")}}, "")
}

// TestSharesPodsComeLast: what a node has given it claims by itself, also where
// the pods, not the nodes or the Subnets, are what it hears of last.
func TestSharesPodsComeLast(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	c.RegisterNode("a")
	ns := c.Namespace()
	const nodes = `{apiGroups: [""], resources: [nodes, nodes/status], verbs: [list, watch, patch]},`
	a := shareAs(t, c, "a", bare(c, ns, nodes), "10.16.0.2")
	eventually(t, "all but the pods are known", func() bool {
		err := a.Synced()
		return err != nil && strings.Contains(err.Error(), "pods") && !strings.Contains(err.Error(), "subnets") && a.Barred(core.Subnet{Name: "other"}) == nil
	})
	require.Empty(t, a.told())
	c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: bare-` + ns + `}, rules: [` + nodes + readPods + `
  {apiGroups: [k8s.cni.cncf.io, kubeovn.io], resources: [network-attachment-definitions, subnets, vlans], verbs: [get, list, watch]}]}`)
	a.awaitTold("True Given")
}

// TestSharesRace: of two nodes that are registered again and again, and each
// of which wants addresses all the time, no two ever give the same at once.
func TestSharesRace(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	c.RegisterNode("a")
	a := newSharer(t, c, "a")
	def := a.subnet("ovn-default")
	b := newSharer(t, c, "b")
	var mu sync.Mutex
	givers := map[string]bool{}
	end := make(chan struct{})
	var wg sync.WaitGroup
	for _, s := range []*sharer{a, b} {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				if l, err := s.tryGive(t, def, ""); err == nil {
					mu.Lock()
					givers[s.name] = true
					mu.Unlock()
					held := slices.ContainsFunc(a.pools.Held("ovn-default"), func(ip netip.Addr) bool { return slices.Contains(b.pools.Held("ovn-default"), ip) })
					if held {
						t.Errorf("%s gave %s, which the other node's pod has", s.name, l.IPs)
					}
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	c.RegisterNode("b")
	b.awaitTold("False Refused")
	a.awaitTold("True Given")
	var claims string
	eventually(t, "the claim", func() bool {
		claims = a.node().Annotations[share.Annotation]
		return claims != ""
	})
	require.True(t, json.Valid([]byte(claims)), claims)
	_, err := c.Client().CoreV1().Nodes().Patch(t.Context(), "b", types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+share.Annotation+`":"x"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	b.awaitTold("False Refused")
	close(end)
	wg.Wait()
	require.Equal(t, map[string]bool{"a": true}, givers)
}
