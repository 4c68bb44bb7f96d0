package manifest_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/install/manifest"
)

const (
	networksKey = "k8s.v1.cni.cncf.io/networks"
	insteadKey  = "v1.multus-cni.io/default-network"
)

// text is one row of the table: annotations, the accounts whose new pod asks
// for them, and those of them that may.
type text struct {
	name     string
	notes    map[string]string
	accounts []string
	allowed  []string
	changes  []string // by which it comes to a running pod
}

// texts are all rows. Every field of api/v1 and every key of an element that
// the agent reads joins by itself, once it has a sample.
func texts(t *testing.T, ns string) []text {
	t.Helper()
	changes := []string{"", "status", "ephemeralcontainers", "resize", "pods/binding", "bindings"}
	of := func(list []text, most int, accounts ...string) []text {
		for i := range list {
			list[i].accounts = accounts
			for j := range most { // another choice for each row
				list[i].changes = append(list[i].changes, changes[(i+j)%len(changes)])
			}
		}
		return list
	}
	return slices.Concat(of(fieldTexts(t, ns), 2, "default", "backend"), of(elementTexts(t, ns), 2, "default", "nets", "some"),
		of(handMade(ns), len(changes), "backend", "default", "nets", "some"))
}

// fieldSamples are values that the agent takes.
var fieldSamples = map[string]string{
	"ip_address": "10.1.0.7", "ip_pool": "10.1.0.7,10.1.0.8", "mac_address": "02:00:00:00:00:07", "cidr": "10.1.0.0/16",
	"gateway": "10.1.0.1", "logical_switch": "frontend", "routes": `[{"dst":"10.9.0.0/16","gw":"10.1.0.3"}]`, "allocated": "true",
	"routed": "true", "ingress_rate": "5", "egress_rate": "5", "ingress_burst": "5", "egress_burst": "5", "latency": "5",
	"jitter": "5", "limit": "5", "loss": "5", "mirror": "true", "vlan_id": "5", "pod_nic_type": "veth-pair",
	"default_route": "true", "provider_network": "physical", "network_type": "vlan", "ip_family": "ipv4",
	"port_security": "false", "port_vips": "10.1.0.7",
	"security_groups": "a,b", "vip": "a", "aaps": "a,b", "virtualmachine": "vm", "declared": "ns/own@net1", "eip": "192.0.2.7", "snat": "192.0.2.8",
}

// needs are fields that mean nothing without another one.
var needs = map[string]string{"ingress_burst": "ingress_rate", "egress_burst": "egress_rate", "jitter": "latency"}

// fieldTexts are all annotations of a NIC under each key that the agent looks
// for, alone and beside the name of a subnet.
func fieldTexts(t *testing.T, ns string) (out []text) {
	t.Helper()
	key := []string{
		"ovn.kubernetes.io/%s", "own.NS.ovn.kubernetes.io/%s", "own.NS.kubernetes.io/%s", "own.NS.ovn.net1.kubernetes.io/%s",
		"own.NS.kubernetes.io/%s.net1", "own.other.kubernetes.io/%s.net1", "own.kube-system.ovn.kubernetes.io/%s",
	}
	const plain = 3 // of key
	for _, field := range manifest.Fields(t) {
		sample := fieldSamples[field]
		require.NotEmpty(t, sample, "annotation %s: give a sample that the agent takes", field)
		for i, form := range key {
			form = strings.ReplaceAll(form, "NS", ns)
			nets := map[string]string{networksKey: "own"}
			switch {
			case strings.Contains(form, "other"):
				nets[networksKey] = "other/own"
			case strings.Contains(form, "kube-system"):
				nets = map[string]string{insteadKey: "own"}
			}
			of := func(f string) string { return fmt.Sprintf(form, f) }
			nets[of(field)] = sample
			if base := needs[field]; base != "" {
				nets[of(base)] = "5"
			}
			out = append(out, text{name: form, notes: nets})
			in := []string{"backend"}
			if field == "ip_address" {
				in = []string{"backend", " backend ", " ", ""}
			}
			for _, blank := range in {
				r := text{name: form + " in " + strconv.Quote(blank), notes: map[string]string{of("logical_switch"): blank}}
				for k, v := range nets {
					if _, ok := r.notes[k]; !ok {
						r.notes[k] = v
					}
				}
				alone := slices.Contains([]string{v1.FieldAllocated, v1.FieldRouted, v1.FieldDeclared}, field) // the controller's
				if blank == "backend" && i < plain && !alone {
					r.allowed = []string{"backend"}
				}
				out = append(out, r)
			}
		}
	}
	return out
}

