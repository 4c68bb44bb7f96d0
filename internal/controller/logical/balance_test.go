package logical

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/ovn"
)

// slice is an EndpointSlice of one port. Endpoints are addresses; "!" before one
// is not ready, "~" serves for the last time.
func slice(name, protocol string, port uint16, ips ...string) Endpoints {
	e := Endpoints{Namespace: "ns", Service: "web", Ports: []ServicePort{{name, protocol, port}}}
	for _, text := range ips {
		ip := netip.MustParseAddr(strings.TrimLeft(text, "!~"))
		e.All = append(e.All, Endpoint{IPs: []netip.Addr{ip}, Ready: !strings.ContainsAny(text, "!~"), Last: strings.HasPrefix(text, "~")})
	}
	return e
}

func TestBalancers(t *testing.T) {
	t.Parallel()
	four, six := netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd96::10")
	dns := []ServicePort{{"dns", "UDP", 53}, {"dns-tcp", "TCP", 53}, {"m", "TCP", 9153}}
	for _, c := range []struct {
		name    string
		service Service
		from    []Endpoints
		vips    []map[string]string // tcp, then udp
		options map[string]string   // of the first
	}{
		{name: "headless", service: Service{Ports: dns}},
		{
			name: "no endpoints", service: Service{IPs: []netip.Addr{four}, Ports: dns[1:2]},
			vips: []map[string]string{{"10.96.0.10:53": ""}}, options: map[string]string{"reject": "true"},
		},
		{
			name: "ports, protocols and families", service: Service{IPs: []netip.Addr{four, six}, Ports: dns},
			from: []Endpoints{
				slice("dns", "UDP", 1053, "10.16.0.3", "10.16.0.2", "10.16.0.3"), slice("dns", "UDP", 1053, "fd16::2"),
				slice("dns-tcp", "TCP", 1054, "10.16.0.2"), slice("dns", "TCP", 7, "10.16.0.9"), slice("other", "TCP", 7, "10.16.0.9"),
			},
			vips: []map[string]string{
				{"10.96.0.10:53": "10.16.0.2:1054", "[fd96::10]:53": "", "10.96.0.10:9153": "", "[fd96::10]:9153": ""},
				{"10.96.0.10:53": "10.16.0.2:1053,10.16.0.3:1053", "[fd96::10]:53": "[fd16::2]:1053"},
			},
		},
		{
			name: "what is not ready has nothing to do", service: Service{IPs: []netip.Addr{four}, Ports: dns[:1]},
			from: []Endpoints{slice("dns", "UDP", 53, "!10.16.0.2", "10.16.0.3", "~10.16.0.4")},
			vips: []map[string]string{{"10.96.0.10:53": "10.16.0.3:53"}}, options: map[string]string{"reject": "true", "ct_flush": "true"},
		},
		{
			name: "the last ones serve on", service: Service{IPs: []netip.Addr{four}, Ports: dns[1:2], Affinity: 86400},
			from: []Endpoints{slice("dns-tcp", "TCP", 53, "!10.16.0.2", "~10.16.0.4")},
			vips: []map[string]string{{"10.96.0.10:53": "10.16.0.4:53"}}, options: map[string]string{"reject": "true", "affinity_timeout": "65535"},
		},
		{
			name: "SCTP", service: Service{IPs: []netip.Addr{four}, Ports: []ServicePort{{"", "SCTP", 1}}},
			from: []Endpoints{slice("", "SCTP", 2, "10.16.0.2")},
			vips: []map[string]string{{"10.96.0.10:1": "10.16.0.2:2"}},
		},
	} {
		c.service.Namespace, c.service.Name = "ns", "web"
		rows := balancers(c.service, c.from)
		require.Len(t, rows, len(c.vips), c.name)
		for i, r := range rows {
			require.Equal(t, c.vips[i], r.Vips, c.name)
			require.Equal(t, "ns/web/"+*r.Protocol, r.Name, c.name)
		}
		if c.options != nil {
			c.options["hairpin_snat_ip"] = "169.254.96.1 fd00:a9fe:96::1"
			require.Equal(t, c.options, rows[0].Options, c.name)
		}
		require.Equal(t, &ovn.Set{Owner: "service/ns/web"}, Balance(Service{Namespace: "ns", Name: "web", Ports: dns}, c.from), "no address, no rows")
	}
}

