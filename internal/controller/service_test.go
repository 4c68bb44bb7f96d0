package controller_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller"
	"github.com/fairlead/fairlead/internal/controller/logical"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// service declares a Service of namespace ns with TCP port 80.
func (w *world) service(name, ip string, local bool) {
	w.set(serviceKey(name), logical.Service{
		Namespace: "ns", Name: name, UID: "uid-" + name, Local: local,
		IPs: []netip.Addr{netip.MustParseAddr(ip)}, Ports: []logical.ServicePort{{Protocol: "TCP", Port: 80}},
	})
}

// slice declares an EndpointSlice with one endpoint, on port 8080.
func (w *world) slice(name, service, ip string) {
	w.set(controller.Key{Kind: kindSlice, Namespace: "ns", Name: name}, logical.Endpoints{
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
	w.service("web", "10.96.0.1", false)
	w.slice("web-1", "web", "10.16.0.2")
	w.service("old", "10.96.0.2", true)
	first := lead(t, "one", w, db)
	vips(t, db, "web", "10.96.0.1:80=10.16.0.2:8080")
	vips(t, db, "old", "10.96.0.2:80=")
	w.slice("web-2", "web", "10.16.0.3")
	vips(t, db, "web", "10.96.0.1:80=10.16.0.2:8080,10.16.0.3:8080")
	w.set(controller.Key{Kind: kindSlice, Namespace: "ns", Name: "web-1"}, nil)
	vips(t, db, "web", "10.96.0.1:80=10.16.0.3:8080")
	w.slice("web-2", "old", "10.16.0.3") // its label names another
	vips(t, db, "web", "10.96.0.1:80=")
	vips(t, db, "old", "10.96.0.2:80=10.16.0.3:8080")
	require.Equal(t, []string{"FieldsNotImplemented: not carried out: spec.internalTrafficPolicy: Local (endpoints of all nodes are reached)"}, w.warned(serviceKey("old")))
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
	w.service("next", "10.96.0.3", false)
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
