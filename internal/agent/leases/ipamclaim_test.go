package leases_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/internal/agent/leases"
	"github.com/fairlead/fairlead/internal/core"
	cluster "github.com/fairlead/fairlead/internal/source/cluster/lease"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
)

// field is where the pods of these tests refer to an IPAMClaim.
const field = "k8s.v1.cni.cncf.io/networks[0].ipam-claim-reference"

// claiming is ranged with an address that IPAMClaim bank/CLAIM keeps.
func claiming(claim, name, uid, sandbox string, n int) core.Spec {
	s := ranged(name, uid, sandbox, n)
	by := &core.IPAMClaim{Namespace: "bank", Name: claim, Field: field, Networks: []string{"racks", "bank/db"}}
	s.Claims[0].Declared, s.Claims[0].Pool.For = by.String(), by
	return s
}

// claims are the IPAMClaims of a cluster.
type claims struct {
	t *testing.T
	c *kube.Cluster
}

func withClaims(t *testing.T, c *kube.Cluster) claims {
	t.Helper()
	kinds.IPAMClaims(t, c)
	c.Apply(`{apiVersion: v1, kind: Namespace, metadata: {name: bank}}`)
	return claims{t, c}
}

// make makes one for a network and an interface that names addresses already.
func (k claims) make(name, network, ifname string, ips ...any) {
	k.t.Helper()
	all := k.c.Dynamic().Resource(schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1alpha1", Resource: "ipamclaims"}).Namespace("bank")
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"network": network, "interface": ifname},
	}}
	o, err := all.Create(k.t.Context(), o, metav1.CreateOptions{})
	require.NoError(k.t, err)
	if len(ips) > 0 {
		require.NoError(k.t, unstructured.SetNestedSlice(o.Object, ips, "status", "ips"))
		_, err = all.UpdateStatus(k.t.Context(), o, metav1.UpdateOptions{})
		require.NoError(k.t, err)
	}
}

// names are the addresses that one names.
func (k claims) names(name string) string {
	k.t.Helper()
	return k.c.Kubectl("-n", "bank", "get", "ipamclaims", name, "-o", "jsonpath={.status.ips[*]}")
}

func (k claims) remove(name string) { k.c.Kubectl("-n", "bank", "delete", "ipamclaims", name) }

// TestIPAMClaim is the life of an address that an IPAMClaim keeps: it is chosen once and told,
// goes from one pod to the next wherever they run, is nobody else's between them, and is free
// when the claim is gone.
func TestIPAMClaim(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1, n2 := newAgent(t, c, "n1", "boot-1"), newAgent(t, c, "n2", "boot-2")
	a, b := claiming("vm", "a", "u1", "s1", 2), claiming("vm", "b", "u2", "s2", 2)
	again := func(words string) {
		t.Helper()
		err := n1.add(t.Context(), a)
		require.Equal(t, core.CodeTryAgain, core.CodeOf(err), err)
		require.ErrorContains(t, err, words)
	}
	again("IPAMClaim bank/vm: this cluster has no IPAMClaims of k8s.cni.cncf.io/v1alpha1")
	k := withClaims(t, c)
	again("IPAMClaim bank/vm does not exist")
	k.make("vm", "racks", "")

	require.Equal(t, "10.9.0.1", n1.chosen(a))
	require.Equal(t, "10.9.0.1/16", k.names("vm"))
	require.Equal(t, "Bound s1 n1 1", lease(t, c, "db.10.9.0.1"))
	require.Equal(t, "IPAMClaim bank/vm", c.Kubectl("get", "nal", "db.10.9.0.1", "-o", "jsonpath={.spec.declaredBy}"))
	err := n2.add(t.Context(), b)
	require.Equal(t, core.ReasonAddressHeld, core.ReasonOf(err), err)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	require.ErrorContains(t, err, "is held by pod bank/a on node n1")

	n1.del("s1")
	eventually(t, "Reserved   1", func() string { return lease(t, c, "db.10.9.0.1") })
	require.Equal(t, "10.9.0.2", n1.chosen(ranged("x", "u3", "s3", 2)), "the claim keeps its address while no pod has it")
	require.ErrorIs(t, n2.add(t.Context(), ranged("y", "u4", "s4", 2)), core.ErrExhausted)
	fixed := pod("z", "u5", "s5", 1)
	err = n2.add(t.Context(), fixed)
	require.Equal(t, core.ReasonAddressHeld, core.ReasonOf(err), err)
	require.ErrorContains(t, err, "is kept for IPAMClaim bank/vm")
	require.NoError(t, n2.add(t.Context(), b), "another pod on another node")
	require.Equal(t, "Bound s2 n2 2", lease(t, c, "db.10.9.0.1"))

	c.Stop()
	n2.del("s2")
	next := claiming("vm", "b", "u2", "s6", 2)
	require.NoError(t, n2.add(t.Context(), next), "this node has it")
	require.Equal(t, "10.9.0.1", n2.has("s6"))
	err = n2.add(t.Context(), claiming("vm", "a", "u6", "s7", 2))
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err), "another pod: %v", err)
	c.Restart()
	eventually(t, "Bound s6 n2 3", func() string { n2.Audit(); return lease(t, c, "db.10.9.0.1") })

	n2.stop()
	c.Kubectl("taint", "node", "n2", "node.kubernetes.io/out-of-service=x:NoExecute")
	require.NoError(t, n1.add(t.Context(), a), "its node is proved dead")
	require.Equal(t, "10.9.0.1", n1.has("s1"))
	k.remove("vm")
	require.Equal(t, "Bound s1 n1 4", lease(t, c, "db.10.9.0.1"), "the pod has it as long as it runs")
	n1.del("s1")
	eventually(t, "", func() string { return lease(t, c, "db.10.9.0.1") })
}

