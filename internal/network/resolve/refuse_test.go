package resolve

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

const ann = "ovn.kubernetes.io/"

// TestRefused has one bad value per case; nothing else is wrong. The name says
// what it is.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  uint
		field string   // the message must name it
		notes []string // annotations of default/p
		set   func(*world, *core.Request)
	}{
		{"address that is none", 102, ann + "ip_address", []string{ann + "ip_address", "10.16.0"}, nil},
		{"address with prefix length", 102, ann + "ip_address", []string{ann + "ip_address", "10.16.0.9/16"}, nil},
		{"two addresses of one family", 102, ann + "ip_address", []string{ann + "ip_address", "10.16.0.9,10.16.0.10"}, nil},
		{"empty half of a pair", 102, ann + "ip_address", []string{ann + "ip_address", "10.16.0.9,"}, nil},
		{"IPv4 inside IPv6", 102, ann + "ip_address", []string{ann + "ip_address", "::ffff:10.16.0.9"}, nil},
		{"address with zone", 102, ann + "ip_address", []string{ann + "ip_address", "fe80::1%eth0"}, nil},
		{"multicast address", 102, ann + "ip_address", []string{ann + "ip_address", "224.0.0.1"}, nil},
		{"loopback address", 102, ann + "ip_address", []string{ann + "ip_address", "127.0.0.1"}, nil},
		{"address outside of the CIDR", 103, ann + "ip_address", []string{ann + "ip_address", "10.17.0.9"}, nil},
		{"address of a family that the subnet lacks", 103, ann + "ip_address", []string{ann + "logical_switch", "backend", ann + "ip_address", "fd00::9"}, nil},
		{"address of the gateway", 103, ann + "ip_address", []string{ann + "ip_address", "10.16.0.1"}, nil},
		{"address of the network", 103, ann + "ip_address", []string{ann + "ip_address", "10.16.0.0"}, nil},
		{"address of the broadcast", 103, ann + "ip_address", []string{ann + "ip_address", "10.16.255.255"}, nil},
		{"IPv6 anycast address of the routers", 103, ann + "ip_address", []string{ann + "ip_address", "fd00:10:16::"}, nil},
		{"foreign plugin with addresses that nobody has", 7, `no Subnet has provider "nobody"`, []string{networks, "borrowed"}, nil},
		{"MAC that is none", 102, ann + "mac_address", []string{ann + "mac_address", "zz"}, nil},
		{"MAC of 8 bytes", 102, ann + "mac_address", []string{ann + "mac_address", "02:00:00:00:00:00:00:01"}, nil},
		{"MAC multicast", 102, ann + "mac_address", []string{ann + "mac_address", "01:00:00:00:00:01"}, nil},
		{"MAC zero", 102, ann + "mac_address", []string{ann + "mac_address", "00:00:00:00:00:00"}, nil},
		{"cidr without length", 102, ann + "cidr", []string{ann + "cidr", "10.16.0.0"}, nil},
		{"cidr twice one family", 102, ann + "cidr", []string{ann + "cidr", "10.16.0.0/16,10.17.0.0/16"}, nil},
		{"cidr of another subnet", 105, ann + "cidr", []string{ann + "cidr", "10.99.0.0/16"}, nil},
		{"gateway that is none", 102, ann + "gateway", []string{ann + "gateway", "gw"}, nil},
		{"gateway outside of cidr", 102, ann + "gateway", []string{ann + "cidr", "10.16.0.0/16", ann + "gateway", "10.17.0.1"}, nil},
		{"gateway that is not the subnet's", 105, ann + "gateway", []string{ann + "gateway", "10.16.0.2"}, nil},
		{"logical_switch that is no name", 102, ann + "logical_switch", []string{ann + "logical_switch", "a/b"}, nil},
		{"logical_switch that nobody declares", 102, ann + "logical_switch", []string{ann + "logical_switch", "nowhere"}, nil},
		{"routes no JSON", 102, ann + "routes", []string{ann + "routes", "10.0.0.0/8"}, nil},
		{"routes no list", 102, ann + "routes", []string{ann + "routes", `{"dst":"10.0.0.0/8"}`}, nil},
		{"routes with an unknown key", 102, ann + "routes", []string{ann + "routes", `[{"dst":"10.0.0.0/8","via":"10.16.0.1"}]`}, nil},
		{"routes with a key twice", 102, ann + "routes", []string{ann + "routes", `[{"dst":"10.0.0.0/8","dst":"10.0.0.0/9"}]`}, nil},
		{"route without dst", 102, ann + "routes[0]", []string{ann + "routes", `[{"gw":"10.16.0.1"}]`}, nil},
		{"route with a bad gw", 102, ann + "routes[1]", []string{ann + "routes", `[{"dst":"10.0.0.0/8"},{"dst":"10.0.0.0/8","gw":"x"}]`}, nil},
		{"route of two families", 102, ann + "routes[0]", []string{ann + "routes", `[{"dst":"10.0.0.0/8","gw":"fd00::1"}]`}, nil},
		{"ingress_rate that is no number", 102, ann + "ingress_rate", []string{ann + "ingress_rate", "3M"}, nil},
		{"ingress_rate with a fraction", 102, ann + "ingress_rate", []string{ann + "ingress_rate", "0.5"}, nil},
		{"egress_rate negative", 102, ann + "egress_rate", []string{ann + "egress_rate", "-1"}, nil},
		{"egress_rate beyond 32 bits of kbit/s", 102, ann + "egress_rate", []string{ann + "egress_rate", "5000000"}, nil},
		{"egress_rate that overflows", 102, ann + "egress_rate", []string{ann + "egress_rate", "99999999999999999999"}, nil},
		{"ingress_burst without rate", 102, ann + "ingress_burst", []string{ann + "ingress_burst", "3"}, nil},
		{"egress_burst without rate", 102, ann + "egress_burst", []string{ann + "egress_burst", "3"}, nil},
		{"latency negative", 102, ann + "latency", []string{ann + "latency", "-3"}, nil},
		{"jitter without latency", 102, ann + "jitter", []string{ann + "jitter", "3"}, nil},
		{"limit no number", 102, ann + "limit", []string{ann + "limit", "many"}, nil},
		{"loss over 100", 102, ann + "loss", []string{ann + "loss", "101"}, nil},
		{"mirror yes", 102, ann + "mirror", []string{ann + "mirror", "yes"}, nil},
		{"vlan_id over 4094", 102, ann + "vlan_id", []string{ann + "vlan_id", "4095"}, nil},
		{"vlan_id negative", 102, ann + "vlan_id", []string{ann + "vlan_id", "-1"}, nil},
		{"pod_nic_type unknown", 102, ann + "pod_nic_type", []string{ann + "pod_nic_type", "tap"}, nil},
		{"default_route maybe", 102, ann + "default_route", []string{ann + "default_route", "maybe"}, nil},
		{"allocated no flag", 102, ann + "allocated", []string{ann + "allocated", "1"}, nil},
		{"provider_network no name", 102, ann + "provider_network", []string{ann + "provider_network", "net 1"}, nil},
		{"network_type unknown", 102, ann + "network_type", []string{ann + "network_type", "gre"}, nil},
		{"bad annotation of a NAD", 102, "second.default.ovn.kubernetes.io/ip_address", []string{networks, "second", "second.default.ovn.kubernetes.io/ip_address", "x"}, nil},
		{"bad annotation of one interface of a NAD", 102, "second.default.ovn.net1.kubernetes.io/vlan_id", []string{networks, "second", "second.default.ovn.net1.kubernetes.io/vlan_id", "x"}, nil},

		{"networks longer than 8 KiB", 102, networks, []string{networks, strings.Repeat("a,", 5000)}, nil},
		{"17 networks", 102, networks, []string{networks, strings.Repeat("plain,", 16) + "plain"}, nil},
		{"empty element", 102, networks + "[1]", []string{networks, "plain,,second"}, nil},
		{"empty namespace", 102, networks + "[0]", []string{networks, "/plain"}, nil},
		{"empty interface", 102, networks + "[0]", []string{networks, "plain@"}, nil},
		{"name with capitals", 102, networks + "[0].name", []string{networks, "Plain"}, nil},
		{"name that is a path", 102, networks + "[0].name", []string{networks, "a/../b"}, nil},
		{"namespace with a dot", 102, networks + "[0].namespace", []string{networks, "a.b/plain"}, nil},
		{"interface too long", 102, networks + "[0].interface", []string{networks, "plain@abcdefghijklmnop"}, nil},
		{"interface with a slash in JSON", 102, networks + "[0].interface", []string{networks, `[{"name":"plain","interface":"a/b"}]`}, nil},
		{"interface with a space", 102, networks + "[0].interface", []string{networks, `[{"name":"plain","interface":"a b"}]`}, nil},
		{"interface lo", 102, networks + "[0].interface", []string{networks, "plain@lo"}, nil},
		{"interface with %", 102, networks + "[0].interface", []string{networks, "plain@net%d"}, nil},
		{"interface eth0", 105, networks + "[0].interface", []string{networks, "plain@eth0"}, nil},
		{"one interface for two", 105, networks + "[1].interface", []string{networks, "plain@x,second@x"}, nil},
		{"JSON cut short", 102, networks, []string{networks, `[{"name":"plain"`}, nil},
		{"JSON object for a list", 102, networks, []string{networks, `{"name":"plain"}`}, nil},
		{"JSON list of strings", 102, networks, []string{networks, `["plain"]`}, nil},
		{"JSON key twice", 102, networks, []string{networks, `[{"name":"plain","name":"second"}]`}, nil},
		{"JSON null element", 102, networks + "[0]", []string{networks, `[null]`}, nil},
		{"JSON too deep", 102, networks, []string{networks, strings.Repeat("[", 40) + strings.Repeat("]", 40)}, nil},
		{"name missing", 102, networks + "[0].name", []string{networks, `[{}]`}, nil},
		{"name no string", 102, networks + "[0].name", []string{networks, `[{"name":7}]`}, nil},
		{"ips no list", 102, networks + "[0].ips", []string{networks, `[{"name":"foreign","ips":"10.0.0.1"}]`}, nil},
		{"ips bad address", 102, networks + "[0].ips[1]", []string{networks, `[{"name":"foreign","ips":["10.0.0.1","x"]}]`}, nil},
		{"ips bad length", 102, networks + "[0].ips[0]", []string{networks, `[{"name":"foreign","ips":["10.0.0.1/33"]}]`}, nil},
		{"ips two of one family on our NIC", 102, networks + "[0].ips", []string{networks, `[{"name":"second","ips":["10.20.0.8","10.20.0.9"]}]`}, nil},
		{"ips outside of the subnet", 103, networks + "[0].ips", []string{networks, `[{"name":"second","ips":["10.21.0.8"]}]`}, nil},
		{"ips of another prefix length", 103, networks + "[0].ips", []string{networks, `[{"name":"second","ips":["10.20.0.8/16"]}]`}, nil},
		{"ips with ipam-claim-reference", 102, networks + "[0].ips", []string{networks, `[{"name":"foreign","ips":["10.0.0.1"],"ipam-claim-reference":"c"}]`}, nil},
		{"ips without the capability", 102, networks + "[0].ips", []string{networks, `[{"name":"plain","ips":["10.0.0.1"]}]`}, nil},
		{"ipam-claim-reference no name", 102, networks + "[0].ipam-claim-reference", []string{networks, `[{"name":"plain","ipam-claim-reference":"A_"}]`}, nil},
		{"ipam-claim-reference on our NIC", 102, networks + "[0].ipam-claim-reference", []string{networks, `[{"name":"second","ipam-claim-reference":"c"}]`}, nil},
		{"ipam-claim-reference where a Subnet gives a plugin's addresses", 102, networks + "[0].ipam-claim-reference", []string{networks, `[{"name":"borrowed","ipam-claim-reference":"c"}]`}, nil},
		{"ipam-claim-reference where a plugin gives addresses that knows no claims", 102, "network default/local has no IPAM claims: host-local gives its addresses", []string{networks, `[{"name":"local","ipam-claim-reference":"c"}]`}, func(w *world, _ *core.Request) {
			w.nad("default/local", `{"cniVersion":"0.4.0","type":"macvlan","ipam":{"type":"host-local"}}`)
		}},
		{"ipam-claim-reference twice", 105, networks + "[1].ipam-claim-reference", []string{networks, `[{"name":"foreign","ipam-claim-reference":"c"},{"name":"plain","ipam-claim-reference":"c"}]`}, nil},
		{"mac of 5 bytes", 102, networks + "[0].mac", []string{networks, `[{"name":"foreign","mac":"02:00:00:00:01"}]`}, nil},
		{"mac without the capability", 102, networks + "[0].mac", []string{networks, `[{"name":"main","namespace":"kube-system","mac":"02:00:00:00:00:01"}]`}, func(w *world, _ *core.Request) {
			w.nad("kube-system/main", `{"type":"ptp"}`)
		}},
		{"mac against the annotation", 105, networks + "[0].mac", []string{networks, `[{"name":"second","mac":"02:00:00:00:00:01"}]`, "second.default.ovn.kubernetes.io/mac_address", "02:00:00:00:00:02"}, nil},
		{"infiniband-guid of 6 bytes", 102, networks + "[0].infiniband-guid", []string{networks, `[{"name":"foreign","infiniband-guid":"00:00:00:00:00:01"}]`}, nil},
		{"infiniband-guid without the capability", 102, networks + "[0].infiniband-guid", []string{networks, `[{"name":"foreign","infiniband-guid":"00:00:00:00:00:00:00:01"}]`}, nil},
		{"hostPort 0", 102, networks + "[0].portMappings[0].hostPort", []string{networks, `[{"name":"foreign","portMappings":[{"containerPort":1}]}]`}, nil},
		{"hostPort 65536", 102, networks + "[0].portMappings[0].hostPort", []string{networks, `[{"name":"foreign","portMappings":[{"hostPort":65536,"containerPort":1}]}]`}, nil},
		{"containerPort negative", 102, networks + "[0].portMappings[0].containerPort", []string{networks, `[{"name":"foreign","portMappings":[{"hostPort":1,"containerPort":-1}]}]`}, nil},
		{"protocol icmp", 102, networks + "[0].portMappings[0].protocol", []string{networks, `[{"name":"foreign","portMappings":[{"hostPort":1,"containerPort":1,"protocol":"icmp"}]}]`}, nil},
		{"hostIP no address", 102, networks + "[0].portMappings[0].hostIP", []string{networks, `[{"name":"foreign","portMappings":[{"hostPort":1,"containerPort":1,"hostIP":"x"}]}]`}, nil},
		{"portMappings on our NIC", 102, networks + "[0].portMappings", []string{networks, `[{"name":"second","portMappings":[{"hostPort":1,"containerPort":1}]}]`}, nil},
		{"burst without rate", 102, networks + "[0].bandwidth.ingressBurst", []string{networks, `[{"name":"second","bandwidth":{"ingressBurst":1}}]`}, nil},
		{"rate negative", 102, networks + "[0].bandwidth", []string{networks, `[{"name":"second","bandwidth":{"egressRate":-1}}]`}, nil},
		{"rate beyond a terabit", 102, networks + "[0].bandwidth", []string{networks, `[{"name":"second","bandwidth":{"egressRate":1000000000000000000}}]`}, nil},
		{"bandwidth without the capability", 102, networks + "[0].bandwidth", []string{networks, `[{"name":"plain","bandwidth":{"egressRate":1000}}]`}, nil},
		{"cni-args no object", 102, networks + "[0].cni-args", []string{networks, `[{"name":"plain","cni-args":[1]}]`}, nil},
		{"cni-args ips no list", 102, networks + "[0].cni-args.ips", []string{networks, `[{"name":"plain","cni-args":{"ips":"10.0.0.1"}}]`}, nil},
		{"cni-args ips bad address", 102, networks + "[0].cni-args.ips[1]", []string{networks, `[{"name":"plain","cni-args":{"ips":["10.0.0.1/24","::ffff:10.0.0.2/120"]}}]`}, nil},
		{"cni-args mac of 5 bytes", 102, networks + "[0].cni-args.mac", []string{networks, `[{"name":"plain","cni-args":{"mac":"02:00:00:00:01"}}]`}, nil},
		{"cni-args key in another case", 102, networks + "[0].cni-args: \"IPs\" is no key: it is written ips", []string{networks, `[{"name":"plain","cni-args":{"IPs":["10.0.0.1/24"]}}]`}, nil},
		{"default-route no address", 102, networks + "[0].default-route", []string{networks, `[{"name":"plain","default-route":["x"]}]`}, nil},
		{"default-route twice the same", 102, networks + "[0].default-route", []string{networks, `[{"name":"plain","default-route":["10.0.0.1","10.0.0.1"]}]`}, nil},
		{"default-route outside of our subnet", 102, networks + "[0].default-route", []string{networks, `[{"name":"second","default-route":["10.21.0.1"]}]`}, nil},
		{"default-route is the pod itself", 102, networks + "[0].default-route", []string{networks, `[{"name":"second","ips":["10.20.0.7"],"default-route":["10.20.0.7"]}]`}, nil},
		{"default-route of two networks", 105, networks + "[1].default-route", []string{networks, `[{"name":"second","default-route":["10.20.0.1"]},{"name":"plain","default-route":["10.0.0.1"]}]`}, nil},
		{"a key in another case", 102, networks + "[0]: \"IPS\" is no key: it is written ips", []string{networks, `[{"name":"second","IPS":["10.20.0.7"]}]`}, nil},
		{"namespace in another case", 102, "it is written namespace", []string{networks, `[{"name":"second","Namespace":"other"}]`}, nil},
		{"a key whose case only Unicode knows", 102, "it is written ips", []string{networks, `[{"name":"second","ip\u017f":["10.20.0.7"]}]`}, nil},
		{"a port's key in another case", 102, networks + "[0].portMappings: \"HostPort\" is no key", []string{networks, `[{"name":"foreign","portMappings":[{"hostPort":8080,"HostPort":22,"containerPort":1}]}]`}, nil},
		{"a rate's key in another case", 102, networks + "[0].bandwidth: \"INGRESSRATE\" is no key", []string{networks, `[{"name":"second","bandwidth":{"INGRESSRATE":5}}]`}, nil},
		{"a key twice", 102, "stands twice", []string{networks, `[{"name":"second","name":"plain"}]`}, nil},
		{"a key twice, once with an escape", 102, "stands twice", []string{networks, `[{"name":"second","n\u0061me":"plain"}]`}, nil},
		{"deviceID no id", 102, networks + "[0].deviceID", []string{networks, `[{"name":"plain","deviceID":"../x"}]`}, nil},
		{"deviceID on our NIC", 104, networks + "[0].deviceID", []string{networks, `[{"name":"second","deviceID":"0000:03:02.0"}]`}, nil},
		{"one address on two NICs", 105, "10.20.0.9", []string{networks, "second,second", "second.default.ovn.kubernetes.io/ip_address", "10.20.0.9"}, nil},
		{"one MAC on two NICs", 105, "02:00:00:00:00:09", []string{networks, "second,second", "second.default.ovn.kubernetes.io/mac_address", "02:00:00:00:00:09"}, nil},

		{"NAD that does not exist", 7, "default/nowhere", []string{networks, "nowhere"}, nil},
		{"NAD that is junk", 6, "default/junk", []string{networks, "junk"}, nil},
		{"NAD without configuration or file", 7, "default/empty", []string{networks, "empty"}, nil},
		{"NAD with our plugin behind another", 7, "plugins[1]", []string{networks, "late"}, nil},
		{"NAD whose provider has no Subnet", 7, "nosubnet.default.ovn", []string{networks, "nosubnet"}, nil},
		{"NAD of another namespace under isolation", 101, networks + "[0].namespace", []string{networks, "other/shared"}, func(_ *world, r *core.Request) { r.Conf.NamespaceIsolation = true }},
		{"default network of another namespace under isolation", 101, "default-network[0].namespace", []string{"v1.multus-cni.io/default-network", "main"}, func(_ *world, r *core.Request) { r.Conf.NamespaceIsolation = true }},
		{"two default networks", 102, "v1.multus-cni.io/default-network", []string{"v1.multus-cni.io/default-network", "a,b"}, nil},
		{"default network with an interface", 102, "v1.multus-cni.io/default-network[0].interface", []string{"v1.multus-cni.io/default-network", "main@eth5"}, nil},
		{"default network that does not exist", 7, "kube-system/nowhere", []string{"v1.multus-cni.io/default-network", "nowhere"}, nil},

		{"no default subnet", 7, "ovn-default", nil, func(w *world, _ *core.Request) { w.subnets = nil }},
		{"runtimeConfig.ips no list", 102, "runtimeConfig.ips", nil, runtimeConfig("ips", `"10.16.0.9"`)},
		{"runtimeConfig.ips no address", 102, "runtimeConfig.ips", nil, runtimeConfig("ips", `["x"]`)},
		{"runtimeConfig.ips outside", 103, "runtimeConfig.ips", nil, runtimeConfig("ips", `["10.17.0.9/16"]`)},
		{"runtimeConfig.ips against the annotation", 105, "runtimeConfig.ips", []string{ann + "ip_address", "10.16.0.8"}, runtimeConfig("ips", `["10.16.0.9"]`)},
		{"runtimeConfig.mac no string", 102, "runtimeConfig.mac", nil, runtimeConfig("mac", `1`)},
		{"runtimeConfig.mac no MAC", 102, "runtimeConfig.mac", nil, runtimeConfig("mac", `"x"`)},
		{"runtimeConfig.bandwidth no object", 102, "runtimeConfig.bandwidth", nil, runtimeConfig("bandwidth", `[]`)},
		{"runtimeConfig.portMappings without portmap", 7, "runtimeConfig.portMappings", nil, runtimeConfig("portMappings", `[{"hostPort":80}]`)},
		{"CNI_ARGS IP no address", 4, "CNI_ARGS: IP", nil, func(_ *world, r *core.Request) { r.Args["IP"] = "x" }},
		{"CNI_ARGS IP two of one family", 4, "CNI_ARGS: IP", nil, func(_ *world, r *core.Request) { r.Args["IP"] = "10.16.0.8,10.16.0.9" }},
		{"CNI_ARGS MAC no MAC", 4, "CNI_ARGS: MAC", nil, func(_ *world, r *core.Request) { r.Args["MAC"] = "x" }},
		{"CNI_ARGS IP outside", 103, "CNI_ARGS IP", nil, func(_ *world, r *core.Request) { r.Args["IP"] = "10.99.0.1" }},
		{"bandwidth annotation of Kubernetes", 102, "kubernetes.io/ingress-bandwidth", []string{"kubernetes.io/ingress-bandwidth", "10"}, func(_ *world, r *core.Request) {
			r.Conf.Capabilities = map[string]bool{"bandwidth": true}
		}},
		{"conf directory that cannot be read", 5, "/etc/cni/multus/net.d", []string{networks, "empty"}, func(w *world, _ *core.Request) {
			w.nads["default/empty"].Annotations = map[string]string{"unreadable": "dir"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := standard()
			w.note(c.notes...)
			req := request()
			if c.set != nil {
				c.set(w, &req)
			}
			in := Input{Request: req}
			if w.nads["default/empty"].Annotations != nil {
				in.Files = unreadable{}
			}
			wants, err := Resolve(t.Context(), w, in)
			require.Error(t, err)
			require.Equal(t, c.code, core.CodeOf(err), err.Error())
			require.Contains(t, err.Error(), c.field)
			require.Less(t, len(err.Error()), 600)
			require.Empty(t, wants)
		})
	}
}

// unreadable is a file system that refuses everything.
type unreadable struct{}

func (unreadable) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}

func runtimeConfig(key, value string) func(*world, *core.Request) {
	return func(_ *world, r *core.Request) {
		r.Conf.RuntimeConfig = map[string]json.RawMessage{key: json.RawMessage(value)}
	}
}
