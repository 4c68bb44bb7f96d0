package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// clustered ends the tests' common cluster after them.
type clustered struct{ *testing.M }

func (c clustered) Run() int { return kube.Main(c.M) }

func TestMain(m *testing.M) {
	testscript.Main(clustered{m}, map[string]func(){"fairlead": main})
}

// TestScripts runs testdata/*.txtar against a socket that serves the values
// below: the remote side of the command line. UPDATE_SCRIPTS=1 rewrites the
// expected output.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			// A socket's path must stay below 108 bytes; the work directory's may not.
			dir, err := os.MkdirTemp("", "cli")
			if err != nil {
				return err
			}
			socket := filepath.Join(dir, "s")
			l, err := net.Listen("unix", socket)
			if err != nil {
				return err
			}
			srv := &http.Server{Handler: values(env.WorkDir)}
			done := make(chan struct{})
			go func() { defer close(done); _ = srv.Serve(l) }()
			env.Defer(func() { _ = srv.Close(); <-done; _ = os.RemoveAll(dir) })
			env.Setenv("SOCKET", socket)
			env.Setenv("NOSOCKET", filepath.Join(dir, "none"))
			return nil
		},
	})
}

func TestExitCodes(t *testing.T) {
	dir, err := os.MkdirTemp("", "cli")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(values(dir))
	srv.Listener = l
	srv.Start()
	t.Cleanup(srv.Close)

	for args, want := range map[string]int{
		"get pods":       0,
		"status":         exitFailed, // answered, not ready
		"check ns1/bent": exitFailed,
		"attach --netns a --pod a/b --ifname full0": exitFailed,
		"get pods --nonsense":                       exitUsage,
		"get pods more":                             exitNotFound,
		"get pods web more":                         exitNotFound,
		"get pods ns1/web":                          0,
		"get pods -A":                               0,
		"get pods db -A -n ns1":                     0,
		"describe pod":                              exitUsage,
		"attach":                                    exitUsage,
		"describe pod ns1/nobody":                   exitNotFound,
		"ip who 8.8.8.8":                            exitNotFound,
		"detach --container nobody --docker-host tcp://": exitFailed,
		"get pods --socket " + dir + "/none":             exitNoAgent,
		"detach --netns a --socket " + dir + "/none":     exitNoAgent,
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, want, run(t.Context(), append([]string{"--socket", socket}, strings.Fields(args)...), &stdout, &stderr), "%s: %s", args, &stderr)
	}
}

// values serves fixed answers; a CNI request is kept in work/request.json.
func values(work string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+agent.PathPods, func(w http.ResponseWriter, r *http.Request) {
		list := agent.PodList{Items: []agent.Pod{}}
		for _, p := range []agent.Pod{db(), web()} {
			if ns := r.URL.Query().Get(agent.QueryNamespace); ns == "" || ns == p.Namespace {
				p.LastFailure, p.Known = nil, false
				list.Items = append(list.Items, p)
			}
		}
		serveJSON(200, list)(w, r)
	})
	mux.HandleFunc("GET "+agent.PathPod+"ns1/web", serveJSON(200, web()))
	mux.HandleFunc("GET "+agent.PathPod+"ns1/new", serveJSON(200, agent.Pod{Namespace: "ns1", Name: "new", LastFailure: web().LastFailure}))
	mux.HandleFunc("GET "+agent.PathPod+"default/typo", serveJSON(200, agent.Pod{Namespace: "default", Name: "typo"}))
	mux.HandleFunc("GET "+agent.PathPod+"ns1/nobody", serveJSON(404, agent.Error{Code: 3, Msg: "pod ns1/nobody: not found"}))
	mux.HandleFunc("GET "+agent.PathNets, serveJSON(200, nets()))
	mux.HandleFunc("GET "+agent.PathSubnets, serveJSON(200, subnets()))
	mux.HandleFunc("GET "+agent.PathIPs, serveJSON(200, agent.IPList{Items: []agent.IP{held()}}))
	mux.HandleFunc("GET "+agent.PathIP+"{addr}", who)
	mux.HandleFunc("GET "+agent.PathStatus, serveJSON(200, status()))
	mux.HandleFunc("GET "+agent.PathMetrics, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("fairlead_build_info 1\n")) })
	mux.HandleFunc("POST "+agent.PathGC, serveJSON(200, agent.GCResult{
		Removed: []agent.GCRemoved{removed()}, Kept: 3,
	}))
	mux.HandleFunc("GET "+agent.PathGC, serveJSON(200, agent.GCResult{
		DryRun: true, Removed: []agent.GCRemoved{removed()}, Kept: 3,
		Strays: []agent.GCStray{{Kind: "port", Name: "eeeeeeeeeeee_h", Container: "eeeeeeeeeeeeeeee", IfName: "eth0"}},
	}))
	mux.HandleFunc("GET "+agent.PathOutward, serveJSON(200, outward()))
	mux.HandleFunc("GET "+agent.PathVFs, serveJSON(200, agent.VFList{Items: []agent.VF{
		{PF: "ens1f0", PCI: "0000:01:10.0", Driver: "igbvf", Resource: "fairlead.io/db", Policy: "db", Place: "n0-0", AttachmentRef: agent.AttachmentRef{Namespace: "bank", Pod: "mysql-0", IfName: "net1"},
			Attributes: &agent.VFAttributes{MAC: "02:0a:09:00:00:11", VLAN: 1200, MaxMbps: 500, SpoofChk: true}},
		{PF: "ens1f0", Index: 1, PCI: "0000:01:10.1", Resource: "fairlead.io/db", Policy: "db", Unhealthy: "it has no driver", Attributes: &agent.VFAttributes{}},
	}}))
	mux.HandleFunc("GET "+agent.PathLeaks, serveJSON(200, leaks()))
	mux.HandleFunc("POST "+agent.PathCheck+"ns1/{name}", check)
	mux.HandleFunc("POST "+cni.PathCNI, func(w http.ResponseWriter, r *http.Request) { serveCNI(w, r, work) })
	return mux
}