// TestIPAMClaimGone: a claim that goes while no pod has its address frees it.
func TestIPAMClaimGone(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1 := newAgent(t, c, "n1", "boot-1")
	k := withClaims(t, c)
	k.make("vm", "racks", "net1", "10.9.0.1/16")
	require.Equal(t, "10.9.0.1", n1.chosen(claiming("vm", "a", "u1", "s1", 1)))
	n1.del("s1")
	eventually(t, "Reserved   1", func() string { return lease(t, c, "db.10.9.0.1") })
	k.remove("vm")
	eventually(t, "", func() string { n1.Audit(); return lease(t, c, "db.10.9.0.1") })

	k.make("other", "racks", "net1")
	require.Equal(t, "10.9.0.1", n1.chosen(claiming("other", "a", "u1", "s2", 1)))
	n1.del("s2")
	eventually(t, "Reserved   1", func() string { return lease(t, c, "db.10.9.0.1") })
	k.remove("other")
	require.Eventually(t, func() bool { return n1.add(t.Context(), ranged("b", "u2", "s3", 1)) == nil }, patience, tick, "who needs it asks for it")
}

// TestIPAMClaimRefused has one thing wrong with each claim, and the words that its pod hears.
func TestIPAMClaimRefused(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1 := newAgent(t, c, "n1", "boot-1")
	k := withClaims(t, c)
	for name, row := range map[string]struct {
		network, ifname string
		ips             []any
		code            uint
		reason, words   string
	}{
		"network":   {"storage", "net1", nil, core.CodeValue, "", `spec.network of IPAMClaim bank/network is "storage", and this network is racks`},
		"interface": {"racks", "net2", nil, core.CodeValue, "", `spec.interface of IPAMClaim bank/interface is "net2", and this interface is net1`},
		"no-ip":     {"racks", "net1", []any{"10.9.0"}, core.CodeValue, "", `status.ips of IPAMClaim bank/no-ip has "10.9.0", which is no address`},
		"outside":   {"racks", "net1", []any{"10.9.0.9/16"}, core.CodeAddress, core.ReasonAddressOutsideSubnet, "has 10.9.0.9/16, which is no address that range db gives"},
		"length":    {"racks", "net1", []any{"10.9.0.1/24"}, core.CodeAddress, core.ReasonAddressOutsideSubnet, "of another prefix length"},
		"family":    {"racks", "net1", []any{"10.9.0.1/16", "fd09::1/64"}, core.CodeAddress, core.ReasonAddressOutsideSubnet, "has fd09::1/64"},
	} {
		k.make(name, row.network, row.ifname, row.ips...)
		err := n1.add(t.Context(), claiming(name, "a", "u1", "s1", 4))
		require.Equal(t, row.code, core.CodeOf(err), "%s: %v", name, err)
		require.Equal(t, row.reason, core.ReasonOf(err), name)
		require.ErrorContains(t, err, row.words)
		require.ErrorContains(t, err, field)
		require.Empty(t, bound(t, c, "n1"))
	}
	k.make("whole", "bank/db", "net1", "10.9.0.3")
	require.Equal(t, "10.9.0.3", n1.chosen(claiming("whole", "a", "u1", "s1", 4)))
}

