package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// badCall is one call that must be refused: code, and words of the message or
// details that name the field. change makes it out of a good ADD.
type badCall struct {
	name   string
	code   uint
	says   string
	change func(*cni.Request)
}

func conf(text string) func(*cni.Request) {
	return func(r *cni.Request) { r.Config = []byte(text) }
}

// with adds keys to our plain configuration.
func with(keys string) func(*cni.Request) {
	return conf(strings.TrimSuffix(ownConf, "}") + "," + keys + "}")
}

func op(command, keys string) func(*cni.Request) {
	return func(r *cni.Request) {
		if keys != "" {
			with(keys)(r)
		}
		r.Command = command
	}
}

func args(s string) func(*cni.Request) { return func(r *cni.Request) { r.Args = s } }

func netns(path string) func(*cni.Request) { return func(r *cni.Request) { r.Netns = path } }

func id(s string) func(*cni.Request) { return func(r *cni.Request) { r.ContainerID = s } }

func ifName(s string) func(*cni.Request) { return func(r *cni.Request) { r.IfName = s } }

func pod(name string) func(*cni.Request) {
	return args("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + name)
}

var badConfs = []badCall{
	{"nothing on stdin", 6, "not JSON", conf("")},
	{"cut short", 6, "not JSON", conf(`{"name":`)},
	{"a list", 6, "not a JSON object but an array", conf(`[]`)},
	{"a string", 6, "not a JSON object but a string", conf(`"x"`)},
	{"null", 6, "not a JSON object but null", conf(`null`)},
	{"two values", 6, "not JSON", conf(ownConf + ownConf)},
	{"not UTF-8", 6, "UTF-8", conf("{\"name\":\"\xff\"}")},
	{"more than 1 MiB", 6, "too large", with(`"x":"` + strings.Repeat("x", 1<<20) + `"`)},
	{"a key twice", 7, `"name"`, with(`"name":"b"`)},
	{"a key twice, deep", 7, "a.b", with(`"a":{"b":1,"b":2}`)},
	{"depth 33", 7, "deeper than 32", with(`"x":` + strings.Repeat("[", 32) + strings.Repeat("]", 32))},
	{"cniVersion a number", 7, `"cniVersion"`, conf(`{"cniVersion":1,"name":"a","type":"fairlead"}`)},
	{"cniVersion from the future", 1, "9.9.9", conf(`{"cniVersion":"9.9.9","name":"a","type":"fairlead"}`)},
	{"cniVersion no version", 1, "cniVersion", conf(`{"cniVersion":"newest","name":"a","type":"fairlead"}`)},
	{"name missing", 7, `"name"`, conf(`{"cniVersion":"1.1.0","type":"fairlead"}`)},
	{"name a number", 7, `"name"`, conf(`{"cniVersion":"1.1.0","name":7,"type":"fairlead"}`)},
	{"name a path", 7, `"name"`, conf(`{"cniVersion":"1.1.0","name":"../a","type":"fairlead"}`)},
	{"type missing", 7, `"type"`, conf(`{"cniVersion":"1.1.0","name":"a"}`)},
	{"type a number", 7, `"type"`, conf(`{"cniVersion":"1.1.0","name":"a","type":7}`)},
	{"type a path", 7, `"type"`, conf(`{"cniVersion":"1.1.0","name":"a","type":"../fairlead"}`)},
	{"type of somebody else", 7, `"type"`, conf(`{"cniVersion":"1.1.0","name":"a","type":"bridge"}`)},
	{"provider a number", 7, `"provider"`, with(`"provider":1`)},
	{"provider no name", 7, `"provider"`, with(`"provider":"a b"`)},
	{"provider that no subnet has", 7, "a.b.ovn", with(`"provider":"a.b.ovn"`)},
	{"capabilities a list", 7, `"capabilities"`, with(`"capabilities":[]`)},
	{"runtimeConfig a list", 7, `"runtimeConfig"`, with(`"runtimeConfig":[]`)},
	{"runtimeConfig.ips of numbers", 102, "runtimeConfig.ips", with(`"runtimeConfig":{"ips":[1]}`)},
	{"runtimeConfig.ips no address", 102, "runtimeConfig.ips", with(`"runtimeConfig":{"ips":["10.16.0"]}`)},
	{"runtimeConfig.ips outside of the subnet", 103, "runtimeConfig.ips", with(`"runtimeConfig":{"ips":["10.99.0.1"]}`)},
	{"runtimeConfig.mac no MAC", 102, "runtimeConfig.mac", with(`"runtimeConfig":{"mac":"zz"}`)},
	{"runtimeConfig.portMappings that nobody serves", 7, "runtimeConfig.portMappings", with(`"runtimeConfig":{"portMappings":[{"hostPort":80,"containerPort":80}]}`)},
	{"runtimeConfig.bandwidth a string", 102, "runtimeConfig.bandwidth", with(`"runtimeConfig":{"bandwidth":"fast"}`)},
	{"dns a string", 7, `"dns"`, with(`"dns":"10.0.0.1"`)},
	{"dns.nameservers a string", 7, `"dns.nameservers"`, with(`"dns":{"nameservers":"10.0.0.1"}`)},
	{"routes an object", 7, `"routes"`, with(`"routes":{}`)},
	{"route without dst", 7, `"routes[0].dst"`, with(`"routes":[{}]`)},
	{"route of two families", 7, `"routes[0].gw"`, with(`"routes":[{"dst":"10.0.0.0/8","gw":"fd00::1"}]`)},
	{"delegates a string", 7, `"delegates"`, with(`"delegates":"x"`)},
	{"delegates empty", 7, `"delegates"`, with(`"delegates":[]`)},
	{"delegate a number", 7, `"delegates[0]"`, with(`"delegates":[7]`)},
	{"delegate without type", 7, "delegates[0]", with(`"delegates":[{"name":"a"}]`)},
	{"delegate with a type that is a path", 7, "delegates[0]", with(`"delegates":[{"name":"a","type":"/bin/sh"}]`)},
	{"delegate list of nothing", 7, "delegates[0]", with(`"delegates":[{"name":"a","plugins":[]}]`)},
	{"delegate of a type that is not installed", 7, "no-such-plugin", with(`"delegates":[{"cniVersion":"1.0.0","name":"a","type":"no-such-plugin"}]`)},
	{"our plugin not first in a list", 7, "plugins[1]", with(`"delegates":[{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"tuning"},{"type":"kube-ovn"}]}]`)},
	{"clusterNetwork that nobody has", 11, "clusterNetwork", with(`"clusterNetwork":"x"`)},
	{"clusterNetwork and delegates", 7, `"delegates"`, with(`"clusterNetwork":"x","delegates":[{"name":"a","type":"bridge"}]`)},
	{"defaultNetworks that nobody has", 11, "defaultNetworks", with(`"defaultNetworks":["x"]`)},
	{"namespaceIsolation a word", 7, `"namespaceIsolation"`, with(`"namespaceIsolation":"yes"`)},
	{"globalNamespaces a list", 7, `"globalNamespaces"`, with(`"globalNamespaces":["a"]`)},
	{"confDir relative", 7, `"confDir"`, with(`"confDir":"etc"`)},
	{"binDir relative", 7, `"binDir"`, with(`"binDir":"bin"`)},
	{"socket a number", 7, `"socket"`, with(`"socket":5`)},
	{"prevResult a number", 7, `"prevResult"`, with(`"prevResult":5`)},
	{"prevResult of an unknown version", 7, `"prevResult"`, with(`"prevResult":{"cniVersion":"7.0.0"}`)},
	{"prevResult with junk for an address", 7, `"prevResult"`, with(`"prevResult":{"cniVersion":"1.1.0","ips":[{"address":"x"}]}`)},
	{"prevResult whose ip names no interface", 7, `"prevResult"`, with(`"prevResult":{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.1/8","interface":4}]}`)},
}

var badEnvironments = []badCall{
	{"CNI_COMMAND missing", 4, "CNI_COMMAND", op("", "")},
	{"CNI_COMMAND unknown", 4, "CNI_COMMAND FROB", op("FROB", "")},
	{"CNI_COMMAND in lower case", 4, "CNI_COMMAND add", op("add", "")},
	{"CNI_CONTAINERID missing", 4, "CNI_CONTAINERID", id("")},
	{"CNI_CONTAINERID missing on DEL", 4, "CNI_CONTAINERID", func(r *cni.Request) { r.Command, r.ContainerID = "DEL", "" }},
	{"CNI_CONTAINERID a path", 4, "CNI_CONTAINERID", id("../../x")},
	{"CNI_CONTAINERID a path on DEL", 4, "CNI_CONTAINERID", func(r *cni.Request) { r.Command, r.ContainerID = "DEL", "../../x" }},
	{"CNI_CONTAINERID with a space", 4, "CNI_CONTAINERID", id("a b")},
	{"CNI_CONTAINERID of 254 characters", 4, "CNI_CONTAINERID", id(strings.Repeat("a", 254))},
	{"CNI_IFNAME missing", 4, "CNI_IFNAME", ifName("")},
	{"CNI_IFNAME of 16 characters", 4, "CNI_IFNAME", ifName("abcdefghijklmnop")},
	{"CNI_IFNAME with a slash", 4, "CNI_IFNAME", ifName("a/b")},
	{"CNI_IFNAME ..", 4, "CNI_IFNAME", ifName("..")},
	{"CNI_IFNAME with a space", 4, "CNI_IFNAME", ifName("a b")},
	{"CNI_IFNAME lo", 4, "CNI_IFNAME", ifName("lo")},
	{"CNI_NETNS missing", 4, "CNI_NETNS", netns("")},
	{"CNI_NETNS missing on CHECK", 4, "CNI_NETNS", func(r *cni.Request) { r.Command, r.Netns = "CHECK", "" }},
	{"CNI_NETNS relative", 8, "CNI_NETNS", netns("run/netns/x")},
	{"CNI_NETNS outside of the roots", 8, "CNI_NETNS", netns("/etc/passwd")},
	{"CNI_NETNS climbing out", 8, "CNI_NETNS", netns("/run/netns/../../etc/passwd")},
	{"CNI_NETNS of nothing", 8, "/run/netns/none", netns("/run/netns/none")},
	{"CNI_NETNS a regular file", 8, "/run/netns/file", netns("/run/netns/file")},
	{"CNI_NETNS a folder", 8, "/run/netns/folder", netns("/run/netns/folder")},
	{"CNI_NETNS a fifo", 8, "/run/netns/fifo", netns("/run/netns/fifo")},
	{"CNI_NETNS another kind of namespace", 8, "/run/netns/uts", netns("/run/netns/uts")},
	{"CNI_NETNS the agent's own", 8, "host's own", netns("/proc/self/ns/net")},
	{"CNI_NETNS the host's by another name", 8, "host's own", netns("/run/netns/host")},
	{"CNI_ARGS no pair", 4, "CNI_ARGS", args("junk")},
	{"CNI_ARGS without a key", 4, "CNI_ARGS", args("=x")},
	{"CNI_ARGS a key twice", 4, "CNI_ARGS", args("a=1;a=2")},
	{"K8S_POD_NAMESPACE with a slash", 4, "K8S_POD_NAMESPACE", args("K8S_POD_NAMESPACE=a/b;K8S_POD_NAME=p")},
	{"K8S_POD_NAMESPACE missing", 4, "K8S_POD_NAMESPACE", args("K8S_POD_NAME=p")},
	{"K8S_POD_NAME missing", 4, "K8S_POD_NAME", args("K8S_POD_NAMESPACE=a")},
	{"K8S_POD_NAME a path", 4, "K8S_POD_NAME", pod("../p")},
	{"K8S_POD_NAME with a line end", 4, "K8S_POD_NAME", pod("a\nb")},
	{"K8S_POD_NAME of 254 characters", 4, "K8S_POD_NAME", pod(strings.Repeat("a", 254))},
	{"K8S_POD_UID a path", 4, "K8S_POD_UID", args("K8S_POD_NAMESPACE=a;K8S_POD_NAME=p;K8S_POD_UID=../x")},
	{"K8S_POD_UID of another pod", 11, "UID", args("K8S_POD_NAMESPACE=default;K8S_POD_NAME=known;K8S_POD_UID=other")},
	{"CNI_ARGS IP no address", 4, "IP", args("IP=10.16")},
	{"CNI_ARGS IP outside of the subnet", 103, "IP", args("IP=10.99.0.1")},
	{"CNI_ARGS MAC no MAC", 4, "MAC", args("MAC=zz")},
	{"CHECK of what was never attached", 3, "eth9", func(r *cni.Request) { r.Command, r.IfName = "CHECK", "eth9" }},
	{"GC without a list", 7, "cni.dev/valid-attachments", op("GC", "")},
	{"GC with an object for a list", 7, `"cni.dev/valid-attachments"`, op("GC", `"cni.dev/valid-attachments":{}`)},
	{"GC with a string in the list", 7, `"cni.dev/valid-attachments[0]"`, op("GC", `"cni.dev/valid-attachments":["a"]`)},
	{"GC with half an attachment", 7, `"cni.dev/valid-attachments[0]"`, op("GC", `"cni.dev/valid-attachments":[{"containerID":"a"}]`)},
	{"GC with a broken configuration", 6, "not JSON", func(r *cni.Request) { r.Command, r.Config = "GC", []byte("{") }},
	{"STATUS with a broken configuration", 6, "not JSON", func(r *cni.Request) { r.Command, r.Config = "STATUS", []byte("{") }},
}

// badPods are refused when they are added. Values that no file may hold are
// noticed when the folder is read; then an ADD names the same field.
var badPods = map[string]struct {
	code  uint
	says  string
	notes map[string]string
}{
	"ip":          {102, "ovn.kubernetes.io/ip_address", map[string]string{"ovn.kubernetes.io/ip_address": "10.16.0.x"}},
	"ip-outside":  {103, "ovn.kubernetes.io/ip_address", map[string]string{"ovn.kubernetes.io/ip_address": "10.99.0.1"}},
	"ip-gateway":  {103, "ovn.kubernetes.io/ip_address", map[string]string{"ovn.kubernetes.io/ip_address": "10.16.0.1"}},
	"ip-held":     {103, "default/known", map[string]string{"ovn.kubernetes.io/ip_address": "10.16.0.99"}},
	"mac":         {102, "ovn.kubernetes.io/mac_address", map[string]string{"ovn.kubernetes.io/mac_address": "01:00:00:00:00:01"}},
	"rate":        {102, "ovn.kubernetes.io/ingress_rate", map[string]string{"ovn.kubernetes.io/ingress_rate": "-1"}},
	"burst":       {102, "ovn.kubernetes.io/egress_burst", map[string]string{"ovn.kubernetes.io/egress_burst": "1"}},
	"vlan":        {102, "ovn.kubernetes.io/vlan_id", map[string]string{"ovn.kubernetes.io/vlan_id": "4095"}},
	"switch":      {102, "ovn.kubernetes.io/logical_switch", map[string]string{"ovn.kubernetes.io/logical_switch": "nowhere"}},
	"routes":      {102, "ovn.kubernetes.io/routes", map[string]string{"ovn.kubernetes.io/routes": "[{]"}},
	"nad-missing": {7, "default/nothing", map[string]string{"k8s.v1.cni.cncf.io/networks": "nothing"}},
	"nad-list":    {102, "k8s.v1.cni.cncf.io/networks", map[string]string{"k8s.v1.cni.cncf.io/networks": "[1"}},
	"nad-ifname":  {105, "k8s.v1.cni.cncf.io/networks[0].interface", map[string]string{"k8s.v1.cni.cncf.io/networks": "storage@eth0"}},
	"nad-many":    {102, "17 networks", map[string]string{"k8s.v1.cni.cncf.io/networks": strings.Repeat("storage,", 16) + "storage"}},
	"nad-long":    {102, "8192", map[string]string{"k8s.v1.cni.cncf.io/networks": strings.Repeat("storage,", 1200)}},
	"nad-device":  {104, "deviceID", map[string]string{"k8s.v1.cni.cncf.io/networks": `[{"name":"storage","deviceID":"0000:00:01.0"}]`}},
	"nad-cap":     {102, "portMappings", map[string]string{"k8s.v1.cni.cncf.io/networks": `[{"name":"storage","portMappings":[{"hostPort":1,"containerPort":1}]}]`}},
	"nad-port":    {101, "hostPort: \"22\" is reserved on this node", map[string]string{"k8s.v1.cni.cncf.io/networks": `[{"name":"ports","portMappings":[{"hostPort":22,"containerPort":22}]}]`}},
	"nad-case":    {102, "it is written ips", map[string]string{"k8s.v1.cni.cncf.io/networks": `[{"name":"storage","IPS":["10.20.0.9"]}]`}},
	"nad-absent":  {7, "no-such-plugin", map[string]string{"k8s.v1.cni.cncf.io/networks": "absent"}},
	"nad-late":    {7, "network late", map[string]string{"k8s.v1.cni.cncf.io/networks": "late"}},
	"nad-net":     {7, "orphan", map[string]string{"k8s.v1.cni.cncf.io/networks": "orphan"}},
	"default-two": {102, "v1.multus-cni.io/default-network", map[string]string{"v1.multus-cni.io/default-network": "storage,storage"}},
}

func badObjects() map[string]string {
	files := map[string]string{
		"good.yaml": together(
			subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}),
			subnetObject("storage", map[string]any{"cidrBlock": "10.20.0.0/24", "provider": "storage.default.ovn"}),
			nadObject("default/storage", `{"cniVersion":"1.0.0","type":"fairlead","provider":"storage.default.ovn"}`),
			nadObject("default/ports", `{"cniVersion":"1.0.0","type":"fairlead","provider":"storage.default.ovn","capabilities":{"portMappings":true}}`),
			nadObject("default/absent", `{"cniVersion":"1.0.0","type":"no-such-plugin"}`),
			nadObject("default/orphan", `{"cniVersion":"1.0.0","type":"fairlead","provider":"orphan.default.ovn"}`),
			nadObject("default/late", `{"cniVersion":"1.0.0","plugins":[{"type":"tuning"},{"type":"kube-ovn"}]}`),
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"known","namespace":"default","uid":"u1",`+
				`"annotations":{"ovn.kubernetes.io/ip_address":"10.16.0.99"}}}`,
		),
	}
	for name, p := range badPods {
		files["bad-"+name+".yaml"] = podObject("default/bad-"+name, p.notes)
	}
	return files
}

// TestBadInput makes every call through the real plugin: one JSON error object
// on standard output, exit status 1, the right code, a message that names the
// field; and after all of them the node is as it was before.
func TestBadInput(t *testing.T) {
	t.Parallel()
	n := startNode(t, badObjects())
	known, p := n.NewPod("known"), n.NewPod("p")
	known.CNI("ADD", ownConf).Must()
	before := n.Inventory()
	n.Run("sh", "-c", `mkdir /run/netns/folder; echo x > /run/netns/file; mkfifo /run/netns/fifo
		touch /run/netns/uts /run/netns/host
		mount --bind /proc/self/ns/uts /run/netns/uts; mount --bind /proc/self/ns/net /run/netns/host`)
	tidy := sync.OnceFunc(func() {
		n.Run("sh", "-c", `umount /run/netns/uts /run/netns/host
			rm -r /run/netns/folder /run/netns/file /run/netns/fifo /run/netns/uts /run/netns/host`)
	})
	defer tidy()

	cases := append(badConfs, badEnvironments...)
	for name, b := range badPods {
		cases = append(cases, badCall{"pod " + name, b.code, b.says, pod("bad-" + name)})
	}
	for _, c := range cases {
		req := cni.Request{
			Command: "ADD", ContainerID: p.ContainerID, IfName: "eth0", Netns: p.Netns(), Args: p.Args(), Config: []byte(ownConf),
		}
		c.change(&req)
		t.Run(c.name, func(t *testing.T) { refused(t, c, n.CNIType("fairlead", req)) })
	}
	t.Logf("%d bad calls refused", len(cases))
	require.GreaterOrEqual(t, len(cases), 60)
	tidy()
	n.RequireNoLeaks(before)
	known.CNI("CHECK", ownConf).Must()
	p.CNI("ADD", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
}

// refused proves the form of an error.
func refused(t *testing.T, c badCall, a testbed.Answer) {
	t.Helper()
	require.Equal(t, 1, a.ExitCode, "%s: %s%s", c.name, a.Stdout, a.Stderr)
	var e struct {
		CNIVersion string `json:"cniVersion"`
		Code       uint   `json:"code"`
		Msg        string `json:"msg"`
		Details    string `json:"details"`
	}
	d := json.NewDecoder(bytes.NewReader(a.Stdout))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&e), "%s: %s", c.name, a.Stdout)
	require.ErrorIs(t, d.Decode(&struct{}{}), io.EOF, "%s: %s", c.name, a.Stdout)
	require.Equal(t, c.code, e.Code, "%s: %s", c.name, a.Stdout)
	require.Contains(t, e.Msg+"\n"+e.Details, c.says, c.name)
	require.NotEmpty(t, e.Msg, c.name)
	require.Empty(t, a.Stderr, c.name)
}

// TestDelNeedsOnlyItsKey: whatever else is wrong with a DEL, it frees what the
// record names.
func TestDelNeedsOnlyItsKey(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	p := n.NewPod("p")
	before := n.Inventory()
	for name, change := range map[string]func(*cni.Request){
		"no configuration":      conf(""),
		"broken configuration":  conf(`{"cniVersion":"9.9.9","name":"../..","type":5`),
		"version of the future": conf(`{"cniVersion":"9.9.9","name":"a","type":"fairlead"}`),
		"no namespace":          netns(""),
		"namespace elsewhere":   netns("/etc/passwd"),
		"namespace gone":        netns("/run/netns/none"),
		"junk in CNI_ARGS":      args("junk"),
		"no CNI_ARGS":           args(""),
		"no CNI_PATH":           func(r *cni.Request) { r.Path = "/none" },
	} {
		p.CNI("ADD", ownConf).Must()
		for range 2 {
			req := cni.Request{
				Command: "DEL", ContainerID: p.ContainerID, IfName: "eth0", Netns: p.Netns(), Args: p.Args(), Config: []byte(ownConf),
			}
			change(&req)
			a := n.CNIType("fairlead", req)
			require.Nil(t, a.Err(), "%s: %s", name, a.Stdout)
		}
		n.RequireNoLeaks(before)
	}
}

// TestSocketAbuse speaks to the socket as no plugin does. The agent answers
// with an HTTP error or hangs up, serves the others meanwhile, and holds
// nothing afterwards.
func TestSocketAbuse(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	a := n.Agent()
	a.WaitReady()
	awaitGateways(t, n)
	p := n.NewPod("p")
	before := n.Inventory()
	body, err := json.Marshal(cni.Request{
		Command: "ADD", ContainerID: p.ContainerID, IfName: "eth0", Netns: p.Netns(), Args: p.Args(), Config: []byte(ownConf),
	})
	require.NoError(t, err)
	post := func(path string, size int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: agent\r\nContent-Length: %d\r\n\r\n", path, size)
	}
	for _, c := range []struct {
		name, send string
		status     int // 0: no answer before we hang up
	}{
		{"nothing", "", 0},
		{"half a request line", "POST /v1", 0},
		{"half a head", "POST /v1/cni HTTP/1.1\r\nHost: a", 0},
		{"no body", post(cni.PathCNI, len(body)), 0},
		{"half a body", post(cni.PathCNI, len(body)) + string(body[:len(body)/2]), 0},
		{"an empty body", post(cni.PathCNI, 0), http.StatusBadRequest},
		{"junk for a body", post(cni.PathCNI, 4) + "junk", http.StatusBadRequest},
		{"a body of another type", post(cni.PathCNI, 2) + "[]", http.StatusBadRequest},
		{"config that is no base64", post(cni.PathCNI, 31) + `{"command":"ADD","config":"%%%"}`[:31], http.StatusBadRequest},
		{"a body of more than 1 MiB", post(cni.PathCNI, 2<<20) + strings.Repeat(" ", 2<<20), http.StatusRequestEntityTooLarge},
		{"a length that is none", "POST /v1/cni HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", http.StatusBadRequest},
		{"not HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", http.StatusBadRequest},
		{"a head of 64 KiB", "POST /v1/cni HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", http.StatusRequestHeaderFieldsTooLarge},
		{"wrong method", "GET /v1/cni HTTP/1.1\r\nHost: a\r\n\r\n", http.StatusMethodNotAllowed},
		{"wrong path", post("/v1/cnj", 2) + "{}", http.StatusNotFound},
		{"a path that climbs", "GET /v1/pods/../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", http.StatusTemporaryRedirect},
		{"a pod that is a path", "GET /v1/pods/%2e%2e/x HTTP/1.1\r\nHost: a\r\n\r\n", http.StatusNotFound},
		{"an address that is none", "GET /v1/ips/x HTTP/1.1\r\nHost: a\r\n\r\n", http.StatusBadRequest},
		{"Kube-OVN's add without a pod", post(cni.PathKubeOVNAdd, 2) + "{}", http.StatusBadRequest},
		{"Kube-OVN's add of junk", post(cni.PathKubeOVNAdd, 2) + "xx", http.StatusBadRequest},
		{"an unknown expectation", "POST /v1/cni HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\nContent-Length: 2\r\n\r\n{}", http.StatusExpectationFailed},
	} {
		require.Equal(t, c.status, abuse(t, n, c.send, c.status != 0), c.name)
	}
	require.Empty(t, before.Diff(n.Inventory()))

	conns := crowd(t, n, 500)
	p.CNI("ADD", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	for _, c := range conns {
		_ = c.Close()
	}
	refuseStranger(t, n)
	n.RequireNoLeaks(before)
	a.Stop()
}

func dialAgent(t *testing.T, n *testbed.Node) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", n.Path(cni.DefaultSocket))
	require.NoError(t, err)
	return c
}

// abuse sends bytes and returns the answer's status.
func abuse(t *testing.T, n *testbed.Node, send string, answered bool) int {
	t.Helper()
	c := dialAgent(t, n)
	defer func() { _ = c.Close() }()
	_, err := c.Write([]byte(send))
	if err != nil { // the agent may hang up before it has all
		require.ErrorIs(t, err, syscall.EPIPE)
	}
	if !answered {
		return 0
	}
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	var status int
	_, err = fmt.Fscanf(c, "HTTP/1.1 %d", &status)
	require.NoError(t, err)
	return status
}

// crowd opens connections and leaves them: some say nothing, some begin a
// request, some stop in the middle of a body.
func crowd(t *testing.T, n *testbed.Node, size int) (conns []net.Conn) {
	t.Helper()
	for i := range size {
		c := dialAgent(t, n)
		conns = append(conns, c)
		_, err := c.Write([]byte([]string{"", "POST /v1/cni HTTP/1.1\r\n", "POST /v1/cni HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"}[i%3]))
		require.NoError(t, err)
	}
	return conns
}

// refuseStranger connects as another user than root. The socket's mode is its
// first fence, so the test opens that one.
func refuseStranger(t *testing.T, n *testbed.Node) {
	t.Helper()
	path := n.Path(cni.DefaultSocket)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	dir, err := os.Stat(n.Path("/run/fairlead"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), dir.Mode().Perm())
	require.NoError(t, os.Chmod(path, 0o666))
	require.NoError(t, os.Chmod(n.Path("/run/fairlead"), 0o755))
	defer func() {
		require.NoError(t, os.Chmod(path, 0o600))
		require.NoError(t, os.Chmod(n.Path("/run/fairlead"), 0o700))
	}()
	for _, request := range []string{"GET /v1/pods", "GET /metrics", "POST /v1/gc", "POST /v1/cni", "POST /api/v1/del"} {
		// The stranger gets the folder: it could not walk to it.
		cmd := exec.Command("/proc/self/exe", "-test.run=TestStranger")
		cmd.Env = append(os.Environ(), "FAIRLEAD_STRANGER="+request)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd.Dir = "/"
		folder, err := os.Open(n.Path("/run/fairlead"))
		require.NoError(t, err)
		cmd.ExtraFiles = []*os.File{folder}
		out, err := cmd.CombinedOutput()
		_ = folder.Close()
		require.NoError(t, err, "%s: %s", request, out)
		require.Contains(t, string(out), "403 Forbidden", request)
		require.Contains(t, string(out), "uid 65534", request)
	}
}

// TestStranger is the child of refuseStranger: it speaks to the socket in the
// folder that it inherited, as nobody.
func TestStranger(t *testing.T) {
	request := os.Getenv("FAIRLEAD_STRANGER")
	if request == "" {
		return // run by itself it has nothing to do
	}
	c, err := net.Dial("unix", "/proc/self/fd/3/agent.sock")
	require.NoError(t, err)
	_, err = fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", request)
	require.NoError(t, err)
	answer, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		require.NoError(t, err)
	}
	fmt.Println(string(answer))
}