// elementSamples are values that the agent takes of a key of an element.
var elementSamples = map[string]string{
	"name": "", "namespace": "", // the forms below have them
	"interfaceRequest": `"net7"`, "interface": `"net8"`, "ips": `["10.1.0.9"]`, "mac": `"02:00:00:00:00:09"`,
	"infiniband-guid": `"c2:11:22:33:44:55:66:77"`, "portMappings": `[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`,
	"bandwidth": `{"ingressRate":5000000,"egressRate":5000000}`, "cni-args": `{"ips":["10.1.0.9"],"mac":"02:00:00:00:00:09","x":{"y":1}}`,
	"deviceID": `"0000:03:02.0"`, "ipam-claim-reference": `"claim"`, "default-route": `["10.1.0.1"]`,
}

// elementKeys are those that the agent's parser takes.
func elementKeys(t *testing.T) (out []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../../network/resolve/element/element.go", nil, 0)
	require.NoError(t, err)
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "take" && len(call.Args) == 3 {
			key, err := strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			out = append(out, key)
		}
		return true
	})
	require.Contains(t, out, "ips")
	return out
}

// forms are elements of network N with key K of value V, honest and not.
var forms = []string{
	`[{"name":"N","K":V}]`,
	" [ {\t\"K\" :\n V , \"name\" : \"N\" } ] ",
	`[{"name":"N","namespace":"NS","K":V}]`,
	// From here on an account of one namespace's rights needs more, or the text is refused.
	`[{"name":"N","namespace":"other","K":V}]`,
	`[{"name":"N","namespace":"default","K":V}]`,
	`[{"name":"N","namespace":null,"K":V}]`,
	`[{"name":"N","namespace":"","K":V}]`,
	`[{"name":"N","namespace":"other","K":V,"cni-args":{"namespace":"NS"}}]`,
	`[{"cni-args":{"namespace":"NS"},"name":"N","namespace":"other","K":V}]`,
	`[{"name":"N","namespace":"other","K":V,"x":{"namespace":"NS","name":"N"}}]`,
	`[{"name":"N","namespace":"other","K":V,"x":"\"namespace\":\"NS\""}]`,
	`[{"name":"N","namespace":"other","K":V,"Namespace":"NS"}]`,
	`[{"name":"N","namespace":"other","K":V,"namespace":"NS"}]`,
	`[{"name":"N","namespace":"NS","K":V,"namespace":"other"}]`,
	`[{"name":"N","namesp\u0061ce":"other","K":V}]`,
	`[{"name":"N","namespace":"\u006fther","K":V}]`,
	`[{"name":"N","namespace":"NS","name":"elsewhere","K":V}]`,
	`[{"name":"elsewhere","K":V},{"name":"N"}]`,
	`[{"name":"N"},{"name":"N","namespace":"other","K":V}]`,
	`[{"name":"N","x":"},{","K":V}]`,
	`[{"name":"N","x":"}]","namespace":"other","K":V}]`,
	`[{"name":"N","x":["}",{"name":"}"}],"namespace":"other","K":V}]`,
	`[{"x":{"name":"N","namespace":"NS"},"name":"N","namespace":"other","K":V}]`,
	`[{"name":"N","x":{"a":{"b":{"c":{"d":{"namespace":"NS"}}}}},"namespace":"other","K":V}]`,
	`[{"name":"N","namespace":"other","x":[[[[["namespace"]]]]],"K":V}]`,
	`[{"name":"N","\u0000":1,"K":V}]`,
	`[{"name":"N","UPPER":V}]`,
	`[{"name":"N","K":V,"UPPER":V}]`,
	`[{"name":"N","ESCAPED":V}]`,
	`[{"name":"N","K":V,"K":V}]`,
	`[{"name":"N","K":null,"ESCAPED":V}]`,
	`[{"name":"N","cni-args":{"K":V}}]`,
	`[{"name":"N","cni-args":{"UPPER":V}}]`,
	`[{"name":"N","cni-args":{"ESCAPED":V}}]`,
	`[{"name":"N","cni-args":{"a":[{"b":{"K":V}}]}}]`,
	`[{"name":"N","cni-args":{"a":{"b":{"c":{"d":{"K":V}}}}}}]`,
	`[{"name":"N","cni-args":{":":[":",":"],"K":V}}]`,
	`{"name":"N","K":V}`,
	`[[{"name":"N","K":V}]]`,
	`[{"name":"N","K":V},]`,
	`[{"name":"N" "K":V}]`,
	`[{"name":"N","K":V}`,
	`[{"name":"N","K":V}] x`,
	`[{"name":"N","K":V}][]`,
	"\u00a0[{\"name\":\"N\",\"namespace\":\"other\",\"K\":V}]\u2003",
	"\ufeff[{\"name\":\"N\",\"K\":V}]",
	"\v[{\"name\":\"N\",\"namespace\":\"other\",\"K\":V}]",
}