func TestLocals(t *testing.T) {
	t.Parallel()
	s := Service{
		Namespace: "ns", Name: "web", Local: true, IPs: []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd96::10")},
		Ports: []ServicePort{{"dns", "UDP", 53}, {"m", "TCP", 9153}},
	}
	rows := balancers(s, nil)
	require.Len(t, rows, 4, "of each protocol and family")
	names := map[string]string{} // what stands for what
	for i, want := range []struct{ name, port string }{{"tcp/ipv4", ":9153"}, {"tcp/ipv6", ":9153"}, {"udp/ipv4", ":53"}, {"udp/ipv6", ":53"}} {
		require.Equal(t, "ns/web/"+want.name, rows[i].Name)
		require.Equal(t, "true", rows[i].Options["template"])
		require.Equal(t, want.name[4:], rows[i].Options["address-family"])
		require.Len(t, rows[i].Vips, 1)
		for vip, to := range rows[i].Vips {
			require.Regexp(t, "^\\^fl_[0-9a-f]{16}_[01]"+want.port+"$", vip)
			names[want.name] = strings.TrimPrefix(to, "^")
		}
	}
	at := func(name, node string, port uint16, ips ...string) Endpoints {
		e := slice(name, map[string]string{"dns": "UDP", "m": "TCP"}[name], port, ips...)
		for i := range e.All {
			e.All[i].Node = node
		}
		return e
	}
	from := []Endpoints{at("dns", "a", 1053, "10.16.0.2", "10.16.0.3"), at("dns", "b", 1053, "~10.16.0.4"), at("m", "a", 1, "!10.16.0.2"), at("dns", "", 1053, "fd16::2"), at("dns", "renamed", 1053, "10.16.0.5")}
	set := Locals([]Service{s, {Namespace: "ns", Name: "other", IPs: s.IPs, Ports: s.Ports}}, func(string, string) []Endpoints { return from }, map[string][]Place{"chassis-a": {{Node: "a"}}, "b": {{Node: "renamed"}, {Node: "b"}}, "away": nil})
	want, none := &ovn.Set{Owner: LocalOwner}, &ovn.Set{Owner: LocalOwner}
	for _, s := range []*ovn.Set{want, none} {
		s.PutKeyed("away", &ovn.TemplateVars{Chassis: "away", Variables: map[string]string{}})
	}
	for _, c := range []struct{ name, dns string }{
		{"b", "10.16.0.5:1053"}, // and not the one that is ending
		{"chassis-a", "10.16.0.2:1053,10.16.0.3:1053"},
	} {
		prefix := names["udp/ipv4"][:19]
		want.PutKeyed(c.name, &ovn.TemplateVars{Chassis: c.name, Variables: map[string]string{
			prefix + "_0": "10.96.0.10", prefix + "_1": "fd96::10", names["udp/ipv4"]: c.dns, names["udp/ipv6"]: "[::1]:9",
			names["tcp/ipv4"]: "127.0.0.1:9", names["tcp/ipv6"]: "[::1]:9",
		}})
	}
	require.Equal(t, want, set)
	require.Equal(t, none, Locals(nil, nil, map[string][]Place{"away": {{Node: "a"}}}), "a row stays")
}

