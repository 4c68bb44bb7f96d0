package controller_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
)

// TestPodNotToldOf: the rows and the address of a pod that a new leader's watch has yet
// to tell of stay, whether the API server says that it is there or nothing; those of one
// that it says is gone go.
func TestPodNotToldOf(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/30", Default: true})
	w.pod("a", "1")
	one := lead(t, "one", w, db)
	ip := w.ip(t, "a")
	row := ports(db)["a.ns"]
	require.Contains(t, row, ip)
	one.stop()
	w.lag(podKey("a"), true)
	w.pod("b", "2")
	fails := func(l *leader, why string) {
		t.Helper()
		require.Eventually(t, func() bool {
			_, failed := l.failed.Load(why)
			return failed || ports(db)["a.ns"] == ""
		}, patience, tick)
		require.Equal(t, row, ports(db)["a.ns"])
	}
	two := lead(t, "two", w, db)
	fails(two, "pod ns/a is there and has yet to be told of: unavailable")
	require.Eventually(t, func() bool { return len(w.warned(podKey("b"))) > 0 }, patience, tick)
	w.mu.Lock()
	w.away = errors.New("the API server is away")
	w.mu.Unlock()
	fails(two, "the API server is away")
	two.stop()
	w.mu.Lock()
	w.away = nil
	w.mu.Unlock()

	three := lead(t, "three", w, db)
	fails(three, "pod ns/a is there and has yet to be told of: unavailable")
	w.lag(podKey("a"), false)
	three.rests(t)
	require.Equal(t, "one ", w.notes("a")[writers], "it has all that it should")
	require.Equal(t, row, ports(db)["a.ns"])
	three.stop()

	w.set(podKey("a"), nil) // while nobody leads
	lead(t, "four", w, db)
	require.Equal(t, ip, w.ip(t, "b"))
	require.NotContains(t, ports(db), "a.ns")
}

// TestNotToldOf: the rows of a Service, a node, a NetworkPolicy, a SecurityGroup and a Vip that
// a new leader's watch has yet to tell of stay, and so do pods in the groups, rules about them,
// and who sends from the Vip's address, until the API server says that these are gone.
func TestNotToldOf(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.space("a")
	w.labelled("server", "1", "web")
	w.policy("p", "web", "client")
	w.service("s", "10.96.0.1", 0)
	w.slice("s-1", "s", "10.20.0.2")
	node, vip := object.Key{Kind: object.KindNode, Name: "n1"}, object.Key{Kind: object.KindVip, Name: "v"}
	w.set(node, object.Node{Name: "n1", UID: "n1"})
	w.securityGroup("g", v1.SecurityGroupSpec{})
	w.securityGroup("h", v1.SecurityGroupSpec{IngressRules: []v1.SecurityGroupRule{from("g")}})
	w.vip("v", "1", v1.VipSpec{Subnet: "web", Namespace: "ns", V4ip: "10.20.0.9", Selector: []string{"app: web"}})
	w.change("server", aaps, "v", securityGroups, "g")
	leader := lead(t, "one", w, db)
	rows := func() string {
		all := db.Get("Logical_Switch_Port", "node-n1", "addresses") + " " + db.Get("Load_Balancer", "ns/s/tcp", "vips") + " " +
			db.Get("Logical_Switch_Port", logical.VipPort("v"), "external_ids") + " " + db.Get("Logical_Switch_Port", "server.ns", "port_security")
		for _, group := range []string{logical.GroupOf("ns", "p"), logical.SecurityGroupOf("g"), logical.SecurityGroupOf("h")} {
			all += " " + db.Nbctl("--bare", "--columns=ports,acls", "find", "Port_Group", "name="+group)
		}
		return all
	}
	w.ip(t, "server")
	require.Eventually(t, func() bool {
		return strings.Contains(db.Get("Logical_Switch_Port", "server.ns", "port_security"), " 10.20.0.9")
	}, patience, tick)
	group(t, db, "p", 1)
	leader.rests(t)
	before := rows()
	require.Contains(t, before, "10.96.0.1:80")
	require.Contains(t, before, "100.64.0.2")
	for i, k := range []object.Key{serviceKey("s"), node, policyKey("p"), groupKey("g"), vip} {
		leader.stop()
		w.lag(k, true)
		leader = lead(t, fmt.Sprint("next", i), w, db)
		why := k.String() + " is there and has yet to be told of: unavailable"
		require.Eventually(t, func() bool { _, failed := leader.failed.Load(why); return failed }, patience, tick, why)
		if k == groupKey("g") || k == vip {
			require.Eventually(t, func() bool { return leader.looks.Load() > 0 }, patience, tick, "the pod waits, too")
		}
		if k == policyKey("p") {
			const why = "whether NetworkPolicy ns/p is there is not known: unavailable"
			require.Eventually(t, func() bool { _, failed := leader.failed.Load(why); return failed }, patience, tick, why)
		}
		require.Equal(t, before, rows(), k)
		w.lag(k, false)
		leader.rests(t)
		require.Equal(t, before, rows(), k)
	}
	leader.stop()
	for _, k := range []object.Key{serviceKey("s"), node, policyKey("p"), groupKey("g"), groupKey("h"), vip, podKey("server")} {
		w.set(k, nil) // while nobody leads
	}
	lead(t, "last", w, db)
	require.Eventually(t, func() bool { return len(strings.TrimSpace(rows())) == 0 }, patience, tick)
}
