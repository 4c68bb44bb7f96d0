package controller_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// service declares a Service of namespace ns with TCP port 80.
func (w *world) service(name, ip string, affinity int) {
	w.set(serviceKey(name), logical.Service{
		Namespace: "ns", Name: name, UID: "uid-" + name, Affinity: affinity,
		IPs: []netip.Addr{netip.MustParseAddr(ip)}, Ports: []logical.ServicePort{{Protocol: "TCP", Port: 80}},
	})
}

// slice declares an EndpointSlice with one endpoint, on port 8080.
func (w *world) slice(name, service, ip string) {
	w.set(object.Key{Kind: kindSlice, Namespace: "ns", Name: name}, logical.Endpoints{
		Namespace: "ns", Service: service, Ports: []logical.ServicePort{{Protocol: "TCP", Port: 8080}},
		All: []logical.Endpoint{{IPs: []netip.Addr{netip.MustParseAddr(ip)}, Ready: true}},
	})
}

// vips waits until a Service's load balancer has these, "" for no load balancer.
func vips(t *testing.T, db *bed.Central, service, want string) {
	t.Helper()
	got := ""
	require.Eventually(t, func() bool {
		got = db.Nbctl("--bare", "--no-headings", "--columns=vips", "find", "Load_Balancer", "external_ids:service=ns/"+service)
		return got == want
	}, patience, tick, "wanted %q", want)
}