func removed() agent.GCRemoved {
	return agent.GCRemoved{
		AttachmentRef: agent.AttachmentRef{Namespace: "ns1", Pod: "old", Container: "dddddddddddddddd", IfName: "eth0"},
		Reason:        "its network namespace /run/netns/old is gone",
		Interfaces: []agent.Interface{
			{
				Name: "eth0", Network: "fairlead", HostIf: "dddddddddddd_h", Addresses: []netip.Prefix{netip.MustParsePrefix("10.16.0.9/16")},
				HostPorts: []agent.HostPort{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}},
			},
			{Name: "net1", Network: "ns1/lan", Plugins: []string{"bridge", "tuning"}, Addresses: []netip.Prefix{netip.MustParsePrefix("10.61.0.3/24")}},
		},
	}
}

func leaks() agent.LeakList {
	old := removed()
	return agent.LeakList{Items: []agent.Leak{
		{AttachmentRef: old.AttachmentRef, Address: netip.MustParseAddr("10.16.0.9"), Subnet: "ovn-default", Reason: old.Reason, Free: "fairlead gc"},
		{
			AttachmentRef: agent.AttachmentRef{Container: "eeeeeeeeeeeeeeee", IfName: "eth0"}, Address: netip.MustParseAddr("10.61.0.7"),
			Network: "lan", File: "/var/lib/cni/networks/lan/10.61.0.7", Reason: "no attachment of this agent has it", Unproven: true,
			Free: "rm /var/lib/cni/networks/lan/10.61.0.7",
		},
	}}
}

func serveJSON(status int, v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
}