// TestHints: an endpoint that is for some nodes or zones is reached from there alone,
// by the rules of kube-proxy: only where all that are ready have hints, and where
// there are none for the client, all are reached.
func TestHints(t *testing.T) {
	t.Parallel()
	// for "10.16.0.2 n1 /east": node n1 and zone east; "!" and "~" as in slice.
	from := func(lines ...string) (out []Endpoints) {
		for _, line := range lines {
			words := strings.Fields(line)
			e := slice("", "TCP", 8080, words[0])
			for _, hint := range words[1:] {
				if zone, ok := strings.CutPrefix(hint, "/"); ok {
					e.All[0].ForZones = append(e.All[0].ForZones, zone)
				} else {
					e.All[0].ForNodes = append(e.All[0].ForNodes, hint)
				}
			}
			out = append(out, e)
		}
		return out
	}
	for _, c := range []struct {
		name       string
		from       []Endpoints
		perNode    bool
		east, west string // reached by n1 in zone east, and by n2 in zone west
	}{
		{name: "no hints", from: from("10.16.0.2", "10.16.0.3")},
		{name: "none is ready", from: from("~10.16.0.2 n1 /east")},
		{name: "zones", from: from("10.16.0.2 /east", "10.16.0.3 /west /north"), perNode: true, east: "2", west: "3"},
		{name: "one has none", from: from("10.16.0.2 /east n1", "10.16.0.3")},
		{name: "one that is not ready has none", from: from("10.16.0.2 /east", "!10.16.0.3"), perNode: true, east: "2", west: "2"},
		{name: "none for the other zone", from: from("10.16.0.2 /east", "10.16.0.3 /east"), perNode: true, east: "2,3", west: "2,3"},
		{name: "nodes before zones", from: from("10.16.0.2 n1 /east", "10.16.0.3 n3 /east", "10.16.0.4 n4 /west"), perNode: true, east: "2", west: "4"},
		{name: "nodes alone", from: from("10.16.0.2 n1", "10.16.0.3 n2"), perNode: true, east: "2", west: "3"},
		{name: "the other family counts for itself", from: from("10.16.0.2 /east", "10.16.0.3 /west", "fd16::2 /south", "fd16::3"), perNode: true, east: "2", west: "3"},
		{name: "the other family alone", from: from("10.16.0.2 /east", "10.16.0.3", "fd16::2 /west"), perNode: true, east: "2,3", west: "2,3"},
		{name: "zones of some, nodes of all", from: from("10.16.0.2 n1 /east", "10.16.0.3 n3"), perNode: true, east: "2", west: "2,3"},
	} {
		s := Service{Namespace: "ns", Name: "web", IPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, Ports: []ServicePort{{"", "TCP", 80}}}
		require.Equal(t, c.perNode, s.PerNode(c.from), c.name)
		vars := variables([]Service{s}, func(string, string) []Endpoints { return c.from }, map[string][]Place{"a": {{"n1", "east"}}, "b": {{"n2", "west"}}})
		rows := map[string]string{}
		for chassis, values := range vars {
			for name, value := range values {
				if strings.HasSuffix(name, "_80") {
					rows[chassis] = strings.NewReplacer("10.16.0.", "", ":8080", "").Replace(value)
				}
			}
		}
		require.Equal(t, c.east, rows["a"], c.name)
		require.Equal(t, c.west, rows["b"], c.name)
		if c.perNode {
			require.Len(t, balancers(s, c.from), 1)
			require.Equal(t, "true", balancers(s, c.from)[0].Options["template"])
		}
		for _, even := range []Service{{Even: true}, {Affinity: 10}} {
			even.IPs, even.Ports = s.IPs, s.Ports
			require.False(t, even.PerNode(c.from), c.name)
			require.Empty(t, balancers(even, c.from)[0].Options["template"])
		}
	}
}

func TestUndone(t *testing.T) {
	t.Parallel()
	require.Empty(t, Service{Local: true, Affinity: 1}.Undone(nil, nil), "headless: nobody carries it out")
	s := Service{IPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, Local: true, Affinity: 86400}
	require.Equal(t, []string{"spec.sessionAffinity: ClientIP (OVN has none with spec.internalTrafficPolicy: Local)"}, s.Undone(nil, nil))
	s.Local = false
	require.Equal(t, []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: 86400 (OVN has at most 65535)"}, s.Undone(nil, nil))
	s.Local, s.Affinity = true, 0
	require.Empty(t, s.Undone(nil, nil))
	s.Local, s.Affinity = false, 10800
	require.Empty(t, s.Undone(nil, nil))

	hinted := []Endpoints{{All: []Endpoint{{IPs: []netip.Addr{netip.MustParseAddr("10.16.0.2")}, Ready: true, ForZones: []string{"east"}}}}}
	old := &ovn.UnsupportedError{Table: "Chassis_Template_Var"}
	const hints = "hints of EndpointSlices, as spec.trafficDistribution makes them "
	require.Equal(t, []string{hints + "(OVN has no spec.sessionAffinity with them)"}, s.Undone(hinted, nil))
	s.Affinity = 0
	require.Empty(t, s.Undone(hinted, nil))
	require.Equal(t, []string{hints + "(this version of OVN has no table Chassis_Template_Var)"}, s.Undone(hinted, old))
	s.Local, s.Affinity = true, 86400
	require.Equal(t, []string{
		"spec.internalTrafficPolicy: Local (this version of OVN has no table Chassis_Template_Var)",
		"spec.sessionAffinityConfig.clientIP.timeoutSeconds: 86400 (OVN has at most 65535)",
	}, s.Undone(hinted, old))
}