// TestServices follows Services and their endpoints, also what changed while
// nobody led; the next leader keeps what is as it should be; a field
// that is not carried out is told once.
func TestServices(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.service("web", "10.96.0.1", 0)
	w.slice("web-1", "web", "10.16.0.2")
	w.service("old", "10.96.0.2", 70000)
	first := lead(t, "one", w, db)
	vips(t, db, "web", "10.96.0.1:80=10.16.0.2:8080")
	vips(t, db, "old", "10.96.0.2:80=")
	w.slice("web-2", "web", "10.16.0.3")
	vips(t, db, "web", "10.96.0.1:80=10.16.0.2:8080,10.16.0.3:8080")
	w.set(object.Key{Kind: kindSlice, Namespace: "ns", Name: "web-1"}, nil)
	vips(t, db, "web", "10.96.0.1:80=10.16.0.3:8080")
	w.slice("web-2", "old", "10.16.0.3") // its label names another
	vips(t, db, "web", "10.96.0.1:80=")
	vips(t, db, "old", "10.96.0.2:80=10.16.0.3:8080")
	require.Equal(t, []string{"FieldsNotImplemented: not carried out: spec.sessionAffinityConfig.clientIP.timeoutSeconds: 70000 (OVN has at most 65535)"}, w.warned(serviceKey("old")))
	require.Empty(t, w.warned(serviceKey("web")))

	// Rows that somebody spoils or takes come back.
	db.Nbctl("clear", "Load_Balancer", "ns/old/tcp", "vips")
	vips(t, db, "old", "10.96.0.2:80=10.16.0.3:8080")
	db.Nbctl("lb-del", "ns/old/tcp")
	vips(t, db, "old", "10.96.0.2:80=10.16.0.3:8080")

	first.stop()
	w.set(serviceKey("old"), nil)
	w.slice("web-3", "web", "10.16.0.4")
	second := lead(t, "two", w, db)
	vips(t, db, "web", "10.96.0.1:80=10.16.0.4:8080")
	vips(t, db, "old", "")
	second.stop()

	was := db.Get("Load_Balancer", "ns/web/tcp", "_uuid")
	lead(t, "three", w, db)
	w.service("next", "10.96.0.3", 0)
	vips(t, db, "next", "10.96.0.3:80=")
	w.set(serviceKey("next"), nil)
	vips(t, db, "next", "")
	require.Equal(t, was, db.Get("Load_Balancer", "ns/web/tcp", "_uuid"))
	require.NotEmpty(t, was)
	w.set(serviceKey("web"), nil)
	vips(t, db, "web", "")

	// A Subnet's pods reach Services unless it says otherwise.
	for _, c := range []struct {
		enable *bool
		groups int
	}{{nil, 1}, {new(false), 0}, {new(true), 1}} {
		w.subnet("s", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", EnableLb: c.enable})
		require.Eventually(t, func() bool {
			return len(strings.Fields(db.Nbctl("--bare", "--no-headings", "--columns=load_balancer_group", "find", "Logical_Switch", "name=s"))) == c.groups &&
				db.Get("Logical_Switch", "s", "name") == "s"
		}, patience, tick, "%+v", c)
	}
}

// TestLocalServices: what stands for the endpoints of a Service with
// internalTrafficPolicy: Local follows EndpointSlices, nodes and the Service, on each
// node by itself, under whatever leader; a node's row stays as long as the node.
func TestLocalServices(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	node := func(name string) object.Key { return object.Key{Kind: object.KindNode, Name: name} }
	for _, name := range []string{"n1", "n2"} {
		w.set(node(name), object.Node{Name: name, UID: name, Annotations: map[string]string{v1.AnnChassis: "c-" + name}})
	}
	web := logical.Service{
		Namespace: "ns", Name: "web", UID: "1", Local: true,
		IPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []logical.ServicePort{{Protocol: "TCP", Port: 80}},
	}
	w.set(serviceKey("web"), web)
	at := func(name, node, ip string, zones ...string) {
		w.set(object.Key{Kind: kindSlice, Namespace: "ns", Name: name}, logical.Endpoints{
			Namespace: "ns", Service: "web", Ports: []logical.ServicePort{{Protocol: "TCP", Port: 8080}},
			All: []logical.Endpoint{{IPs: []netip.Addr{netip.MustParseAddr(ip)}, Node: node, Ready: true, ForZones: zones}},
		})
	}
	// stands waits until the values of a node's names are these, "" for no row.
	stands := func(node, want string) {
		t.Helper()
		got := ""
		require.Eventually(t, func() bool {
			vars := strings.Fields(db.Nbctl("--bare", "--no-headings", "--columns=variables", "find", "Chassis_Template_Var", "chassis=c-"+node))
			slices.Sort(vars)
			for i, v := range vars {
				_, vars[i], _ = strings.Cut(v, "=")
			}
			got = strings.Join(vars, " ")
			return got == want
		}, patience, tick, "node %s: wanted %q", node, want)
	}
	const nobody = "10.96.0.1 127.0.0.1:9"
	at("a", "n1", "10.16.0.2")
	first := lead(t, "one", w, db)
	stands("n1", "10.96.0.1 10.16.0.2:8080")
	stands("n2", nobody)
	require.Eventually(t, func() bool { return db.Get("Load_Balancer", "ns/web/tcp/ipv4", "options:template") == "true" }, patience, tick)
	require.Empty(t, w.warned(serviceKey("web")))
	at("b", "n2", "10.16.0.3")
	stands("n2", "10.96.0.1 10.16.0.3:8080")
	at("a", "n2", "10.16.0.2")
	stands("n1", nobody)
	stands("n2", "10.96.0.1 10.16.0.2:8080,10.16.0.3:8080")
	w.set(node("n3"), object.Node{Name: "n3", UID: "n3", Annotations: map[string]string{v1.AnnChassis: "c-n3"}})
	stands("n3", nobody)

	// The machine n2 gets another name, and then the former Node goes.
	w.set(node("renamed"), object.Node{Name: "renamed", UID: "n4", Annotations: map[string]string{v1.AnnChassis: "c-n2"}})
	at("c", "renamed", "10.16.0.4")
	stands("n2", "10.96.0.1 10.16.0.2:8080,10.16.0.3:8080,10.16.0.4:8080")
	w.set(node("n2"), nil)
	stands("n2", "10.96.0.1 10.16.0.4:8080")
	w.set(node("renamed"), nil)
	stands("n2", "")
	require.Equal(t, 3, db.Count("Chassis_Template_Var"), "a row stays, for ovn-controller's sake")
	w.set(object.Key{Kind: kindSlice, Namespace: "ns", Name: "c"}, nil)
	w.set(node("n2"), object.Node{Name: "n2", UID: "n2", Annotations: map[string]string{v1.AnnChassis: "c-n2"}})
	stands("n2", "10.96.0.1 10.16.0.2:8080,10.16.0.3:8080")

	first.stop()
	row := db.Nbctl("--bare", "--columns=_uuid", "find", "Chassis_Template_Var", "chassis=c-n1")
	w.set(node("n3"), nil)
	at("b", "n1", "10.16.0.3")
	lead(t, "two", w, db)
	stands("n1", "10.96.0.1 10.16.0.3:8080")
	stands("n2", "10.96.0.1 10.16.0.2:8080")
	require.Eventually(t, func() bool { return db.Count("Chassis_Template_Var") == 2 }, patience, tick)
	db.Nbctl("clear", "Chassis_Template_Var", strings.TrimSpace(row), "variables") // by somebody
	stands("n1", "10.96.0.1 10.16.0.3:8080")
	web.Local = false
	w.set(serviceKey("web"), web)
	vips(t, db, "web", "10.96.0.1:80=10.16.0.2:8080,10.16.0.3:8080")
	stands("n1", "")
	web.Local = true
	w.set(serviceKey("web"), web)
	stands("n1", "10.96.0.1 10.16.0.3:8080")

	// Hints of all endpoints, which need nodes of zones, instead of the policy.
	web.Local = false
	w.set(serviceKey("web"), web)
	stands("n1", "")
	for _, name := range []string{"n1", "n2"} {
		w.set(node(name), object.Node{Name: name, UID: name, Zone: "zone-" + name, Annotations: map[string]string{v1.AnnChassis: "c-" + name}})
	}
	at("a", "n1", "10.16.0.2", "zone-n1")
	at("b", "n1", "10.16.0.3", "zone-n2")
	stands("n1", "10.96.0.1 10.16.0.2:8080")
	stands("n2", "10.96.0.1 10.16.0.3:8080")
	w.set(node("n2"), object.Node{Name: "n2", UID: "n2", Zone: "zone-n1", Annotations: map[string]string{v1.AnnChassis: "c-n2"}})
	stands("n2", "10.96.0.1 10.16.0.2:8080")
	w.set(serviceKey("web"), nil)
	stands("n1", "")
	require.Equal(t, row, db.Nbctl("--bare", "--columns=_uuid", "find", "Chassis_Template_Var", "chassis=c-n1"))
}