// ago is half a minute more than d, so that an age does not tick over while a
// script runs.
func ago(d time.Duration) time.Time { return time.Now().Add(-d - 30*time.Second) }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func web() agent.Pod {
	return agent.Pod{
		Namespace: "ns1", Name: "web", UID: "6f1c", Known: true, Attachments: []agent.Attachment{{
			Container: "0123456789abcdef", IfName: "eth0", Network: "k8s-pod-network", Netns: "/run/netns/web",
			Phase: agent.Added, Delivered: true, Created: ago(3*time.Hour + 10*time.Minute),
			Interfaces: []agent.Interface{
				{
					Name: "eth0", Network: agent.DefaultNet, Default: true, Driver: "ovs", NICType: "veth-pair", Subnet: "vlan1000",
					Addresses: []netip.Prefix{prefix("100.100.0.3/16"), prefix("fd00:100::3/64")},
					Gateways:  []netip.Addr{addr("100.100.0.1"), addr("fd00:100::1")},
					Routes:    []agent.Route{{Dst: prefix("0.0.0.0/0"), GW: addr("100.100.0.1")}, {Dst: prefix("10.0.0.0/8")}},
					MAC:       "00:00:00:53:6b:b6", MTU: 1400, HostIf: "0123456789ab_h", VLAN: 1000,
					QoS:    &agent.QoS{IngressMbps: 3, EgressMbps: 1, EgressBurstMbit: 2, LatencyMs: 10},
					Port:   &agent.Port{Name: "0123456789ab_h", IfaceID: "web.ns1", OFPort: 5, LinkState: "up"},
					DNS:    &agent.DNS{Nameservers: []string{"10.96.0.10"}},
					Mirror: true,
				},
				{
					Name: "net1", Network: "default/macvlan-net2", Driver: "exec", Plugins: []string{"macvlan", "tuning"},
					Addresses: []netip.Prefix{prefix("192.168.133.190/24")}, MAC: "0a:58:c0:a8:85:be", MTU: 1500,
				},
			},
			Timeline: []agent.Step{
				{Name: "resolve", StartMs: 0, TookMs: 0.12},
				{Name: "journal.begin", StartMs: 0.12, TookMs: 1.9},
				{Name: "ovs.veth", StartMs: 2.02, TookMs: 1.5},
				{Name: "ovs.ofport", StartMs: 3.5, TookMs: 4.4},
				{Name: "journal.commit", StartMs: 7.9, TookMs: 1.1},
			},
		}},
		LastFailure: &agent.Failure{
			Op: "ADD", Container: "fedcba9876543210", IfName: "eth0", When: ago(2 * time.Hour), Code: 103,
			Cause: "address 100.100.0.3: held by ns1/old", Hint: agent.Hint(103),
			Timeline: []agent.Step{{Name: "resolve", TookMs: 0.2}, {Name: "ipam", StartMs: 0.2, TookMs: 0.05, Error: "address is held"}},
		},
	}
}

func db() agent.Pod {
	return agent.Pod{Namespace: "default", Name: "db", Attachments: []agent.Attachment{
		{
			Container: "aaaaaaaaaaaaaaaa", IfName: "eth0", Network: "k8s-pod-network", Netns: "/run/netns/db", Phase: agent.Added,
			Created: ago(52 * time.Hour),
			Interfaces: []agent.Interface{{
				Name: "eth0", Network: agent.DefaultNet, Driver: "ovs", Addresses: []netip.Prefix{prefix("10.16.0.5/16")},
				MAC: "0a:00:00:00:00:05", HostIf: "aaaaaaaaaaaa_h", QoS: &agent.QoS{EgressMbps: 10}, EgressUnenforced: true,
			}},
		},
		{Container: "bbbbbbbbbbbbbbbb", IfName: "eth0", Network: "k8s-pod-network", Phase: agent.Deleting, Orphan: true, Error: "portmap: busy", Created: ago(3 * time.Hour)},
	}}
}

func nets() agent.NetList {
	return agent.NetList{Items: []agent.Net{
		{Name: "default/macvlan-net2", CNIVersion: "0.3.1", Plugins: []string{"macvlan", "tuning"}, Source: "/etc/fairlead/nad.yaml", Interfaces: 1},
		{Name: "ns1/broken", Plugins: []string{}, Source: "/etc/fairlead/x.yaml", Problem: "spec.config: no `type`"},
		{Name: agent.DefaultNet, Default: true, Plugins: []string{"fairlead"}, Subnet: "ovn-default", Source: "built-in", Interfaces: 2},
	}}
}

func subnets() agent.SubnetList {
	return agent.SubnetList{Items: []agent.Subnet{
		{
			Name: "ovn-default", Provider: "ovn", CIDRs: []netip.Prefix{prefix("10.16.0.0/16"), prefix("fd00:16::/64")},
			Gateways: []netip.Addr{addr("10.16.0.1"), addr("fd00:16::1")}, Exclude: []string{"10.16.0.2..10.16.0.9", "fd00:16::7"},
			NATOutgoing: true, Default: true,
			Usage: []agent.Usage{
				{Family: "ipv4", Total: 65536, Used: 2, Free: 65523, Excluded: 11},
				{Family: "ipv6", Total: 1<<63 - 1, Used: 2, Free: 1<<63 - 1, Excluded: 2},
			},
		},
		{
			Name: "vlan1000", CIDRs: []netip.Prefix{prefix("100.100.0.0/16")}, Gateways: []netip.Addr{addr("100.100.0.1")}, VLAN: 1000, Implied: true,
			Usage: []agent.Usage{{Family: "ipv4", Total: 65536, Used: 1, Free: 65532, Excluded: 3}},
		},
	}}
}