// TestIPAMClaimAlone: without a cluster there is nothing to refer to.
func TestIPAMClaimAlone(t *testing.T) {
	t.Parallel()
	k := leases.New(leases.Config{Node: "n1", BootID: "b"})
	err := k.Bind(t.Context(), []core.Spec{claiming("vm", "a", "u1", "s1", 1)})
	require.Equal(t, core.CodeValue, core.CodeOf(err), err)
	require.ErrorContains(t, err, field)
}

// filler has Fill do something else, and then what it does, if anything.
type filler struct {
	leases.Store
	before func()
	lost   bool
}

func (f filler) Fill(ctx context.Context, claim *cluster.IPAMClaim, ips []netip.Prefix) error {
	if f.before(); f.lost {
		return nil
	}
	return f.Store.Fill(ctx, claim, ips)
}

// TestIPAMClaimUntold: an agent that was killed between the lease and the claim's status gives
// the next sandbox the same address; where there is no next one, nothing of it is left.
func TestIPAMClaimUntold(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1 := newAgent(t, c, "n1", "boot-1")
	k := withClaims(t, c)
	n1.stop()
	n1.by = func(s leases.Store) leases.Store { return filler{s, func() {}, true} }
	n1.start()
	require.Equal(t, "10.9.0.1", n1.chosen(ranged("x", "u0", "s0", 4)))
	for i, claim := range []string{"vm", "none"} {
		k.make(claim, "racks", "net1")
		sandbox := "of-" + claim
		require.Equal(t, []string{"10.9.0.2", "10.9.0.3"}[i], n1.chosen(claiming(claim, claim, claim, sandbox, 4)))
		require.Empty(t, k.names(claim))
		n1.mu.Lock()
		delete(n1.records, sandbox)
		n1.mu.Unlock()
	}
	n1.stop()
	delete(n1.alive, core.Pod{Namespace: "bank", Name: "none", UID: "none"})
	n1.by = nil
	n1.start()
	n1.del("s0")
	eventually(t, "Releasing", func() string { return strings.Fields(lease(t, c, "db.10.9.0.1"))[0] })
	c.Kubectl("delete", "nal", "db.10.9.0.1") // it is free now, and lower
	require.Equal(t, "10.9.0.2", n1.chosen(claiming("vm", "vm", "vm", "s2", 4)))
	require.Equal(t, "10.9.0.2/16", k.names("vm"))
	eventually(t, "", func() string { n1.Audit(); return lease(t, c, "db.10.9.0.3") })
	require.Equal(t, []string{"db.10.9.0.2"}, bound(t, c, "n1"))
}

// TestIPAMClaimTwice: of two pods for whom one claim's address is chosen at once one has it, and
// the other keeps nothing.
func TestIPAMClaimTwice(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1, n2 := newAgent(t, c, "n1", "boot-1"), newAgent(t, c, "n2", "boot-2")
	k := withClaims(t, c)
	k.make("vm", "racks", "net1")
	n2.stop()
	n2.by = func(s leases.Store) leases.Store {
		return filler{s, func() { require.NoError(t, n1.add(t.Context(), claiming("vm", "a", "u1", "s1", 4))) }, false}
	}
	n2.start()
	err := n2.add(t.Context(), claiming("vm", "b", "u2", "s2", 4))
	require.Equal(t, core.ReasonAddressHeld, core.ReasonOf(err), err)
	require.Equal(t, n1.has("s1")+"/16", k.names("vm"))
	eventually(t, "db."+n1.has("s1"), func() string { return c.Kubectl("get", "nal", "-o", "jsonpath={.items[*].metadata.name}") })
}