const honest = 3 // of forms

// elementTexts are all keys in all forms, for a network of Fairlead's and a
// foreign one.
func elementTexts(t *testing.T, ns string) (out []text) {
	t.Helper()
	for _, key := range elementKeys(t) {
		value, ok := elementSamples[key]
		require.True(t, ok, "key %s of an element: give a sample that the agent takes", key)
		if value == "" {
			continue
		}
		for i, form := range forms {
			// The second network takes turns: both with each form would be twice the time.
			for j, network := range []string{"own", "far"} {
				if i >= honest && i%2 != j {
					continue
				}
				value := strings.NewReplacer("NS", ns, "N", network, "UPPER", strings.ToUpper(key), "ESCAPED", fmt.Sprintf(`\u%04x`, key[0])+key[1:],
					"K", key, "V", value).Replace(form)
				r := text{name: key, notes: map[string]string{networksKey: value}}
				if i < honest {
					r.allowed = []string{"nets"}
				}
				out = append(out, r)
				if i < honest || i%5 == 0 {
					out = append(out, text{name: key + " instead", notes: map[string]string{insteadKey: value}})
				}
			}
		}
	}
	return out
}

// handMade are texts of no one key.
func handMade(ns string) (out []text) {
	const ips, mac = `"ips":["10.1.0.9"]`, `"mac":"02:00:00:00:00:09"`
	all := []string{"backend", "default", "nets", "some"}
	for _, v := range []string{
		"", " ", "own", "own,far@net5", ns + "/own", " own , default/far ", "default/own@net3", "[]", " [ ] ", "own, own", `[{"name":"own"}]`,
		`[{"name":"own","cni-args":{}}]`, `[{"name":"far","namespace":"default","default-route":["10.1.0.1"]}]`, `[{"name":"own","unknown":{"a":[1,true,null]}}]`,
	} {
		out = append(out, text{name: "harmless", notes: map[string]string{networksKey: v}, allowed: all})
	}
	for _, v := range []string{
		"other/own", "own,other/far@net5", " other/own", "\tother/far\n", "other/own@a/b", "own@x/y", "a@other/own", "\u00a0other/own\u00a0", "other/own,",
		"kube-system/far", "/own", "other/", "other//own", "own\nother/far", `[{"name":"own","namespace":"other"}]`, `[{"name":"far","namespace":"kube-system"}]`,
		`[{"namespace":"other","name":"own"},{"name":"far"}]`, `[{"name":"own","namespace":"other","namespace":"default"}]`,
		`[{"name":"own","n\u0061mespace":"other"}]`, `[{"name":"own","namespace":"other","x":"{"}]`, `[{"namespace":"default","x":{"namespace":"default"},"name":"own"}]`,
		`["own"]`, `"own"`, `[null]`, `[{}]`, `{}`, `[{"name":["own"],` + ips + `}]`, `[{"name":{"name":"own"},` + ips + `}]`, `[{"name":"","` + "name" + `":"own"}]`,
		`[{"name":"own",` + ips + `},{"name":"far",` + mac + `}]`, `[{"name":"own",` + ips + `},{"name":"far","namespace":"other",` + mac + `}]`,
		`[{"name":"own",` + ips + `,` + mac + `}]`, `[{"name":"far","ips":[]}]`, `[{"name":"far","ips":null,"mac":""}]`,
		`[{"name":"own","cni-args":{"name":"far"},` + ips + `}]`, `[{"name":"own","cni-args":{"namespace":"` + ns + `"},"namespace":"other",` + ips + `}]`,
		`[{"name":"far","cni-args":{"namespace":"other"},` + ips + `}]`, `[{"name":"far","cni-args":{"a":"\"ips\":"}}]`,
		`[{"name":"far","cni-args":{"ip\u017f":["10.1.0.9"]}}]`, `[{"name":"far","cni-args":{"IPS":["10.1.0.9"]}}]`, `[{"name":"far","cni-args":{"ipſ":["10.1.0.9"]}}]`,
		`[{"name":"far","cni-args":{"":1}}]`, `[{"name":"far","cni-args":{"sysctl":{"net.ipv4.ip_forward":"1"},"promisc":true}}]`,
		`[{"name":"far","cni-args":[1]}]`, `[{"name":"far","cni-args":"x"}]`, `[{"name":"own","portMappings":[{"HostPort":22,"hostPort":8080,"containerPort":1}]}]`,
		`[{"name":"own","bandwidth":{"INGRESSRATE":5000000}}]`, `[{"name":"own","portMappings":{"hostPort":22}}]`, `[{"name":"far","deviceID":"0000:03:02.0","deviceID":""}]`,
		strings.Repeat(" ", 9<<10) + `[{"name":"own",` + ips + `}]`, `[{"name":"own","x":"` + strings.Repeat("y", 7<<10) + `",` + ips + `}]`,
		`[{"name":"own","x":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `,` + ips + `}]`,
		`[{"name":"own","x":` + strings.Repeat(`{"a":`, 20) + `1` + strings.Repeat("}", 20) + `,` + ips + `}]`,
	} {
		out = append(out, text{name: "odd", notes: map[string]string{networksKey: v}}, text{name: "odd instead", notes: map[string]string{insteadKey: v}})
	}
	sub := "own." + ns + ".ovn.kubernetes.io/"
	for _, notes := range []map[string]string{
		{networksKey: `[{"name":"own",` + ips + `}]`, sub + "logical_switch": "backend"},
		{networksKey: `[{"name":"own",` + mac + `}]`, sub + "logical_switch": "frontend"},
		{networksKey: `[{"name":"own","bandwidth":{"ingressRate":5000000}}]`, "own." + ns + ".kubernetes.io/logical_switch.net1": "backend"},
		{networksKey: "own", sub + "ip_address": "10.1.0.7", "ovn.kubernetes.io/logical_switch": "backend"},
		{networksKey: "own", sub + "ip_address": "10.1.0.7", sub + "logical_switch": "backend", "own." + ns + ".kubernetes.io/logical_switch.net1": "frontend"},
		{networksKey: "own", sub + "ip_address": "10.1.0.7", sub + "logical_switch": "backend", "own." + ns + ".ovn.net1.kubernetes.io/logical_switch": "frontend"},
		{"OVN.kubernetes.io/ip_address": "10.1.0.7"}, {"ovn.kubernetes.io/IP_ADDRESS": "10.1.0.7"}, {"ovn.kubernetes.io/ip_address.net1": "10.1.0.7"},
		{networksKey: "own", insteadKey: "far"}, {networksKey: "default/own", insteadKey: "default/own"}, {insteadKey: "kube-system/own"},
		{"ovn.kubernetes.io/ip_pool": ";;;"}, {"ovn.kubernetes.io/ip_pool": "10.1.0.7;"}, {"ovn.kubernetes.io/ip_pool": "pool-a"},
	} {
		out = append(out, text{name: "together", notes: notes})
	}
	return out
}