func held() agent.IP {
	return agent.IP{
		Address: addr("100.100.0.3"), Subnet: "vlan1000", State: agent.IPHeld, Namespace: "ns1", Pod: "web", Container: "0123456789abcdef",
		IfName: "eth0", MAC: "00:00:00:53:6b:b6", HostIf: "0123456789ab_h", OFPort: 5, VLAN: 1000,
	}
}

func who(w http.ResponseWriter, r *http.Request) {
	out := agent.Who{Address: addr(r.PathValue("addr")), Items: []agent.IP{}}
	for a, item := range map[string]agent.IP{
		"100.100.0.3": held(),
		"10.16.0.1":   {Subnet: "ovn-default", State: agent.IPGateway},
		"10.16.0.2":   {Subnet: "ovn-default", State: agent.IPExcluded},
		"10.16.0.77":  {Subnet: "ovn-default", State: agent.IPReleased, Namespace: "ns1", Pod: "old"},
		"10.16.0.78":  {Subnet: "ovn-default", State: agent.IPFree},
	} {
		if a == out.Address.String() {
			item.Address = out.Address
			out.Items = append(out.Items, item)
		}
	}
	serveJSON(200, out)(w, r)
}

func status() agent.Status {
	return agent.Status{
		Version: "v1.2.3", Commit: "abcdef0123456789", Node: "node1", Started: ago(26 * time.Hour), Ready: false,
		Conditions: []agent.Condition{
			{Name: agent.CheckOVSDB, Reason: "connect unix:/run/openvswitch/db.sock: refused"},
			{Name: agent.CheckJournal, OK: true},
		},
		Problems: []agent.Problem{{File: "/etc/fairlead/x.yaml", Line: 7, Reason: "unknown kind Podd"}},
		Pods:     2, Attachments: 3, Tombstones: 1, InFlight: 0,
		Orphans:  []agent.OrphanedEntry{{AttachmentRef: agent.AttachmentRef{Namespace: "default", Pod: "db", Container: "bbbbbbbbbbbbbbbb", IfName: "eth0"}, Error: "portmap: busy"}},
		Settings: agent.Settings{Socket: "/run/fairlead/agent.sock", StateDir: "/var/lib/fairlead", OVSDB: "unix:/run/openvswitch/db.sock", Bridge: "br-int", Datapath: "netdev", MTU: 1400},
	}
}

func check(w http.ResponseWriter, r *http.Request) {
	item := agent.CheckAttachment{AttachmentRef: agent.AttachmentRef{Namespace: "ns1", Pod: r.PathValue("name"), Container: "0123456789abcdef", IfName: "eth0"}, OK: true, Interfaces: []string{"eth0", "net1"}}
	if r.PathValue("name") == "bent" {
		item.OK, item.Differences = false, []string{"eth0: MTU in the pod is 9000, not 1400", "eth0: tag of port 0123456789ab_h is 7, not 1000"}
	}
	serveJSON(200, agent.CheckResult{Namespace: "ns1", Pod: r.PathValue("name"), OK: item.OK, Attachments: []agent.CheckAttachment{item}})(w, r)
}

// serveCNI keeps the request and answers as an agent would.
func serveCNI(w http.ResponseWriter, r *http.Request, work string) {
	var req cni.Request
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		serveJSON(400, agent.Error{Code: 6, Msg: err.Error()})(w, r)
		return
	}
	shown := struct {
		cni.Request
		Config string `json:"config"`
	}{req, string(req.Config)}
	b, err := json.MarshalIndent(shown, "", "  ")
	if err != nil || os.WriteFile(filepath.Join(work, "request.json"), append(b, '\n'), 0o600) != nil {
		http.Error(w, "keep the request", http.StatusInternalServerError)
		return
	}
	resp := cni.Response{}
	switch {
	case req.Command == "ADD" && req.IfName == "full0":
		resp = cni.Response{Failed: true, Output: []byte(`{"cniVersion":"1.1.0","code":103,"msg":"no address","details":"subnet ovn-default has no free address"}`)}
	case req.Command == "ADD" && req.IfName == "twice0":
		resp = cni.Response{Failed: true, Output: []byte(`{"cniVersion":"1.1.0","code":105,"msg":"container c1 already has twice0"}`)}
	case req.Command == "ADD":
		resp.Output = []byte(`{"cniVersion":"1.1.0","interfaces":[{"name":"blue_h","mac":"0a:00:00:00:00:01"},{"name":"eth0","mac":"0a:00:00:00:00:02","sandbox":"/run/netns/blue"}],"ips":[{"interface":1,"address":"10.16.0.9/16","gateway":"10.16.0.1"}]}`)
	}
	serveJSON(200, resp)(w, r)
}
