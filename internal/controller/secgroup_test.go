package controller_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/network/resolve"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

const securityGroups = "ovn.kubernetes.io/security_groups"

func groupKey(name string) object.Key {
	return object.Key{Kind: object.KindGroup, Name: name}
}

// securityGroup declares a SecurityGroup.
func (w *world) securityGroup(name string, spec v1.SecurityGroupSpec) {
	w.set(groupKey(name), &v1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1}, Spec: spec})
}

// from allows IPv4 of a network, or of a group, to come in.
func from(remote string) v1.SecurityGroupRule {
	r := v1.SecurityGroupRule{IPVersion: "ipv4", Priority: 1, RemoteType: v1.RemoteAddress, RemoteAddress: remote, Policy: v1.RuleAllow}
	if !strings.Contains(remote, ".") {
		r.RemoteType, r.RemoteAddress, r.RemoteSecurityGroup = v1.RemoteSecurityGroup, "", remote
	}
	return r
}

// guarded waits until a port is in these port groups and no others.
func guarded(t *testing.T, db *bed.Central, port string, groups ...string) {
	t.Helper()
	slices.Sort(groups)
	var got []string
	require.Eventually(t, func() bool {
		got = nil
		uuid := db.Get("Logical_Switch_Port", port, "_uuid")
		for line := range strings.Lines(db.Nbctl("--format=csv", "--no-headings", "--data=bare", "--columns=name,ports", "list", "Port_Group")) {
			if name, ports, _ := strings.Cut(strings.TrimSpace(line), ","); uuid != "" && strings.Contains(ports, uuid) {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		return slices.Equal(got, groups)
	}, patience, tick, "port %s: wanted %v, have %v", port, groups, &got)
}

// says waits until a SecurityGroup's condition of a type says this.
func (w *world) says(t *testing.T, name, kind, want string) {
	t.Helper()
	got := ""
	require.Eventually(t, func() bool {
		o, ok := lister[*v1.SecurityGroup]{w, object.KindGroup}.Get("", name)
		if !ok {
			return false
		}
		for _, c := range o.Status.Conditions {
			if c.Type == kind {
				got = c.Status + " " + c.Message
			}
		}
		return got == want
	}, patience, tick, "SecurityGroup %s: wanted %q, have %q", name, want, &got)
}

// TestSecurityGroups: a pod's port is in its groups from its first row on; one that
// names a group which is not there is closed, and says so; groups that come and go
// are followed, also by a leader who comes later, and by each interface for itself.
func TestSecurityGroups(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.subnet("two", v1.SubnetSpec{CIDRBlock: "10.22.0.0/24", Provider: "two.ns.ovn"})
	w.set(object.Key{Kind: object.KindNAD, Namespace: "ns", Name: "two"}, resolve.NAD{
		Namespace: "ns", Name: "two", Config: `{"cniVersion":"1.0.0","type":"kube-ovn","provider":"two.ns.ovn"}`,
	})
	const closed = logical.ClosedGroup
	a, b := logical.SecurityGroupOf("a"), logical.SecurityGroupOf("b")
	w.securityGroup("a", v1.SecurityGroupSpec{IngressRules: []v1.SecurityGroupRule{from("b"), from("10.0.0.0/8")}, AllowSameGroupTraffic: true})
	w.pod("p", "1", securityGroups, "a")
	first := lead(t, "one", w, db)
	w.ip(t, "p")
	// The pod was told after its transaction: there was no later one.
	guarded(t, db, "p.ns", closed, a)
	w.says(t, "a", v1.ConditionReady, "False spec.ingressRules[0].remoteSecurityGroup: there is no SecurityGroup b: the rule is about nobody")
	require.Equal(t, 8+2*2+1, db.Count("ACL"), "of the closed group, within the group, and the network")

	w.securityGroup("b", v1.SecurityGroupSpec{Tier: 1})
	w.says(t, "a", v1.ConditionReady, "True ")
	w.says(t, "b", v1.ConditionNotImplemented, "True spec.tier (all groups' rules are in one order)")
	o, _ := lister[*v1.SecurityGroup]{w, object.KindGroup}.Get("", "a")
	require.Equal(t, a, o.Status.PortGroup)
	require.True(t, o.Status.IngressLastSyncSuccess && o.Status.AllowSameGroupTraffic)
	require.Regexp(t, "^[0-9a-f]{32}$", o.Status.IngressMd5)
	require.NotEqual(t, o.Status.IngressMd5, o.Status.EgressMd5)

	// Each interface has its own; no name is an error.
	w.pod("q", "2", "k8s.v1.cni.cncf.io/networks", "two", securityGroups, "a,b", "two.ns.ovn.kubernetes.io/security_groups", "b")
	w.ip(t, "q")
	guarded(t, db, "q.ns", closed, a, b)
	guarded(t, db, "q.ns.two.ns.ovn", closed, b)
	w.pod("wrong", "3", securityGroups, "a;b")
	require.Eventually(t, func() bool { return len(w.warned(podKey("wrong"))) > 0 }, patience, tick)
	require.Contains(t, w.warned(podKey("wrong"))[0], `ValidatePodNetworkFailed: `)
	w.set(podKey("wrong"), nil)

	// Annotations of a pod that runs.
	w.pod("r", "4", securityGroups, "a,none")
	w.ip(t, "r")
	guarded(t, db, "r.ns", closed)
	require.Eventually(t, func() bool { return len(w.warned(podKey("r"))) == 1 }, patience, tick)
	require.Equal(t, "SecurityGroupNotFound: interface r.ns reaches nobody and is reached by nobody: there is no SecurityGroup none", w.warned(podKey("r"))[0])
	w.securityGroup("none", v1.SecurityGroupSpec{})
	guarded(t, db, "r.ns", closed, a, logical.SecurityGroupOf("none"))
	w.change("r", securityGroups, "b")
	guarded(t, db, "r.ns", closed, b)
	w.change("r", securityGroups, "")
	guarded(t, db, "r.ns")

	// A group goes: its rows stay until its pods are closed. Then it goes while nobody leads.
	w.set(groupKey("b"), nil)
	guarded(t, db, "q.ns", closed)
	guarded(t, db, "q.ns.two.ns.ovn", closed)
	require.Eventually(t, func() bool { return db.Get("Port_Group", b, "name") == "" }, patience, tick)
	w.says(t, "a", v1.ConditionReady, "False spec.ingressRules[0].remoteSecurityGroup: there is no SecurityGroup b: the rule is about nobody")
	first.stop()
	w.set(groupKey("a"), nil)
	w.set(groupKey("none"), nil)
	lead(t, "two", w, db)
	guarded(t, db, "p.ns", closed)
	require.Eventually(t, func() bool { return db.Count("Port_Group") == 1 }, patience, tick)

	// Somebody takes groups away.
	w.securityGroup("a", v1.SecurityGroupSpec{})
	guarded(t, db, "p.ns", closed, a)
	db.Nbctl("destroy", "Port_Group", a)
	guarded(t, db, "p.ns", closed, a)
	db.Nbctl("destroy", "Port_Group", closed)
	guarded(t, db, "p.ns", closed, a)
	require.Equal(t, 8, db.Count("ACL"))
}

// TestSecurityGroupOfAVpc: a group's ports have its members of their own Vpc let in, not
// those of another that has the same addresses, also under the next leader; members in
// Vpcs with links count.
func TestSecurityGroupOfAVpc(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	vpc := func(name string, peers ...v1.VpcPeering) {
		w.set(object.Key{Kind: object.KindVpc, Name: name}, &v1.Vpc{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.VpcSpec{VpcPeerings: peers}})
	}
	for name, cidr := range map[string]string{"blue": "10.20.0.0/24", "red": "10.20.0.0/24", "green": "10.22.0.0/24"} {
		vpc(name)
		w.subnet(name, v1.SubnetSpec{CIDRBlock: cidr, Vpc: name})
		w.pod("in-"+name, name, "ovn.kubernetes.io/logical_switch", name, securityGroups, "g")
	}
	w.securityGroup("g", v1.SecurityGroupSpec{IngressRules: []v1.SecurityGroupRule{from("g")}})
	set := func(vpc string) string { return "$" + logical.GroupIn("g", vpc) + "_ip4" }
	lets := func(vpc, want string) {
		t.Helper()
		group := logical.GroupIn("g", vpc)
		want = `outport == @` + group + ` && ip4 && ip4.src == ` + want
		require.Eventually(t, func() bool {
			all := db.Nbctl("--bare", "--columns=match", "find", "ACL", "priority=19583", "external_ids:sg=g")
			return slices.Contains(strings.Split(strings.TrimSpace(all), "\n"), want)
		}, patience, tick, want)
		guarded(t, db, "in-"+vpc+".ns", logical.ClosedGroup, group)
	}
	first := lead(t, "one", w, db)
	for _, name := range []string{"blue", "red", "green"} {
		w.ip(t, "in-"+name)
		lets(name, set(name))
	}
	require.NotEqual(t, set("blue"), set("red"))
	first.rests(t)
	first.stop()
	second := lead(t, "two", w, db)
	second.rests(t)
	lets("blue", set("blue"))
	vpc("blue", v1.VpcPeering{RemoteVpc: "green", LocalConnectIP: "169.254.0.1/30"})
	lets("blue", "{"+set("blue")+", "+set("green")+"}")
	lets("red", set("red"))
}
